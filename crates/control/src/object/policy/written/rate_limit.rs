//! `RateLimitPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::SecretKeyRef;
use super::target::TargetRef;

/// Limits the rate of requests to the routes of an Ingress or a Service, and the number of requests in flight. A
/// request above a limit receives 429. One policy applies to a route, and the gateway merges nothing. A policy for a
/// port of the Service precedes a policy for the Service, which precedes a policy for the Ingress. The oldest policy
/// precedes others with the same target.
#[derive(Deserialize, JsonSchema)]
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
pub(crate) struct RateLimitPolicySpec {
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With an Ingress, the policy
    /// applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the Service,
    /// or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) target_refs: Vec<TargetRef>,
    /// Whether responses report the limits and the remaining requests in the headers RateLimit-Policy and RateLimit.
    /// Default: true.
    pub(crate) headers: Option<bool>,
    /// The rate limits, each with a unique name. 1 to 16 entries. A request must pass every limit. If one limit rejects
    /// a request, the other limits do not count it. Exception: limits by client IP or header, without Consumer, Claim
    /// or groups, count before authentication.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) limits: Option<Vec<Limit>>,
    /// The concurrency limits, each with a name that is unique in limits and concurrency. 1 to 16 entries. Each data
    /// plane counts by itself, even if shared is set.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) concurrency: Option<Vec<Concurrency>>,
    /// The server through which all data planes count together. Default: each data plane counts by itself.
    pub(crate) shared: Option<Shared>,
}

/// A limit of the requests in flight at once. A request counts from its head to the end of its response, or to the end
/// of its tunnel, such as a WebSocket.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Concurrency {
    /// The name of the limit in logs and metrics: lower-case letters, digits and hyphens.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(crate) name: String,
    /// The largest number of requests in flight. 1 to 1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests: i64,
    /// The parts of a request by which it is counted. Requests with equal parts share one count. 1 to 8 entries.
    /// Default: all requests of the policy's routes share one count.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Option<Vec<LimitKey>>,
    /// The limit applies only to Consumers in one of these groups. 1 to 64 entries. Default: all callers.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// Whether requests above the limit are served. The gateway then counts such requests
    /// (sluicegate_policy_dry_runs_total) and names the limit in the JSON access log (dry_runs). Clients do not see the
    /// limit. Default: false.
    pub(crate) dry_run: Option<bool>,
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
    #[schemars(
        length(min = 3, max = 261),
        regex(pattern = r"^(\[[0-9a-fA-F:.]+\]|[^:\[\]/@ ]+):[0-9]{1,5}$")
    )]
    pub(crate) address: String,
    /// The user name at the server (ACL). Needs passwordSecretRef. Default: the default user.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) username: Option<String>,
    /// The Secret with the password, in the policy's namespace. The line end is not part of the password. Default of
    /// key: password. Default: no password.
    pub(crate) password_secret_ref: Option<SecretKeyRef>,
    /// Encrypts the connection. Write "tls: {}" for a server with a certificate of a public CA. Default: no encryption.
    pub(crate) tls: Option<RedisTls>,
    /// The number of the database. 0 to 65535. Default: 0.
    #[schemars(range(min = 0, max = 65535))]
    pub(crate) database: Option<i64>,
    /// The prefix of all keys at the server. Data planes with the same prefix share the limits of a policy, even across
    /// clusters. 1 to 64 letters, digits and any of -_.:/. Default: sluicegate.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[-A-Za-z0-9_.:/]+$"))]
    pub(crate) prefix: Option<String>,
    /// The time between two reports to the server. 5ms to 1s. Default: 20ms.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) interval: Option<String>,
    /// The timeout for the server's response to a report. After a timeout, each data plane counts by itself until the
    /// server responds. 5ms to 5s. Default: 50ms.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
}

/// The encryption of the connection.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedisTls {
    /// The name that the server's certificate must have. Default: the host in address.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) server_name: Option<String>,
    /// The Secret with the CA certificates of the server, in PEM and in the policy's namespace. Default of key: ca.crt.
    /// Default: the public CA certificates.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
}

/// A rate limit.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.burst) || !has(self.algorithm) || self.algorithm == 'TokenBucket'",
    "message": "burst is only for algorithm: TokenBucket"
}]))]
pub(crate) struct Limit {
    /// The name of the limit in headers, logs and metrics: lower-case letters, digits and hyphens.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(crate) name: String,
    /// The number of requests that may come in the period per. 1 to 1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests: i64,
    /// The period, such as 1s, 1m or 24h. 1ms to 720h (30 days).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) per: String,
    /// The number of requests that may come at once. Only for algorithm TokenBucket. 1 to 1000000. Default: the value
    /// of requests.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) burst: Option<i64>,
    /// The way the gateway counts. TokenBucket refills evenly and allows a burst. SlidingWindow admits at most requests
    /// in any period, estimated from the counts of the current and the previous window. Default: TokenBucket.
    pub(crate) algorithm: Option<LimitAlgorithm>,
    /// The parts of a request by which it is counted. Requests with equal parts share one count. 1 to 8 entries.
    /// Default: all requests of the policy's routes share one count.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Option<Vec<LimitKey>>,
    /// The limit applies only to Consumers in one of these groups. 1 to 64 entries. Default: all callers.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// Whether requests above the limit are served. The gateway then counts such requests
    /// (sluicegate_policy_dry_runs_total) and names the limit in the JSON access log (dry_runs). Clients do not see the
    /// limit. Default: false.
    pub(crate) dry_run: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum LimitAlgorithm {
    TokenBucket,
    SlidingWindow,
}

/// A part of a request by which it is counted.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Claim')",
        "message": "name is needed with type: Header or Claim, and only there"
    },
    {
        "rule": "!has(self.ipv6PrefixLength) || self.type == 'Address'",
        "message": "ipv6PrefixLength is only for type: Address"
    }
]))]
pub(crate) struct LimitKey {
    /// The part of the request. Address: the client IP. Header: the value of a header; of Host the name alone, in lower
    /// case. Requests without the header, or with several lines of it, share one count. Claim: the value of a claim of
    /// the token. Requests without the claim share one count. Consumer: the Consumer; other callers are counted by
    /// client IP. Route: the host and path of the Ingress that match the request.
    #[serde(rename = "type")]
    pub(crate) kind: LimitKeyType,
    /// The name of the header or the claim. Needed with type Header or Claim, and only there.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: Option<String>,
    /// The number of leading bits of an IPv6 address that count, because a client has all addresses of its network.
    /// Only for type Address. 1 to 128. Default: 64.
    #[schemars(range(min = 1, max = 128))]
    pub(crate) ipv6_prefix_length: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum LimitKeyType {
    Address,
    Header,
    Claim,
    Consumer,
    Route,
}
