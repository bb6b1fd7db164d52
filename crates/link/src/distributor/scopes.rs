//! The scopes: the shared data planes, and the data planes of each Gateway that has data planes of its own.
//!
//! Each scope has its own state, so that a change of endpoints wakes only the data planes that use the upstream. All scopes
//! count their versions together: a version names a change in one order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sluicegate_model::Change;
use tokio::sync::watch;

use super::state::{Prepared, State};
use crate::cut::Cutter;
use crate::scope::split;

/// The data planes that receive the same configuration.
pub(super) struct Scope {
    /// `None` for the shared data planes.
    pub(super) name: Option<Arc<str>>,
    state: Mutex<State>,
    /// The newest version of the scope; [`OVER`](Self::OVER) if the Gateway has no data planes of its own any more.
    pub(super) version: watch::Sender<u64>,
}

impl Scope {
    /// The version of a scope that has ended.
    pub(super) const OVER: u64 = u64::MAX;

    fn new(name: Option<Arc<str>>) -> Self {
        Self { name, state: Mutex::new(State::new()), version: watch::Sender::new(0) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change after the version `newest` of all scopes. Returns the newest version.
    fn publish(&self, change: Prepared, newest: u64, now: Instant) -> u64 {
        let version = {
            let mut state = self.state();
            state.newest = newest;
            state.publish(change, now);
            state.version
        };
        self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
        version.max(newest)
    }
}

/// All scopes.
pub(super) struct Scopes {
    shared: Arc<Scope>,
    own: Mutex<Own>,
    /// The previous configuration of each scope. [`publish`](Self::publish) holds this lock to its end, so that changes stay in order.
    cutters: Mutex<BTreeMap<Option<Arc<str>>, Cutter>>,
}

#[derive(Default)]
struct Own {
    /// The newest version of all scopes.
    version: u64,
    /// Whether the shared data planes serve a Gateway.
    needs_shared: bool,
    scopes: BTreeMap<Arc<str>, Arc<Scope>>,
}

impl Default for Scopes {
    fn default() -> Self {
        Self { shared: Arc::new(Scope::new(None)), own: Mutex::default(), cutters: Mutex::default() }
    }
}

impl Scopes {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the shared data planes serve a Gateway, or everything.
    pub(super) fn needs_shared(&self) -> bool {
        let own = self.own();
        own.needs_shared || own.scopes.is_empty()
    }

    pub(super) fn shared(&self) -> Arc<Scope> {
        self.shared.clone()
    }

    /// The scope of a Gateway with data planes of its own.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Scope>> {
        self.own().scopes.get(name).cloned()
    }

    /// The newest version, and the number of resources of all scopes.
    pub(super) fn size(&self) -> (u64, usize) {
        let own = self.own();
        let all = own.scopes.values().chain([&self.shared]);
        (own.version, all.map(|scope| scope.state().resources()).sum())
    }

    /// Applies a change to the scopes that it concerns. Returns the newest version.
    pub(super) fn publish(&self, change: &Change, now: Instant) -> u64 {
        let mut cutters = self.cutters.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Config(config) => {
                let parts = split(config);
                cutters.retain(|name, _| parts.contains_key(name));
                let changes: Vec<_> = parts
                    .into_iter()
                    .map(|(name, config)| (name.clone(), cutters.entry(name).or_default().cut(&config)))
                    .collect();
                let mut own = self.own();
                let Own { version, scopes, needs_shared } = &mut *own;
                *needs_shared = config.listeners.iter().any(|listener| listener.planes.include(None));
                scopes.retain(|name, scope| {
                    let stays = cutters.contains_key(&Some(name.clone()));
                    if !stays {
                        scope.version.send_replace(Scope::OVER);
                    }
                    stays
                });
                let newest = *version;
                for (name, changes) in changes {
                    let scope = match name {
                        None => &self.shared,
                        Some(name) => {
                            let new = || Arc::new(Scope::new(Some(name.clone())));
                            scopes.entry(name.clone()).or_insert_with(new)
                        }
                    };
                    *version = scope.publish(Prepared::Config(changes), newest, now).max(*version);
                }
                *version
            }
            Change::Endpoints { upstream, endpoints } => {
                for cutter in cutters.values_mut() {
                    cutter.endpoints_changed(upstream);
                }
                let change = Prepared::endpoints(upstream, endpoints);
                let mut own = self.own();
                let Own { version, scopes, .. } = &mut *own;
                let newest = *version;
                for scope in scopes.values().chain([&self.shared]) {
                    *version = scope.publish(change.clone(), newest, now).max(*version);
                }
                *version
            }
        }
    }
}
