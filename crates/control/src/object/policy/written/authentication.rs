//! The authentication methods of callers.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::{CredentialSource, SecretKeyRef};
use super::external::External;
use super::jwt::Jwt;

/// How callers authenticate: by at least one of jwt, apiKey, basic and extAuth.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.jwt) || has(self.apiKey) || has(self.basic) || has(self.extAuth)",
    "message": "authentication needs a method: write at least one of jwt, apiKey, basic and extAuth"
}]))]
pub(crate) struct Authentication {
    /// How many of the methods must succeed. Any: one method is enough. All: every method must succeed, and none may
    /// identify a different Consumer. Default: Any.
    pub(crate) require: Option<Require>,
    /// The Consumers that the policy knows. Default: the Consumers of the policy's own namespace.
    pub(crate) consumers: Option<ConsumerScope>,
    /// Authenticates by a JSON Web Token (RFC 7519). Default: no tokens.
    pub(crate) jwt: Option<Jwt>,
    /// Authenticates by an API key of a Consumer. "apiKey: {}" uses all defaults. Default: no API keys.
    pub(crate) api_key: Option<ApiKey>,
    /// Authenticates by user name and password (RFC 7617). Default: no passwords.
    pub(crate) basic: Option<Basic>,
    /// Authenticates by the response of an HTTP service, as auth_request of nginx does. 2xx allows the request. On 401
    /// or 403 the client receives that status, and the service's WWW-Authenticate. On any other response, or on a
    /// timeout, the client receives 500. Set-Cookie of the response goes to the client, and responseHeaders go to the
    /// endpoint. The gateway asks the service last, and only if the other methods have not decided. Default: no
    /// service.
    pub(crate) ext_auth: Option<External>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Require {
    Any,
    All,
}

/// The Consumers that the policy knows.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ConsumerScope {
    /// The namespaces of the Consumers. * is every namespace. 1 to 64 entries.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) namespaces: Vec<String>,
}

/// API keys of Consumers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ApiKey {
    /// The places where the gateway looks for a key. The first place with a value counts. 1 to 8 entries. Default: the
    /// header X-API-Key.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) from: Option<Vec<CredentialSource>>,
    /// Whether endpoints receive the key. Default: false.
    pub(crate) forward: Option<bool>,
}

/// User names and passwords in a Secret.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Basic {
    /// The Secret with the users, in the policy's namespace. Its value has lines as htpasswd writes them, with hashes
    /// of bcrypt ($2a$, $2b$, $2y$), {SHA} or $apr1$. Default of key: auth, as in ingress-nginx.
    pub(crate) secret_ref: SecretKeyRef,
    /// The realm that browsers show to their users. 1 to 128 characters of ASCII without " and \. Default: restricted.
    #[schemars(length(min = 1, max = 128))]
    pub(crate) realm: Option<String>,
    /// Whether endpoints receive the Authorization header. Default: false.
    pub(crate) forward: Option<bool>,
}
