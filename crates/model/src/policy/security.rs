//! Who may call a route (`SecurityPolicy`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use super::external::External;
use super::jwt::Jwt;
use crate::{PathPattern, RouteId};

/// What a request has to satisfy before it goes to an endpoint. The parts are looked at in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Security {
    /// The object that it was written in.
    pub id: RouteId,
    /// Why nobody gets in: the policy cannot be honoured. Every request is answered 503.
    pub refuses: Option<Box<str>>,
    /// Which addresses may call.
    pub access: Access,
    /// Which pages of other origins may call. Preflights are answered before anything is asked of their sender.
    pub cors: Option<Cors>,
    /// How callers say who they are, if they have to.
    pub authentication: Option<Authentication>,
    /// Who of them may do what.
    pub authorization: Option<Authorization>,
    /// Whether endpoints get headers that name another path or method than the request line, such as `X-Original-URL` and
    /// `X-HTTP-Method-Override`, where the policy decides on paths or methods. They are dropped otherwise.
    pub forward_overrides: bool,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Who may; all, if it is empty.
    pub allow: Vec<IpNet>,
    /// Who may not.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cors {
    /// The origins that may read responses.
    pub origins: Vec<OriginPattern>,
    /// The methods that a preflight allows beside those that need none; `*` is any.
    pub methods: Vec<Box<str>>,
    /// The headers that a preflight allows, in lower case; `*` is any that the browser asks for.
    pub headers: Vec<Box<str>>,
    /// The headers of a response that a page may read.
    pub expose: Vec<Box<str>>,
    /// Whether requests may carry cookies and the like.
    pub credentials: bool,
    /// How long a browser remembers a preflight.
    #[serde(serialize_with = "seconds")]
    pub max_age: Duration,
}

/// Origins that may read responses. `null`, which sandboxed pages of anybody send, is none of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum OriginPattern {
    /// Every origin; with credentials it would be an invitation to any page, so the control plane refuses that.
    Any,
    /// This one, `scheme://host[:port]` in lower case.
    Exact(Box<str>),
    /// Every host below a domain: the scheme with `://`, and the rest behind the wildcard with its dot, as in
    /// `https://` and `.example.com:8443`.
    Below {
        /// Such as `https://`.
        scheme: Box<str>,
        /// Such as `.example.com`.
        suffix: Box<str>,
    },
}

/// How callers say who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Authentication {
    /// Whether all methods have to be satisfied, or one of them.
    pub requires_all: bool,
    /// In the order in which they are tried; at least one.
    pub methods: Vec<Method>,
    /// Whose consumers are known: those of these namespaces; `None` is those of all.
    pub consumers: Option<Vec<Arc<str>>>,
}

/// A way to say who one is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Method {
    /// By a token that somebody has signed.
    Jwt(Jwt),
    /// By a key of a [`Consumer`](super::Consumer).
    ApiKey {
        /// Where it is looked for; the first place that has something counts.
        from: Vec<Credential>,
        /// Whether endpoints get it too.
        forward: bool,
    },
    /// By a name and a password (RFC 7617).
    Basic(Basic),
    /// By what an HTTP service says of the request.
    External(Arc<External>),
    /// By no way at all: it cannot be honoured, and nobody satisfies it.
    Unusable {
        /// Which part of the policy.
        method: Box<str>,
        /// Why.
        reason: Box<str>,
    },
}

/// Where a credential is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Credential {
    /// In a header, behind a prefix such as `Bearer `, which is compared without regard to case.
    Header {
        /// Its name in lower case.
        name: Box<str>,
        /// Empty, or ending with a space.
        prefix: Box<str>,
    },
    /// In a parameter of the query.
    Query(Box<str>),
    /// In a cookie.
    Cookie(Box<str>),
}

/// Names and passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Basic {
    /// What browsers tell their users.
    pub realm: Box<str>,
    /// Names and hashes of passwords as `htpasswd` writes them: bcrypt, `{SHA}` and `$apr1$`.
    pub users: Vec<(Box<str>, Box<str>)>,
    /// Whether endpoints get the `Authorization` header too.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Authorization {
    /// In their order.
    pub rules: Vec<AuthorizationRule>,
    /// Whether a request that meets none of them is let in.
    pub allows_others: bool,
}

/// A rule: a request meets it if it meets all that the rule names.
///
/// A path is compared in each form in which an endpoint may read it: `%2F` as `/`, `;x=1` left out, without regard to
/// case. A rule that denies is met by any of them, one that allows has to be met by all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuthorizationRule {
    /// Whether who meets it is let in.
    pub allows: bool,
    /// One of these consumers, by namespace and name; any caller, if it is empty.
    pub consumers: Vec<(Arc<str>, Arc<str>)>,
    /// A consumer of one of these groups.
    pub groups: Vec<Box<str>>,
    /// Tokens in which each of these claims has one of its values.
    pub claims: Vec<ClaimValues>,
    /// One of these methods.
    pub methods: Vec<Box<str>>,
    /// One of these paths.
    pub paths: Vec<PathPattern>,
    /// One of these addresses.
    pub addresses: Vec<IpNet>,
}

/// A claim and values of which it has to have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimValues {
    /// Its name; a dot leads into an object, as in `realm_access.roles`.
    pub claim: Box<str>,
    /// Values, of which the claim has to be one, or to have one if it is a list, or words as `scope` has (RFC 8693, 4.2);
    /// any value, if it is empty.
    pub values: Vec<Box<str>>,
}

pub(super) fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
