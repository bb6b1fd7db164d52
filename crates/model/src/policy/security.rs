//! Who may call a route (`SecurityPolicy`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use super::external::External;
use super::jwt::Jwt;
use crate::encoding::adapt::Pair;
use crate::encoding::bound::{
    Bound, Claim, CredentialName, CredentialPrefix, HeaderName, Methods, Origin, OriginScheme, OriginSuffix,
};
use crate::encoding::{Adapt as _, List, Maybe, Parsed, Part, Pointer, Text, Time, Within};
use crate::{PathPattern, RouteId};

/// What a request has to satisfy before it goes to an endpoint. The parts are looked at in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Security {
    /// The object that it was written in.
    #[n(0)]
    pub id: RouteId,
    /// Why nobody gets in: the policy cannot be honoured. Every request is answered 503.
    #[n(1)]
    pub refuses: Option<Box<str>>,
    /// Which addresses may call.
    #[n(2)]
    pub access: Access,
    /// Which pages of other origins may call. Preflights are answered before anything is asked of their sender.
    #[cbor(n(3), with = "Maybe::<Within<Cors>>")]
    pub cors: Option<Cors>,
    /// How callers say who they are, if they have to.
    #[n(4)]
    pub authentication: Option<Authentication>,
    /// Who of them may do what.
    #[n(5)]
    pub authorization: Option<Authorization>,
    /// Whether endpoints get headers that name another path or method than the request line, such as `X-Original-URL` and
    /// `X-HTTP-Method-Override`, where the policy decides on paths or methods. They are dropped otherwise.
    #[n(6)]
    pub forward_overrides: bool,
}

impl Part for Security {
    const KIND: u32 = 14;
    const WHAT: &'static str = "policy for callers";
}

impl Security {
    /// A policy that cannot be honoured, and why.
    #[must_use]
    pub fn closed(id: RouteId, reason: Box<str>) -> Self {
        let access = Access::default();
        Self {
            id,
            refuses: Some(reason),
            access,
            cors: None,
            authentication: None,
            authorization: None,
            forward_overrides: false,
        }
    }

    /// Whether there is anybody whom it keeps out.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.refuses.is_some()
            || self.access != Access::default()
            || self.authentication.is_some()
            || self.authorization.is_some()
    }
}

/// Which addresses may call: those that `allow` has, if it has any, without those of `deny`. The address is that of the
/// client, as far as trusted peers tell it. 403 for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Access {
    /// Who may; all, if it is empty.
    #[cbor(n(0), with = "List::<Parsed>")]
    pub allow: Vec<IpNet>,
    /// Who may not.
    #[cbor(n(1), with = "List::<Parsed>")]
    pub deny: Vec<IpNet>,
}

impl Access {
    /// Whether nobody is kept out.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

/// Cross-origin requests (Fetch standard, "CORS protocol").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Cors {
    /// The origins that may read responses.
    #[n(0)]
    pub origins: Vec<OriginPattern>,
    /// The methods that a preflight allows beside those that need none; `*` is any.
    #[n(1)]
    pub methods: Vec<Box<str>>,
    /// The headers that a preflight allows, in lower case; `*` is any that the browser asks for.
    #[cbor(n(2), with = "List::<Within<HeaderName>>")]
    pub headers: Vec<Box<str>>,
    /// The headers of a response that a page may read.
    #[cbor(n(3), with = "List::<Within<HeaderName>>")]
    pub expose: Vec<Box<str>>,
    /// Whether requests may carry cookies and the like.
    #[n(4)]
    pub credentials: bool,
    /// How long a browser remembers a preflight.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(5), with = "Time")]
    pub max_age: Duration,
}

/// Credentials of every origin would invite any page.
impl Bound for Cors {
    type Value = Self;
    const FIELD: &'static str = "credentials of every origin";

    fn allows(cors: &Self) -> bool {
        !(cors.credentials && cors.origins.contains(&OriginPattern::Any))
    }
}

/// Origins that may read responses. `null`, which sandboxed pages of anybody send, is none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum OriginPattern {
    /// Every origin; with credentials it would be an invitation to any page, so the control plane refuses that.
    #[n(0)]
    Any,
    /// This one, `scheme://host[:port]` in lower case.
    #[n(1)]
    Exact(#[cbor(n(0), with = "Within::<Origin>")] Box<str>),
    /// Every host below a domain: the scheme with `://`, and the rest behind the wildcard with its dot, as in
    /// `https://` and `.example.com:8443`.
    #[n(2)]
    Below {
        /// Such as `https://`.
        #[cbor(n(0), with = "Within::<OriginScheme>")]
        scheme: Box<str>,
        /// Such as `.example.com`.
        #[cbor(n(1), with = "Within::<OriginSuffix>")]
        suffix: Box<str>,
    },
}

/// How callers say who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Authentication {
    /// Whether all methods have to be satisfied, or one of them.
    #[n(0)]
    pub requires_all: bool,
    /// In the order in which they are tried; at least one.
    #[cbor(n(1), with = "Within::<Methods<Method>>")]
    pub methods: Vec<Method>,
    /// Whose consumers are known: those of these namespaces; `None` is those of all.
    #[cbor(n(2), with = "Maybe::<List<Text>>")]
    pub consumers: Option<Vec<Arc<str>>>,
}

/// A way to say who one is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Method {
    /// By a token that somebody has signed.
    #[n(0)]
    Jwt(#[n(0)] Jwt),
    /// By a key of a [`Consumer`](super::Consumer).
    #[n(1)]
    ApiKey {
        /// Where it is looked for; the first place that has something counts.
        #[n(0)]
        from: Vec<Credential>,
        /// Whether endpoints get it too.
        #[n(1)]
        forward: bool,
    },
    /// By a name and a password (RFC 7617).
    #[n(2)]
    Basic(#[n(0)] Basic),
    /// By what an HTTP service says of the request.
    #[n(3)]
    External(#[cbor(n(0), with = "Pointer")] Arc<External>),
    /// By no way at all: it cannot be honoured, and nobody satisfies it.
    #[n(4)]
    Unusable {
        /// Which part of the policy.
        #[n(0)]
        method: Box<str>,
        /// Why.
        #[n(1)]
        reason: Box<str>,
    },
}

/// Where a credential is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Credential {
    /// In a header, behind a prefix such as `Bearer `, which is compared without regard to case.
    #[n(0)]
    Header {
        /// Its name in lower case.
        #[cbor(n(0), with = "Within::<HeaderName>")]
        name: Box<str>,
        /// Empty, or ending with a space.
        #[cbor(n(1), with = "Within::<CredentialPrefix>")]
        prefix: Box<str>,
    },
    /// In a parameter of the query.
    #[n(1)]
    Query(#[cbor(n(0), with = "Within::<CredentialName>")] Box<str>),
    /// In a cookie.
    #[n(2)]
    Cookie(#[cbor(n(0), with = "Within::<CredentialName>")] Box<str>),
}

/// Names and passwords.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Basic {
    /// What browsers tell their users.
    #[n(0)]
    pub realm: Box<str>,
    /// Names and hashes of passwords as `htpasswd` writes them: bcrypt, `{SHA}` and `$apr1$`.
    #[n(1)]
    pub users: Vec<(Box<str>, Box<str>)>,
    /// Whether endpoints get the `Authorization` header too.
    #[n(2)]
    pub forward: bool,
}

/// Hashes are nobody's business.
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

/// Who may do what: the first rule that a request meets decides. 403 for who may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Authorization {
    /// In their order.
    #[n(0)]
    pub rules: Vec<AuthorizationRule>,
    /// Whether a request that meets none of them is let in.
    #[n(1)]
    pub allows_others: bool,
}

/// A rule: a request meets it if it meets all that the rule names.
///
/// A path is compared in each form in which an endpoint may read it: `%2F` as `/`, `;x=1` left out, without regard to
/// case. A rule that denies is met by any of them, one that allows has to be met by all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct AuthorizationRule {
    /// Whether who meets it is let in.
    #[n(0)]
    pub allows: bool,
    /// One of these consumers, by namespace and name; any caller, if it is empty.
    #[cbor(n(1), with = "List::<Pair<Text, Text>>")]
    pub consumers: Vec<(Arc<str>, Arc<str>)>,
    /// A consumer of one of these groups.
    #[n(2)]
    pub groups: Vec<Box<str>>,
    /// Tokens in which each of these claims has one of its values.
    #[n(3)]
    pub claims: Vec<ClaimValues>,
    /// One of these methods.
    #[n(4)]
    pub methods: Vec<Box<str>>,
    /// One of these paths.
    #[n(5)]
    pub paths: Vec<PathPattern>,
    /// One of these addresses.
    #[cbor(n(6), with = "List::<Parsed>")]
    pub addresses: Vec<IpNet>,
}

/// A claim and values of which it has to have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct ClaimValues {
    /// Its name; a dot leads into an object, as in `realm_access.roles`.
    #[cbor(n(0), with = "Within::<Claim>")]
    pub claim: Box<str>,
    /// Values, of which the claim has to be one, or to have one if it is a list, or words as `scope` has (RFC 8693, 4.2);
    /// any value, if it is empty.
    #[n(1)]
    pub values: Vec<Box<str>>,
}

pub(super) fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
