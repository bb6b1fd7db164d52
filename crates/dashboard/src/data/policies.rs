//! The policies with the routes that they apply to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use sluicegate_model::policy::Traffic;
use sluicegate_model::{ObjectId, Rule};

use super::Data;
use crate::list::{Part, Wanted};

/// At most this many objects of a policy are listed.
const OBJECTS_MAX: usize = 20;

/// A policy of routes.
#[derive(Clone, Default, Serialize)]
pub(super) struct Attached {
    policy: String,
    /// The features of the policy, with those of less specific policies.
    parts: BTreeSet<String>,
    /// The reason why the policy is invalid. Its routes respond with 503.
    closed: Option<String>,
    /// The number of matches.
    routes: usize,
    /// The objects with these matches.
    objects: BTreeSet<String>,
    /// The number of other objects.
    other_objects: usize,
    /// The requests that the policy allowed, if the policy has checks.
    admitted: Option<u64>,
    /// The requests that the policy denied.
    denied: Option<u64>,
    /// The requests beyond each limit.
    limited: Vec<(String, u64)>,
}

impl Data {
    pub(super) fn policies(&self, wanted: &Wanted) -> Part<Attached> {
        let registry = &self.dashboard.admin.registry;
        let config = registry.published().unwrap_or_default();
        let mut policies: BTreeMap<&ObjectId, Attached> = BTreeMap::new();
        let mut known = HashMap::new();
        config.rules().for_each(|rule| add(&mut policies, rule, &mut known));
        for state in registry.policies() {
            let Some(attached) = policies.get_mut(&state.id) else { continue };
            let denied =
                state.stats.iter().map(|shard| shard.denied.iter().map(|tally| tally.get()).sum::<u64>());
            attached.admitted = Some(state.stats.sum(|shard| &shard.admitted));
            attached.denied = Some(denied.sum());
            attached.limited = state.limits.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        }
        let found: Vec<Attached> = policies
            .into_iter()
            .map(|(id, attached)| Attached { policy: id.to_string(), ..attached })
            .filter(|of| {
                let texts = [&of.policy].into_iter().chain(&of.parts).chain(&of.objects);
                wanted.finds(&texts.map(String::as_str).collect::<Vec<_>>().join(" ").to_lowercase())
            })
            .collect();
        wanted.part(&found, |of| {
            let mut of = of.clone();
            of.other_objects = of.objects.len().saturating_sub(OBJECTS_MAX);
            of.objects = of.objects.into_iter().take(OBJECTS_MAX).collect();
            of
        })
    }
}

/// Adds the policies of a rule. `known` has the names of the features of each traffic policy.
fn add<'c>(
    policies: &mut BTreeMap<&'c ObjectId, Attached>,
    rule: &'c Rule,
    known: &mut HashMap<*const Traffic, Vec<String>>,
) {
    let mut attach = |id: &'c ObjectId, parts: &[String], closed: Option<&str>| {
        // The features of a route itself are no policy.
        if *id == rule.id {
            return;
        }
        let attached = policies.entry(id).or_default();
        attached.parts.extend(parts.iter().cloned());
        attached.routes += rule.matches.len();
        attached.objects.insert(rule.id.to_string());
        if let Some(reason) = closed {
            attached.closed = Some(reason.to_owned());
        }
    };
    if let Some(security) = &rule.security {
        let methods = security.authentication.iter().flat_map(|of| {
            [
                ("JWT", of.jwt.is_some()),
                ("token introspection", of.introspection.is_some()),
                ("API key", of.api_key.is_some()),
                ("Basic", of.basic.is_some()),
                ("Digest", of.digest.is_some()),
                ("OpenID Connect", of.oidc.is_some()),
                ("authorization service", of.ext_auth.is_some()),
            ]
        });
        let methods =
            methods.filter(|(_, is_set)| *is_set).map(|(name, _)| format!("authentication: {name}"));
        let others = [
            ("client IPs", !security.ip_access.is_open()),
            ("CORS", security.cors.is_some()),
            ("authorization", security.authorization.is_some()),
            ("external authorization", !security.filters.is_empty()),
        ];
        let others = others.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
        let parts: Vec<String> = methods.chain(others).collect();
        let closed = security.refuses.as_deref();
        security.ids().for_each(|id| attach(id, &parts, closed.filter(|_| *id == security.id)));
    }
    if let Some(limits) = &rule.rate_limits {
        let rates = limits.limits.iter().map(|limit| {
            format!("rate limit {}: {} requests per {:?}", limit.name, limit.requests.get(), limit.per.get())
        });
        let concurrency = limits
            .concurrency
            .iter()
            .map(|limit| format!("concurrency limit {}: {}", limit.name, limit.requests.get()));
        attach(&limits.id, &rates.chain(concurrency).collect::<Vec<_>>(), None);
    }
    if let Some(traffic) = &rule.traffic {
        let parts = known.entry(Arc::as_ptr(traffic)).or_insert_with(|| names(traffic));
        traffic.ids().for_each(|id| attach(id, parts, None));
    }
}

/// The features of a traffic policy, by the names that users write.
fn names(traffic: &Traffic) -> Vec<String> {
    let fields = serde_json::to_value(&traffic.features).ok();
    fields.iter().filter_map(|fields| fields.as_object()).flat_map(|fields| fields.keys().cloned()).collect()
}
