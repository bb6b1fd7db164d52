//! `RateLimitPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::feature::{Check, Concurrency, Faults, Limit};
use sluicegate_model::policy::rate_limit::{Exempt, RedisDatabase, ShareInterval, ShareTimeout};
use sluicegate_model::value::{Entries, Hostname, KeyPrefix, ServerAddress, ServerUser};

use super::target::TargetRef;
use sluicegate_model::value::secret::SecretKeyRef;

/// Limits the rate of requests to the routes of its targets, and the number of requests in flight. A request above a
/// limit receives 429, or the statusCode of the limit. One policy applies to a route, and the gateway does not merge policies. The order of precedence
/// is: the port of the Service, the Service, then the Ingress. On a route of Gateway API, the order after the Service
/// is: the rule, the route, the listener, the Gateway. If several policies have the same target, the oldest policy
/// applies.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.limits) || has(self.concurrency)",
        "message": "the policy limits nothing: write limits, concurrency or both"
    },
    {
        "rule": "!has(self.shared) || has(self.limits)",
        "message": "shared needs limits: each data plane counts concurrency by itself"
    }
]))]
#[expect(dead_code, reason = "the schema joins the types that are read one by one")]
pub(crate) struct RateLimitPolicySpec {
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With a Gateway, the policy applies
    /// to all HTTPRoutes and GRPCRoutes of the Gateway, or of the listener in sectionName. With an HTTPRoute or a
    /// GRPCRoute, the policy applies to all its rules, or to the rule with the name in sectionName. With an Ingress, the
    /// policy applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the
    /// Service, or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    target_refs: Vec<TargetRef>,
    /// The rate limits, each with a unique name. 1 to 16 entries. A request must pass every limit. If one limit rejects
    /// a request, the other limits do not count it. Exception: limits by client IP or header, without Consumer, Claim
    /// or groups, count before authentication.
    #[schemars(
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    limits: Option<Entries<Limit, 16>>,
    /// The concurrency limits, each with a name that is unique in limits and concurrency. 1 to 16 entries. Each data
    /// plane counts by itself, even if shared is set.
    #[schemars(
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    concurrency: Option<Entries<Concurrency, 16>>,
    #[schemars(flatten)]
    parts: RateLimitParts,
}

/// The parts of a policy beside its targets and limits.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RateLimitParts {
    /// Whether responses report the limits and the remaining requests in the headers RateLimit-Policy and RateLimit.
    /// Default: true.
    pub(crate) headers: Option<bool>,
    /// The client IPs that no limit of the policy applies to: CIDRs or single addresses, IPv4 or IPv6, such as
    /// 10.0.0.0/8. At most 256 entries. Default: none.
    pub(crate) exempt: Exempt,
    /// The server through which all data planes count together. Default: each data plane counts by itself.
    pub(crate) shared: Option<Shared>,
}

impl Check for RateLimitParts {
    fn check(&self, _: &mut Faults<'_>) {}
}

/// The server through which data planes count together.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Shared {
    /// A server of Redis, version 5 or later, or of Valkey. Redis Cluster is not supported. No request waits for the
    /// server. In every interval, each data plane reports its admitted requests and reads the requests of the others.
    /// While the server is unavailable, each data plane counts by itself.
    pub(crate) redis: Redis,
}

/// A server of Redis or Valkey.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.username) || has(self.passwordSecretRef)",
    "message": "username needs a password: write passwordSecretRef too"
}]))]
pub(crate) struct Redis {
    /// The host and port of the server, such as valkey.default.svc:6379. Write an IPv6 address in brackets.
    pub(crate) address: ServerAddress,
    /// The user name at the server (ACL). Needs passwordSecretRef. Default: the default user.
    pub(crate) username: Option<ServerUser>,
    /// The Secret with the password, in the policy's namespace. The gateway removes a line end after the password.
    /// Default of passwordSecretRef.key: password. Default: no password.
    pub(crate) password_secret_ref: Option<SecretKeyRef>,
    /// Encrypts the connection. Write "tls: {}" for a server with a certificate of a public CA. Default: no encryption.
    pub(crate) tls: Option<RedisTls>,
    /// The number of the database. 0 to 65535. Default: 0.
    #[serde(default = "first_database")]
    pub(crate) database: RedisDatabase,
    /// The prefix of all keys at the server. Data planes with the same prefix share the limits of a policy, even across
    /// clusters. 1 to 64 letters, digits and any of -_.:/. Default: sluicegate.
    #[serde(default)]
    pub(crate) prefix: KeyPrefix,
    /// The time between two reports to the server. 5ms to 1s. Default: 20ms.
    #[serde(default = "twenty_millis")]
    pub(crate) interval: ShareInterval,
    /// The timeout for the server's response to a report. After a timeout, each data plane counts by itself until the
    /// server responds. 5ms to 5s. Default: 50ms.
    #[serde(default = "fifty_millis")]
    pub(crate) timeout: ShareTimeout,
}

fn first_database() -> RedisDatabase {
    RedisDatabase::of(0)
}

fn twenty_millis() -> ShareInterval {
    ShareInterval::of_millis(20)
}

fn fifty_millis() -> ShareTimeout {
    ShareTimeout::of_millis(50)
}

/// The encryption of the connection.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedisTls {
    /// The name that the server's certificate must have. Default: the host in address.
    pub(crate) server_name: Option<Hostname>,
    /// The Secret with the CA certificates of the server, in PEM and in the policy's namespace. Default of
    /// caCertificateRef.key: ca.crt. Default: the public CA certificates.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
}
