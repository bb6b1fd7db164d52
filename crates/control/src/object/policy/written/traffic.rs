//! `TrafficPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::target::TargetRef;

/// Sets how the gateway forwards requests: timeouts, retries, headers, rewrites, redirects, fixed responses, traffic
/// splits, load balancing, mirrors, caching and faults. One policy applies to a route, and the gateway merges nothing.
/// A policy for a port of the Service precedes a policy for the Service, which precedes a policy for the Ingress. The
/// oldest policy precedes others with the same target. An invalid part has no effect, and the other parts stay in
/// effect.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.redirect) || !has(self.respond)",
        "message": "redirect cannot be combined with respond: remove one of them"
    },
    {
        "rule": "(!has(self.circuitBreaker) && !has(self.healthCheck)) || self.targetRefs.all(target, target.kind == 'Service')",
        "message": "circuitBreaker and healthCheck are only for Services: name only Services in targetRefs"
    }
]))]
pub(crate) struct TrafficPolicySpec {
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With an Ingress, the policy
    /// applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the Service,
    /// or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) target_refs: Vec<TargetRef>,
    /// Timeouts that replace the global timeouts. 1ms to 24h each.
    pub(crate) timeouts: Option<Timeouts>,
    /// The failures after which the gateway retries a request. Default: the global settings.
    pub(crate) retries: Option<Retries>,
    /// Size limits that replace the global limits.
    pub(crate) limits: Option<Limits>,
    /// Changes of request headers on the way to the endpoint. Default: none.
    pub(crate) request_headers: Option<HeaderRules>,
    /// Changes of response headers on the way to the client. The gateway also adds and sets these headers in its own
    /// responses. Default: none.
    pub(crate) response_headers: Option<HeaderRules>,
    /// Replaces the path or the host of requests on the way to the endpoint. Default: both stay.
    pub(crate) rewrite: Option<Rewrite>,
    /// Redirects clients without a request to an endpoint. The gateway forwards requests that already are for the
    /// target of the redirect. Default: no redirect.
    pub(crate) redirect: Option<Redirect>,
    /// Responds with a fixed response, without a request to an endpoint. Default: none.
    pub(crate) respond: Option<Respond>,
    /// Delays or aborts requests, to test how clients handle faults. Default: none.
    pub(crate) fault: Option<Fault>,
    /// Sends some of the requests to other Services. Default: none.
    pub(crate) split: Option<Split>,
    /// The choice of an endpoint for each request. Default: the setting of the Service.
    pub(crate) load_balancing: Option<LoadBalancing>,
    /// Sends copies of requests to another Service, and drops its responses. Default: none.
    pub(crate) mirror: Option<Mirror>,
    /// Caches responses as a shared cache (RFC 9111): responses that allow it, and never responses for one caller. The
    /// gateway caches nothing on routes whose SecurityPolicy authenticates callers. Default: no cache.
    pub(crate) cache: Option<Cache>,
    /// Limits the requests in flight at the Service, and ejects endpoints that return errors. All targets must be
    /// Services. Default: none.
    pub(crate) circuit_breaker: Option<CircuitBreaker>,
    /// Checks the health of the Service's endpoints. All targets must be Services. Default: no checks.
    pub(crate) health_check: Option<HealthCheck>,
}

/// Limits of the requests in flight at a Service, counted over all workers of a data plane.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CircuitBreaker {
    /// The largest number of requests in flight at the Service. Requests above it receive 503. 1 to 1000000. Default:
    /// the annotation of the Service, or no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_requests: Option<i64>,
    /// The largest number of requests in flight at one endpoint. The gateway skips a full endpoint, and responds with
    /// 503 if all endpoints are full. 1 to 1000000. Default: the annotation of the Service, or no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_requests_per_endpoint: Option<i64>,
    /// Ejects endpoints that return errors, while other endpoints are healthy. Default: no ejection.
    pub(crate) ejection: Option<Ejection>,
}

/// The ejection of endpoints that return errors. If all endpoints are ejected, the gateway uses all of them.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ejection {
    /// The consecutive failures and 5xx responses, as one worker counts them, that eject an endpoint. 1 to 1000.
    /// Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) consecutive_errors: Option<i64>,
    /// The duration of the first ejection. Each further ejection in a row lasts longer by this time, up to ten times
    /// this time. 1ms to 24h. Default: 30s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) time: Option<String>,
    /// The largest percentage of the endpoints that may be ejected at once. 1 to 100. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) max_percent: Option<i64>,
}

/// Health checks of endpoints. The gateway avoids endpoints that fail their checks, while other endpoints are healthy.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'HTTP' || (!has(self.path) && !has(self.hostname) && !has(self.statuses))",
        "message": "path, hostname and statuses are only for type: HTTP"
    },
    {
        "rule": "self.type == 'GRPC' || !has(self.service)",
        "message": "service is only for type: GRPC"
    }
]))]
pub(crate) struct HealthCheck {
    /// The type of the check. HTTP: a GET. GRPC: a call of grpc.health.v1.Health/Check, for a Service that the gateway
    /// uses with HTTP/2. TCP: a connect, with a TLS handshake if the Service uses TLS.
    #[serde(rename = "type")]
    pub(crate) kind: HealthCheckType,
    /// The path of the GET, with or without a query. Only for type HTTP. Default: /.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) path: Option<String>,
    /// The host of the GET. Only for type HTTP. Default: the address of the endpoint.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
    /// The statuses of a healthy endpoint, such as 200 or 200-399. Only for type HTTP. 100 to 599. Default: 200-399.
    #[schemars(regex(pattern = r"^[1-5][0-9]{2}(-[1-5][0-9]{2})?$"))]
    pub(crate) statuses: Option<String>,
    /// The service in the gRPC call. Only for type GRPC. Default: the server as a whole.
    #[schemars(length(max = 256))]
    pub(crate) service: Option<String>,
    /// The time between two checks of an endpoint by one data plane. 100ms to 1h. Default: 10s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) interval: Option<String>,
    /// The timeout of one check. 1ms to 1h. Default: 1s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
    /// The consecutive passed checks after which an endpoint is healthy. 1 to 100. Default: 2.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) healthy_threshold: Option<i64>,
    /// The consecutive failed checks after which an endpoint is unhealthy. 1 to 100. Default: 3.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) unhealthy_threshold: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum HealthCheckType {
    Http,
    Grpc,
    Tcp,
}

/// Timeouts.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeouts {
    /// The timeout from the head of a request to the head of its response, over all attempts. The gateway then responds
    /// with 504. 1ms to 24h. Default: no timeout.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) request: Option<String>,
    /// The timeout of one connect to one endpoint. 1ms to 24h. Default: the global --connect-timeout (5s).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) connect: Option<String>,
    /// The timeout from the end of a request to the head of its response. The gateway then responds with 504. 1ms to
    /// 24h. Default: the global --response-timeout (60s).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) response: Option<String>,
    /// The timeout between two reads of a response body, and between two writes of a request body to an endpoint. 1ms
    /// to 24h. Default: the global --upstream-idle-timeout (60s).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) idle: Option<String>,
    /// The timeout between two reads of a request body. The gateway then responds with 408. 1ms to 24h. Default: the
    /// global --request-body-timeout (60s).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) request_body: Option<String>,
    /// The idle timeout of an upgraded connection, such as a WebSocket. 1ms to 24h. Default: the global
    /// --tunnel-idle-timeout (1h).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) tunnel: Option<String>,
}

/// Retries of failed requests. The gateway retries a request with a method that is not idempotent (RFC 9110, 9.2.2),
/// such as POST, only if it sent nothing before.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retries {
    /// The largest number of attempts, including the first. 1 to 10; 1: no retry. Default: 3.
    #[schemars(range(min = 1, max = 10))]
    pub(crate) attempts: Option<i64>,
    /// The timeout of an attempt, after which the gateway tries another endpoint. The last attempt has no such timeout.
    /// 1ms to 24h. Default: no timeout per attempt.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) per_attempt: Option<String>,
    /// The response statuses after which the gateway retries. 500 to 599. 1 to 16 entries. Default: none.
    #[schemars(length(min = 1, max = 16), inner(range(min = 500, max = 599)))]
    pub(crate) statuses: Option<Vec<i64>>,
    /// The budget of retries, so that retries do not overload a slow Service. Default: no limit.
    pub(crate) budget: Option<RetryBudget>,
}

/// The share of the requests of the last 10 seconds that may be retries.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetryBudget {
    /// The retries per 100 requests. 0 to 100. Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) percent: Option<i64>,
    /// The retries per second that are always allowed, whatever percent is. 0 to 1000. Default: 10.
    #[schemars(range(min = 0, max = 1000))]
    pub(crate) min_per_second: Option<i64>,
}

/// Size limits.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Limits {
    /// The largest request body, in bytes, such as 1Mi or 500k. The gateway responds with 413 to longer bodies. 0: no
    /// limit. Default: the global --max-request-body (0).
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) request_body: Option<String>,
    /// The largest response body, in bytes as the endpoint sends it, such as 100Mi. If the response head has the
    /// length, the gateway responds with 502; otherwise it cuts the body off. 0: no limit. Default: 0.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) response_body: Option<String>,
}

/// Changes of headers. The gateway first removes the headers in set and remove. Then it adds the headers in set and
/// add.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeaderRules {
    /// Headers that replace all headers of the same name. 1 to 32 entries. Default: none.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) set: Option<Vec<Header>>,
    /// Headers that are added beside headers of the same name. 1 to 32 entries. Default: none.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) add: Option<Vec<Header>>,
    /// Names of headers that are removed. 1 to 32 entries. Default: none.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 256)))]
    pub(crate) remove: Option<Vec<String>>,
}

/// A header.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    /// The name of the header.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: String,
    /// The value of the header, without placeholders.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) value: String,
}

/// The path and host that endpoints receive.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rewrite {
    /// The new path. The query stays. Default: the client's path.
    pub(crate) path: Option<PathRewrite>,
    /// The new host. The client's host goes into X-Forwarded-Host. Default: the client's host.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
}

/// A new path.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathRewrite {
    /// The part of the path that value replaces. ReplaceFullPath: the whole path. ReplacePrefixMatch: the route's own
    /// path. With value /app and a route of /shop, /shop/cart becomes /app/cart.
    #[serde(rename = "type")]
    pub(crate) kind: PathRewriteType,
    /// The new path or prefix, which begins with /.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum PathRewriteType {
    ReplaceFullPath,
    ReplacePrefixMatch,
}

/// The target of a redirect. Parts that are not set stay as in the request. The query always stays.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.scheme) || has(self.hostname) || has(self.port) || has(self.path)",
    "message": "the redirect leads back to itself: write scheme, hostname, port or path"
}]))]
pub(crate) struct Redirect {
    /// The scheme of the target: http or https. Default: the scheme of the request.
    pub(crate) scheme: Option<Scheme>,
    /// The host of the target. Default: the host of the request.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
    /// The port of the target. 1 to 65535. Default: the scheme's port if scheme is set, otherwise the port of the
    /// request.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: Option<i64>,
    /// The path of the target. Default: the path of the request.
    pub(crate) path: Option<PathRewrite>,
    /// The status of the redirect: 301, 302, 303, 307 or 308. Default: 302.
    #[schemars(range(min = 301, max = 308))]
    pub(crate) status_code: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// A fixed response.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Respond {
    /// The status of the response. 200 to 599; with a body, not 204, 205 or 304.
    #[schemars(range(min = 200, max = 599))]
    pub(crate) status_code: i64,
    /// The media type of the body. Default: text/plain.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) content_type: Option<String>,
    /// The body of the response. At most 16384 bytes. Default: empty.
    #[schemars(length(max = 16384))]
    pub(crate) body: Option<String>,
}

/// Faults for tests. A request can get both: the gateway delays it, and then aborts it.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fault {
    /// Delays requests. Default: none.
    pub(crate) delay: Option<Delay>,
    /// Responds with an error, without a request to an endpoint. Default: none.
    pub(crate) abort: Option<Abort>,
}

/// A delay of requests.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delay {
    /// The percentage of the requests. 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
    /// The length of the delay. 1ms to 1h.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) time: String,
}

/// An error for requests.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Abort {
    /// The percentage of the requests. 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
    /// The status of the response. 400 to 599.
    #[schemars(range(min = 400, max = 599))]
    pub(crate) status_code: i64,
}

/// Shares of the requests for other Services: a canary, or two versions side by side.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Split {
    /// The weight of the Service that the route names. 0 to 1000000. Default: 100.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) weight: Option<i64>,
    /// The other Services. 1 to 8 entries. The first Service with a matching match receives the request. Otherwise the
    /// gateway chooses by weight between the route's Service and the Services without a matching exclude.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) backends: Vec<SplitBackend>,
}

/// Another Service. The gateway connects to the Service as the annotations of this Service say.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SplitBackend {
    /// The Service.
    pub(crate) service_ref: ServiceRef,
    /// The weight of the Service. 0 to 1000000. Default: 0, so that the Service receives requests only by match.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) weight: Option<i64>,
    /// Requests that match one of these entries go to the Service. 1 to 16 entries. Default: none.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = 16))]
    pub(crate) matches: Option<Vec<RequestMatch>>,
    /// Requests that match one of these entries do not go to the Service by weight. 1 to 16 entries. Default: none.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) exclude: Option<Vec<RequestMatch>>,
}

/// A Service in the policy's namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceRef {
    /// The name of the Service.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The number of the Service's port. 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i64,
}

/// A condition on requests: exactly one of header and cookie.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.header) != has(self.cookie)",
    "message": "write exactly one of header and cookie"
}]))]
pub(crate) struct RequestMatch {
    /// The name of a header.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) header: Option<String>,
    /// The name of a cookie.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: Option<String>,
    /// The exact value. Default: any value.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) value: Option<String>,
}

/// The choice of an endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.hash) == (has(self.algorithm) && self.algorithm == 'ConsistentHash')",
    "message": "hash is needed with algorithm: ConsistentHash, and only there"
}]))]
pub(crate) struct LoadBalancing {
    /// The algorithm. ResponseTime prefers endpoints with a short response time and few requests in flight.
    /// LeastRequest prefers endpoints with few requests in flight. RoundRobin takes the endpoints in turn.
    /// ConsistentHash sends requests with the same hash to the same endpoint. While the endpoint has more than 5/4 of
    /// the mean requests in flight, the next endpoint in the order of the hash receives the requests. Default: the
    /// setting of the Service.
    pub(crate) algorithm: Option<BalancingAlgorithm>,
    /// The parts of a request that make its hash. Needed with algorithm ConsistentHash, and only there. 1 to 4 entries.
    #[schemars(length(min = 1, max = 4))]
    pub(crate) hash: Option<Vec<HashPart>>,
    /// Session affinity: a cookie that leads a client back to its endpoint, while the endpoint is eligible. Default: no
    /// affinity.
    pub(crate) affinity: Option<Affinity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum BalancingAlgorithm {
    ResponseTime,
    RoundRobin,
    LeastRequest,
    ConsistentHash,
}

/// A part of a request.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie or Query, and only there"
}]))]
pub(crate) struct HashPart {
    /// The part. Address: the client IP. Header, Cookie and Query: the value of a header, a cookie or a query
    /// parameter. Path: the path.
    #[serde(rename = "type")]
    pub(crate) kind: HashPartType,
    /// The name of the header, the cookie or the parameter. Needed with type Header, Cookie or Query, and only there.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum HashPartType {
    Address,
    Header,
    Cookie,
    Query,
    Path,
}

/// A cookie that leads a client back to its endpoint. The cookie does not contain the endpoint's address.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Affinity {
    /// The name of the cookie.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: String,
    /// The lifetime of the cookie. 1s to 8760h. Default: until the client's session ends.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) max_age: Option<String>,
}

/// The Service that receives copies of requests.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mirror {
    /// The Service.
    pub(crate) service_ref: ServiceRef,
    /// The percentage of the requests. 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
}

/// A cache of responses.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cache {
    /// The memory for the policy's cached responses and their keys, in each data plane, in bytes. If the cache is full,
    /// the gateway evicts responses that were not requested for the longest time. 64Ki to 64Gi. Default: 64Mi.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) max_size: Option<String>,
    /// The largest body that the gateway caches, in bytes. Longer bodies pass uncached. 1 to a quarter of maxSize.
    /// Default: 1Mi, or a quarter of maxSize if that is less.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) max_response_size: Option<String>,
    /// The freshness of responses with status 200, 203, 301 or 308 that do not set their own freshness. Requests with a
    /// Cookie are exempt. 1s to 8760h. Default: the gateway does not cache these responses.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) default_time: Option<String>,
    /// How long a stale response may be used if no endpoint responds, or an endpoint responds with 500, 502, 503 or
    /// 504. Responses with must-revalidate, proxy-revalidate, s-maxage or no-cache are exempt. 1s to 8760h. Default:
    /// the response's own stale-if-error.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) stale_if_error: Option<String>,
    /// Further parts of the cache key, beside host, path, query and the headers in Vary. Default: none.
    pub(crate) key: Option<CacheKey>,
}

/// Further parts of the cache key.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheKey {
    /// Names of request headers. 1 to 8 entries. Default: none.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 256)))]
    pub(crate) headers: Option<Vec<String>>,
}
