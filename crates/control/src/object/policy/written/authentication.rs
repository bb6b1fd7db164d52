//! How callers say who they are.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::{CredentialSource, SecretKeyRef};
use super::external::External;
use super::jwt::Jwt;

/// How callers have to say who they are: by at least one of jwt, apiKey, basic and external.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.jwt) || has(self.apiKey) || has(self.basic) || has(self.external)",
    "message": "write at least one of jwt, apiKey, basic and external"
}]))]
pub(crate) struct Authentication {
    /// Whether Any of the methods that are written is enough, or All of them are needed, which may not name different Consumers.
    /// Default: Any.
    pub(crate) require: Option<Require>,
    /// Whose Consumers are known. Default: those of the policy's own namespace.
    pub(crate) consumers: Option<ConsumerScope>,
    /// By a JSON Web Token (RFC 7519) that somebody has signed.
    pub(crate) jwt: Option<Jwt>,
    /// By a key of a Consumer. "apiKey: {}" takes all defaults.
    pub(crate) api_key: Option<ApiKey>,
    /// By a name and a password (RFC 7617).
    pub(crate) basic: Option<Basic>,
    /// By what an HTTP service says of the request, as nginx' auth_request: 2xx lets it in; 401 and 403 are answered to the client,
    /// with the service's WWW-Authenticate; anything else, or no answer in time, is answered 500. Set-Cookie of the answer goes to the
    /// client, and nothing else of it goes anywhere but responseHeaders. It is asked last, and only if the other methods leave it open.
    pub(crate) external: Option<External>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Require {
    Any,
    All,
}

/// Whose Consumers are known.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ConsumerScope {
    /// The namespaces, from 1 to 64; * is all.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) namespaces: Vec<String>,
}

/// Keys of Consumers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ApiKey {
    /// Where a key is looked for, from 1 to 8 places; the first that has something counts. Default: the header X-API-Key.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) from: Option<Vec<CredentialSource>>,
    /// Whether endpoints get the key too. Default: false.
    pub(crate) forward: Option<bool>,
}

/// Names and passwords of a Secret.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Basic {
    /// The Secret of the policy's namespace that holds lines as htpasswd writes them, with bcrypt ($2a$, $2b$, $2y$), {SHA} or
    /// $apr1$. The default of key is auth, as in ingress-nginx.
    pub(crate) secret_ref: SecretKeyRef,
    /// What browsers tell their users. Default: restricted.
    #[schemars(length(min = 1, max = 128))]
    pub(crate) realm: Option<String>,
    /// Whether endpoints get the Authorization header too. Default: false.
    pub(crate) forward: Option<bool>,
}
