//! Compiles the model for the workers.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::feature::RetryConstraint;
use sluicegate_model::{Change, Config, Endpoint, Listener, Upstream, UpstreamKey};

use crate::counters::Layer4Labels;
use crate::listener::{Moves, Sockets};
use crate::record::trace::Exporter;
use crate::registry::Registry;
use crate::rule::{Layer4Table, Layer4Target, Table};
use crate::runtime::{Mailbox, Placed};
use crate::tls::Compiler;
use crate::upstream::slot::{self, Slots};
use crate::upstream::{EndpointSet, RetryBudget, Security, SharedEndpoint, SharedUpstream};

/// The published upstreams, and the recipients of the next change.
pub(crate) struct Publisher {
    registry: Arc<Registry>,
    mailboxes: Arc<[Mailbox]>,
    upstreams: foldhash::HashMap<UpstreamKey, Published>,
    budgets: Budgets,
    table: Arc<Table>,
    slots: Slots,
    tls: Compiler,
    pub(crate) sockets: Sockets,
    pub(crate) exporter: Exporter,
    /// The listeners of the last configuration.
    listeners: Vec<Listener>,
    /// Whether its HTTPS listeners also serve HTTP/3.
    has_http3: bool,
    /// The number of the last change.
    change: u64,
    /// The last configuration.
    config: Option<Arc<Config>>,
    /// The upstreams with newer endpoints than in the last configuration.
    newer: foldhash::HashSet<UpstreamKey>,
    /// All upstreams, for readers.
    shared: Arc<[Arc<SharedUpstream>]>,
}

/// The retry budgets of Services, by namespace and name: all upstreams of a Service with the same limit share a budget.
type Budgets = foldhash::HashMap<(Arc<str>, Arc<str>, RetryConstraint), Arc<RetryBudget>>;

/// A published upstream.
struct Published {
    shared: Arc<SharedUpstream>,
    /// The upstream in the last configuration, unless a newer change was published since.
    applied: Option<Arc<Upstream>>,
    /// The number of the last configuration with this upstream.
    change: u64,
}

impl Publisher {
    /// A publisher for workers with an empty table.
    pub(crate) fn new(
        registry: Arc<Registry>,
        mailboxes: Arc<[Mailbox]>,
        sockets: Sockets,
        exporter: Exporter,
    ) -> Self {
        Self {
            registry,
            mailboxes,
            upstreams: foldhash::HashMap::default(),
            budgets: Budgets::default(),
            table: Arc::default(),
            slots: Slots::default(),
            tls: Compiler::new(),
            sockets,
            exporter,
            listeners: Vec::new(),
            has_http3: false,
            change: 0,
            config: None,
            newer: foldhash::HashSet::default(),
            shared: Arc::default(),
        }
    }

    /// Passes the change to every worker. Returns its number.
    pub(crate) fn publish(&mut self, change: Change) -> u64 {
        self.change += 1;
        match change {
            Change::Config(config) => self.publish_config(&config),
            Change::Endpoints { upstream, endpoints } => self.publish_endpoints(&upstream, &endpoints),
        }
        self.change
    }

    fn publish_config(&mut self, config: &Arc<Config>) {
        let earlier = self.config.replace(config.clone());
        let has_same = earlier.as_ref().is_some_and(|old| old.upstreams.is_shared_with(&config.upstreams));
        let (changed, gone) = match has_same {
            true => (self.publish_newer(config), Vec::new()),
            false => self.publish_upstreams(config),
        };
        self.newer.clear();
        let slots_stay = gone.is_empty() && (has_same || !self.table.has_unplaced());
        let table = self.compile(config, earlier.as_deref().filter(|_| slots_stay));
        self.exporter.follow(config.settings.tracing.as_ref());
        self.listeners.clone_from(&config.listeners);
        self.has_http3 = config.settings.tls.http3.is_some();
        let Moves { opened, opened_quic, closed } = self.follow_listeners();
        for (mailbox, (opened, opened_quic)) in self.mailboxes.iter().zip(opened.into_iter().zip(opened_quic))
        {
            mailbox.post(|pending| {
                pending.change = self.change;
                pending.move_listeners(opened, opened_quic, &closed);
                pending.table = Some(table.clone());
                pending.upstreams.extend(gone.iter().map(|slot| (*slot, None)));
                let placed = changed.iter().map(|placed| (placed.upstream.slot, Some(placed.clone())));
                pending.upstreams.extend(placed);
            });
        }
    }

    /// Applies a configuration with the upstreams of the last one: only endpoints can differ. Returns the changed upstreams.
    fn publish_newer(&mut self, config: &Config) -> Vec<Placed> {
        let mut changed = Vec::new();
        for key in std::mem::take(&mut self.newer) {
            let upstream = config.upstreams.get(&key);
            let (Some(published), Some(upstream)) = (self.upstreams.get_mut(&key), upstream) else {
                continue;
            };
            published.applied = Some(upstream.clone());
            let shared = published.shared.clone();
            let (endpoints, has_changed) = self.configured_set(&shared, upstream);
            changed.extend(has_changed.then_some(Placed { upstream: shared, endpoints }));
        }
        changed
    }

    /// Applies the upstreams of a configuration. Returns the new and changed upstreams, and the slots of removed
    /// upstreams.
    fn publish_upstreams(&mut self, config: &Config) -> (Vec<Placed>, Vec<usize>) {
        self.publish_budgets(config);
        let (mut stayed, mut new) = (Vec::new(), Vec::new());
        for (key, upstream) in &config.upstreams {
            let Some(published) = self.upstreams.get_mut(key) else {
                new.push((key, upstream));
                continue;
            };
            published.change = self.change;
            if !published.applied.as_ref().is_some_and(|applied| Arc::ptr_eq(applied, upstream)) {
                published.applied = Some(upstream.clone());
                stayed.push((published.shared.clone(), upstream));
            }
        }
        let mut gone = Vec::new();
        self.upstreams.retain(|_, published| {
            let stays = published.change == self.change;
            if !stays {
                gone.push(published.shared.slot);
            }
            stays
        });
        // The order of a hash map differs from process to process.
        gone.sort_unstable();
        // Slots are freed before new upstreams are placed: each worker changes table and slots together.
        for slot in &gone {
            self.slots.free(*slot);
        }
        let is_same = gone.is_empty() && new.is_empty();
        let mut changed = Vec::new();
        for (shared, upstream) in stayed {
            let (endpoints, has_changed) = self.configured_set(&shared, upstream);
            changed.extend(has_changed.then_some(Placed { upstream: shared, endpoints }));
        }
        for (key, upstream) in new {
            let shared = self.place(key, upstream);
            let (endpoints, _) = self.configured_set(&shared, upstream);
            changed.push(Placed { upstream: shared, endpoints });
        }
        if !is_same {
            self.shared = self.upstreams.values().map(|published| published.shared.clone()).collect();
        }
        (changed, gone)
    }

    /// Keeps the budgets that the configuration still has, with their counts.
    fn publish_budgets(&mut self, config: &Config) {
        let mut before = std::mem::take(&mut self.budgets);
        for (key, upstream) in &config.upstreams {
            let Some(constraint) = upstream.retry_constraint else { continue };
            let key = (key.namespace.clone(), key.service.clone(), constraint);
            let known = before.remove(&key);
            let budget = || known.unwrap_or_else(|| Arc::new(RetryBudget::new(constraint)));
            self.budgets.entry(key).or_insert_with(budget);
        }
    }

    fn budget(&self, key: &UpstreamKey, upstream: &Upstream) -> Option<Arc<RetryBudget>> {
        let key = (key.namespace.clone(), key.service.clone(), upstream.retry_constraint?);
        self.budgets.get(&key).cloned()
    }

    /// The endpoints of an upstream in a configuration, for the workers, and whether they differ from the previous
    /// endpoints.
    fn configured_set(&self, shared: &SharedUpstream, upstream: &Upstream) -> (Arc<EndpointSet>, bool) {
        let wanted = EndpointSet {
            balance: upstream.balance,
            limits: upstream.limits,
            security: Security::of(upstream.tls.as_ref(), &shared.endpoints().security, shared.key()),
            proxy_protocol: upstream.proxy_protocol,
            health: upstream.health.clone(),
            retry_budget: self.budget(shared.key(), upstream),
            endpoints: Vec::new(),
        };
        self.endpoint_set(shared, wanted, &upstream.endpoints)
    }

    /// Tries again to open the listeners that could not be opened.
    pub(crate) fn retry_listeners(&mut self) {
        if !self.sockets.has_failures() {
            return;
        }
        let Moves { opened, opened_quic, closed } = self.follow_listeners();
        for (mailbox, (opened, opened_quic)) in self.mailboxes.iter().zip(opened.into_iter().zip(opened_quic))
        {
            mailbox.post(|pending| pending.move_listeners(opened, opened_quic, &closed));
        }
    }

    fn follow_listeners(&mut self) -> Moves {
        let moves = self.sockets.follow(&self.listeners, self.has_http3);
        self.registry.set_listeners(self.sockets.states(&self.listeners));
        moves
    }

    /// The short path: it touches only this upstream, however large the configuration is.
    fn publish_endpoints(&mut self, key: &UpstreamKey, endpoints: &[Endpoint]) {
        let Some(published) = self.upstreams.get_mut(key) else { return self.post_nothing() };
        published.applied = None;
        self.newer.insert(key.clone());
        let shared = &published.shared.clone();
        let before = shared.endpoints();
        let wanted = EndpointSet {
            balance: before.balance,
            limits: before.limits,
            security: before.security.clone(),
            proxy_protocol: before.proxy_protocol,
            health: before.health.clone(),
            retry_budget: before.retry_budget.clone(),
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

    /// Assigns a slot to a new upstream.
    fn place(&mut self, key: &UpstreamKey, upstream: &Arc<Upstream>) -> Arc<SharedUpstream> {
        let shared = Arc::new(SharedUpstream::new(key.clone(), self.slots.take(), self.mailboxes.len()));
        let applied = Some(upstream.clone());
        let published = Published { shared: shared.clone(), applied, change: self.change };
        self.upstreams.insert(key.clone(), published);
        shared
    }

    /// `wanted` with these endpoints for the workers, and whether the result differs from the previous set. Addresses
    /// that stay retain their health and counters.
    fn endpoint_set(
        &self,
        shared: &SharedUpstream,
        mut wanted: EndpointSet,
        endpoints: &[Endpoint],
    ) -> (Arc<EndpointSet>, bool) {
        let old = shared.endpoints();
        let is_same = (old.balance, old.limits, old.proxy_protocol, &old.health)
            == (wanted.balance, wanted.limits, wanted.proxy_protocol, &wanted.health)
            && old.security.is_same(&wanted.security)
            && old.retry_budget.as_ref().map(Arc::as_ptr) == wanted.retry_budget.as_ref().map(Arc::as_ptr);
        if is_same && *old.to_model() == *endpoints {
            return (old, false);
        }
        let known: HashMap<_, _> =
            old.endpoints.iter().map(|(endpoint, _)| (endpoint.address(), endpoint)).collect();
        let endpoint = |endpoint: &Endpoint| {
            // Slow start is only for endpoints that join others: if all endpoints are new, they must take the full load.
            let new =
                || Arc::new(SharedEndpoint::new(endpoint.address, self.mailboxes.len(), !known.is_empty()));
            (known.get(&endpoint.address).map_or_else(new, |known| Arc::clone(known)), endpoint.conditions)
        };
        wanted.endpoints = endpoints.iter().map(endpoint).collect();
        let set = Arc::new(wanted);
        shared.set_endpoints(set.clone());
        (set, true)
    }

    /// Compiles the table of a configuration, and publishes the table to readers. `earlier` is the last configuration, if the
    /// slots of its upstreams stay.
    fn compile(&mut self, config: &Arc<Config>, earlier: Option<&Config>) -> Arc<Table> {
        let tls = self.tls.compile(&config.tls, &config.settings);
        let of_tls = (&*tls, self.layer4_table(config));
        let table =
            Table::new(config, (&self.table, earlier), of_tls, self.registry.resources(), |upstream| {
                self.slot(upstream)
            });
        self.table = Arc::new(table);
        self.registry.publish(config, self.shared.clone(), self.table.clone());
        self.table.clone()
    }

    fn layer4_table(&self, config: &Config) -> Layer4Table {
        let old: HashMap<_, _> = self.registry.layer4().into_iter().collect();
        let mut new = HashMap::new();
        let table = Layer4Table::new(config, |listener, protocol, host, route| {
            let (listener, host, id) = (listener.into(), host.to_string().into(), route.id.clone());
            let labels = Layer4Labels { listener, protocol, host, id };
            let stats = old.get(&labels).cloned();
            let stats = stats.unwrap_or_else(|| self.registry.counters().new_layer4());
            new.insert(labels, stats.clone());
            let backends = route.backends.iter().map(|of| (self.slot(&of.upstream), of.weight)).collect();
            Layer4Target { id: route.id.clone(), backends, stats }
        });
        self.registry.set_layer4(new);
        table
    }

    /// The control plane includes every upstream that a route names. A slot without an upstream responds with 503.
    fn slot(&self, upstream: &UpstreamKey) -> usize {
        self.upstreams.get(upstream).map_or(slot::NONE, |published| published.shared.slot)
    }
}
