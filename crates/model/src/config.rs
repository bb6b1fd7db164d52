//! The whole of what to serve, and how it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::policy::Consumer;
use crate::{
    Endpoint, HostPattern, Layer4Route, Listener, Rule, Settings, Tls, Upstream, UpstreamKey, VirtualHost,
};

/// An immutable snapshot of everything that the data plane serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Config {
    /// Limits and policies that hold for all routes.
    pub settings: Settings,
    /// The hosts with their routes, at most one entry for each [`HostPattern`]. What is the same as in the configuration
    /// before costs next to nothing where it is the same [`Arc`].
    pub hosts: Vec<Arc<VirtualHost>>,
    /// The rule for requests that no host takes. Without one the gateway responds with 404.
    pub default_rule: Option<Rule>,
    /// The listeners below HTTP, at most one for each address and transport protocol.
    pub listeners: Vec<Listener>,
    /// The certificates.
    pub tls: Arc<Tls>,
    /// Who calls, where policies ask for it, each object at most once, in the order of their ids.
    pub consumers: Vec<Arc<Consumer>>,
    /// Every upstream that a route names, and no other.
    pub upstreams: BTreeMap<UpstreamKey, Arc<Upstream>>,
}

impl Config {
    /// Every rule: those of the hosts, their fallbacks, and the default.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.hosts
            .iter()
            .flat_map(|host| host.rules.iter().chain(host.fallback.as_ref()))
            .chain(self.default_rule.as_ref())
    }

    /// Every route below HTTP with the names that it is for: those of the listeners, and those that HTTPS listeners
    /// pass on.
    pub fn layer4_routes(&self) -> impl Iterator<Item = (&HostPattern, &Layer4Route)> {
        let passthrough = self.tls.passthrough.iter().map(|route| (&route.host, &route.route));
        self.listeners.iter().flat_map(|listener| listener.serves.routes()).chain(passthrough)
    }
}

/// What a control plane tells the data plane, in order.
#[derive(Clone, Debug)]
pub enum Change {
    /// Serve this from now on. Upstreams keep their pools and health where their keys stay.
    Config(Arc<Config>),
    /// One upstream of the current configuration has these endpoints from now on.
    Endpoints {
        /// Whose endpoints; unknown keys are ignored.
        upstream: UpstreamKey,
        /// All of them, replacing what was there.
        endpoints: Arc<[Endpoint]>,
    },
}
