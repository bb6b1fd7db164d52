//! Consumers: the known callers of policies (`Consumer`).

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::ObjectId;

/// A known caller, identified by one of these credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Consumer {
    /// The object with the consumer.
    #[n(0)]
    pub id: ObjectId,
    /// The user name that endpoints receive (`X-Consumer-Username`).
    #[n(1)]
    pub username: Box<str>,
    /// The groups (`X-Consumer-Groups`).
    #[n(2)]
    pub groups: Vec<Box<str>>,
    /// The API keys, hashed.
    #[n(3)]
    pub keys: Vec<KeyHash>,
    /// The tokens that identify the consumer.
    #[n(4)]
    pub tokens: Vec<TokenSubject>,
    /// The user names for Basic authentication.
    #[n(5)]
    pub users: Vec<Box<str>>,
    /// Whether the consumer is disabled, because a part of its object cannot be read. That part might restrict access.
    #[n(6)]
    pub refused: bool,
    /// The terms of keys that have terms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(7), default, skip_if = "Vec::is_empty")]
    pub terms: Vec<KeyTerms>,
}

/// When an API key is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct KeyTerms {
    /// The place of the key in [`Consumer::keys`].
    #[n(0)]
    pub key: u32,
    /// The end of the validity, in seconds since 1970. `None`: no end.
    #[n(1)]
    pub expires: Option<u64>,
    /// Whether the key is revoked.
    #[n(2)]
    pub revoked: bool,
}

/// A condition for the tokens of a consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TokenSubject {
    /// The required issuer. `None`: any accepted issuer.
    #[n(0)]
    pub issuer: Option<Box<str>>,
    /// The claim that identifies the consumer.
    #[n(1)]
    pub claim: SubjectClaim,
    /// The required value of the claim.
    #[n(2)]
    pub value: Box<str>,
}

/// The claim that identifies a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum SubjectClaim {
    /// `sub` (RFC 7519, 4.1.2).
    #[n(0)]
    Subject,
    /// `client_id` (RFC 8693, 4.3), or `azp` if there is no `client_id`.
    #[n(1)]
    ClientId,
}

/// The SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct KeyHash(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

/// The hash is not shown: a search can find a short key by its hash.
impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("hidden")
    }
}
