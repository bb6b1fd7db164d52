//! The types of the JSON documents. The admin interface encodes these types, and the command line decodes them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use sluicegate_model::{
    Balance, Conditions, Config, EntryPoint, HostPattern, Layer4Route, ObjectId, Rule, RuleMatch, UpstreamKey,
};
use sluicegate_proxy::counters::{EndpointShard, Sharded, Tallies, UpstreamShard};
use sluicegate_proxy::failure::Failure;
use sluicegate_proxy::registry::Registry;
use sluicegate_proxy::upstream::{SharedEndpoint, SharedUpstream};

/// `/config`: the served model, and the problems of its sources.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigDocument<'a> {
    /// `null` before the first configuration.
    pub(crate) config: Option<&'a Config>,
    /// The problems, errors first.
    pub(crate) problems: &'a [String],
}

/// `/routes`: one element for each match of an HTTP rule, or route below HTTP, and each of its upstreams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRoute {
    /// The host pattern.
    pub host: String,
    /// The listeners of the host, if a Gateway names them: the address, or `http` or `https` for the listeners that flags set.
    /// `None`: all listeners that flags set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// The path pattern; `*` for default backends, TLS passthrough and relayed TLS. Below HTTP the address of the listener:
    /// `:5432` for all IPv4 addresses, else `10.0.0.1:5432`.
    pub path: String,
    /// Kubernetes' `pathType`, or `DefaultBackend`; below HTTP `TCP`, `TLS` or `UDP`, and `Passthrough` at the
    /// listeners for HTTPS.
    pub path_type: Cow<'static, str>,
    /// The upstream's key, `namespace/service:port`; `-` for a rule without a backend, `(invalid)` for an invalid backend.
    pub upstream: String,
    /// The upstream's fraction of the sum of all weights, if a route has several upstreams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Ready endpoints of the upstream.
    pub ready: usize,
    /// All endpoints of the upstream.
    pub endpoints: usize,
    /// The object with the route, `Ingress namespace/name`.
    pub from: String,
    /// The attached policies, `SecurityPolicy namespace/name`, with the suffix ` (closed)` for an invalid policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
}

impl ServedRoute {
    /// Every route of a configuration. The order is: exact hosts, wildcards, routes for every host, each sorted by
    /// path; then the hosts of Gateways by listener; then TLS passthrough and relayed TLS of the listeners for HTTPS, and the other listeners by port.
    #[must_use]
    pub fn all(config: &Config) -> Vec<Self> {
        let mut hosts: Vec<_> = config.hosts.iter().collect();
        hosts.sort_by_key(|host| (&host.entry_point, &host.host));
        let mut served = Vec::new();
        for host in hosts {
            let matches = host.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (rule, of)));
            let mut matches: Vec<_> = matches.collect();
            matches.sort_by_key(|(_, of)| (of.path.as_str(), of.path.path_type()));
            let written = |of: &RuleMatch| (of.to_string(), of.path.path_type());
            let paths =
                matches.iter().flat_map(|(rule, of)| Self::of_rule(config, &host.host, rule, written(of)));
            let fallback = host.fallback.iter();
            let all = paths.chain(fallback.flat_map(|rule| Self::default(config, &host.host, rule)));
            let listener = listener_of(&host.entry_point);
            served.extend(all.map(|route| Self { listener: listener.clone(), ..route }));
        }
        let default = config.default_rule.iter();
        served.extend(default.flat_map(|rule| Self::default(config, &HostPattern::Any, rule)));
        for passed in &config.tls.passthrough {
            let routes = Self::below_http(config, &passed.host, &passed.route, ("*".into(), "Passthrough"));
            let listener = listener_of(&passed.entry_point);
            served.extend(routes.map(|route| Self { listener: listener.clone(), ..route }));
        }
        for host in &config.tls.hosts {
            let Some(relay) = &host.relay else { continue };
            let routes = Self::below_http(config, &host.host, relay, ("*".into(), "Terminate"));
            let listener = listener_of(&host.entry_point);
            served.extend(routes.map(|route| Self { listener: listener.clone(), ..route }));
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

    fn default(config: &Config, host: &HostPattern, rule: &Rule) -> impl Iterator<Item = Self> {
        Self::of_rule(config, host, rule, ("*".into(), "DefaultBackend"))
    }

    fn of_rule(
        config: &Config,
        host: &HostPattern,
        rule: &Rule,
        written: (String, &'static str),
    ) -> impl Iterator<Item = Self> {
        // The filters of a route are no policy.
        let is_policy = |id: &&ObjectId| **id != rule.id;
        let security = rule.security.iter().flat_map(|security| {
            let is_closed = security.refuses.is_some();
            security.ids().filter(is_policy).map(move |id| match is_closed {
                false => id.to_string(),
                true => format!("{id} (closed)"),
            })
        });
        let limits = rule.rate_limits.iter().map(|limits| limits.id.to_string());
        let traffic = rule.traffic.iter().flat_map(|traffic| traffic.ids().filter(is_policy));
        let traffic = traffic.map(ToString::to_string);
        let policies: Vec<_> = security.chain(limits).chain(traffic).collect();
        let are_several = rule.backends.len() > 1;
        let nowhere = UpstreamKey::new("", "", "");
        let none = rule.backends.is_empty().then(|| Self {
            policies: policies.clone(),
            upstream: "-".to_owned(),
            ..Self::of(config, host, (&rule.id, &nowhere), written.clone())
        });
        let backends = rule.backends.iter().map(move |backend| {
            let mut served = Self {
                policies: policies.clone(),
                weight: are_several.then_some(backend.weight.get()),
                ..Self::of(config, host, (&rule.id, &backend.upstream), written.clone())
            };
            if backend.is_invalid {
                "(invalid)".clone_into(&mut served.upstream);
            }
            served
        });
        none.into_iter().chain(backends)
    }

    fn of(
        config: &Config,
        host: &HostPattern,
        (id, upstream): (&ObjectId, &UpstreamKey),
        (path, path_type): (String, &'static str),
    ) -> Self {
        let endpoints = config.upstreams.get(upstream).map_or(&[][..], |upstream| &upstream.endpoints);
        Self {
            host: host.to_string(),
            listener: None,
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

/// The listeners of an entry point of Gateways.
fn listener_of(entry_point: &EntryPoint) -> Option<String> {
    match entry_point {
        EntryPoint::Flags => None,
        // The name of an entry point is the address of its listener. Behind a Service, it is the Gateway with the port.
        EntryPoint::Gateway(name) => Some(name.parse().map_or_else(|_| name.to_string(), listen_address)),
        other => Some(other.to_string()),
    }
}

/// The address as in the command-line option: without a host for all IPv4 addresses.
fn listen_address(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!(":{}", address.port()),
        _ => address.to_string(),
    }
}

/// `/upstreams`: one element for each upstream, generated during the transfer.
pub(crate) struct Upstreams<'a>(pub(crate) &'a Registry);

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
    /// The upstream's key, `namespace/service:port`.
    pub upstream: String,
    /// The load balancing algorithm: `ResponseTime`, `RoundRobin` or `LeastRequest`.
    pub balance: Cow<'static, str>,
    /// The limit on requests in flight.
    pub max_requests: Option<u32>,
    /// The limit on requests in flight at one endpoint.
    pub max_requests_per_endpoint: Option<u32>,
    /// The counts since the upstream's first route.
    #[serde(flatten)]
    pub counters: UpstreamCounters,
    /// The endpoints, in the order of the configuration.
    pub endpoints: Vec<EndpointState>,
}

impl UpstreamState {
    /// The current state of an upstream. `slow_start` is the duration of the slow start of endpoints.
    #[must_use]
    pub fn of(shared: &SharedUpstream, slow_start: Duration) -> Self {
        let set = shared.endpoints();
        let endpoints = set.endpoints.iter();
        Self {
            upstream: shared.key().to_string(),
            balance: match set.balance {
                Balance::Ewma => "ResponseTime",
                Balance::RoundRobin => "RoundRobin",
                Balance::LeastRequest => "LeastRequest",
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

/// The counts of an upstream, over all workers. Reasons that never occurred are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamCounters {
    /// Requests in flight now.
    pub requests_in_flight: u64,
    /// Requests written to an endpoint, retries included.
    pub attempts: u64,
    /// Opened connections.
    pub connections_opened: u64,
    /// Attempts over a reused connection.
    pub connections_reused: u64,
    /// Failed connects.
    pub connect_failures: Reasons,
    /// Hedged connects.
    pub hedges: u64,
    /// Failed attempts with a retry.
    pub retries: Reasons,
    /// Failed requests.
    pub failures: Reasons,
    /// Requests that failed because a retry was not safe.
    pub not_repeated: u64,
    /// Endpoints that became unhealthy.
    pub ejections: u64,
    /// Endpoints that became healthy again.
    pub readmissions: u64,
    /// Health checks.
    #[serde(default)]
    pub health_checks: u64,
    /// Failed health checks.
    #[serde(default)]
    pub health_checks_failed: u64,
    /// Idle connections that their endpoint closed.
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

/// The count of each reason of [`Failure::REASONS`]. Reasons that never occurred are omitted.
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
    /// The address and port.
    pub address: SocketAddr,
    /// The endpoint accepts new requests.
    pub ready: bool,
    /// The endpoint can respond to requests.
    pub serving: bool,
    /// The endpoint is terminating.
    pub terminating: bool,
    /// The endpoint's health.
    pub health: Health,
    /// The time since the endpoint became unhealthy, in seconds.
    pub unhealthy_for: Option<f64>,
    /// The share of the requests relative to the full share, below 1 during the slow start.
    pub share: f64,
    /// Requests in flight.
    pub requests_in_flight: u64,
    /// The latest estimate of the response time by each worker with requests to the endpoint, in milliseconds.
    pub ewma_ms: Vec<f64>,
    /// Idle connections.
    pub idle: u64,
    /// Attempts at the endpoint.
    pub attempts: u64,
    /// Failed connects and attempts.
    pub failures: u64,
}

/// An endpoint's health, beside its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The endpoint has not failed recently.
    Healthy,
    /// Unhealthy: the endpoint recently failed, and is avoided while others are healthy.
    Unhealthy,
    /// Unhealthy: the endpoint fails its health checks, and is avoided while others are healthy.
    Failing,
}

impl EndpointState {
    fn of(shared: &SharedEndpoint, conditions: Conditions, slow_start: Duration) -> Self {
        let shards = shared.shards();
        let unhealthy_for = shared.unhealthy_for();
        Self {
            address: shared.address(),
            ready: conditions.ready,
            serving: conditions.serving,
            terminating: conditions.terminating,
            health: match unhealthy_for {
                _ if shared.is_failing() => Health::Failing,
                Some(_) => Health::Unhealthy,
                None => Health::Healthy,
            },
            unhealthy_for: unhealthy_for.map(|duration| duration.as_secs_f64()),
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
