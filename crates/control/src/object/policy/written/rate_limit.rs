//! `RateLimitPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::SecretKeyRef;
use super::target::TargetRef;

/// Says how often the routes of an Ingress or of a Service may be called, and how many requests may be under way at once; those
/// beyond are answered 429. The most specific
/// policy governs a route, as a whole: one for a port of the Service, then one for the Service, then one for the Ingress;
/// of equals the oldest.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.limits) || has(self.concurrency)",
        "message": "write limits, concurrency or both"
    },
    {
        "rule": "!has(self.shared) || has(self.limits)",
        "message": "shared is for limits: concurrency is counted by each data plane for itself"
    }
]))]
pub(crate) struct RateLimitPolicySpec {
    /// What the policy is for: from 1 to 16 Ingresses and Services of its own namespace. It governs all routes of a targeted
    /// Ingress, and all routes that lead to a targeted Service, or to the port that sectionName names.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) target_refs: Vec<TargetRef>,
    /// Whether responses say what is left, by the headers RateLimit and RateLimit-Policy. Default: true.
    pub(crate) headers: Option<bool>,
    /// How many requests may come in a time: from 1 to 16 limits, each with a name of its own. A request has to keep all of them;
    /// one that is refused by any is counted by none, but that those by address or header count before it is asked who calls.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) limits: Option<Vec<Limit>>,
    /// How many requests may be under way at once: from 1 to 16 limits, each with a name that none of limits has. Each data plane
    /// counts for itself, also with shared.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) concurrency: Option<Vec<Concurrency>>,
    /// Through what the data planes count together. Default: each counts for itself.
    pub(crate) shared: Option<Shared>,
}

/// A limit of how many requests may be under way at once: from the head of each until it ends in any way, tunnels such as
/// WebSocket included.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Concurrency {
    /// What it is called: lower-case letters, digits and hyphens.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(crate) name: String,
    /// How many requests, from 1 to 1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests: i64,
    /// Requests that have all of these in common are counted together: from 1 to 8. Default: all requests of the policy's routes.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Option<Vec<LimitKey>>,
    /// The limit is for Consumers of one of these groups: from 1 to 64. Default: for everybody.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// Whether requests over the limit are counted (sluicegate_policy_dry_runs_total), named in the JSON access log (dry_runs), and served all
    /// the same, of which clients are not told. Default: false.
    pub(crate) dry_run: Option<bool>,
}

/// Through what data planes count together.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Shared {
    /// A server of Redis, from version 5, or of Valkey; Redis Cluster is not supported. No request waits for it: each data plane
    /// decides by what it knows, tells the others what it has let in every interval, and learns what they have. While the
    /// server is away, each data plane counts for itself.
    pub(crate) redis: Redis,
}

/// A server of Redis or Valkey.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.username) || has(self.passwordSecretRef)",
    "message": "username is for a password: write passwordSecretRef too"
}]))]
pub(crate) struct Redis {
    /// Its host and port, such as valkey.default.svc:6379; an IPv6 address in brackets.
    #[schemars(
        length(min = 3, max = 261),
        regex(pattern = r"^(\[[0-9a-fA-F:.]+\]|[^:\[\]/@ ]+):[0-9]{1,5}$")
    )]
    pub(crate) address: String,
    /// The user whose password it is (ACL). Default: the default user.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) username: Option<String>,
    /// The password, in a Secret of the policy's namespace, without the end of the line. The default of key is password.
    /// Default: none.
    pub(crate) password_secret_ref: Option<SecretKeyRef>,
    /// Encrypts the connection; tls: {} is enough where browsers trust the certificate. Default: it is not encrypted.
    pub(crate) tls: Option<RedisTls>,
    /// The number of the database, from 0 to 65535. Default: 0.
    #[schemars(range(min = 0, max = 65535))]
    pub(crate) database: Option<i64>,
    /// What the names of all keys begin with: those with the same prefix count the limits of the same policy together, also
    /// of several clusters. Letters, digits and any of -_.:/ up to 64. Default: sluicegate.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[-A-Za-z0-9_.:/]+$"))]
    pub(crate) prefix: Option<String>,
    /// How long counts are gathered until they are told to the others, from 5ms to 1s. Default: 20ms.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) interval: Option<String>,
    /// For the answer to that, from 5ms to 5s; without one in time, each data plane counts for itself until there is one.
    /// Default: 50ms.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
}

/// How the connection is encrypted.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RedisTls {
    /// The name that its certificate must be for. Default: the host of address.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) server_name: Option<String>,
    /// Who vouches for it: certificates in PEM in a Secret of the policy's namespace. The default of key is ca.crt. Default:
    /// those whom browsers trust.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
}

/// One limit.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.burst) || !has(self.algorithm) || self.algorithm == 'TokenBucket'",
    "message": "burst is for algorithm: TokenBucket alone"
}]))]
pub(crate) struct Limit {
    /// What it is called in headers, logs and metrics: lower-case letters, digits and hyphens.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub(crate) name: String,
    /// How many requests may come in the time that per says, from 1 to 1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests: i64,
    /// That time, such as 1s, 1m or 24h, from 1ms to 720h (30 days).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) per: String,
    /// How many requests may come at once, from 1 to 1000000, with the algorithm TokenBucket. Default: as many as requests says.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) burst: Option<i64>,
    /// TokenBucket is filled evenly and holds as many requests as burst says. SlidingWindow takes no more in any stretch of that
    /// time, as reckoned from the counts of this window and the one before. Default: TokenBucket.
    pub(crate) algorithm: Option<LimitAlgorithm>,
    /// Requests that have all of these in common are counted together: from 1 to 8. Default: all requests of the policy's routes.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) key: Option<Vec<LimitKey>>,
    /// The limit is for Consumers of one of these groups: from 1 to 64. Default: for everybody.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// Whether requests over the limit are counted (sluicegate_policy_dry_runs_total), named in the JSON access log (dry_runs), and served all
    /// the same, of which clients are not told. Default: false.
    pub(crate) dry_run: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum LimitAlgorithm {
    TokenBucket,
    SlidingWindow,
}

/// What requests have in common.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Claim')",
        "message": "name is needed with type: Header and type: Claim, and is for these alone"
    },
    {
        "rule": "!has(self.ipv6PrefixLength) || self.type == 'Address'",
        "message": "ipv6PrefixLength is for type: Address alone"
    }
]))]
pub(crate) struct LimitKey {
    /// Address is the client's, as far as trusted peers tell it. Header is the value of a header, of Host the name alone in lower case;
    /// requests without one, or with more than one line of it, are counted together. Claim is the value of a claim of the token;
    /// those without one are counted together. Consumer is the Consumer; callers that are none are counted by their
    /// address. Route is the route: the host and the path of the Ingress that take the request.
    #[serde(rename = "type")]
    pub(crate) kind: LimitKeyType,
    /// The name of the header or the claim.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: Option<String>,
    /// How many bits of an IPv6 address count, from 1 to 128: who has one address of a network has all of them. Default: 64.
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
