//! Explanations as data.

use serde::{Deserialize, Serialize};

/// The decision about a described request, and the reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The outcome. If [`is_certain`](Self::is_certain) is false: the outcome if each unknown step lets the request pass.
    pub outcome: Outcome,
    /// Whether no step is unknown.
    pub is_certain: bool,
    /// The status of the gateway's own response; `None` if the endpoint responds.
    pub status: Option<u16>,
    /// The reason in the access log, if the gateway refuses the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The object with the policy that refuses the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The URL of a redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The outcome, as sentences.
    pub because: String,
    /// The way to another outcome, if the gateway refuses the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    /// The listener: `http`, `https`, or the address of the listener of a Gateway.
    pub listener: String,
    /// The path in normal form, by which the gateway selects the route.
    pub path: String,
    /// The hosts that the gateway asked, the most specific first.
    pub hosts: Vec<HostTried>,
    /// The selected route.
    pub route: Option<Route>,
    /// The reason why the route comes before the next match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precedence: Option<Precedence>,
    /// The steps of the request, in the order in which the gateway applies them. A step that denies or responds is the last.
    pub steps: Vec<Step>,
    /// The upstreams that may receive the request, each with the request that its endpoint receives.
    pub destinations: Vec<Destination>,
}

/// The outcome of a described request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The gateway rejects the request, whatever its routes are.
    Rejected,
    /// No route matches.
    #[default]
    NoRoute,
    /// The gateway itself responds.
    Responds,
    /// The gateway forwards the request to an endpoint.
    Forwards,
}

/// A host that the gateway asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTried {
    /// The host pattern.
    pub host: String,
    /// The number of its matches.
    pub matches: usize,
    /// Whether one of its routes was selected.
    pub selected: bool,
    /// Whether the gateway asks the next less specific host if no route of this host matches.
    pub continues: bool,
    /// The matches whose path matches, in the order of their precedence. At most 20.
    pub near: Vec<Candidate>,
}

/// A match whose path matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The object with the match.
    pub from: String,
    /// The path pattern.
    pub path: String,
    /// The type of the path pattern.
    pub path_type: String,
    /// Whether the match was selected.
    pub selected: bool,
    /// The conditions that the request does not meet. If there are none, another match has precedence.
    pub unmet: Vec<String>,
}

/// The reason why a match comes before the next match that the request meets too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precedence {
    /// The object with the next match.
    pub over: String,
    /// The path pattern of the next match.
    pub path: String,
    /// The type of the path pattern.
    pub path_type: String,
    /// The rule of precedence, as a sentence.
    pub because: String,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The object with the route, `Ingress namespace/name`.
    pub from: String,
    /// The host pattern.
    pub host: String,
    /// The path pattern; `*` for a default backend.
    pub path: String,
    /// The type of the path pattern.
    pub path_type: String,
    /// The conditions of the match beside the path.
    pub conditions: Vec<String>,
    /// The version, the environment and the operation, if the route is of an API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiRoute>,
    /// The upstreams.
    pub upstreams: Vec<RouteUpstream>,
}

/// An operation of an API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiRoute {
    /// The version of the API.
    pub version: String,
    /// The environment.
    pub environment: String,
    /// The operation; `None` for requests that are for no operation.
    pub operation: Option<String>,
}

/// An upstream of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteUpstream {
    /// The key, `namespace/service:port`; `(invalid)` for an invalid backend.
    pub upstream: String,
    /// The part of the sum of all weights.
    pub weight: u32,
    /// The number of ready endpoints.
    pub ready: usize,
    /// The number of endpoints.
    pub endpoints: usize,
}

/// A step of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The phase, such as `authentication`.
    pub phase: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The effect, or the reason for the verdict.
    pub effect: String,
    /// The object with the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The status of the response, if the step denies or responds, or may do so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The reason in the access log, if the step denies or may deny.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The way to a known verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The verdict of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The request passes.
    #[default]
    Allows,
    /// The gateway refuses the request.
    Denies,
    /// The gateway itself responds, without a refusal.
    Responds,
    /// The gateway changes the request or the response.
    Changes,
    /// The gateway counts the request, and may refuse the request.
    Counts,
    /// The verdict follows from something that the explanation does not do, such as a question to a service.
    Unknown,
}

/// An upstream that may receive the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Destination {
    /// The key, `namespace/service:port`; `(invalid)` for an invalid backend.
    pub upstream: String,
    /// The probability in percent.
    pub percent: f64,
    /// The reason for the probability.
    pub because: String,
    /// The request that the endpoint receives; `None` if the gateway refuses the request instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Sent>,
    /// The refusal, if the gateway cannot forward the request to the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refused>,
    /// The load balancing, in words.
    pub balancing: String,
    /// Whether the health of the endpoints is known.
    pub is_health_known: bool,
    /// The endpoints. At most 100.
    pub endpoints: Vec<Member>,
    /// The number of further endpoints.
    pub more_endpoints: usize,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// The reason in the access log.
    pub reason: String,
    /// The reason, as a sentence.
    pub because: String,
}

/// A request, as the endpoint receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The path.
    pub path: String,
    /// The query, without its `?`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The value of the header `Host`.
    pub host: String,
    /// The other headers. The values that each request has anew are in parentheses.
    pub headers: Vec<(String, String)>,
}

/// An endpoint of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The address and port.
    pub address: String,
    /// Whether the endpoint may receive the request.
    pub is_eligible: bool,
    /// The reason, if the endpoint does not receive the request, or only if others fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}
