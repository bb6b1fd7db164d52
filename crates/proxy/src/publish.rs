//! From the model to what the workers are given.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::{Change, Config, Endpoint, HostPattern, Listener, Route, UpstreamKey};

use crate::layer4::{self, Layer4Table};
use crate::listener::{Moves, Sockets};
use crate::route::{Table, Target};
use crate::telemetry::{Layer4Labels, Layer4Stats, RouteLabels, Telemetry};
use crate::tls::Compiler;
use crate::upstream::{EndpointSet, Security, SharedEndpoint, SharedUpstream};
use crate::worker::{Mailbox, Placed};

/// The upstreams that were published, and where the next change goes.
pub(crate) struct Publisher {
    telemetry: Arc<Telemetry>,
    mailboxes: Arc<[Mailbox]>,
    upstreams: HashMap<UpstreamKey, Arc<SharedUpstream>>,
    /// Places in the workers' lists that nobody holds.
    free_slots: Vec<usize>,
    slots: usize,
    tls: Compiler,
    pub(crate) sockets: Sockets,
    /// The listeners of the last configuration.
    listeners: Vec<Listener>,
    /// The number of the last change.
    change: u64,
}

impl Publisher {
    pub(crate) fn new(telemetry: Arc<Telemetry>, mailboxes: Arc<[Mailbox]>, sockets: Sockets) -> Self {
        Self {
            telemetry,
            mailboxes,
            upstreams: HashMap::new(),
            free_slots: Vec::new(),
            slots: 0,
            tls: Compiler::new(),
            sockets,
            listeners: Vec::new(),
            change: 0,
        }
    }

    /// Gives the change to every worker. Returns its number.
    pub(crate) fn publish(&mut self, change: Change) -> u64 {
        self.change += 1;
        match change {
            Change::Config(config) => self.publish_config(&config),
            Change::Endpoints { upstream, endpoints } => self.publish_endpoints(&upstream, &endpoints),
        }
        self.change
    }

    fn publish_config(&mut self, config: &Arc<Config>) {
        let gone: Vec<UpstreamKey> =
            self.upstreams.keys().filter(|key| !config.upstreams.contains_key(*key)).cloned().collect();
        let gone: Vec<_> = gone.iter().filter_map(|key| self.upstreams.remove(key)).collect();
        // Freed before new ones are placed: table and slots change together in each worker.
        self.free_slots.extend(gone.iter().map(|upstream| upstream.slot));
        let changed: Vec<_> = config
            .upstreams
            .iter()
            .filter_map(|(key, upstream)| {
                let (shared, is_new) = self.shared(key);
                let before = shared.endpoints();
                let security = Security::of(upstream.tls.as_ref(), &before.security, key);
                let wanted = EndpointSet {
                    balance: upstream.balance,
                    limits: upstream.limits,
                    security,
                    proxy_protocol: upstream.proxy_protocol,
                    endpoints: Vec::new(),
                };
                let (endpoints, changed) = self.endpoint_set(&shared, wanted, &upstream.endpoints);
                (is_new || changed).then_some(Placed { upstream: shared, endpoints })
            })
            .collect();
        let table = self.table(config);
        self.listeners.clone_from(&config.listeners);
        let Moves { opened, closed } = self.follow_listeners();
        for (mailbox, opened) in self.mailboxes.iter().zip(opened) {
            mailbox.post(|pending| {
                pending.change = self.change;
                pending.move_listeners(opened, &closed);
                pending.table = Some(table.clone());
                pending.upstreams.extend(gone.iter().map(|upstream| (upstream.slot, None)));
                let placed = changed.iter().map(|placed| (placed.upstream.slot, Some(placed.clone())));
                pending.upstreams.extend(placed);
            });
        }
    }

    /// Tries again to open what could not be opened.
    pub(crate) fn retry_listeners(&mut self) {
        if !self.sockets.has_failures() {
            return;
        }
        let Moves { opened, closed } = self.follow_listeners();
        for (mailbox, opened) in self.mailboxes.iter().zip(opened) {
            mailbox.post(|pending| pending.move_listeners(opened, &closed));
        }
    }

    fn follow_listeners(&mut self) -> Moves {
        let moves = self.sockets.follow(&self.listeners);
        self.telemetry.set_listeners(self.sockets.states(&self.listeners));
        moves
    }

    /// The short path: nothing but this upstream is looked at, however much is configured.
    fn publish_endpoints(&self, key: &UpstreamKey, endpoints: &[Endpoint]) {
        let Some(shared) = self.upstreams.get(key) else { return self.post_nothing() };
        let before = shared.endpoints();
        let wanted = EndpointSet {
            balance: before.balance,
            limits: before.limits,
            security: before.security.clone(),
            proxy_protocol: before.proxy_protocol,
            endpoints: Vec::new(),
        };
        let (set, changed) = self.endpoint_set(shared, wanted, endpoints);
        if !changed {
            return self.post_nothing();
        }
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| {
                pending.change = self.change;
                let placed = Placed { upstream: shared.clone(), endpoints: set.clone() };
                pending.upstreams.insert(shared.slot, Some(placed));
            });
        }
    }

    fn post_nothing(&self) {
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| pending.change = self.change);
        }
    }

    /// The upstream's shared part: the one that is there, or a new one, and whether it is new.
    fn shared(&mut self, key: &UpstreamKey) -> (Arc<SharedUpstream>, bool) {
        if let Some(shared) = self.upstreams.get(key) {
            return (shared.clone(), false);
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let shared = Arc::new(SharedUpstream::new(key.clone(), slot, self.mailboxes.len()));
        self.upstreams.insert(key.clone(), shared.clone());
        (shared, true)
    }

    /// `wanted` with these endpoints for the workers, and whether that differs from what they had before. Addresses that stay keep
    /// their health and counters.
    fn endpoint_set(
        &self,
        shared: &SharedUpstream,
        mut wanted: EndpointSet,
        endpoints: &[Endpoint],
    ) -> (Arc<EndpointSet>, bool) {
        let old = shared.endpoints();
        let is_same = (old.balance, old.limits, old.proxy_protocol)
            == (wanted.balance, wanted.limits, wanted.proxy_protocol)
            && old.security.is_same(&wanted.security);
        if is_same && *old.to_model() == *endpoints {
            return (old, false);
        }
        let known: HashMap<_, _> =
            old.endpoints.iter().map(|(endpoint, _)| (endpoint.address(), endpoint)).collect();
        let endpoint = |endpoint: &Endpoint| {
            // Only who joins others starts slowly: if all are new, somebody has to do the work.
            let new =
                || Arc::new(SharedEndpoint::new(endpoint.address, self.mailboxes.len(), !known.is_empty()));
            (known.get(&endpoint.address).map_or_else(new, |known| Arc::clone(known)), endpoint.conditions)
        };
        wanted.endpoints = endpoints.iter().map(endpoint).collect();
        let set = Arc::new(wanted);
        shared.set_endpoints(set.clone());
        (set, true)
    }

    fn table(&mut self, config: &Arc<Config>) -> Arc<Table> {
        let labels = |host: &HostPattern, route: &Route| RouteLabels {
            id: Some(route.id.clone()),
            host: host.to_string().into(),
            path: route.path.as_str().into(),
            upstream: Some(route.upstream.clone()),
        };
        let of_hosts = config.hosts.iter().flat_map(|host| {
            let routes = host.routes.iter().chain(&host.fallback);
            routes.map(move |route| labels(&host.host, route))
        });
        let of_default = config.default_route.iter().map(|route| labels(&HostPattern::Any, route));
        let all = of_hosts.chain(of_default);
        let stats = self.telemetry.publish(config, self.upstreams.clone(), all, self.mailboxes.len());
        let tls = self.tls.compile(&config.tls, &config.settings);
        let layer4 = self.layer4_table(config);
        Arc::new(Table::new(config, tls, layer4, |host, route| Target {
            id: route.id.clone(),
            upstream: self.slot(&route.upstream),
            https_only: route.https_only,
            client_auth: route.client_auth.clone(),
            compression: Some(route.compression.as_ref().unwrap_or(&config.settings.compression.codings))
                .filter(|codings| !codings.is_off())
                .cloned(),
            stats: stats[&labels(host, route)].clone(),
        }))
    }

    fn layer4_table(&self, config: &Config) -> Layer4Table {
        let old: HashMap<_, _> = self.telemetry.layer4().into_iter().collect();
        let mut new = HashMap::new();
        let table = Layer4Table::new(config, |listener, protocol, host, route| {
            let (listener, host, id) = (listener.into(), host.to_string().into(), route.id.clone());
            let labels = Layer4Labels { listener, protocol, host, id };
            let stats = old.get(&labels).cloned();
            let stats = stats.unwrap_or_else(|| Arc::new(Layer4Stats::new(self.mailboxes.len())));
            new.insert(labels, stats.clone());
            let backends = route.backends.iter().map(|of| (self.slot(&of.upstream), of.weight)).collect();
            layer4::Target { id: route.id.clone(), backends, stats }
        });
        self.telemetry.set_layer4(new);
        table
    }

    /// The translation gives every upstream that a route names; a slot that nobody has answers 503.
    fn slot(&self, upstream: &UpstreamKey) -> usize {
        self.upstreams.get(upstream).map_or(usize::MAX, |upstream| upstream.slot)
    }
}
