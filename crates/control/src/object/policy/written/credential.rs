//! The places of credentials in requests, and references to Secrets.

use schemars::JsonSchema;
use serde::Deserialize;

/// A place in requests: exactly one of header, query and cookie.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.header), has(self.query), has(self.cookie)].filter(is, is).size() == 1",
    "message": "write exactly one of header, query and cookie"
}]))]
pub(crate) struct CredentialSource {
    /// A request header.
    pub(crate) header: Option<HeaderSource>,
    /// The name of a query parameter. The case counts.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) query: Option<String>,
    /// The name of a cookie. The case counts.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: Option<String>,
}

/// A request header.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct HeaderSource {
    /// The name of the header. The case does not count.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: String,
    /// The text before the credential in the value, such as "Bearer " with the space. The case does not count. Default:
    /// no text.
    #[schemars(length(max = 64))]
    pub(crate) prefix: Option<String>,
}

/// A value of a Secret in the same namespace.
#[derive(Clone, Deserialize, JsonSchema)]
pub(crate) struct SecretKeyRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The key in the data of the Secret. The default depends on the use of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) key: Option<String>,
}
