//! The methods by which callers authenticate.
//!
//! | module | what |
//! |---|---|
//! | [`credential`] | the places of credentials in requests |
//! | [`combination`] | credentials that are needed together |
//! | [`jwt`] | JSON Web Tokens |
//! | [`oidc`] | login of browsers by OpenID Connect |
//! | [`introspection`] | tokens that an authorization server checks |
//! | [`ext_auth`], [`auth_request`] | external authorization services |
//! | [`digest`] | Digest authentication |

pub mod auth_request;
pub mod combination;
pub mod credential;
pub mod digest;
pub mod ext_auth;
pub mod introspection;
pub mod jwt;
pub mod oidc;

use std::sync::Arc;

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::encoding::{Adapt as _, Bound, Maybe, Pointer};
use crate::value::secret::{FromSecret, Passwords};
use crate::value::{CredentialPrefix, Entries, HeaderName, NamespaceScope, Realm, ScopeList};
pub use auth_request::{AuthRequest, AuthRequestCache, StatusTime};
pub use combination::{Combination, Need};
pub use credential::Credential;
pub use digest::Digest;
pub use ext_auth::ExtAuth;
pub use introspection::Introspection;
pub use jwt::Jwt;
pub use oidc::Oidc;

/// How callers authenticate: by at least one of jwt, introspection, apiKey, basic, oidc and extAuth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.jwt) || has(self.introspection) || has(self.apiKey) || has(self.basic) || has(self.oidc) || has(self.extAuth)",
    "message": "authentication needs a method: write at least one of jwt, introspection, apiKey, basic, oidc and extAuth"
}]))]
#[cbor(map)]
pub struct Authentication {
    /// How many of the methods must succeed. Any: one method is enough. All: every method must succeed, and none may
    /// identify a different Consumer. Optional: as Any, but a caller without credentials is not denied, and stays
    /// unknown. Default: Any.
    #[n(0)]
    pub require: Require,
    /// The Consumers that the policy knows. Default: the Consumers of the policy's own namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub consumers: Option<ConsumerScope>,
    /// Authenticates by a JSON Web Token (RFC 7519). Default: no tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub jwt: Option<Jwt>,
    /// Authenticates by an API key of a Consumer. "apiKey: {}" uses all defaults. Default: no API keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub api_key: Option<ApiKey>,
    /// Authenticates by user name and password (RFC 7617). Default: no passwords.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub basic: Option<Basic>,
    /// Authenticates by the response of an HTTP service, as auth_request of nginx does. 2xx allows the request. On 401
    /// or 403 the client receives that status, and the service's WWW-Authenticate. On any other response, or on a
    /// timeout, the client receives 500. Set-Cookie of the response goes to the client, and responseHeaders go to the
    /// endpoint. The gateway asks the service last, and only if the other methods have not decided. Default: no
    /// service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(5), with = "Maybe::<Pointer>")]
    pub ext_auth: Option<Arc<ExtAuth>>,
    /// Authenticates by Digest authentication (RFC 7616), which annotations of ingress-nginx set.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(6)]
    pub digest: Option<Digest>,
    /// Logs browsers in by OpenID Connect. The gateway redirects a navigation without a session to the provider. Other
    /// requests without a session receive 401. Default: no login.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(7), with = "Maybe::<Pointer>")]
    pub oidc: Option<Arc<Oidc>>,
    /// Authenticates by a token that an authorization server checks (RFC 7662), such as an opaque access token. If the
    /// server gives no valid response, the client receives 503. Default: no such tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(8), with = "Maybe::<Pointer>")]
    pub introspection: Option<Arc<Introspection>>,
    /// The scopes that tokens need, in the claim scope or scp. Each entry is a list of scopes with spaces between them. A token
    /// needs all scopes of one entry. Otherwise its caller receives 403. Callers who authenticate without a token need no
    /// scopes. 1 to 16 entries. Default: no scopes needed.
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(9), default, skip_if = "crate::feature::is_default")]
    pub required_scopes: Entries<ScopeList, 16>,
    /// The combinations of credentials, one of which is enough, in place of single methods. [`Require::All`] is not used with them.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    #[cbor(n(10), default, skip_if = "Vec::is_empty")]
    pub combinations: Vec<Combination>,
}

/// The number of methods that must succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum Require {
    /// One method.
    #[default]
    #[n(0)]
    Any,
    /// Every method.
    #[n(1)]
    All,
    /// One method, unless the caller has no credentials.
    #[n(2)]
    Optional,
}

/// The Consumers that the policy knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct ConsumerScope {
    /// The namespaces of the Consumers. * is every namespace. 1 to 64 entries.
    #[n(0)]
    pub namespaces: Entries<NamespaceScope, 64>,
}

impl Basic {
    /// The header with the name and the password.
    #[must_use]
    pub fn place() -> Credential {
        Credential::Header { name: HeaderName::of("authorization"), prefix: CredentialPrefix::of("Basic ") }
    }
}

impl Digest {
    /// The header with the response to the challenge.
    #[must_use]
    pub fn place() -> Credential {
        Credential::Header { name: HeaderName::of("authorization"), prefix: CredentialPrefix::of("Digest ") }
    }
}

impl ApiKey {
    /// The places of the key.
    pub fn places(&self) -> impl Iterator<Item = Credential> {
        let default = self.from.is_empty().then(|| Credential::header(HeaderName::of("x-api-key")));
        default.into_iter().chain(self.from.iter().cloned())
    }
}

/// API keys of Consumers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct ApiKey {
    /// The places where the gateway looks for a key. The first place with a value counts. 1 to 8 entries. Default: the
    /// header X-API-Key.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(0)]
    pub from: Entries<Credential, 8>,
    /// Whether endpoints receive the key. Default: false.
    #[serde(default)]
    #[n(1)]
    pub forward: bool,
}

/// User names and passwords in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Basic {
    /// The Secret with the users, in the policy's namespace. Its value has lines as htpasswd writes them, with hashes
    /// of bcrypt ($2a$, $2b$, $2y$), {SHA} or $apr1$. Default of secretRef.key: auth, as in ingress-nginx.
    #[n(0)]
    pub secret_ref: FromSecret<Passwords>,
    /// The realm that browsers show to their users. 1 to 128 characters of ASCII without " and \. Default: restricted.
    #[serde(default)]
    #[n(1)]
    pub realm: Realm,
    /// Whether endpoints receive the Authorization header. Default: false.
    #[serde(default)]
    #[n(2)]
    pub forward: bool,
    /// Whether the challenge lacks the parameter `charset`, as in nginx.
    #[serde(skip)]
    #[schemars(skip)]
    #[cbor(n(3), default, skip_if = "crate::feature::is_default")]
    pub without_charset: bool,
}

impl Authentication {
    /// The namespaces of the Consumers that a policy of the namespace `own` knows; `None` for every namespace.
    #[must_use]
    pub fn namespaces(&self, own: &Arc<str>) -> Option<Vec<Arc<str>>> {
        let Some(scope) = &self.consumers else { return Some(vec![own.clone()]) };
        if scope.namespaces.iter().any(|namespace| &**namespace == "*") {
            return None;
        }
        let mut namespaces: Vec<Arc<str>> =
            scope.namespaces.iter().map(|name| name.as_str().into()).collect();
        namespaces.sort();
        namespaces.dedup();
        Some(namespaces)
    }

    /// Whether a method identifies Consumers. An external service names no Consumer.
    #[must_use]
    pub fn identifies_consumers(&self) -> bool {
        self.has_claims() || self.api_key.is_some() || self.basic.is_some() || self.digest.is_some()
    }

    /// Whether a method gives claims of the caller.
    #[must_use]
    pub fn has_claims(&self) -> bool {
        self.jwt.is_some() || self.oidc.is_some() || self.introspection.is_some()
    }
}

impl Check for Authentication {
    fn check(&self, at: &mut Faults<'_>) {
        let has_method = self.identifies_consumers() || self.ext_auth.is_some();
        if !has_method && self.combinations.is_empty() {
            let message =
                "has no method: write at least one of jwt, introspection, apiKey, basic, oidc and extAuth";
            at.error("", message);
        }
        if !self.required_scopes.is_empty() && !self.has_claims() {
            at.error("requiredScopes", "needs jwt, introspection or oidc: only tokens have scopes");
        }
        let Self {
            require: _,
            consumers: _,
            jwt,
            introspection,
            api_key: _,
            basic: _,
            digest: _,
            oidc,
            ext_auth,
            required_scopes: _,
            combinations: _,
        } = self;
        at.within("jwt", jwt);
        at.within("introspection", &introspection.as_deref());
        at.within("oidc", &oidc.as_deref());
        at.within("extAuth", &ext_auth.as_deref());
    }
}

/// The decoder applies the same conditions as the check of YAML.
impl Bound for Authentication {
    type Value = Self;
    const FIELD: &'static str = "the methods of authentication";

    fn allows(authentication: &Self) -> bool {
        super::is_valid(authentication)
    }
}
