//! The routes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sluicegate_admin::state::ServedRoute;
use sluicegate_model::Config;

use super::Data;
use crate::list::{Part, Wanted};

/// The age at which the list is made again: the number of ready endpoints changes without a new configuration.
const FRESH: Duration = Duration::from_secs(5);

/// The routes of a configuration.
pub(super) struct Known {
    /// The configuration with the routes.
    config: Arc<Config>,
    at: Instant,
    routes: Arc<Vec<ServedRoute>>,
}

/// Frees a list that is no longer fresh.
pub(super) fn forget(known: &Mutex<Option<Known>>) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_some_and(|known| known.at.elapsed() > FRESH) {
        *known = None;
    }
}

impl Data {
    pub(super) fn routes(&self, wanted: &Wanted) -> Part<impl Serialize> {
        let routes = self.known_routes();
        let found: Vec<&ServedRoute> = routes.iter().filter(|route| wanted.finds(&text(route))).collect();
        wanted.part(&found, |route| (*route).clone())
    }

    /// The routes, made at most every few seconds.
    fn known_routes(&self) -> Arc<Vec<ServedRoute>> {
        let registry = &self.dashboard.admin.registry;
        let Some(config) = registry.published() else { return Arc::default() };
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && Arc::ptr_eq(&known.config, &config)
            && known.at.elapsed() < FRESH
        {
            return known.routes.clone();
        }
        let routes = Arc::new(registry.config().map(|config| ServedRoute::all(&config)).unwrap_or_default());
        *known = Some(Known { config, at: Instant::now(), routes: routes.clone() });
        routes
    }
}

/// The text in which a search looks, in lower case.
fn text(route: &ServedRoute) -> String {
    let own = [&*route.host, &*route.path, &*route.path_type, &*route.upstream, &*route.from];
    let others = route.policies.iter().map(String::as_str).chain(route.listener.as_deref());
    own.into_iter().chain(others).collect::<Vec<_>>().join(" ").to_lowercase()
}
