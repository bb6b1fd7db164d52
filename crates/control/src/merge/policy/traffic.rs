//! The Services that TrafficPolicies apply to, and the Services that they name.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::feature::ServiceFeatures;
use sluicegate_model::policy::Traffic;
use sluicegate_model::{Config, HealthCheckType, Protocol, UpstreamKey};

use super::attach::{Attached, Policy};
use crate::intent::{Place, Reference};
use crate::object::ObjectRef;
use crate::object::policy::traffic::TrafficPolicy;
use crate::problem::Problem;
use crate::store::Store;
use crate::upstream;

/// The parts of a policy for routes, and for upstreams.
pub(super) struct Value {
    pub(super) traffic: Arc<Traffic>,
    service: ServiceFeatures,
}

/// A policy with the identities of the upstreams that it names; `None` if errors leave nothing of it.
pub(super) fn complete(store: &Store, object: &ObjectRef, policy: &TrafficPolicy) -> Option<Arc<Value>> {
    let TrafficPolicy { traffic: written, service, .. } = policy;
    let is_empty = **written == Traffic::new(object.id()) && *service == ServiceFeatures::default();
    if is_empty && store.error_of(object).is_some() {
        return None;
    }
    let service = service.clone();
    if written.features.upstreams().next().is_none() {
        return Some(Arc::new(Value { traffic: written.clone(), service }));
    }
    let mut traffic = Traffic::clone(written);
    for named in traffic.features.upstreams_mut() {
        *named = upstream::key(store, named, None, None);
    }
    Some(Arc::new(Value { traffic: Arc::new(traffic), service }))
}

/// The upstreams of the policies that apply to a route.
pub(super) fn references<'a>(attached: &Attached<'a, Value>, config: &Config) -> Vec<Reference<'a>> {
    if attached.policies().is_empty() {
        return Vec::new();
    }
    let governing: HashSet<_> =
        config.rules().filter_map(|route| route.traffic.as_ref()).map(|traffic| &traffic.id).collect();
    let with_existing_targets = attached.policies().iter().filter_map(|Policy { at, value, .. }| {
        let traffic = value.as_ref().map(|value| &value.traffic)?;
        governing.contains(&traffic.id).then_some((*at, traffic))
    });
    let references = with_existing_targets.flat_map(|(at, traffic)| {
        let features = &traffic.features;
        let backends = features.split.iter().flat_map(|split| split.backends.iter().enumerate());
        let branches = backends.map(|(index, backend)| (Place::Branch(index), &backend.upstream));
        let mirrors = features.mirrors.iter().map(|mirror| (Place::Mirror, &mirror.upstream));
        let named = branches.chain(mirrors);
        named.map(move |(place, upstream)| Reference { at, place, upstream: upstream.clone() })
    });
    references.collect()
}

/// The settings of policies for the upstreams of all routes, and for the upstreams that policies name.
pub(super) fn upstreams(
    attached: &Attached<'_, Value>,
    config: &Config,
    references: &[Reference<'_>],
) -> HashMap<UpstreamKey, ServiceFeatures> {
    if attached.policies().is_empty() {
        return HashMap::default();
    }
    let of_rules = config.rule_upstreams();
    let named = references.iter().map(|reference| &reference.upstream);
    let governed = of_rules.chain(named).filter_map(|upstream| {
        let is_http = matches!(upstream.transport.protocol, Protocol::Http | Protocol::Http2);
        let value = attached.of_upstream(upstream).filter(|_| is_http)?;
        (value.service != ServiceFeatures::default()).then(|| (upstream.clone(), value.service.clone()))
    });
    governed.collect()
}

/// Reports caches that store nothing, since the responses of their routes are for authenticated callers.
pub(super) fn report_idle_caches(
    attached: &Attached<'_, Value>,
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    let mut idle = HashMap::default();
    for route in config.rules() {
        let Some(traffic) = route.traffic.as_ref().filter(|traffic| traffic.features.cache.is_some()) else {
            continue;
        };
        let is_known = route.client_auth.is_some()
            || route.security.as_ref().is_some_and(|security| security.authentication.is_some());
        if is_known {
            idle.entry(&traffic.id).or_insert(route);
        }
    }
    for Policy { at, .. } in attached.policies() {
        if let Some(route) = idle.get(&at.id()) {
            let message = format!(
                "caches nothing on {} {}, because callers authenticate there and responses are for one caller",
                route.id,
                route.path()
            );
            problems.push(at.note("spec.cache", message));
        }
    }
}

/// Warns of gRPC health checks for Services with HTTP/1.1.
pub(super) fn warn_of_failing_checks(
    attached: &Attached<'_, Value>,
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    let mut told = HashSet::default();
    for upstream in config.rule_upstreams() {
        if upstream.transport.protocol != Protocol::Http {
            continue;
        }
        let Some(value) = attached.of_upstream(upstream) else { continue };
        let check = value.service.health_check.as_ref();
        let is_grpc = check.is_some_and(|check| check.kind == HealthCheckType::Grpc);
        if !is_grpc || !told.insert(Arc::as_ptr(value)) {
            continue;
        }
        let governs =
            |policy: &&Policy<'_, Value>| policy.value.as_ref().is_some_and(|of| Arc::ptr_eq(of, value));
        if let Some(Policy { at, .. }) = attached.policies().iter().find(governs) {
            let message = format!(
                "GRPC needs HTTP/2, but the gateway uses HTTP/1.1 for Service {}/{}; every check fails. Write \
                 appProtocol: kubernetes.io/h2c for its port",
                upstream.namespace, upstream.service
            );
            problems.push(at.warning("spec.healthCheck.type", message));
        }
    }
}
