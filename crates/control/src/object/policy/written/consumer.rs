//! `Consumer`.

use schemars::JsonSchema;
use serde::Deserialize;

use sluicegate_model::value::secret::SecretKeyRef;

/// A known caller, identified by one of its credentials on routes whose SecurityPolicy asks for credentials. Endpoints
/// receive the headers X-Consumer-Username and X-Consumer-Groups.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerSpec {
    /// The name that endpoints receive as X-Consumer-Username. Default: the name of the object.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) username: Option<String>,
    /// The groups of the Consumer, which rules and limits can name. Endpoints receive the groups as X-Consumer-Groups.
    /// At most 64 entries. Default: none.
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// The API keys of the Consumer. At most 16 entries. If two Consumers have the same key, the older Consumer keeps
    /// the key, or the first by name. Default: none.
    #[schemars(length(max = 16))]
    pub(crate) api_keys: Option<Vec<ApiKeyRef>>,
    /// The JSON Web Tokens that identify the Consumer. At most 16 entries. Default: none.
    #[schemars(length(max = 16))]
    pub(crate) tokens: Option<Vec<Token>>,
    /// The user names of the Consumer for Basic authentication. The Secret that the SecurityPolicy names holds their
    /// passwords. At most 16 entries. Default: none.
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub(crate) basic_users: Option<Vec<String>>,
}

/// An API key: exactly one of secretRef and sha256.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.secretRef) != has(self.sha256)",
    "message": "write exactly one of secretRef and sha256"
}]))]
pub(crate) struct ApiKeyRef {
    /// The name of the key, for people and for sluicegate key. Default: none.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) name: Option<String>,
    /// The SHA-256 of the key, in 64 hexadecimal digits. "sluicegate key issue" makes a key, shows the key once, and writes this
    /// field. Only for random keys of at least 16 bytes, because a search can find a short key by its hash.
    #[schemars(length(equal = 64), pattern("^[0-9a-fA-F]{64}$"))]
    pub(crate) sha256: Option<String>,
    /// The time from which the key is invalid, such as 2027-01-01T00:00:00Z. Requests with the key then receive 401. Default: the
    /// key does not expire.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) expires: Option<String>,
    /// Whether the key is invalid. The entry of a revoked key lets the gateway tell the caller the reason. Default: false.
    pub(crate) revoked: Option<bool>,
    /// The Secret with the key, in the Consumer's namespace. A key has at least 8 bytes, better 16 or more. The gateway
    /// removes a line end after the key. Default of secretRef.key: key.
    pub(crate) secret_ref: Option<SecretKeyRef>,
}

/// Tokens with a subject, or tokens of a client: exactly one of subject and clientId.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.subject) != has(self.clientId)",
    "message": "write exactly one of subject and clientId"
}]))]
pub(crate) struct Token {
    /// The issuer of the tokens: the claim iss. Default: any issuer that the SecurityPolicy accepts.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) issuer: Option<String>,
    /// The subject of the tokens: the claim sub.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) subject: Option<String>,
    /// The client that the tokens were issued to: the claim client_id, or azp in tokens without client_id.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) client_id: Option<String>,
}
