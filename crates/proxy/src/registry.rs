//! The registry of live state: the counters, and the configuration that is served now, for readers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_jwt::KeySet;
use sluicegate_model::{Change, Config, ObjectId, Settings, Tls};

pub use crate::feature::{ApiState, CacheState, PolicyState, SharedState, TrafficState};
pub use crate::listener::ListenerState;

use crate::counters::{ConsumerStats, Counters, Layer4Labels, Layer4Stats, RouteLabels, RouteStats};
use crate::feature::Resources;
pub use crate::feature::quota::{PresentUse, QuotaExchange, calendar_window};
use crate::openid::State;
use crate::record::refusals::{Refusals, RefusedRequest};
use crate::rule::{Layer4Table, Table};
use crate::tls::TlsTables;
use crate::upstream::{SharedUpstream, slot};

/// The counters, and the configuration that is served now.
#[derive(Debug)]
pub struct Registry {
    resources: Resources,
    live: Mutex<Live>,
    refusals: Arc<Refusals>,
}

/// The current configuration, for readers.
#[derive(Debug, Default)]
struct Live {
    config: Option<Arc<Config>>,
    table: Arc<Table>,
    layer4: HashMap<Layer4Labels, Arc<Layer4Stats>>,
    listeners: Vec<ListenerState>,
    own_listeners: OwnListeners,
    upstreams: Arc<[Arc<SharedUpstream>]>,
}

/// The addresses of the listeners that flags set.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnListeners {
    pub(crate) http: Box<[SocketAddr]>,
    pub(crate) https: Box<[SocketAddr]>,
}

/// The published keys of a token issuer.
#[derive(Clone, Debug)]
pub struct PublishedKeys {
    /// The URL of the keys.
    pub url: Box<str>,
    /// The number of known keys.
    pub keys: usize,
    /// The number of fetches.
    pub fetched: u64,
    /// The number of failed fetches.
    pub failed: u64,
}

/// The published configuration of an OpenID provider.
#[derive(Clone, Debug)]
pub struct PublishedProvider {
    /// The URL of the configuration.
    pub url: Box<str>,
    /// Whether the configuration is known.
    pub is_known: bool,
    /// The number of fetches.
    pub fetched: u64,
    /// The number of failed fetches.
    pub failed: u64,
}

impl Registry {
    /// The registry of a process without a data plane: all counters are zero.
    #[must_use]
    pub fn of_no_worker() -> Self {
        Self::new(Counters::new(1, Arc::default()), Arc::default())
    }

    pub(crate) fn new(counters: Counters, refusals: Arc<Refusals>) -> Self {
        Self { resources: Resources::new(counters.into()), live: Mutex::default(), refusals }
    }

    /// The counters of the process.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.resources.counters
    }

    /// The last refused request with this ID.
    #[must_use]
    pub fn refused(&self, id: &str) -> Option<RefusedRequest> {
        self.refusals.find(id)
    }

    /// The exchange of the uses of quotas.
    #[must_use]
    pub fn quotas(&self) -> QuotaExchange {
        QuotaExchange::new(self.resources.quotas.clone())
    }

    /// The state that outlives configurations.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The current configuration with the current endpoints, or `None` before the first. Each call assembles it.
    #[must_use]
    pub fn config(&self) -> Option<Config> {
        let (config, upstreams) = {
            let live = self.live();
            (live.config.clone()?, live.upstreams.clone())
        };
        let upstreams: HashMap<_, _> = upstreams.iter().map(|upstream| (upstream.key(), upstream)).collect();
        let mut config = (*config).clone();
        for (key, upstream) in &mut config.upstreams {
            if let Some(shared) = upstreams.get(key) {
                Arc::make_mut(upstream).endpoints = shared.endpoints().to_model();
            }
        }
        Some(config)
    }

    /// The current configuration as it was published, or `None` before the first: its endpoints may have changed since.
    #[must_use]
    pub fn published(&self) -> Option<Arc<Config>> {
        self.live().config.clone()
    }

    /// The settings of the current configuration, or `None` before the first.
    #[must_use]
    pub fn settings(&self) -> Option<Settings> {
        Some(self.live().config.as_ref()?.settings.clone())
    }

    /// The current certificates, or `None` before the first configuration.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Tls>> {
        Some(self.live().config.as_ref()?.tls.clone())
    }

    /// The counters of every route.
    #[must_use]
    pub fn routes(&self) -> Vec<(RouteLabels, Arc<RouteStats>)> {
        let table = self.table();
        let all = table.hosts().iter().flat_map(|host| host.stats());
        let mut routes: Vec<_> = all
            .map(|(labels, stats)| match self.counters().is_overflow(stats) {
                true => (RouteLabels::default(), stats.clone()),
                false => (labels, stats.clone()),
            })
            .collect();
        routes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        routes.dedup_by(|a, b| a.0 == b.0);
        routes
    }

    /// The counters of every route below HTTP.
    #[must_use]
    pub fn layer4(&self) -> Vec<(Layer4Labels, Arc<Layer4Stats>)> {
        let mut routes: Vec<_> = self.live().layer4.iter().map(clone_pair).collect();
        routes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        routes
    }

    /// The listeners of Gateways, and whether they listen.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerState> {
        self.live().listeners.clone()
    }

    pub(crate) fn set_listeners(&self, listeners: Vec<ListenerState>) {
        self.live().listeners = listeners;
    }

    /// The addresses of the listeners that flags set.
    pub(crate) fn own_listeners(&self) -> OwnListeners {
        self.live().own_listeners.clone()
    }

    pub(crate) fn set_own_listeners(&self, listeners: OwnListeners) {
        self.live().own_listeners = listeners;
    }

    pub(crate) fn set_layer4(&self, routes: HashMap<Layer4Labels, Arc<Layer4Stats>>) {
        self.live().layer4 = routes;
    }

    /// Every upstream, sorted by key.
    #[must_use]
    pub fn upstreams(&self) -> Vec<Arc<SharedUpstream>> {
        let mut upstreams: Vec<_> = self.live().upstreams.to_vec();
        upstreams.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        upstreams
    }

    /// Replaces the current configuration.
    pub(crate) fn publish(
        &self,
        config: &Arc<Config>,
        upstreams: Arc<[Arc<SharedUpstream>]>,
        table: Arc<Table>,
    ) {
        let mut live = self.live();
        live.config = Some(config.clone());
        live.upstreams = upstreams;
        live.table = table;
    }

    /// The fetched keys of each token issuer.
    #[must_use]
    pub fn published_keys(&self) -> Vec<PublishedKeys> {
        let states = self.resources.published.keys.states().into_iter();
        let keys = |keys: Option<Arc<KeySet>>| keys.map_or(0, |keys| keys.len());
        states
            .map(|State { url, document, fetched, failed }| PublishedKeys {
                url,
                keys: keys(document),
                fetched,
                failed,
            })
            .collect()
    }

    /// The fetched configuration of each OpenID provider.
    #[must_use]
    pub fn published_providers(&self) -> Vec<PublishedProvider> {
        let states = self.resources.published.providers.states().into_iter();
        states
            .map(|State { url, document, fetched, failed }| PublishedProvider {
                url,
                is_known: document.is_some(),
                fetched,
                failed,
            })
            .collect()
    }

    /// Every policy for security or limits.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyState> {
        let table = self.table();
        let mut policies: Vec<_> = table.policies().states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// Every API with validation or mocks.
    #[must_use]
    pub fn apis(&self) -> Vec<ApiState> {
        let table = self.table();
        let mut apis: Vec<_> = table.policies().apis.states().collect();
        apis.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        apis
    }

    /// Every traffic policy.
    #[must_use]
    pub fn traffic_policies(&self) -> Vec<TrafficState> {
        let table = self.table();
        let mut policies: Vec<_> = table.policies().traffic_states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// The counters of every consumer; without a name, the shared counters beyond
    /// [`MAX_CONSUMERS`](crate::counters::MAX_CONSUMERS).
    #[must_use]
    pub fn consumers(&self) -> Vec<(Option<ObjectId>, Arc<ConsumerStats>)> {
        let table = self.table();
        let all = table.consumers().iter().map(|known| (known.consumer.id.clone(), known.stats.clone()));
        let is_own = |stats: &Arc<ConsumerStats>| !self.counters().is_of_other_consumers(stats);
        let (own, others): (Vec<_>, Vec<_>) = all.partition(|(_, stats)| is_own(stats));
        let mut consumers: Vec<_> = own.into_iter().map(|(id, stats)| (Some(id), stats)).collect();
        consumers.extend(others.into_iter().next().map(|(_, stats)| (None, stats)));
        consumers
    }

    /// The routing table that is served now.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.live().table.clone()
    }

    /// Shows a configuration to readers in a process without a data plane. The routing table is the table that data planes
    /// compile from the same configuration.
    pub fn show(&self, change: &Change) {
        match change {
            Change::Config(config) => {
                let (before, earlier) = {
                    let live = self.live();
                    (live.table.clone(), live.config.clone())
                };
                let of_tls = (&TlsTables::of_no_worker(&config.tls), Layer4Table::default());
                let table =
                    Table::new(config, (&before, earlier.as_deref()), of_tls, self.resources(), |_| {
                        slot::NONE
                    });
                self.publish(config, Arc::default(), table.into());
            }
            Change::Endpoints { upstream, endpoints } => {
                let mut live = self.live();
                let Some(config) = &mut live.config else { return };
                if let Some(known) = Arc::make_mut(config).upstreams.get_mut(upstream) {
                    Arc::make_mut(known).endpoints = endpoints.clone();
                }
            }
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clone_pair<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}
