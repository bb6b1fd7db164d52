//! What the JSON documents are made of. The command line reads them back into the same types.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use sluicegate_model::{
    Balance, Conditions, Config, HostPattern, Layer4Route, RouteId, Rule, RuleMatch, UpstreamKey,
};
use sluicegate_proxy::failure::Failure;
use sluicegate_proxy::telemetry::{EndpointShard, Sharded, Tallies, Telemetry, UpstreamShard};
use sluicegate_proxy::upstream::{SharedEndpoint, SharedUpstream};

/// `/config`: the model as it is served, and what is wrong with what it was made from.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigDocument<'a> {
    /// `null` before the first configuration.
    pub(crate) config: Option<&'a Config>,
    /// Errors first.
    pub(crate) problems: &'a [String],
}

/// `/routes`: one element for each route of HTTP, and one for each upstream of a route below HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRoute {
    /// The host pattern.
    pub host: String,
    /// The path pattern; `*` for what no path takes, and for what is passed on whatever the path. Below HTTP where it
    /// listens: `:5432` for all IPv4 addresses, else `10.0.0.1:5432`.
    pub path: String,
    /// Kubernetes' `pathType`, or `DefaultBackend`; below HTTP `TCP`, `TLS` or `UDP`, and `Passthrough` at the
    /// listeners for HTTPS.
    pub path_type: Cow<'static, str>,
    /// The key of its upstream, `namespace/service:port`.
    pub upstream: String,
    /// Its part of the sum of all weights, where a route has several upstreams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Endpoints of the upstream that are ready.
    pub ready: usize,
    /// All endpoints of the upstream.
    pub endpoints: usize,
    /// The object that it was written in, `Ingress namespace/name`.
    pub from: String,
    /// The policies that govern it, `SecurityPolicy namespace/name`; with ` (closed)` behind it one that cannot be honoured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
}

impl ServedRoute {
    /// Every route of a configuration: exact hosts first, then wildcards, then those of every host, each by
    /// path; then what the listeners for HTTPS pass on, and the other listeners by their ports.
    #[must_use]
    pub fn all(config: &Config) -> Vec<Self> {
        let mut hosts: Vec<_> = config.hosts.iter().collect();
        hosts.sort_by_key(|host| &host.host);
        let mut served = Vec::new();
        for host in hosts {
            let matches = host.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (rule, of)));
            let mut matches: Vec<_> = matches.collect();
            matches.sort_by_key(|(_, of)| (of.path.as_str(), of.path.path_type()));
            let written = |of: &RuleMatch| (of.to_string(), of.path.path_type());
            let paths = matches.iter().map(|(rule, of)| Self::of_rule(config, &host.host, rule, written(of)));
            let fallback = host.fallback.iter();
            served.extend(paths.chain(fallback.map(|route| Self::default(config, &host.host, route))));
        }
        let default = config.default_rule.iter();
        served.extend(default.map(|route| Self::default(config, &HostPattern::Any, route)));
        for passed in &config.tls.passthrough {
            served.extend(Self::below_http(config, &passed.host, &passed.route, ("*".into(), "Passthrough")));
        }
        let mut listeners: Vec<_> = config.listeners.iter().collect();
        listeners.sort_by_key(|listener| {
            (listener.address.port(), listener.serves.protocol(), listener.address.ip())
        });
        for listener in listeners {
            let taken = || (listen_address(listener.address), listener.serves.protocol());
            for (host, route) in listener.serves.routes() {
                served.extend(Self::below_http(config, host, route, taken()));
            }
        }
        served
    }

    fn below_http(
        config: &Config,
        host: &HostPattern,
        route: &Layer4Route,
        taken: (String, &'static str),
    ) -> impl Iterator<Item = Self> {
        let are_several = route.backends.len() > 1;
        route.backends.iter().map(move |backend| Self {
            weight: are_several.then_some(backend.weight),
            ..Self::of(config, host, (&route.id, &backend.upstream), taken.clone())
        })
    }

    fn default(config: &Config, host: &HostPattern, rule: &Rule) -> Self {
        Self::of_rule(config, host, rule, ("*".into(), "DefaultBackend"))
    }

    fn of_rule(config: &Config, host: &HostPattern, rule: &Rule, written: (String, &'static str)) -> Self {
        let security = rule.security.iter().map(|security| match security.refuses {
            None => security.id.to_string(),
            Some(_) => format!("{} (closed)", security.id),
        });
        let limits = rule.rate_limits.iter().map(|limits| limits.id.to_string());
        let traffic = rule.traffic.iter().map(|traffic| traffic.id.to_string());
        Self {
            policies: security.chain(limits).chain(traffic).collect(),
            ..Self::of(config, host, (&rule.id, &rule.upstream), written)
        }
    }

    fn of(
        config: &Config,
        host: &HostPattern,
        (id, upstream): (&RouteId, &UpstreamKey),
        (path, path_type): (String, &'static str),
    ) -> Self {
        let endpoints = config.upstreams.get(upstream).map_or(&[][..], |upstream| &upstream.endpoints);
        Self {
            host: host.to_string(),
            path,
            path_type: path_type.into(),
            upstream: upstream.to_string(),
            weight: None,
            ready: endpoints.iter().filter(|endpoint| endpoint.conditions.ready).count(),
            endpoints: endpoints.len(),
            from: id.to_string(),
            policies: Vec::new(),
        }
    }
}

/// As the option that it could be given by: without all IPv4 addresses.
fn listen_address(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!(":{}", address.port()),
        _ => address.to_string(),
    }
}

/// `/upstreams`: one element for each upstream, made while it is written.
pub(crate) struct Upstreams<'a>(pub(crate) &'a Telemetry);

impl Serialize for Upstreams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let settings = self.0.settings();
        let slow_start = settings.map_or(Duration::ZERO, |settings| settings.resilience.slow_start);
        let upstreams = self.0.upstreams();
        serializer.collect_seq(upstreams.iter().map(|upstream| UpstreamState::of(upstream, slow_start)))
    }
}

/// An upstream and its endpoints at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpstreamState {
    /// Its key, `namespace/service:port`.
    pub upstream: String,
    /// How an endpoint is chosen: `ewma`, `round_robin` or `least_request`.
    pub balance: Cow<'static, str>,
    /// The most requests that it may have in flight.
    pub max_requests: Option<u32>,
    /// The most requests that one endpoint may have in flight.
    pub max_requests_per_endpoint: Option<u32>,
    /// What was counted since it was first routed to.
    #[serde(flatten)]
    pub counters: UpstreamCounters,
    /// Its endpoints, in the order of the configuration.
    pub endpoints: Vec<EndpointState>,
}

impl UpstreamState {
    fn of(shared: &SharedUpstream, slow_start: Duration) -> Self {
        let set = shared.endpoints();
        let endpoints = set.endpoints.iter();
        Self {
            upstream: shared.key().to_string(),
            balance: match set.balance {
                Balance::Ewma => "ewma",
                Balance::RoundRobin => "round_robin",
                Balance::LeastRequest => "least_request",
            }
            .into(),
            max_requests: set.limits.max_requests,
            max_requests_per_endpoint: set.limits.max_requests_per_endpoint,
            counters: UpstreamCounters::of(shared.shards()),
            endpoints: endpoints
                .map(|(endpoint, conditions)| EndpointState::of(endpoint, *conditions, slow_start))
                .collect(),
        }
    }
}

/// What is counted of an upstream, over all workers. By reason there is only what happened at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamCounters {
    /// Requests in flight now.
    pub requests_in_flight: u64,
    /// Requests written to an endpoint, retries included.
    pub attempts: u64,
    /// Connections made.
    pub connections_opened: u64,
    /// Attempts over a connection that was kept from an earlier request.
    pub connections_reused: u64,
    /// Connects that failed.
    pub connect_failures: Reasons,
    /// Connects that were raced because the first did not answer soon.
    pub hedges: u64,
    /// Attempts that failed and were repeated.
    pub retries: Reasons,
    /// Requests that failed for good.
    pub failures: Reasons,
    /// Requests that failed because they could not be repeated safely.
    pub not_repeated: u64,
    /// Endpoints that came under suspicion.
    pub ejections: u64,
    /// Endpoints that were readmitted.
    pub readmissions: u64,
    /// Health checks.
    #[serde(default)]
    pub health_checks: u64,
    /// Health checks that were answered badly.
    #[serde(default)]
    pub health_checks_failed: u64,
    /// Unused connections that their endpoint closed.
    pub idle_closed: u64,
}

impl UpstreamCounters {
    pub(crate) fn of(shards: &Sharded<UpstreamShard>) -> Self {
        Self {
            requests_in_flight: shards.sum(|shard| &shard.in_flight),
            attempts: shards.sum(|shard| &shard.attempts),
            connections_opened: shards.sum(|shard| &shard.connects),
            connections_reused: shards.sum(|shard| &shard.reused),
            connect_failures: Reasons::of(shards, |shard| &shard.connect_failures),
            hedges: shards.sum(|shard| &shard.hedges),
            retries: Reasons::of(shards, |shard| &shard.retries),
            failures: Reasons::of(shards, |shard| &shard.failures),
            not_repeated: shards.sum(|shard| &shard.not_repeated),
            ejections: shards.sum(|shard| &shard.ejections),
            readmissions: shards.sum(|shard| &shard.readmissions),
            health_checks: shards.sum(|shard| &shard.checks),
            health_checks_failed: shards.sum(|shard| &shard.checks_failed),
            idle_closed: shards.sum(|shard| &shard.pool_closed),
        }
    }
}

/// How often each reason of [`Failure::REASONS`] occurred, of those that did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reasons(pub BTreeMap<Cow<'static, str>, u64>);

impl Reasons {
    fn of(
        shards: &Sharded<UpstreamShard>,
        tallies: impl Fn(&UpstreamShard) -> &Tallies<{ Failure::COUNT }>,
    ) -> Self {
        let all = Failure::REASONS.iter().enumerate();
        let counted =
            all.map(|(index, reason)| ((*reason).into(), shards.sum(|shard| &tallies(shard)[index])));
        Self(counted.filter(|(_, count)| *count > 0).collect())
    }
}

/// An endpoint at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointState {
    /// Where it is.
    pub address: SocketAddr,
    /// It wants new requests.
    pub ready: bool,
    /// It can answer requests.
    pub serving: bool,
    /// It is going away.
    pub terminating: bool,
    /// Whether it is avoided while others serve.
    pub health: Health,
    /// For how long it has been avoided, in seconds.
    pub suspect_for: Option<f64>,
    /// Its part of what a full member gets, below 1 while it starts slowly.
    pub share: f64,
    /// Requests in flight.
    pub requests_in_flight: u64,
    /// The response time as each worker that has used it estimated it last, in milliseconds.
    pub ewma_ms: Vec<f64>,
    /// Unused connections kept.
    pub idle: u64,
    /// Requests written to it.
    pub attempts: u64,
    /// Connects and attempts that failed.
    pub failures: u64,
}

/// What is known of an endpoint's health, beside its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It is used.
    Trusted,
    /// It is avoided while others serve, since it has failed.
    Suspect,
    /// It is avoided while others serve, since it fails its health checks.
    Failing,
}

impl EndpointState {
    fn of(shared: &SharedEndpoint, conditions: Conditions, slow_start: Duration) -> Self {
        let shards = shared.shards();
        let suspect_for = shared.suspect_for();
        Self {
            address: shared.address(),
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
            health: match suspect_for {
                _ if shared.is_failing() => Health::Failing,
                Some(_) => Health::Suspect,
                None => Health::Trusted,
            },
            suspect_for: suspect_for.map(|duration| duration.as_secs_f64()),
            share: shared.share(slow_start),
            requests_in_flight: shards.sum(|shard| &shard.in_flight),
            ewma_ms: shards.iter().filter_map(ewma_ms).collect(),
            idle: shards.sum(|shard| &shard.idle),
            attempts: shards.sum(|shard| &shard.attempts),
            failures: shards.sum(|shard| &shard.failures),
        }
    }
}

/// A worker's estimate, if it has one.
fn ewma_ms(shard: &EndpointShard) -> Option<f64> {
    match shard.ewma_micros.get() {
        0 => None,
        micros => Some(Duration::from_micros(micros).as_secs_f64() * 1e3),
    }
}
