//! What is published: whole configurations, or the endpoints of single upstreams where no more has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::{Change, Config, Endpoint, Upstream, UpstreamKey};

/// What was published last, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    config: Option<Arc<Config>>,
    /// The endpoints of each upstream, as they were published last.
    endpoints: BTreeMap<UpstreamKey, Arc<[Endpoint]>>,
}

impl Publisher {
    /// The configuration that was published last; the endpoints in it may be older.
    pub(super) fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// The endpoints of an upstream, as they were published last.
    pub(super) fn endpoints(&self, upstream: &UpstreamKey) -> Option<&Arc<[Endpoint]>> {
        self.endpoints.get(upstream)
    }

    /// What leads from what was published to `config`.
    pub(super) fn set_config(&mut self, config: Config) -> Vec<Change> {
        if let Some(published) = &self.config
            && is_same_but_endpoints(published, &config)
        {
            return config
                .upstreams
                .iter()
                .filter_map(|(key, upstream)| self.set_endpoints(key, &upstream.endpoints))
                .collect();
        }
        self.endpoints = config
            .upstreams
            .iter()
            .map(|(key, upstream)| (key.clone(), upstream.endpoints.clone()))
            .collect();
        let config = Arc::new(config);
        self.config = Some(config.clone());
        vec![Change::Config(config)]
    }

    /// What leads from the published endpoints of an upstream to `endpoints`; nothing if they are the same.
    pub(super) fn set_endpoints(
        &mut self,
        upstream: &UpstreamKey,
        endpoints: &Arc<[Endpoint]>,
    ) -> Option<Change> {
        let published = self.endpoints.get_mut(upstream)?;
        if *published == *endpoints {
            return None;
        }
        *published = endpoints.clone();
        Some(Change::Endpoints { upstream: upstream.clone(), endpoints: endpoints.clone() })
    }
}

fn is_same_but_endpoints(one: &Config, other: &Config) -> bool {
    let is_same = |one: &Upstream, other: &Upstream| {
        // Named one by one, so that a new field is not forgotten here.
        let Upstream { balance, limits, external_name, endpoints: _ } = one;
        (balance, limits, external_name) == (&other.balance, &other.limits, &other.external_name)
    };
    let Config { settings, hosts, default_route, upstreams } = one;
    (settings, default_route) == (&other.settings, &other.default_route)
        && upstreams.len() == other.upstreams.len()
        && upstreams
            .iter()
            .zip(&other.upstreams)
            .all(|(one, other)| one.0 == other.0 && is_same(one.1, other.1))
        && *hosts == other.hosts
}
