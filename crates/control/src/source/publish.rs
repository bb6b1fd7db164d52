//! What is published: whole configurations, or the endpoints of single upstreams where no more has changed. Each
//! leaves a line in the log.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::{
    Change, Config, Endpoint, HostPattern, PathPattern, RouteId, Upstream, UpstreamKey, VirtualHost,
};

/// What was published last, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    config: Option<Arc<Config>>,
    /// The endpoints of each upstream, as they were published last.
    endpoints: BTreeMap<UpstreamKey, Arc<[Endpoint]>>,
}

impl Publisher {
    /// The configuration that was published last; the endpoints in it may be older.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// The endpoints of an upstream, as they were published last.
    pub(super) fn endpoints(&self, upstream: &UpstreamKey) -> Option<&Arc<[Endpoint]>> {
        self.endpoints.get(upstream)
    }

    /// What leads from what was published to `config`.
    pub(super) fn set_config(&mut self, config: Config) -> Vec<Change> {
        if let Some(published) = &self.config
            && is_same_but_endpoints(published, &config)
        {
            return config
                .upstreams
                .iter()
                .filter_map(|(key, upstream)| self.set_endpoints(key, &upstream.endpoints))
                .collect();
        }
        self.endpoints = config
            .upstreams
            .iter()
            .map(|(key, upstream)| (key.clone(), upstream.endpoints.clone()))
            .collect();
        let config = Arc::new(config);
        let before = self.config.replace(config.clone());
        log(before.as_deref().unwrap_or(&Config::default()), &config);
        vec![Change::Config(config)]
    }

    /// What leads from the published endpoints of an upstream to `endpoints`; nothing if they are the same.
    pub(super) fn set_endpoints(
        &mut self,
        upstream: &UpstreamKey,
        endpoints: &Arc<[Endpoint]>,
    ) -> Option<Change> {
        let published = self.endpoints.get_mut(upstream)?;
        if *published == *endpoints {
            return None;
        }
        *published = endpoints.clone();
        tracing::debug!(%upstream, endpoints = endpoints.len(), "endpoints changed");
        Some(Change::Endpoints { upstream: upstream.clone(), endpoints: endpoints.clone() })
    }
}

/// Says what has come and gone. A route that leads elsewhere, or an upstream with other settings, has done both.
fn log(before: &Config, after: &Config) {
    let routes = Difference::between(before, after, |config, other| {
        let others: HashSet<_> = routes(other, config).collect();
        routes(config, other).filter(|route| !others.contains(route)).count()
    });
    let upstreams = Difference::between(before, after, |config, other| {
        let is_in_other = |(key, upstream): &(&UpstreamKey, &Arc<Upstream>)| {
            other.upstreams.get(key).is_some_and(|other| has_same_settings(upstream, other))
        };
        config.upstreams.iter().filter(|upstream| !is_in_other(upstream)).count()
    });
    let certificates = Difference::between(before, after, |config, other| {
        let others: HashSet<_> = certificates(other).collect();
        certificates(config).collect::<HashSet<_>>().difference(&others).count()
    });
    tracing::info!(%routes, %upstreams, %certificates, "configuration changed");
}

/// The hosts that are not the same in the other configuration; both have them in the order of their patterns.
fn hosts<'a>(config: &'a Config, other: &'a Config) -> impl Iterator<Item = &'a VirtualHost> {
    let mut others = other.hosts.iter().peekable();
    config.hosts.iter().filter(move |host| {
        while others.next_if(|other| other.host < host.host).is_some() {}
        others.peek() != Some(host)
    })
}

/// Every route as where it is taken, the object that it is written in, and where it leads to; without those of hosts that
/// are the same in the other configuration.
fn routes<'a>(
    config: &'a Config,
    other: &'a Config,
) -> impl Iterator<Item = (Taken<'a>, &'a RouteId, &'a UpstreamKey)> {
    let of_hosts = hosts(config, other).flat_map(|host| {
        let routes = host.routes.iter().map(|route| (Some(&route.path), route));
        let fallback = host.fallback.iter().map(|route| (None, route));
        routes.chain(fallback).map(|(path, route)| (Taken::Path(Some(&host.host), path), route))
    });
    let of_all = config.default_route.iter().map(|route| (Taken::Path(None, None), route));
    let of_http = of_hosts.chain(of_all).map(|(taken, route)| (taken, &route.id, &route.upstream));
    let of_listeners = config.listeners.iter().flat_map(|listener| {
        let address = (Some(&listener.address), listener.serves.protocol());
        listener.serves.routes().map(move |(host, route)| (address, host, route))
    });
    let passed_on = config.tls.passthrough.iter().map(|route| ((None, "TLS"), &route.host, &route.route));
    let below_http = of_listeners.chain(passed_on).flat_map(|((address, protocol), host, route)| {
        let taken = move |weight| Taken::Socket { address, protocol, host, weight };
        route.backends.iter().map(move |backend| (taken(backend.weight), &route.id, &backend.upstream))
    });
    of_http.chain(below_http)
}

/// Where a route is taken.
#[derive(PartialEq, Eq, Hash)]
enum Taken<'a> {
    /// The host and the path. The default route has no host, and fallbacks have no path.
    Path(Option<&'a HostPattern>, Option<&'a PathPattern>),
    /// Below HTTP: the address of the listener, or none for what HTTPS listeners pass on.
    Socket { address: Option<&'a SocketAddr>, protocol: &'a str, host: &'a HostPattern, weight: u32 },
}

/// Every certificate that a host has, as it is sent, and where it is from.
fn certificates(config: &Config) -> impl Iterator<Item = (&str, &[u8])> {
    let all = config.tls.hosts.iter().flat_map(|host| &host.certificates).chain(&config.tls.default);
    all.map(|certificate| {
        (&*certificate.source, certificate.chain.first().map_or(&[][..], |first| first.as_ref()))
    })
}

/// How many have come and gone.
struct Difference {
    came: usize,
    gone: usize,
}

impl Difference {
    /// By how many of one configuration are not in the other.
    fn between(before: &Config, after: &Config, count_without: impl Fn(&Config, &Config) -> usize) -> Self {
        Self { came: count_without(after, before), gone: count_without(before, after) }
    }
}

/// `+1 -0`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} -{}", self.came, self.gone)
    }
}

fn has_same_settings(one: &Upstream, other: &Upstream) -> bool {
    // Named one by one, so that a new field is not forgotten here.
    let Upstream { balance, limits, external_name, tls, proxy_protocol, endpoints: _ } = one;
    (balance, limits, external_name) == (&other.balance, &other.limits, &other.external_name)
        && (tls, proxy_protocol) == (&other.tls, &other.proxy_protocol)
}

fn is_same_but_endpoints(one: &Config, other: &Config) -> bool {
    let Config { settings, hosts, default_route, listeners, tls, upstreams } = one;
    (settings, default_route, tls) == (&other.settings, &other.default_route, &other.tls)
        && upstreams.len() == other.upstreams.len()
        && upstreams
            .iter()
            .zip(&other.upstreams)
            .all(|(one, other)| one.0 == other.0 && has_same_settings(one.1, other.1))
        && *listeners == other.listeners
        && *hosts == other.hosts
}
