//! The routing table: a configuration compiled for look-up.

mod hosts;
mod tree;

use std::sync::Arc;

use sluicegate_model::{ClientAuth, Codings, HostPattern, Route, RouteId, Settings};

use crate::layer4::Layer4Table;
use crate::telemetry::RouteStats;
use crate::tls::TlsTable;
pub(crate) use hosts::{HostMap, host_name};
use tree::PathTree;

/// What a worker needs of a configuration, compiled once for all workers.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) settings: Arc<Settings>,
    pub(crate) tls: Arc<TlsTable>,
    pub(crate) layer4: Layer4Table,
    routes: Vec<Target>,
    hosts: HostMap<Host>,
    default: Option<u32>,
}

/// Where a route leads.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: RouteId,
    /// The slot of its upstream in every worker.
    pub(crate) upstream: usize,
    /// Whether clients that come over plain HTTP are sent to HTTPS.
    pub(crate) https_only: bool,
    /// The policy for certificates of clients that a connection must have been opened under.
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// The codings for its responses; `None`: they are not compressed.
    pub(crate) compression: Option<Codings>,
    pub(crate) stats: Arc<RouteStats>,
}

#[derive(Debug)]
struct Host {
    paths: PathTree,
    fallback: Option<u32>,
}

impl Table {
    pub(crate) fn new(
        config: &sluicegate_model::Config,
        tls: Arc<TlsTable>,
        layer4: Layer4Table,
        mut target: impl FnMut(&HostPattern, &Route) -> Target,
    ) -> Self {
        let mut table = Self {
            settings: Arc::new(config.settings.clone()),
            tls,
            layer4,
            routes: Vec::new(),
            hosts: HostMap::default(),
            default: None,
        };
        for virtual_host in &config.hosts {
            let mut add = |route: &Route| table.add(target(&virtual_host.host, route));
            let mut paths = PathTree::new();
            for route in &virtual_host.routes {
                let index = add(route);
                paths.insert(&route.path, index);
            }
            let fallback = virtual_host.fallback.as_ref().map(add);
            table.hosts.insert(&virtual_host.host, Host { paths, fallback });
        }
        table.default =
            config.default_route.as_ref().map(|route| table.add(target(&HostPattern::Any, route)));
        table
    }

    /// The number of the route for a request. `authority` is the Host header's value, with or without a port, in any case;
    /// `path` is in normal form.
    pub(crate) fn find(&self, authority: &[u8], path: &[u8]) -> Option<u32> {
        match self.hosts.find(host_name(authority)) {
            Some(host) => host.paths.find(path).or(host.fallback).or(self.default),
            None => self.default,
        }
    }

    /// What a number that [`find`](Self::find) gave stands for.
    pub(crate) fn target(&self, index: u32) -> &Target {
        &self.routes[index as usize]
    }

    fn add(&mut self, target: Target) -> u32 {
        self.routes.push(target);
        u32::try_from(self.routes.len() - 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::{Config, PathPattern, UpstreamKey, VirtualHost};

    use super::*;
    use crate::telemetry::Telemetry;

    fn route(name: &str, path: &str) -> Route {
        let id = RouteId { kind: "Ingress", namespace: "default".into(), name: name.into() };
        let upstream = UpstreamKey::new("default", "s", "80");
        Route::new(id, PathPattern::Prefix(path.into()), upstream)
    }

    fn virtual_host(host: HostPattern, name: &str) -> VirtualHost {
        VirtualHost { host, routes: vec![route(name, "/")], fallback: None }
    }

    fn table(config: &Config) -> Table {
        let stats = Telemetry::new(1).overflow_stats();
        Table::new(config, Arc::default(), Layer4Table::default(), |_, route| Target {
            id: route.id.clone(),
            upstream: 0,
            https_only: false,
            client_auth: None,
            compression: None,
            stats: stats.clone(),
        })
    }

    fn name<'t>(table: &'t Table, host: &str, path: &str) -> &'t str {
        table.find(host.as_bytes(), path.as_bytes()).map_or("none", |index| &table.target(index).id.name)
    }

    #[test]
    fn the_most_specific_host_wins() {
        let table = table(&Config {
            hosts: vec![
                virtual_host(HostPattern::Exact("a.example.com".into()), "exact"),
                virtual_host(HostPattern::Wildcard("example.com".into()), "wildcard"),
                virtual_host(HostPattern::Any, "any"),
            ],
            ..Config::default()
        });
        for (host, expected) in [
            ("a.example.com", "exact"),
            ("A.Example.COM:8080", "exact"),
            ("a.example.com.", "exact"),
            ("b.example.com", "wildcard"),
            ("a.b.example.com", "any"),
            ("example.com", "any"),
            (".example.com", "any"),
            ("[::1]:80", "any"),
            ("", "any"),
        ] {
            assert_eq!(name(&table, host, "/"), expected, "{host}");
        }
        assert_eq!(name(&table, &"x".repeat(300), "/"), "any");
    }

    #[test]
    fn what_no_path_takes_goes_to_the_fallback_then_to_the_default() {
        let mut config = Config {
            hosts: vec![VirtualHost {
                host: HostPattern::Exact("a".into()),
                routes: vec![route("foo", "/foo")],
                fallback: Some(route("fallback", "/")),
            }],
            default_route: Some(route("default", "/")),
            ..Config::default()
        };
        assert_eq!(name(&table(&config), "a", "/foo"), "foo");
        assert_eq!(name(&table(&config), "a", "/"), "fallback");
        assert_eq!(name(&table(&config), "b", "/foo"), "default");
        config.hosts[0].fallback = None;
        assert_eq!(name(&table(&config), "a", "/"), "default");
        config.default_route = None;
        assert_eq!(name(&table(&config), "a", "/"), "none");
    }
}
