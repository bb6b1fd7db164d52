//! The configuration of the data plane, and its changes.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::Serialize;

use crate::policy::Consumer;
use crate::{
    Endpoint, HostPattern, Layer4Route, Listener, Rule, Settings, Tls, Upstream, UpstreamKey, VirtualHost,
};

/// An immutable snapshot of everything that the data plane serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Config {
    /// Limits and policies for all routes.
    pub settings: Settings,
    /// The hosts with their routes, at most one entry for each [`EntryPoint`](crate::EntryPoint) and [`HostPattern`]. An unchanged host costs next to nothing if it
    /// is the same [`Arc`] as in the previous configuration.
    pub hosts: Vec<Arc<VirtualHost>>,
    /// The rule for requests that match no host, at the listeners that flags set. Without a default rule the gateway responds
    /// with 404.
    pub default_rule: Option<Rule>,
    /// The listeners of Gateways, at most one for each address and transport protocol.
    pub listeners: Vec<Listener>,
    /// The certificates.
    pub tls: Arc<Tls>,
    /// The consumers of the policies, each object at most once, in the order of their ids.
    pub consumers: Vec<Arc<Consumer>>,
    /// Exactly the upstreams that the routes name.
    pub upstreams: Upstreams,
    /// The scopes of all Gateways with data planes of their own, also of Gateways without a listener. Only the control plane
    /// reads the field.
    #[serde(skip)]
    pub own_scopes: Vec<Arc<str>>,
}

impl Config {
    /// The upstreams of all routes and policies, some of them several times.
    pub fn named_upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let of_layer4 = self.layer4_routes().flat_map(|(_, route)| &route.backends);
        let of_hosts = self.hosts.iter().flat_map(|host| host.upstreams());
        let of_default = self.default_rule.iter().flat_map(Rule::all_upstreams);
        of_hosts.chain(of_default).chain(of_layer4.map(|backend| &backend.upstream))
    }

    /// The upstreams of the backends of all rules, some of them several times.
    pub fn rule_upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        self.rules().flat_map(Rule::upstreams)
    }

    /// Every rule: the rules and fallbacks of the hosts, and the default rule.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.hosts
            .iter()
            .flat_map(|host| host.rules.iter().chain(host.fallback.as_ref()))
            .chain(self.default_rule.as_ref())
    }

    /// Every route below HTTP with its host pattern: the routes of the listeners, and the routes of the HTTPS listeners for
    /// TLS passthrough and for relayed connections.
    pub fn layer4_routes(&self) -> impl Iterator<Item = (&HostPattern, &Layer4Route)> {
        let passthrough = self.tls.passthrough.iter().map(|route| (&route.host, &route.route));
        let relayed = self.tls.hosts.iter().filter_map(|host| Some((&host.host, host.relay.as_ref()?)));
        let of_listeners = self.listeners.iter().flat_map(|listener| listener.serves.routes());
        of_listeners.chain(passthrough).chain(relayed)
    }
}

/// The upstreams of a configuration. Copies share their entries until one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Upstreams(Arc<Map>);

type Map = BTreeMap<UpstreamKey, Arc<Upstream>>;

impl Upstreams {
    /// Whether both are copies that share their entries. If not, they may be equal all the same.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Upstreams {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.0
    }
}

impl DerefMut for Upstreams {
    fn deref_mut(&mut self) -> &mut Map {
        Arc::make_mut(&mut self.0)
    }
}

impl FromIterator<(UpstreamKey, Arc<Upstream>)> for Upstreams {
    fn from_iter<I: IntoIterator<Item = (UpstreamKey, Arc<Upstream>)>>(upstreams: I) -> Self {
        Self(Arc::new(upstreams.into_iter().collect()))
    }
}

impl<const N: usize> From<[(UpstreamKey, Arc<Upstream>); N]> for Upstreams {
    fn from(upstreams: [(UpstreamKey, Arc<Upstream>); N]) -> Self {
        upstreams.into_iter().collect()
    }
}

impl IntoIterator for Upstreams {
    type Item = (UpstreamKey, Arc<Upstream>);
    type IntoIter = btree_map::IntoIter<UpstreamKey, Arc<Upstream>>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'u> IntoIterator for &'u Upstreams {
    type Item = (&'u UpstreamKey, &'u Arc<Upstream>);
    type IntoIter = btree_map::Iter<'u, UpstreamKey, Arc<Upstream>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'u> IntoIterator for &'u mut Upstreams {
    type Item = (&'u UpstreamKey, &'u mut Arc<Upstream>);
    type IntoIter = btree_map::IterMut<'u, UpstreamKey, Arc<Upstream>>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::make_mut(&mut self.0).iter_mut()
    }
}

/// The lists without the items that both have in common at the start and at the end.
#[must_use]
pub fn without_common_ends<'a, T>(one: &'a [Arc<T>], other: &'a [Arc<T>]) -> (&'a [Arc<T>], &'a [Arc<T>]) {
    let are_same = |(one, other): &(&Arc<T>, &Arc<T>)| Arc::ptr_eq(one, other);
    let start = one.iter().zip(other).take_while(are_same).count();
    let (one, other) = (&one[start..], &other[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(are_same).count();
    (&one[..one.len() - end], &other[..other.len() - end])
}

/// A change that a control plane sends to the data plane. Changes are in order.
#[derive(Clone, Debug)]
pub enum Change {
    /// The new configuration. Upstreams with unchanged keys keep their connection pools and health.
    Config(Arc<Config>),
    /// The new endpoints of one upstream of the current configuration.
    Endpoints {
        /// The upstream. Unknown keys are ignored.
        upstream: UpstreamKey,
        /// All endpoints of the upstream, in place of the previous endpoints.
        endpoints: Arc<[Endpoint]>,
    },
}
