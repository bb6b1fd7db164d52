//! `Consumer`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::SecretKeyRef;

/// Somebody who calls, known by one of its credentials where a SecurityPolicy asks for them. Endpoints get X-Consumer-Username
/// and X-Consumer-Groups.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerSpec {
    /// What endpoints get as X-Consumer-Username. Default: the name of the object.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) username: Option<String>,
    /// Its groups, which rules and limits can name and endpoints get as X-Consumer-Groups: at most 64.
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// Its API keys: at most 16. Of two Consumers with one key the older has it, or the first by name.
    #[schemars(length(max = 16))]
    pub(crate) api_keys: Option<Vec<ApiKeyRef>>,
    /// The tokens that are its own: at most 16.
    #[schemars(length(max = 16))]
    pub(crate) tokens: Option<Vec<Token>>,
    /// Its names for Basic authentication, whose passwords are in the Secret that the SecurityPolicy names: at most 16.
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub(crate) basic_users: Option<Vec<String>>,
}

/// An API key.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiKeyRef {
    /// The Secret of the Consumer's namespace that holds it, of 8 bytes at least and better of 16 or more; the end of the line is no
    /// part of it. The default of key is key.
    pub(crate) secret_ref: SecretKeyRef,
}

/// Tokens: those of exactly one of subject and clientId.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.subject) != has(self.clientId)",
    "message": "write exactly one of subject and clientId"
}]))]
pub(crate) struct Token {
    /// Who signed them (the claim iss). Default: anybody whose tokens are taken.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) issuer: Option<String>,
    /// Whose they are: the claim sub.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) subject: Option<String>,
    /// Which client they were given to: the claim client_id, or azp where there is none.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) client_id: Option<String>,
}
