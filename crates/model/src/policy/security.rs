//! Authentication, authorization and the like of a route (`SecurityPolicy`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use super::external::External;
use super::jwt::Jwt;
use crate::ObjectId;
use crate::encoding::bound::{CredentialName, CredentialPrefix, HeaderName, Methods};
use crate::encoding::{Adapt as _, List, Maybe, Part, Pointer, Text, Within};
use crate::feature::{Authorization, Cors, IpAccess};

/// The checks of a request before it goes to an endpoint. The gateway applies the parts in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Security {
    /// The object with the policy.
    #[n(0)]
    pub id: ObjectId,
    /// The reason why the policy is invalid. The gateway responds to every request with 503.
    #[n(1)]
    pub refuses: Option<Box<str>>,
    /// The allowed and the denied client IPs.
    #[n(2)]
    pub ip_access: IpAccess,
    /// Cross-origin requests. The gateway responds to a preflight request before authentication.
    #[cbor(n(3), with = "Maybe::<Within<Cors>>")]
    pub cors: Option<Cors>,
    /// Authentication, if callers must authenticate.
    #[n(4)]
    pub authentication: Option<Authentication>,
    /// Authorization of the callers.
    #[n(5)]
    pub authorization: Option<Authorization>,
    /// Whether endpoints receive headers that override the path or method of the request line, such as `X-Original-URL` and
    /// `X-HTTP-Method-Override`, if the policy decides on paths or methods. Otherwise the gateway drops these headers.
    #[n(6)]
    pub forward_overrides: bool,
}

impl Part for Security {
    const KIND: u32 = 14;
    const WHAT: &'static str = "policy for callers";
}

impl Security {
    /// An invalid policy, with the reason.
    #[must_use]
    pub fn closed(id: ObjectId, reason: Box<str>) -> Self {
        Self {
            id,
            refuses: Some(reason),
            ip_access: IpAccess::default(),
            cors: None,
            authentication: None,
            authorization: None,
            forward_overrides: false,
        }
    }

    /// Whether the policy denies any request.
    #[must_use]
    pub fn can_deny(&self) -> bool {
        self.refuses.is_some()
            || !self.ip_access.is_open()
            || self.authentication.is_some()
            || self.authorization.is_some()
    }
}

/// The authentication of callers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Authentication {
    /// Whether a caller must satisfy all methods, or one method.
    #[n(0)]
    pub requires_all: bool,
    /// The methods in the order of their checks, at least one.
    #[cbor(n(1), with = "Within::<Methods<Method>>")]
    pub methods: Vec<Method>,
    /// The namespaces of the accepted consumers. `None`: all namespaces.
    #[cbor(n(2), with = "Maybe::<List<Text>>")]
    pub consumers: Option<Vec<Arc<str>>>,
}

/// A method of authentication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Method {
    /// A signed token.
    #[n(0)]
    Jwt(#[n(0)] Jwt),
    /// An API key of a [`Consumer`](super::Consumer).
    #[n(1)]
    ApiKey {
        /// The places of the key. The first place with a value applies.
        #[n(0)]
        from: Vec<Credential>,
        /// Whether endpoints also receive the key.
        #[n(1)]
        forward: bool,
    },
    /// A name and a password (RFC 7617).
    #[n(2)]
    Basic(#[n(0)] Basic),
    /// The response of an external authorization service.
    #[n(3)]
    External(#[cbor(n(0), with = "Pointer")] Arc<External>),
    /// A method that cannot be used. No request satisfies the method.
    #[n(4)]
    Unusable {
        /// The invalid part of the policy.
        #[n(0)]
        method: Box<str>,
        /// The reason.
        #[n(1)]
        reason: Box<str>,
    },
}

/// A place of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Credential {
    /// A header, after a prefix such as `Bearer `, which is compared without regard to case.
    #[n(0)]
    Header {
        /// The header's name in lower case.
        #[cbor(n(0), with = "Within::<HeaderName>")]
        name: Box<str>,
        /// The prefix: empty, or with a trailing space.
        #[cbor(n(1), with = "Within::<CredentialPrefix>")]
        prefix: Box<str>,
    },
    /// A parameter of the query.
    #[n(1)]
    Query(#[cbor(n(0), with = "Within::<CredentialName>")] Box<str>),
    /// A cookie.
    #[n(2)]
    Cookie(#[cbor(n(0), with = "Within::<CredentialName>")] Box<str>),
}

/// Basic authentication: names and passwords.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Basic {
    /// The realm that browsers show to users.
    #[n(0)]
    pub realm: Box<str>,
    /// Names and password hashes in the format of `htpasswd`: bcrypt, `{SHA}` and `$apr1$`.
    #[n(1)]
    pub users: Vec<(Box<str>, Box<str>)>,
    /// Whether endpoints also receive the `Authorization` header.
    #[n(2)]
    pub forward: bool,
}

/// Hashes are secret.
impl fmt::Debug for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Basic").field("realm", &self.realm).field("users", &self.users.len()).finish()
    }
}

impl Serialize for Basic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut shown = serializer.serialize_struct("Basic", 3)?;
        shown.serialize_field("realm", &self.realm)?;
        shown.serialize_field("users", &self.users.len())?;
        shown.serialize_field("forward", &self.forward)?;
        shown.end()
    }
}

pub(super) fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
