//! Digest authentication (RFC 7616).

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::value::Realm;
use crate::value::secret::{DigestUsers, FromSecret};

/// User names and hashes of passwords for Digest authentication. Annotations of ingress-nginx set it: policies have no Digest
/// authentication, because its hashes are as good as passwords.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Digest {
    /// The users of the realm.
    #[n(0)]
    pub users: FromSecret<DigestUsers>,
    /// The realm that browsers show to their users, and that is a part of the hashes.
    #[n(1)]
    pub realm: Realm,
    /// Whether endpoints receive the Authorization header.
    #[n(2)]
    pub forward: bool,
}
