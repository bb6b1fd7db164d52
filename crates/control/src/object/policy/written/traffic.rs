//! `TrafficPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::target::TargetRef;

/// Says how requests go on: time limits, retries, headers, rewrites, redirects, answers of the gateway's own, shares for other
/// Services, the choice of an endpoint, copies, kept responses, and faults on purpose. The most specific policy governs a route, as a whole: one
/// for a port of the Service, then one for the Service, then one for the Ingress; of equals the oldest. A part that is written
/// wrongly does nothing, and the others hold.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.redirect) || !has(self.respond)",
        "message": "write redirect or respond, not both"
    },
    {
        "rule": "(!has(self.circuitBreaker) && !has(self.healthCheck)) || self.targetRefs.all(target, target.kind == 'Service')",
        "message": "circuitBreaker and healthCheck are of a Service: write targetRefs to Services alone"
    }
]))]
pub(crate) struct TrafficPolicySpec {
    /// What the policy is for: from 1 to 16 Ingresses and Services of its own namespace. It governs all routes of a targeted
    /// Ingress, and all routes that lead to a targeted Service, or to the port that sectionName names.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) target_refs: Vec<TargetRef>,
    /// Time limits in place of the global ones. Each is from 1ms to 24h.
    pub(crate) timeouts: Option<Timeouts>,
    /// When a request is sent once more.
    pub(crate) retries: Option<Retries>,
    /// Limits of sizes in place of the global ones.
    pub(crate) limits: Option<Limits>,
    /// What becomes of the headers of requests on the way to the Service.
    pub(crate) request_headers: Option<HeaderRules>,
    /// What becomes of the headers of responses on the way to the client. Those that are set or added are also in answers of the
    /// gateway's own.
    pub(crate) response_headers: Option<HeaderRules>,
    /// What the Service is asked for in place of what the client asks for.
    pub(crate) rewrite: Option<Rewrite>,
    /// Sends clients elsewhere, without asking the Service. Who is where it leads to already is served.
    pub(crate) redirect: Option<Redirect>,
    /// Answers clients, without asking the Service.
    pub(crate) respond: Option<Respond>,
    /// Makes requests fail on purpose, to see who bears it.
    pub(crate) fault: Option<Fault>,
    /// Sends some of the requests to other Services.
    pub(crate) split: Option<Split>,
    /// How an endpoint of the Service is chosen.
    pub(crate) load_balancing: Option<LoadBalancing>,
    /// Sends copies of requests to another Service, whose responses nobody gets.
    pub(crate) mirror: Option<Mirror>,
    /// Keeps responses for others, as HTTP says (RFC 9111): those that say that they may be kept, and never those that are for one
    /// caller. On routes where a SecurityPolicy asks callers who they are nothing is kept.
    pub(crate) cache: Option<Cache>,
    /// How much the Service may be given at once, and which endpoints are avoided since they answer badly. For policies whose targets are
    /// Services alone.
    pub(crate) circuit_breaker: Option<CircuitBreaker>,
    /// Asks the endpoints of the Service how they are. For policies whose targets are Services alone.
    pub(crate) health_check: Option<HealthCheck>,
}

/// How much a Service may be given at once, counted over all workers of a data plane.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CircuitBreaker {
    /// Requests under way at the Service, from 1 to 1000000; 503 above it. Default: as the Service's annotation says, or no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_requests: Option<i64>,
    /// Requests under way at one endpoint, from 1 to 1000000. A full one is passed over, and 503 is answered when all are full.
    /// Default: as the Service's annotation says, or no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) max_requests_per_endpoint: Option<i64>,
    /// Avoids endpoints that answer badly while others serve.
    pub(crate) ejection: Option<Ejection>,
}

/// When an endpoint is avoided since it answers badly. When all are, none is.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ejection {
    /// Failures and statuses from 500 to 599 in a row, as one worker sees them, from 1 to 1000. Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) consecutive_errors: Option<i64>,
    /// For how long, from 1ms to 24h, and for as much longer each time in a row, up to ten times. Default: 30s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) time: Option<String>,
    /// Of 100 endpoints no more than so many are avoided for it, from 1 to 100. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) max_percent: Option<i64>,
}

/// How endpoints are asked how they are. Those that answer badly are avoided while others serve.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'HTTP' || (!has(self.path) && !has(self.hostname) && !has(self.statuses))",
        "message": "path, hostname and statuses are for type: HTTP alone"
    },
    {
        "rule": "self.type == 'GRPC' || !has(self.service)",
        "message": "service is for type: GRPC alone"
    }
]))]
pub(crate) struct HealthCheck {
    /// HTTP is a GET, GRPC is grpc.health.v1.Health/Check (of a Service that is spoken with over HTTP/2), TCP is a connection, with
    /// TLS where it is spoken.
    #[serde(rename = "type")]
    pub(crate) kind: HealthCheckType,
    /// The path of a GET, with or without a query. Default: /.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) path: Option<String>,
    /// The host of a GET. Default: the address of the endpoint.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
    /// The good statuses, such as 200 or 200-399. Default: 200-399.
    #[schemars(regex(pattern = r"^[1-5][0-9]{2}(-[1-5][0-9]{2})?$"))]
    pub(crate) statuses: Option<String>,
    /// The service that is asked for by GRPC. Default: the server as a whole.
    #[schemars(length(max = 256))]
    pub(crate) service: Option<String>,
    /// Between two checks of an endpoint by one data plane, from 100ms to 1h. Default: 10s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) interval: Option<String>,
    /// How long a check may take, from 1ms to 1h. Default: 1s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
    /// Good checks in a row after which an endpoint is trusted again, from 1 to 100. Default: 2.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) healthy_threshold: Option<i64>,
    /// Bad checks in a row after which it is avoided, from 1 to 100. Default: 3.
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

/// Time limits.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeouts {
    /// From the head of a request to the head of its response, over all attempts: 504 after it. Default: no limit.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) request: Option<String>,
    /// For one connect to one endpoint. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) connect: Option<String>,
    /// From the end of a request to the head of its response: 504 after it. Default: 60s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) response: Option<String>,
    /// Between two reads of a body of a response, and between two writes of a body of a request to an endpoint. Default: 60s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) idle: Option<String>,
    /// Between two reads of a body of a request: 408 after it. Default: 60s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) request_body: Option<String>,
    /// How long an upgraded connection, such as a WebSocket, may be silent. Default: 1h.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) tunnel: Option<String>,
}

/// When a request is sent once more. A request whose method is not idempotent (RFC 9110, 9.2.2), such as POST, is sent once more
/// only if nothing was sent before.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retries {
    /// How many endpoints a request is sent to in all, from 1 to 10; 1 is no retry. Default: 3.
    #[schemars(range(min = 1, max = 10))]
    pub(crate) attempts: Option<i64>,
    /// How long an attempt may take, from 1ms to 24h, before another endpoint is asked; the last one may take as long as the time limits
    /// allow. Default: so may each.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) per_attempt: Option<String>,
    /// Statuses from 500 to 599 after which another endpoint is asked. Default: none, since a response is an answer.
    #[schemars(length(min = 1, max = 16), inner(range(min = 500, max = 599)))]
    pub(crate) statuses: Option<Vec<i64>>,
    /// How many retries there may be, so that they do not bring down what is slow. Default: no limit.
    pub(crate) budget: Option<RetryBudget>,
}

/// How many requests of the last 10 seconds may have been sent once more.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetryBudget {
    /// Of 100 requests, from 0 to 100. Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) percent: Option<i64>,
    /// Each second whatever percent makes, from 0 to 1000. Default: 10.
    #[schemars(range(min = 0, max = 1000))]
    pub(crate) min_per_second: Option<i64>,
}

/// Limits of sizes.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Limits {
    /// A body of a request, in bytes, such as 1Mi or 500k; 413 above it. 0 is no limit. Default: as set globally.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) request_body: Option<String>,
    /// A body of a response, in bytes as it comes from the endpoint, such as 100Mi; 502 above it if its head says how long it is, else it is
    /// broken off there. 0 is no limit. Default: no limit.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) response_body: Option<String>,
}

/// What becomes of headers. Those to set and to remove are taken out first, then those to set and to add are put in.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeaderRules {
    /// Headers in place of all of these names, from 1 to 32.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) set: Option<Vec<Header>>,
    /// Headers beside others of these names, from 1 to 32.
    #[schemars(length(min = 1, max = 32))]
    pub(crate) add: Option<Vec<Header>>,
    /// Names of headers to take out, from 1 to 32.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 256)))]
    pub(crate) remove: Option<Vec<String>>,
}

/// A header.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: String,
    /// Its value, as it is.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) value: String,
}

/// What the Service is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rewrite {
    /// What the path becomes. The query stays.
    pub(crate) path: Option<PathRewrite>,
    /// The host that the Service is asked for. The client's is in X-Forwarded-Host. Default: the client's.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
}

/// What a path becomes.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathRewrite {
    /// ReplaceFullPath makes it the value. ReplacePrefixMatch puts the value in place of the route's own path: with /app for a route of
    /// /shop, /shop/cart becomes /app/cart.
    #[serde(rename = "type")]
    pub(crate) kind: PathRewriteType,
    /// A path, which begins with /.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum PathRewriteType {
    ReplaceFullPath,
    ReplacePrefixMatch,
}

/// Where clients are sent. What is left out stays as they asked for it, the query always.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.scheme) || has(self.hostname) || has(self.port) || has(self.path)",
    "message": "write scheme, hostname, port or path, or clients are sent in circles"
}]))]
pub(crate) struct Redirect {
    /// http or https.
    pub(crate) scheme: Option<Scheme>,
    /// The host.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hostname: Option<String>,
    /// The port, from 1 to 65535. Default: that of the scheme if scheme is written, else the one that the client has named.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: Option<i64>,
    /// What the path becomes.
    pub(crate) path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308. Default: 302.
    #[schemars(range(min = 301, max = 308))]
    pub(crate) status_code: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// What clients are answered.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Respond {
    /// From 200 to 599, without 204 and 304 if there is a body.
    #[schemars(range(min = 200, max = 599))]
    pub(crate) status_code: i64,
    /// What the body is. Default: text/plain.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) content_type: Option<String>,
    /// The body, at most 16384 bytes. Default: empty.
    #[schemars(length(max = 16384))]
    pub(crate) body: Option<String>,
}

/// Faults on purpose. Both can hit one request: it waits, and then it fails.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fault {
    /// Requests that wait before they go on.
    pub(crate) delay: Option<Delay>,
    /// Requests that get an error in place of a response.
    pub(crate) abort: Option<Abort>,
}

/// Requests that wait.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delay {
    /// Of 100 requests, from 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
    /// How long, from 1ms to 1h.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) time: String,
}

/// Requests that fail.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Abort {
    /// Of 100 requests, from 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
    /// What they are answered, from 400 to 599.
    #[schemars(range(min = 400, max = 599))]
    pub(crate) status_code: i64,
}

/// Shares for other Services: a canary, or two versions beside each other.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Split {
    /// The share of the Service that the route names, from 0 to 1000000. Default: 100.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) weight: Option<i64>,
    /// The other Services, from 1 to 8. The first of which a match holds has the request. If there is none, the request goes by weight
    /// to the route's own Service or to one of those of which no exclude holds.
    #[schemars(length(min = 1, max = 8))]
    pub(crate) backends: Vec<SplitBackend>,
}

/// Another Service, which is spoken with as its own annotations say.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SplitBackend {
    /// The Service.
    pub(crate) service_ref: ServiceRef,
    /// Its share, from 0 to 1000000. Default: 0, so that requests go there by match alone.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(crate) weight: Option<i64>,
    /// Requests of which one of these holds go there, from 1 to 16.
    #[serde(rename = "match")]
    #[schemars(length(min = 1, max = 16))]
    pub(crate) matches: Option<Vec<RequestMatch>>,
    /// Requests of which one of these holds do not go there by weight, from 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) exclude: Option<Vec<RequestMatch>>,
}

/// A Service of the policy's namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The number of its port, from 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub(crate) port: i64,
}

/// What a request has: a header or a cookie.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.header) != has(self.cookie)",
    "message": "write header or cookie"
}]))]
pub(crate) struct RequestMatch {
    /// The name of a header.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) header: Option<String>,
    /// The name of a cookie.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: Option<String>,
    /// Its value, to the letter. Default: any.
    #[schemars(length(min = 1, max = 4096))]
    pub(crate) value: Option<String>,
}

/// How an endpoint is chosen.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.hash) == (has(self.algorithm) && self.algorithm == 'ConsistentHash')",
    "message": "hash is needed with algorithm: ConsistentHash, and is for it alone"
}]))]
pub(crate) struct LoadBalancing {
    /// ResponseTime prefers endpoints that answer fast and have little to do, LeastRequest those that have little to do; RoundRobin takes
    /// them in turn. ConsistentHash sends requests with the same hash to the same endpoint while it has at most 5/4 of the mean number of
    /// requests under way, else to the next of their order. Default: as the Service says.
    pub(crate) algorithm: Option<BalancingAlgorithm>,
    /// What requests that go to the same endpoint have in common: from 1 to 4.
    #[schemars(length(min = 1, max = 4))]
    pub(crate) hash: Option<Vec<HashPart>>,
    /// A cookie by which a client comes back to the endpoint that it had, as long as that serves.
    pub(crate) affinity: Option<Affinity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum BalancingAlgorithm {
    ResponseTime,
    RoundRobin,
    LeastRequest,
    ConsistentHash,
}

/// What requests have in common.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie and Query, and is for these alone"
}]))]
pub(crate) struct HashPart {
    /// Address is the client's, as far as trusted peers tell it. Header, Cookie and Query are the values of a header, a cookie and a parameter
    /// of the query. Path is the path.
    #[serde(rename = "type")]
    pub(crate) kind: HashPartType,
    /// The name of the header, the cookie or the parameter.
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

/// A cookie by which clients come back to their endpoint. It names no address.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Affinity {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) cookie: String,
    /// How long clients keep it, from 1s to 8760h. Default: until they end.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) max_age: Option<String>,
}

/// Who gets copies of requests.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mirror {
    /// The Service.
    pub(crate) service_ref: ServiceRef,
    /// Of 100 requests, from 1 to 100. Default: 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) percent: Option<i64>,
}

/// Which responses are kept.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cache {
    /// The memory that all kept responses of the policy take, with their keys, in each data plane: from 64Ki to 64Gi. What was not asked
    /// for in a while goes first. Default: 64Mi.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) max_size: Option<String>,
    /// The longest body that is kept, up to a quarter of maxSize. Longer ones pass as they come. Default: 1Mi, or a quarter of maxSize
    /// if that is less.
    #[schemars(regex(pattern = r"^[0-9]{1,15}(k|M|G|Ki|Mi|Gi)?$"))]
    pub(crate) max_response_size: Option<String>,
    /// How long a response with status 200, 203, 301 or 308 is fresh that does not say how long it is, from 1s to 8760h, unless its
    /// request has a Cookie. Default: it is not kept.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) default_time: Option<String>,
    /// How long a response that is not fresh any longer may be used if no endpoint answers, or if one answers 500, 502, 503 or 504,
    /// from 1s to 8760h, unless it says that it must not be (must-revalidate, proxy-revalidate, s-maxage, no-cache). Default: as long
    /// as it says itself (stale-if-error).
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) stale_if_error: Option<String>,
    /// By what requests are told apart, beside their host, path and query and the headers that responses name in Vary.
    pub(crate) key: Option<CacheKey>,
}

/// By what requests are told apart.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheKey {
    /// Names of headers of requests, from 1 to 8.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 256)))]
    pub(crate) headers: Option<Vec<String>>,
}
