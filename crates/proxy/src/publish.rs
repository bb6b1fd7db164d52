//! From the model to what the workers are given.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::{Change, Config, Endpoint, HostPattern, Route, Upstream, UpstreamKey};

use crate::route::{Table, Target};
use crate::telemetry::{RouteLabels, Telemetry};
use crate::upstream::{EndpointSet, SharedEndpoint, SharedUpstream};
use crate::worker::{Mailbox, Placed};

/// What was published last, and where the next change goes.
pub(crate) struct Publisher {
    telemetry: Arc<Telemetry>,
    mailboxes: Arc<[Mailbox]>,
    config: Arc<Config>,
    upstreams: HashMap<UpstreamKey, Arc<SharedUpstream>>,
    /// Places in the workers' lists that nobody holds.
    free_slots: Vec<usize>,
    slots: usize,
    /// The number of the last change.
    change: u64,
}

impl Publisher {
    pub(crate) fn new(telemetry: Arc<Telemetry>, mailboxes: Arc<[Mailbox]>) -> Self {
        Self {
            telemetry,
            mailboxes,
            config: Arc::default(),
            upstreams: HashMap::new(),
            free_slots: Vec::new(),
            slots: 0,
            change: 0,
        }
    }

    /// Gives the change to every worker. Returns its number.
    pub(crate) fn publish(&mut self, change: Change) -> u64 {
        self.change += 1;
        match change {
            Change::Config(config) => self.publish_config(config),
            Change::Endpoints { upstream, endpoints } => self.publish_endpoints(&upstream, endpoints),
        }
        self.change
    }

    fn publish_config(&mut self, config: Arc<Config>) {
        let gone: Vec<UpstreamKey> =
            self.upstreams.keys().filter(|key| !config.upstreams.contains_key(*key)).cloned().collect();
        let gone: Vec<_> = gone.iter().filter_map(|key| self.upstreams.remove(key)).collect();
        // Freed before new ones are placed: table and slots change together in each worker.
        self.free_slots.extend(gone.iter().map(|upstream| upstream.slot));
        let sets: Vec<_> = config
            .upstreams
            .iter()
            .map(|(key, upstream)| {
                let shared = self.shared(key);
                let set = self.endpoint_set(&shared, upstream, &upstream.endpoints);
                Placed { upstream: shared, endpoints: set }
            })
            .collect();
        let table = self.table(&config);
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| {
                pending.change = self.change;
                pending.table = Some(table.clone());
                pending.upstreams.extend(gone.iter().map(|upstream| (upstream.slot, None)));
                let placed = sets.iter().map(|placed| (placed.upstream.slot, Some(placed.clone())));
                pending.upstreams.extend(placed);
            });
        }
        self.config = config;
    }

    fn publish_endpoints(&mut self, key: &UpstreamKey, endpoints: Arc<[Endpoint]>) {
        let Some(shared) = self.upstreams.get(key).cloned() else { return self.post_nothing() };
        let config = Arc::make_mut(&mut self.config);
        let Some(upstream) = config.upstreams.get_mut(key) else { return self.post_nothing() };
        let changed = Arc::new(Upstream { endpoints: endpoints.clone(), ..(**upstream).clone() });
        upstream.clone_from(&changed);
        let set = self.endpoint_set(&shared, &changed, &endpoints);
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| {
                pending.change = self.change;
                let placed = Placed { upstream: shared.clone(), endpoints: set.clone() };
                pending.upstreams.insert(shared.slot, Some(placed));
            });
        }
        self.telemetry.replace_config(self.config.clone());
    }

    fn post_nothing(&self) {
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| pending.change = self.change);
        }
    }

    /// The upstream's shared part: the one that is there, or a new one.
    fn shared(&mut self, key: &UpstreamKey) -> Arc<SharedUpstream> {
        if let Some(shared) = self.upstreams.get(key) {
            return shared.clone();
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        let shared = Arc::new(SharedUpstream::new(key.clone(), slot, self.mailboxes.len()));
        self.upstreams.insert(key.clone(), shared.clone());
        shared
    }

    /// The endpoints for the workers. Addresses that stay keep their health and counters. If nothing changed,
    /// it is the same set as before.
    fn endpoint_set(
        &self,
        shared: &SharedUpstream,
        upstream: &Upstream,
        endpoints: &[Endpoint],
    ) -> Arc<EndpointSet> {
        let old = shared.endpoints();
        let known: HashMap<_, _> =
            old.endpoints.iter().map(|(endpoint, _)| (endpoint.address(), endpoint)).collect();
        let endpoints = endpoints.iter().map(|endpoint| {
            let shared = known.get(&endpoint.address).map(|known| Arc::clone(known));
            // Only who joins others starts slowly: if all are new, somebody has to do the work.
            let new =
                || Arc::new(SharedEndpoint::new(endpoint.address, self.mailboxes.len(), !known.is_empty()));
            (shared.unwrap_or_else(new), endpoint.conditions)
        });
        let set = Arc::new(EndpointSet {
            balance: upstream.balance,
            limits: upstream.limits,
            endpoints: endpoints.collect(),
        });
        shared.set_endpoints(set.clone());
        set
    }

    fn table(&self, config: &Arc<Config>) -> Arc<Table> {
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
        Arc::new(Table::new(config, |host, route| Target {
            id: route.id.clone(),
            // The translation gives every upstream that a route names; a slot that nobody has answers 503.
            upstream: self.upstreams.get(&route.upstream).map_or(usize::MAX, |upstream| upstream.slot),
            stats: stats[&labels(host, route)].clone(),
        }))
    }
}
