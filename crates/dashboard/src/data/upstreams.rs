//! The upstreams with the live state of their endpoints.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_admin::state::UpstreamState;
use sluicegate_model::{Upstream, UpstreamKey};
use sluicegate_proxy::upstream::SharedUpstream;

use super::Data;
use crate::list::{Part, Wanted};

/// At most this many endpoints of an upstream are listed.
const ENDPOINTS_MAX: usize = 100;

impl Data {
    pub(super) fn upstreams(&self, wanted: &Wanted) -> Part<Value> {
        let registry = &self.dashboard.admin.registry;
        if self.is_control_plane() {
            let config = registry.config().unwrap_or_default();
            let found: Vec<(&UpstreamKey, &Arc<Upstream>)> = config
                .upstreams
                .iter()
                .filter(|(key, _)| wanted.finds(&key.to_string().to_lowercase()))
                .collect();
            return wanted.part(&found, |(key, upstream)| configured(key, upstream));
        }
        let slow_start =
            registry.settings().map_or(Duration::ZERO, |settings| settings.resilience.slow_start);
        let found: Vec<Arc<SharedUpstream>> = registry
            .upstreams()
            .into_iter()
            .filter(|upstream| {
                let addresses = || {
                    let endpoints = upstream.endpoints();
                    let addresses = endpoints.endpoints.iter();
                    addresses
                        .map(|(endpoint, _)| endpoint.address().to_string())
                        .collect::<Vec<_>>()
                        .join(" ")
                };
                let key = upstream.key().to_string().to_lowercase();
                wanted.finds(&key) || wanted.finds(&format!("{key} {}", addresses()))
            })
            .collect();
        wanted.part(&found, |upstream| {
            let mut state = UpstreamState::of(upstream, slow_start);
            let count = state.endpoints.len();
            let ready = state.endpoints.iter().filter(|endpoint| endpoint.ready).count();
            state.endpoints.truncate(ENDPOINTS_MAX);
            json!({"state": state, "endpoints": count, "ready": ready})
        })
    }
}

/// An upstream as configured, without a live state.
fn configured(key: &UpstreamKey, upstream: &Upstream) -> Value {
    let endpoints = upstream.endpoints.iter().take(ENDPOINTS_MAX).map(|endpoint| {
        let conditions = endpoint.conditions;
        json!({
            "address": endpoint.address,
            "ready": conditions.ready,
            "serving": conditions.serving,
            "terminating": conditions.terminating,
        })
    });
    json!({
        "state": {"upstream": key.to_string(), "endpoints": endpoints.collect::<Vec<_>>()},
        "endpoints": upstream.endpoints.len(),
        "ready": upstream.endpoints.iter().filter(|endpoint| endpoint.conditions.ready).count(),
    })
}
