//! Publishes whole configurations, or the endpoints of single upstreams if nothing else changed. Each change leaves a
//! line in the log.

use std::cmp::Ordering;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::policy::{Consumer, RateLimits, Security, Traffic};
use sluicegate_model::rule::Backend;
use sluicegate_model::{
    Certificate, Change, Config, Endpoint, EntryPoint, HostPattern, ObjectId, RuleMatch, TlsHost, Upstream,
    UpstreamKey, Upstreams, VirtualHost,
};

/// The last published configuration, and values derived from it.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    config: Option<Arc<Config>>,
    /// The endpoints that were published after the configuration.
    newer: HashMap<UpstreamKey, Arc<[Endpoint]>>,
}

impl Publisher {
    /// The last published configuration; its endpoints may be older.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// The last published configuration, with the last published endpoints.
    pub(super) fn config_with_endpoints(&self) -> Option<Config> {
        let mut config = Config::clone(self.config.as_ref()?);
        for (key, endpoints) in &self.newer {
            if let Some(upstream) = config.upstreams.get_mut(key) {
                *upstream = Arc::new(Upstream { endpoints: endpoints.clone(), ..Upstream::clone(upstream) });
            }
        }
        Some(config)
    }

    /// The last published endpoints of an upstream.
    pub(super) fn endpoints(&self, upstream: &UpstreamKey) -> Option<&Arc<[Endpoint]>> {
        let of_config = || Some(&self.config.as_ref()?.upstreams.get(upstream)?.endpoints);
        self.newer.get(upstream).or_else(of_config)
    }

    /// The changes from the published configuration to `config`.
    pub(super) fn set_config(&mut self, mut config: Config) -> Vec<Change> {
        let before = self.config.clone().unwrap_or_default();
        self.share(&before, &mut config);
        if self.config.is_some() && is_same_but_endpoints(&before, &config) {
            return config
                .upstreams
                .iter()
                .filter_map(|(key, upstream)| self.set_endpoints(key, &upstream.endpoints))
                .collect();
        }
        let config = Arc::new(config);
        self.config = Some(config.clone());
        self.newer.clear();
        log(&before, &config);
        vec![Change::Config(config)]
    }

    /// The change from the published endpoints of an upstream to `endpoints`; `None` if they are equal.
    pub(super) fn set_endpoints(
        &mut self,
        upstream: &UpstreamKey,
        endpoints: &Arc<[Endpoint]>,
    ) -> Option<Change> {
        if self.endpoints(upstream)? == endpoints {
            return None;
        }
        self.newer.insert(upstream.clone(), endpoints.clone());
        tracing::debug!(%upstream, endpoints = endpoints.len(), "endpoints changed");
        Some(Change::Endpoints { upstream: upstream.clone(), endpoints: endpoints.clone() })
    }

    /// Replaces each value that equals the previous value by the previous [`Arc`], so that a consumer of the
    /// configuration need not compare it again.
    fn share(&self, before: &Config, config: &mut Config) {
        share(&mut config.hosts, &before.hosts, by_pattern);
        share(&mut config.consumers, &before.consumers, by_id);
        self.share_upstreams(before, config);
        if config.tls == before.tls {
            config.tls = before.tls.clone();
        } else {
            let tls = Arc::make_mut(&mut config.tls);
            share(&mut tls.hosts, &before.tls.hosts, by_tls_pattern);
        }
    }

    fn share_upstreams(&self, before: &Config, config: &mut Config) {
        if config.upstreams.is_shared_with(&before.upstreams) {
            return;
        }
        // For upstreams with newer endpoints, the previous configuration does not hold the last published value.
        let old = |key: &UpstreamKey| before.upstreams.get(key).filter(|_| !self.newer.contains_key(key));
        let mut is_same = config.upstreams.len() == before.upstreams.len();
        for (key, upstream) in &mut config.upstreams {
            match old(key).filter(|old| *old == upstream) {
                Some(old) => *upstream = old.clone(),
                None => is_same = false,
            }
        }
        if is_same {
            config.upstreams = before.upstreams.clone();
        }
    }
}

fn by_pattern(one: &VirtualHost, other: &VirtualHost) -> Ordering {
    one.key().cmp(&other.key())
}

fn by_tls_pattern(one: &TlsHost, other: &TlsHost) -> Ordering {
    one.key().cmp(&other.key())
}

fn by_id(one: &Consumer, other: &Consumer) -> Ordering {
    one.id.cmp(&other.id)
}

/// Replaces each [`Arc`] in `ours` by the equal one at the same place of the `order` in `theirs`. Both are in this order.
fn share<T: Eq>(ours: &mut [Arc<T>], theirs: &[Arc<T>], order: impl Fn(&T, &T) -> Ordering) {
    let equal = |(place, (our, their)): (usize, (&Arc<T>, Option<&Arc<T>>))| {
        let their = their.filter(|their| !Arc::ptr_eq(our, their) && *their == our)?;
        Some((place, their.clone()))
    };
    let equal: Vec<_> = beside(ours, theirs, order).enumerate().filter_map(equal).collect();
    for (place, their) in equal {
        ours[place] = their;
    }
}

/// Each item of `ours` with the item at the same place of the `order` in `theirs`. Both are in this order. An item that both share
/// costs a comparison of pointers.
fn beside<'a, T>(
    ours: &'a [Arc<T>],
    theirs: &'a [Arc<T>],
    order: impl Fn(&T, &T) -> Ordering,
) -> impl Iterator<Item = (&'a Arc<T>, Option<&'a Arc<T>>)> {
    let mut theirs = theirs.iter().peekable();
    ours.iter().map(move |our| {
        let same = theirs.next_if(|their| Arc::ptr_eq(their, our));
        let other = || {
            while theirs.next_if(|their| order(their, our).is_lt()).is_some() {}
            theirs.next_if(|their| order(their, our).is_eq())
        };
        (our, same.or_else(other))
    })
}

/// Logs added and removed objects. A route to another upstream, or an upstream with other settings, counts as both.
fn log(before: &Config, after: &Config) {
    let routes = Difference::between(before, after, |config, other| {
        let others: HashSet<_> = routes(other, config).collect();
        routes(config, other).filter(|route| !others.contains(route)).count()
    });
    let upstreams = Difference::between(before, after, |config, other| {
        if config.upstreams.is_shared_with(&other.upstreams) {
            return 0;
        }
        let differs = |(key, upstream): &(&UpstreamKey, &Arc<Upstream>)| {
            other.upstreams.get(*key).is_none_or(|other| !has_same_settings(upstream, other))
        };
        config.upstreams.iter().filter(differs).count()
    });
    let certificates = match Arc::ptr_eq(&before.tls, &after.tls) {
        true => Difference { came: 0, gone: 0 },
        false => Difference::between(before, after, |config, other| new_certificates(config, other).len()),
    };
    let policies = Difference::between(before, after, |config, other| {
        let others = policies(other, config);
        policies(config, other).into_iter().filter(|(id, policy)| others.get(id) != Some(policy)).count()
    });
    let consumers = Difference::between(before, after, |config, other| {
        let beside = beside(&config.consumers, &other.consumers, by_id);
        beside.filter(|(consumer, other)| other.is_none_or(|other| other != *consumer)).count()
    });
    let policies = policies.if_any().map(tracing::field::display);
    let consumers = consumers.if_any().map(tracing::field::display);
    tracing::info!(%routes, %upstreams, %certificates, policies, consumers, "configuration changed");
}

/// The hosts that differ in the other configuration.
fn hosts<'a>(config: &'a Config, other: &'a Config) -> impl Iterator<Item = &'a VirtualHost> {
    beside(&config.hosts, &other.hosts, by_pattern)
        .filter(|(host, other)| other.as_ref() != Some(host))
        .map(|(host, _)| &**host)
}

/// Every route as its place, its object and its destination; without the routes of hosts that are equal in the other
/// configuration.
fn routes<'a>(
    config: &'a Config,
    other: &'a Config,
) -> impl Iterator<Item = (Taken<'a>, &'a ObjectId, &'a UpstreamKey)> {
    let of_hosts = hosts(config, other).flat_map(|host| {
        let rules = host.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (Some(of), rule)));
        let fallback = host.fallback.iter().map(|rule| (None, rule));
        rules.chain(fallback).map(|(of, rule)| ((Some((&host.entry_point, &host.host)), of), rule))
    });
    let of_all = config.default_rule.iter().map(|rule| ((None, None), rule));
    let of_http = of_hosts.chain(of_all).flat_map(|((host, of), rule)| {
        let taken = move |backend: &Backend| Taken::Match { host, of, weight: backend.weight.get() };
        rule.backends.iter().map(move |backend| (taken(backend), &rule.id, &backend.upstream))
    });
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

/// A policy of routes.
#[derive(PartialEq)]
enum Policy<'a> {
    Security(&'a Security),
    RateLimits(&'a RateLimits),
    Traffic(&'a Traffic),
}

/// The policies of the routes of hosts that differ in the other configuration.
fn policies<'a>(config: &'a Config, other: &'a Config) -> HashMap<&'a ObjectId, Policy<'a>> {
    let of_hosts = hosts(config, other).flat_map(|host| host.rules.iter().chain(&host.fallback));
    let routes = of_hosts.chain(&config.default_rule);
    routes
        .flat_map(|route| {
            let security = route.security.iter().map(|policy| (&policy.id, Policy::Security(policy)));
            let limits = route.rate_limits.iter().map(|policy| (&policy.id, Policy::RateLimits(policy)));
            let traffic = route.traffic.iter().map(|policy| (&policy.id, Policy::Traffic(policy)));
            security.chain(limits).chain(traffic)
        })
        .collect()
}

/// The place of a route.
#[derive(PartialEq, Eq, Hash)]
enum Taken<'a> {
    /// The host and the match. The default rule has no host, and fallbacks have no match.
    Match { host: Option<(&'a EntryPoint, &'a HostPattern)>, of: Option<&'a RuleMatch>, weight: u32 },
    /// Below HTTP: the address of the listener, or none for TLS passthrough of HTTPS listeners.
    Socket { address: Option<&'a SocketAddr>, protocol: &'a str, host: &'a HostPattern, weight: u32 },
}

/// The certificates that the other configuration does not have, each as its origin and as the gateway sends it.
fn new_certificates<'a>(config: &'a Config, other: &'a Config) -> HashSet<(&'a str, &'a [u8])> {
    let hosts = beside(&config.tls.hosts, &other.tls.hosts, by_tls_pattern);
    let changed = hosts.filter(|(host, other)| other.is_none_or(|other| other != *host));
    let of_hosts = changed.flat_map(|(host, _)| &host.certificates);
    let mut new: HashSet<_> = of_hosts.chain(&config.tls.default).map(identity).collect();
    // A hash of each certificate would cost more than all the rest.
    let origins: HashSet<&str> = new.iter().map(|(origin, _)| *origin).collect();
    for certificate in other.tls.hosts.iter().flat_map(|host| &host.certificates).chain(&other.tls.default) {
        if origins.contains(&*certificate.source) {
            new.remove(&identity(certificate));
        }
    }
    new
}

fn identity(certificate: &Arc<Certificate>) -> (&str, &[u8]) {
    (&*certificate.source, certificate.chain.first().map_or(&[][..], |first| first.as_ref()))
}

/// The numbers of added and removed objects.
struct Difference {
    came: usize,
    gone: usize,
}

impl Difference {
    /// The difference between two configurations, by the number of objects that one configuration has and the other
    /// does not.
    fn between(before: &Config, after: &Config, count_without: impl Fn(&Config, &Config) -> usize) -> Self {
        Self { came: count_without(after, before), gone: count_without(before, after) }
    }

    fn if_any(self) -> Option<Self> {
        (self.came + self.gone > 0).then_some(self)
    }
}

/// `+1 -0`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} -{}", self.came, self.gone)
    }
}

fn has_same_settings(one: &Arc<Upstream>, other: &Arc<Upstream>) -> bool {
    if Arc::ptr_eq(one, other) {
        return true;
    }
    // Each field is named, so that the compiler reports a new field.
    let Upstream {
        balance,
        limits,
        external_name,
        tls,
        proxy_protocol,
        health,
        retry_constraint,
        endpoints: _,
    } = &**one;
    (balance, limits, external_name) == (&other.balance, &other.limits, &other.external_name)
        && (tls, proxy_protocol, health) == (&other.tls, &other.proxy_protocol, &other.health)
        && *retry_constraint == other.retry_constraint
}

fn have_same_settings(one: &Upstreams, other: &Upstreams) -> bool {
    let are_same = |one: (&UpstreamKey, &Arc<Upstream>), other: (&UpstreamKey, &Arc<Upstream>)| {
        one.0 == other.0 && has_same_settings(one.1, other.1)
    };
    one.is_shared_with(other)
        || one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_same(one, other))
}

fn is_same_but_endpoints(one: &Config, other: &Config) -> bool {
    let Config { settings, hosts, default_rule, listeners, tls, consumers, upstreams, own_scopes } = one;
    (settings, default_rule, tls) == (&other.settings, &other.default_rule, &other.tls)
        && *consumers == other.consumers
        && have_same_settings(upstreams, &other.upstreams)
        && (listeners, own_scopes) == (&other.listeners, &other.own_scopes)
        && *hosts == other.hosts
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use sluicegate_model::{Conditions, PathPattern, Rule};

    use super::*;

    fn endpoints(last: u8) -> Arc<[Endpoint]> {
        let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 80));
        [Endpoint { address, conditions: Conditions::READY }].into()
    }

    /// A host with one route for each name, to the Service of that name.
    fn config(names: &[&str], last: u8) -> Config {
        let key = |name: &str| UpstreamKey::new("default", name, "80");
        let host = |name: &&str| {
            let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: (*name).into() };
            let route = Rule::new(id, PathPattern::Prefix("/".into()), key(name));
            let host = HostPattern::Exact((*name).into());
            Arc::new(VirtualHost::new(host, vec![route]))
        };
        let upstream = |name: &&str| {
            (key(name), Arc::new(Upstream { endpoints: endpoints(last), ..Upstream::default() }))
        };
        Config {
            hosts: names.iter().map(host).collect(),
            upstreams: names.iter().map(upstream).collect(),
            ..Config::default()
        }
    }

    fn published(changes: Vec<Change>) -> Arc<Config> {
        match <[Change; 1]>::try_from(changes) {
            Ok([Change::Config(config)]) => config,
            other => panic!("not a configuration: {other:?}"),
        }
    }

    #[test]
    fn consecutive_configurations_share_the_arc_of_unchanged_resources() {
        let mut publisher = Publisher::default();
        let before = published(publisher.set_config(config(&["b", "d"], 1)));
        let after = published(publisher.set_config(config(&["a", "b", "c", "d"], 1)));
        assert!(Arc::ptr_eq(&after.hosts[1], &before.hosts[0]));
        assert!(Arc::ptr_eq(&after.hosts[3], &before.hosts[1]));
        assert!(Arc::ptr_eq(&after.tls, &before.tls));
        for (key, upstream) in &before.upstreams {
            assert!(Arc::ptr_eq(&after.upstreams[key], upstream), "{key}");
        }
    }

    #[test]
    fn endpoint_change_back_to_an_earlier_value_is_published() {
        let mut publisher = Publisher::default();
        let before = published(publisher.set_config(config(&["a"], 1)));
        let key = before.hosts[0].rules[0].backends[0].upstream.clone();
        assert!(publisher.set_endpoints(&key, &endpoints(2)).is_some());
        let after = published(publisher.set_config(config(&["a", "b"], 1)));
        assert!(!Arc::ptr_eq(&after.upstreams[&key], &before.upstreams[&key]));
        assert!(publisher.set_endpoints(&key, &endpoints(1)).is_none(), "they are in the configuration");
        assert!(publisher.set_endpoints(&key, &endpoints(2)).is_some());
    }

    #[test]
    fn publisher_sends_only_endpoint_changes_if_nothing_else_changed() {
        let mut publisher = Publisher::default();
        publisher.set_config(config(&["a", "b"], 1));
        let changes = publisher.set_config(config(&["a", "b"], 2));
        assert_eq!(changes.len(), 2);
        assert!(changes.iter().all(|change| matches!(change, Change::Endpoints { .. })));
        assert!(publisher.set_config(config(&["a", "b"], 2)).is_empty());
    }
}
