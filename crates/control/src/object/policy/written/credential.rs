//! Where credentials are looked for, and where secrets are.

use schemars::JsonSchema;
use serde::Deserialize;

/// A place in requests: exactly one of header, query and cookie.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.header), has(self.query), has(self.cookie)].filter(is, is).size() == 1",
    "message": "write exactly one of header, query and cookie"
}]))]
pub(crate) struct CredentialSource {
    /// A header.
    pub(crate) header: Option<HeaderSource>,
    /// The name of a parameter of the query, with regard to case.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) query: Option<String>,
    /// The name of a cookie, with regard to case.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: Option<String>,
}

/// A header.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct HeaderSource {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: String,
    /// What stands before the credential, without regard to case, such as "Bearer " with the space. Default: nothing.
    #[schemars(length(max = 64))]
    pub(crate) prefix: Option<String>,
}

/// A value of a Secret in the same namespace.
#[derive(Clone, Deserialize, JsonSchema)]
pub(crate) struct SecretKeyRef {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) key: Option<String>,
}
