//! Explains which route serves a described request, and why: for `sluicegate explain`, `/explain` and the dashboard.
//!
//! The parser, the normal form of paths and the routing table are those that serve requests. The explanation sends nothing, and
//! evaluates no policy: it lists the policies in the order in which the gateway applies them.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluicegate_http1::{
    HeadLimits, HeadScan, Method, Normalised, Rejection, RequestHead, TargetForm, normalise,
};
use sluicegate_model::feature::{FaultInjection, HeaderEdits, UrlRewrite};
use sluicegate_model::rule::{Backend, Rule, RuleMatch};
use sluicegate_model::{Config, ObjectId, Serves};

use crate::http::target::{
    check_target, has_encoded_slash, is_acme_challenge, raw_path, with_decoded_slashes,
};
use crate::registry::Registry;
use crate::request::HeadView;
use crate::rule::trace::{HostStep, Near, conditions};
use crate::rule::{Entrance, Table};

/// The longest described request, in bytes.
pub const DESCRIPTION_MAX: usize = 16 * 1024;

/// A described request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The method.
    pub method: String,
    /// Whether the client uses HTTPS.
    pub is_https: bool,
    /// The host, with its port if it has one.
    pub authority: String,
    /// The path with its query.
    pub target: String,
    /// The headers beside `Host`.
    pub headers: Vec<(String, String)>,
}

/// The reason why a text describes no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The URL has no host.
    #[error("the URL {0:?} has no scheme and host: write http://HOST/PATH or https://HOST/PATH")]
    Url(Box<str>),
    /// A header has no colon.
    #[error("the header {0:?} has no colon: write NAME: VALUE")]
    Header(Box<str>),
    /// A part has a line break or another control character.
    #[error("{0} has a control character: remove it")]
    Control(&'static str),
    /// The description is too long.
    #[error("the description of the request has more than {DESCRIPTION_MAX} bytes: shorten it")]
    TooLong,
}

impl Described {
    /// A request in the notation of the command line: a method, a URL, and headers as `NAME: VALUE`.
    ///
    /// # Errors
    ///
    /// If the parts describe no request.
    pub fn new<'h>(
        method: &str,
        url: &str,
        headers: impl IntoIterator<Item = &'h str>,
    ) -> Result<Self, DescriptionError> {
        let no_url = || DescriptionError::Url(url.chars().take(200).collect());
        let (scheme, rest) = url.split_once("://").ok_or_else(no_url)?;
        let is_https = match scheme {
            scheme if scheme.eq_ignore_ascii_case("https") => true,
            scheme if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(no_url()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() || authority.contains('@') {
            return Err(no_url());
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        let mut described = Self {
            method: method.to_owned(),
            is_https,
            authority: authority.to_owned(),
            target: format!("{slash}{target}"),
            headers: Vec::new(),
        };
        for line in headers {
            let cut = || DescriptionError::Header(line.chars().take(200).collect());
            let (name, value) = line.split_once(':').ok_or_else(cut)?;
            described.headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        described.check()?;
        Ok(described)
    }

    fn check(&self) -> Result<(), DescriptionError> {
        let has_control = |text: &str| text.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
        let has_space = |text: &str| text.bytes().any(|byte| byte <= b' ');
        if has_space(&self.method) {
            return Err(DescriptionError::Control("the method"));
        }
        if has_space(&self.authority) || has_space(&self.target) {
            return Err(DescriptionError::Control("the URL"));
        }
        if self.headers.iter().any(|(name, value)| has_control(name) || has_control(value)) {
            return Err(DescriptionError::Control("a header"));
        }
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        if headers + self.method.len() + self.authority.len() + self.target.len() > DESCRIPTION_MAX {
            return Err(DescriptionError::TooLong);
        }
        Ok(())
    }

    /// The head of the request, as a client sends it.
    fn head(&self) -> Vec<u8> {
        let Self { method, authority, target, headers, .. } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n");
        let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        others.for_each(|(name, value)| head.extend([name, ": ", value, "\r\n"]));
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The port of the URL.
    fn port(&self) -> u16 {
        let port = self.authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

/// The route of a described request, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The outcome.
    pub outcome: Outcome,
    /// The status of the gateway's own response; `None` if the endpoint responds.
    pub status: Option<u16>,
    /// The reason, as a sentence.
    pub because: String,
    /// The listener: `http`, `https`, or the address of the listener of a Gateway.
    pub listener: String,
    /// The path in normal form, by which the gateway selects the route.
    pub path: String,
    /// The hosts that the gateway asked, the most specific first.
    pub hosts: Vec<HostTried>,
    /// The selected route.
    pub route: Option<Route>,
    /// The steps of the request at the route, in the order in which the gateway applies them.
    pub steps: Vec<Step>,
}

/// The outcome of a described request, as far as it is known without a request.
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
    /// The gateway forwards the request to an endpoint, if the policies allow the request.
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

/// A step of a request at its route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The phase, such as `authentication`.
    pub phase: String,
    /// The effect.
    pub effect: String,
    /// The object with the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl Registry {
    /// Explains which route serves a described request; `None` before the first configuration.
    #[must_use]
    pub fn explain(&self, request: &Described) -> Option<Explanation> {
        Some(explain(&self.table(), &self.config()?, request))
    }
}

/// Explains a request with this table and this configuration.
fn explain(table: &Table, config: &Config, request: &Described) -> Explanation {
    let buf = request.head();
    let mut head = RequestHead::default();
    let rejected = |rejection: Rejection| Explanation {
        outcome: Outcome::Rejected,
        status: Some(rejection.status()),
        because: format!("The gateway rejects the request: {rejection}."),
        ..Explanation::default()
    };
    let limits = &table.settings.limits;
    let limits = HeadLimits { bytes: limits.request_head, headers: limits.headers };
    match head.parse(&buf, &mut HeadScan::default(), &limits) {
        Ok(true) => {}
        Ok(false) => return rejected(Rejection::HeadTooLarge),
        Err(rejection) => return rejected(rejection),
    }
    if matches!(head.method, Method::Connect | Method::Trace) || head.form == TargetForm::Asterisk {
        return Explanation {
            outcome: Outcome::Rejected,
            status: Some(501),
            because: format!("The gateway does not support the method {}.", request.method),
            ..Explanation::default()
        };
    }
    let view = HeadView { head: &head, buf: &buf };
    let mut explanations = entrances(config, request)
        .into_iter()
        .map(|(entrance, name)| at(table, config, (entrance, name), request, view));
    let Some(first) = explanations.next() else { return Explanation::default() };
    let first = match first {
        Ok(first) => first,
        Err(rejection) => return rejected(rejection),
    };
    if first.outcome != Outcome::NoRoute {
        return first;
    }
    // The port of a Service differs from the port of its listener, so another listener may be meant.
    let other = explanations.flatten().find(|other| other.outcome != Outcome::NoRoute);
    other.unwrap_or(first)
}

/// The listeners that may receive the request, the most likely first, each with its name.
fn entrances(config: &Config, request: &Described) -> Vec<(Entrance, String)> {
    let is_of_scheme = |serves: &Serves| match serves {
        Serves::Http(_) => !request.is_https,
        Serves::Https(_) => request.is_https,
        Serves::Tcp(_) | Serves::Tls(_) | Serves::Udp(_) => false,
    };
    let gateways = config.listeners.iter().filter(|listener| is_of_scheme(&listener.serves));
    let mut gateways: Vec<SocketAddr> = gateways.map(|listener| listener.address).collect();
    gateways.sort_by_key(|address| (address.port() != request.port(), *address));
    let own = match request.is_https {
        true => (Entrance::FlagHttps, "https".to_owned()),
        false => (Entrance::FlagHttp, "http".to_owned()),
    };
    let same = gateways.iter().take_while(|address| address.port() == request.port()).count();
    let mut entrances: Vec<_> =
        gateways.into_iter().map(|address| (Entrance::Gateway(address), address.to_string())).collect();
    entrances.insert(same, own);
    entrances
}

fn at(
    table: &Table,
    config: &Config,
    (entrance, listener): (Entrance, String),
    request: &Described,
    view: HeadView<'_>,
) -> Result<Explanation, Rejection> {
    let (raw, authority) = (raw_path(view.head, view.buf), view.authority());
    let mut scratch = Vec::new();
    let normalised = normalise(raw, &mut scratch)?;
    check_target(raw, &normalised, view.query(), &table.settings)?;
    let is_plain = normalised == Normalised::Plain;
    let mut path = match normalised {
        Normalised::Plain | Normalised::AsIs => raw.to_vec(),
        Normalised::Rewritten(path) => path.to_vec(),
    };
    if !is_plain && has_encoded_slash(&path) && table.decodes_slashes(entrance, authority) {
        path = with_decoded_slashes(&path)?;
    }
    let steps = table.steps(entrance, authority, &path, view);
    let index = table.find(entrance, authority, &path, view);
    let chosen = index.and_then(|index| table.source(index));
    let mut explanation = Explanation {
        listener,
        path: String::from_utf8_lossy(&path).into_owned(),
        hosts: steps.iter().map(|step| tried(step, chosen)).collect(),
        ..Explanation::default()
    };
    let (Some(index), Some((rule, of))) = (index, chosen) else {
        explanation.status = Some(404);
        explanation.because = no_route(&steps, request, &explanation.path);
        return Ok(explanation);
    };
    let host = table.pattern(index).map(ToString::to_string).unwrap_or_default();
    explanation.route = Some(route(config, (rule, of), host));
    let bypassed = table.bypassed_policy((entrance, index), authority, &path, view);
    let is_open = is_acme_challenge(&path);
    explanation.decide(rule, request, is_open, bypassed.map(|policy| policy.source().id.to_string()));
    Ok(explanation)
}

fn tried(step: &HostStep<'_>, chosen: Option<(&Rule, Option<&RuleMatch>)>) -> HostTried {
    let is_chosen = |near: &Near<'_>| {
        step.found.is_some() && chosen.is_some_and(|(_, of)| of.is_some_and(|of| std::ptr::eq(of, near.of)))
    };
    let candidate = |near: &Near<'_>| Candidate {
        from: near.rule.id.to_string(),
        path: near.of.path.to_string(),
        path_type: near.of.path.path_type().to_owned(),
        selected: is_chosen(near),
        unmet: near.unmet.clone(),
    };
    HostTried {
        host: step.pattern.to_string(),
        matches: step.matches,
        selected: step.found.is_some(),
        continues: step.continues,
        near: step.near.iter().map(candidate).collect(),
    }
}

/// The reason for a 404.
fn no_route(steps: &[HostStep<'_>], request: &Described, path: &str) -> String {
    let Some(last) = steps.last() else {
        return format!(
            "No route has the host {:?}, and there is no default backend. Check the hosts of your routes.",
            request.authority
        );
    };
    let near = steps.iter().flat_map(|step| &step.near).find(|near| !near.unmet.is_empty());
    match near {
        Some(near) => format!(
            "The path matches {} of {}, but the request does not meet a condition: {}.",
            near.of.path,
            near.rule.id,
            near.unmet.join(", ")
        ),
        None => format!(
            "The host {} has {} match{}, and none matches the path {path}.",
            last.pattern,
            last.matches,
            if last.matches == 1 { "" } else { "es" }
        ),
    }
}

fn route(config: &Config, (rule, of): (&Rule, Option<&RuleMatch>), host: String) -> Route {
    let upstream = |backend: &Backend| {
        let endpoints = config.upstreams.get(&backend.upstream).map_or(&[][..], |of| &of.endpoints);
        RouteUpstream {
            upstream: match backend.is_invalid {
                true => "(invalid)".to_owned(),
                false => backend.upstream.to_string(),
            },
            weight: backend.weight.get(),
            ready: endpoints.iter().filter(|endpoint| endpoint.conditions.ready).count(),
            endpoints: endpoints.len(),
        }
    };
    Route {
        from: rule.id.to_string(),
        host,
        path: of.map_or_else(|| "*".to_owned(), |of| of.path.to_string()),
        path_type: of.map_or("DefaultBackend", |of| of.path.path_type()).to_owned(),
        conditions: of.map(conditions).unwrap_or_default(),
        api: rule.api.as_ref().map(|api| ApiRoute {
            version: api.version.to_string(),
            environment: api.environment.to_string(),
            operation: api.operation.as_ref().map(ToString::to_string),
        }),
        upstreams: rule.backends.iter().map(upstream).collect(),
    }
}

impl Explanation {
    fn responds(&mut self, status: u16, because: String) {
        self.outcome = Outcome::Responds;
        self.status = Some(status);
        self.because = because;
    }

    fn step(&mut self, phase: &str, from: Option<&ObjectId>, effect: impl Into<String>) {
        let from = from.map(ToString::to_string);
        self.steps.push(Step { phase: phase.to_owned(), effect: effect.into(), from });
    }

    /// The steps at a route, and the outcome.
    fn decide(&mut self, rule: &Rule, request: &Described, is_open: bool, bypassed: Option<String>) {
        if !request.is_https && rule.client_auth.is_some() || !request.is_https && rule.https_only && !is_open
        {
            let status = rule.https_redirect.status.get();
            self.responds(status, format!("{} redirects plain HTTP to HTTPS.", rule.id));
            return self.step("redirect to HTTPS", Some(&rule.id), format!("responds with {status}"));
        }
        if let Some(auth) = &rule.client_auth {
            self.step("client certificate", None, format!("trusts the CA certificates of {}", auth.source));
        }
        if let Some(policy) = bypassed {
            return self.responds(
                403,
                format!(
                    "An endpoint may read the path as a path of another route, to which {policy} applies. The gateway \
                     denies the request, so that it does not bypass the policy."
                ),
            );
        }
        if let Some(security) = &rule.security
            && let Some(reason) = &security.refuses
        {
            self.step("security", Some(&security.id), format!("is invalid: {reason}"));
            return self
                .responds(503, format!("{} is invalid, so the route is closed: {reason}", security.id));
        }
        self.security(rule);
        self.subscriptions(rule);
        let fixed = self.traffic(rule);
        if let Some((status, because)) = fixed {
            return self.responds(status, because);
        }
        let total: u64 = rule.backends.iter().map(|backend| u64::from(backend.weight.get())).sum();
        let names: Vec<String> = rule.upstreams().map(ToString::to_string).collect();
        if rule.backends.is_empty() || total == 0 {
            return self.responds(503, format!("{} has no backend with a weight above 0.", rule.id));
        }
        if names.is_empty() {
            return self.responds(500, format!("{} names no valid backend.", rule.id));
        }
        let ready: usize = self.route.iter().flat_map(|route| &route.upstreams).map(|of| of.ready).sum();
        self.outcome = Outcome::Forwards;
        self.because = match ready {
            0 => format!(
                "The route leads to {}, which has no ready endpoint: the gateway responds with 503 until an endpoint is ready.",
                names.join(" or ")
            ),
            _ => format!("The gateway forwards the request to {}.", names.join(" or ")),
        };
    }

    fn security(&mut self, rule: &Rule) {
        if let Some(security) = &rule.security {
            let id = Some(&security.id);
            if !security.ip_access.is_open() {
                self.step("client IP", id, "must be allowed, and not denied");
            }
            if security.cors.is_some() {
                self.step("CORS", id, "responds to preflight requests, and adds CORS headers to responses");
            }
        }
        if let Some(limits) = &rule.rate_limits {
            for limit in &limits.limits {
                let per = limit.per.get();
                let effect = format!("{}: {} requests per {}", limit.name, limit.requests.get(), span(per));
                self.step("rate limit", Some(&limits.id), effect);
            }
            for limit in &limits.concurrency {
                let effect = format!("{}: {} requests in flight", limit.name, limit.requests.get());
                self.step("concurrency limit", Some(&limits.id), effect);
            }
        }
        let Some(security) = &rule.security else { return };
        let id = Some(&security.id);
        if let Some(authentication) = &security.authentication {
            let methods = [
                ("JSON Web Token", authentication.jwt.is_some()),
                ("token introspection", authentication.introspection.is_some()),
                ("API key", authentication.api_key.is_some()),
                ("Basic", authentication.basic.is_some()),
                ("Digest", authentication.digest.is_some()),
                ("OpenID Connect", authentication.oidc.is_some()),
                ("authorization service", authentication.ext_auth.is_some()),
            ];
            let methods: Vec<_> =
                methods.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
            let scopes = authentication.required_scopes.iter().map(|scopes| format!("{:?}", &**scopes));
            let scopes = match scopes.collect::<Vec<_>>().join(" or ") {
                none if none.is_empty() => none,
                scopes => format!("; scopes: {scopes}"),
            };
            self.step(
                "authentication",
                id,
                format!("{:?} of: {}{scopes}", authentication.require, methods.join(", ")),
            );
        }
        if let Some(authorization) = &security.authorization {
            let rules = authorization.rules.len();
            let effect = format!("{rules} rule{}", if rules == 1 { "" } else { "s" });
            self.step("authorization", id, effect);
        }
        for filter in &security.filters {
            self.step("external authorization", id, format!("asks {}", filter.upstream));
        }
    }

    fn subscriptions(&mut self, rule: &Rule) {
        let Some(subscriptions) = &rule.subscriptions else { return };
        let plans: Vec<String> = subscriptions.plans.iter().map(|plan| plan.limits.id.to_string()).collect();
        let need = if subscriptions.required { "requires a subscription" } else { "counts subscribers" };
        let plans = if plans.is_empty() { "none yet".to_owned() } else { plans.join(", ") };
        self.step("subscription", Some(&subscriptions.id), format!("{need}; plans: {plans}"));
    }

    /// The steps of the traffic policy. Returns the response of the gateway itself, if the policy has one for all requests.
    fn traffic(&mut self, rule: &Rule) -> Option<(u16, String)> {
        let traffic = rule.traffic.as_ref()?;
        let (features, id) = (&traffic.features, Some(&traffic.id));
        let returns = features.returns.len();
        if returns > 0 {
            let status = features.returns.first().map(|first| first.status_code.get());
            let status = status.unwrap_or_default();
            match features.returns.first().is_some_and(|first| first.conditions.is_empty()) {
                true => {
                    self.steps.insert(
                        0,
                        Step {
                            phase: "response".to_owned(),
                            effect: format!("responds with {status}"),
                            from: id.map(ToString::to_string),
                        },
                    );
                    return Some((status, format!("{} responds with {status}.", traffic.id)));
                }
                false => self.step("response", id, format!("may respond with {status}, on a condition")),
            }
        }
        if features.fault != FaultInjection::default() {
            self.step("fault injection", id, "delays or aborts some requests");
        }
        if let Some(response) = &features.direct_response {
            let status = response.status_code.get();
            self.step("direct response", id, format!("responds with {status}"));
            return Some((status, format!("{} responds with {status}.", traffic.id)));
        }
        if let Some(redirect) = &features.redirect {
            let status = redirect.status_code.get();
            self.step("redirect", id, format!("responds with {status}"));
            return Some((status, format!("{} redirects the request.", traffic.id)));
        }
        let rewrite = &features.url_rewrite;
        let effects = [
            ("URL rewrite", "replaces the path or the host", *rewrite != UrlRewrite::default()),
            ("headers", "changes headers of the request or the response", {
                let none = HeaderEdits::default();
                features.request_headers != none
                    || features.response_headers != none
                    || features.template_headers.is_some()
            }),
            ("split", "sends some requests to other Services", features.split.is_some()),
            ("mirror", "sends copies of requests to another Service", !features.mirrors.is_empty()),
            ("cache", "may respond from the cache", features.cache.is_some()),
            ("retries", "has conditions of its own", features.retries.is_some()),
        ];
        for (phase, effect, is_set) in effects {
            if is_set {
                self.step(phase, id, effect);
            }
        }
        None
    }
}

/// A period in words: `1 s`, `5 min`.
fn span(period: Duration) -> String {
    let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let units = [(3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| millis.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "ms"));
    format!("{} {name}", millis / unit)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_model::policy::Security;
    use sluicegate_model::rule::HeaderMatch;
    use sluicegate_model::rule::{PathMatch, ValueMatch};
    use sluicegate_model::{
        Change, Conditions, Endpoint, EntryPoint, HostPattern, Listener, ListenerId, PathPattern, Planes,
        ProxyHeader, Upstream, UpstreamKey, VirtualHost,
    };

    use super::*;

    fn id(kind: &'static str, name: &str) -> ObjectId {
        ObjectId { kind, namespace: "shop".into(), name: name.into() }
    }

    fn key(name: &str) -> UpstreamKey {
        UpstreamKey::new("shop", name, "80")
    }

    fn rule(name: &str, path: &str) -> Rule {
        Rule::new(id("Ingress", name), PathPattern::Prefix(path.into()), key(name))
    }

    fn registry(hosts: Vec<VirtualHost>) -> Registry {
        let endpoint = Endpoint { address: ([192, 0, 2, 1], 80).into(), conditions: Conditions::READY };
        let upstream = Arc::new(Upstream { endpoints: [endpoint].into(), ..Upstream::default() });
        let config = Config {
            hosts: hosts.into_iter().map(Arc::new).collect(),
            upstreams: [(key("web"), upstream)].into(),
            ..Config::default()
        };
        let registry = Registry::of_no_worker();
        registry.show(&Change::Config(config.into()));
        registry
    }

    fn host(name: &str, rules: Vec<Rule>) -> VirtualHost {
        VirtualHost::new(HostPattern::Exact(name.into()), rules)
    }

    fn explained(registry: &Registry, method: &str, url: &str, headers: &[&str]) -> Explanation {
        let described = Described::new(method, url, headers.iter().copied()).expect("a request");
        registry.explain(&described).expect("a configuration")
    }

    #[test]
    fn forwarded_request_names_route_and_upstream() {
        let registry = registry(vec![host("shop.test", vec![rule("web", "/"), rule("cart", "/cart")])]);
        let found = explained(&registry, "GET", "http://SHOP.test:8080/a/../b?c=d", &[]);
        assert_eq!((found.outcome, found.status, &*found.path), (Outcome::Forwards, None, "/b"));
        let route = found.route.expect("a route");
        assert_eq!((&*route.from, &*route.path, route.upstreams[0].ready), ("Ingress shop/web", "/", 1));
        let cart = explained(&registry, "GET", "http://shop.test/cart/1", &[]);
        assert!(cart.because.contains("no ready endpoint"), "{}", cart.because);
        let near: Vec<_> = cart.hosts[0].near.iter().map(|near| (&*near.path, near.selected)).collect();
        assert_eq!(near, [("/cart", true), ("/", false)]);
    }

    #[test]
    fn missing_route_is_explained_by_host_path_or_condition() {
        let mut versioned = rule("web", "/v");
        versioned.matches[0].method = Some("POST".into());
        let value = ValueMatch::Exact("2".into());
        versioned.matches[0].headers.push(HeaderMatch { name: "x-version".into(), value });
        let registry = registry(vec![host("shop.test", vec![versioned])]);
        for (method, url, because) in [
            ("GET", "http://other.test/", "No route has the host \"other.test\""),
            ("GET", "http://shop.test/a", "The host shop.test has 1 match, and none matches the path /a."),
            (
                "GET",
                "http://shop.test/v",
                "does not meet a condition: method is POST, header x-version is \"2\".",
            ),
        ] {
            let found = explained(&registry, method, url, &[]);
            assert_eq!((found.outcome, found.status), (Outcome::NoRoute, Some(404)), "{url}");
            assert!(found.because.contains(because), "{}", found.because);
        }
        let found = explained(&registry, "POST", "http://shop.test/v", &["X-Version: 2"]);
        assert_eq!(found.outcome, Outcome::Forwards);
        assert_eq!(found.route.expect("a route").conditions.len(), 2);
    }

    #[test]
    fn request_that_the_gateway_rejects_is_rejected_here_too() {
        let registry = registry(vec![host("shop.test", vec![rule("web", "/")])]);
        for (method, url) in [
            ("CONNECT", "http://shop.test/"),
            ("get", "http://shop.test/"),
            ("GET", "http://shop.test/%zz"),
            ("GET", "http://shop.test/a/%2e%2e%2f"),
            ("GET", "http://shop_test|/"),
        ] {
            let found = explained(&registry, method, url, &[]);
            assert_eq!(found.outcome, Outcome::Rejected, "{method} {url} {}", found.because);
            assert!(found.status.is_some_and(|status| status >= 400));
        }
    }

    #[test]
    fn closed_route_and_redirect_are_explained() {
        let mut closed = rule("web", "/closed");
        closed.security = Some(Security::closed(id("SecurityPolicy", "login"), "no keys".into()).into());
        let mut secure = rule("web", "/secure");
        secure.https_only = true;
        let registry = registry(vec![host("shop.test", vec![closed, secure])]);
        let found = explained(&registry, "GET", "http://shop.test/closed", &[]);
        assert_eq!((found.outcome, found.status), (Outcome::Responds, Some(503)));
        assert!(found.because.contains("SecurityPolicy shop/login is invalid"), "{}", found.because);
        let found = explained(&registry, "GET", "http://shop.test/secure", &[]);
        assert_eq!((found.outcome, found.status), (Outcome::Responds, Some(308)));
        assert_eq!(explained(&registry, "GET", "https://shop.test/secure", &[]).outcome, Outcome::Forwards);
    }

    #[test]
    fn listener_of_a_gateway_is_found_by_its_port_or_its_hosts() {
        let name: Arc<str> = "192.0.2.9:8443".into();
        let mut of_gateway = host("shop.test", vec![rule("web", "/")]);
        of_gateway.entry_point = EntryPoint::Gateway(name.clone());
        let listener = Listener {
            id: ListenerId { object: id("Gateway", "edge"), name: "https".into() },
            address: ([192, 0, 2, 9], 8443).into(),
            serves: Serves::Https(name),
            planes: Planes::default(),
            proxy_header: ProxyHeader::default(),
        };
        let config = Config {
            hosts: vec![of_gateway.into(), host("other.test", vec![rule("web", "/")]).into()],
            listeners: vec![listener],
            ..Config::default()
        };
        let registry = Registry::of_no_worker();
        registry.show(&Change::Config(config.into()));
        for (url, listener) in [
            ("https://shop.test:8443/", "192.0.2.9:8443"),
            ("https://shop.test/", "192.0.2.9:8443"),
            ("https://other.test/", "https"),
        ] {
            let found = explained(&registry, "GET", url, &[]);
            assert_eq!((found.outcome, &*found.listener), (Outcome::Forwards, listener), "{url}");
        }
        assert_eq!(explained(&registry, "GET", "http://shop.test/", &[]).outcome, Outcome::NoRoute);
    }

    #[test]
    fn text_that_describes_no_request_is_an_error() {
        for (method, url, header) in [
            ("GET", "shop.test/a", "A: b"),
            ("GET", "ftp://shop.test/", "A: b"),
            ("GET", "http:///a", "A: b"),
            ("GET", "http://a@shop.test/", "A: b"),
            ("GET", "http://shop.test/a b", "A: b"),
            ("GET", "http://shop.test/\r\nA: b", "A: b"),
            ("G T", "http://shop.test/", "A: b"),
            ("GET", "http://shop.test/", "A"),
            ("GET", "http://shop.test/", "A: b\r\nC: d"),
        ] {
            assert!(Described::new(method, url, [header]).is_err(), "{method} {url} {header}");
        }
        let long = format!("http://shop.test/{}", "a".repeat(DESCRIPTION_MAX));
        assert_eq!(Described::new("GET", &long, []), Err(DescriptionError::TooLong));
    }

    #[test]
    fn template_and_regular_expression_are_candidates() {
        let mut regex = rule("web", "/");
        let pattern = sluicegate_model::rule::Pattern::new("^/i/[0-9]+$", false).expect("a pattern");
        regex.matches = vec![RuleMatch::new(PathMatch::Regex(pattern), None, Vec::new(), Vec::new())];
        let registry = registry(vec![host("shop.test", vec![regex, rule("web", "/i")])]);
        let found = explained(&registry, "GET", "http://shop.test/i/42", &[]);
        let near: Vec<_> = found.hosts[0].near.iter().map(|near| (&*near.path_type, near.selected)).collect();
        assert_eq!(near, [("RegularExpression", true), ("Prefix", false)]);
    }
}
