//! Who calls (`Consumer`).

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::RouteId;

/// Somebody who calls, known by one of these credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Consumer {
    /// The object that it was written in.
    #[n(0)]
    pub id: RouteId,
    /// What endpoints get to know it by (`X-Consumer-Username`).
    #[n(1)]
    pub username: Box<str>,
    /// Its groups (`X-Consumer-Groups`).
    #[n(2)]
    pub groups: Vec<Box<str>>,
    /// Its API keys, hashed.
    #[n(3)]
    pub keys: Vec<KeyHash>,
    /// The tokens that are its own.
    #[n(4)]
    pub tokens: Vec<TokenSubject>,
    /// Its names for Basic authentication.
    #[n(5)]
    pub users: Vec<Box<str>>,
    /// Whether nobody gets in as this Consumer, since something of it cannot be read: who it is might keep it out.
    #[n(6)]
    pub refused: bool,
}

/// Which tokens are a consumer's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TokenSubject {
    /// Of whom, if not of anybody whose tokens are taken.
    #[n(0)]
    pub issuer: Option<Box<str>>,
    /// The claim that says whose a token is.
    #[n(1)]
    pub claim: SubjectClaim,
    /// What it says.
    #[n(2)]
    pub value: Box<str>,
}

/// The claim that says whose a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum SubjectClaim {
    /// `sub` (RFC 7519, 4.1.2).
    #[n(0)]
    Subject,
    /// `client_id` (RFC 8693, 4.3), or `azp` where there is none.
    #[n(1)]
    ClientId,
}

/// An API key as its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct KeyHash(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

/// Not shown: a short key can be found by its hash.
impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("hidden")
    }
}
