//! The Services that TrafficPolicies apply to, and the Services that they name.

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::feature::{BodyLimits, Features, Retries, RouteTimeouts, ServiceFeatures};
use sluicegate_model::policy::Traffic;
use sluicegate_model::{Config, HealthCheckType, Protocol, UpstreamKey};

use super::attach::{Attached, Parts, Policy};
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

impl Value {
    /// Whether the policy has the split, the mirror or the error pages with this field.
    pub(super) fn names(&self, field: &str) -> bool {
        let features = &self.traffic.features;
        match field {
            "spec.errorPages" => features.error_pages.is_some(),
            "spec.mirror" => !features.mirrors.is_empty(),
            _ => features.split.is_some(),
        }
    }
}

/// The parts are the features; timeouts and sizes count one by one.
impl Parts for Value {
    fn over(&self, base: &Self) -> Option<Self> {
        let features = over(&self.traffic.features, &base.traffic.features);
        if features == self.traffic.features {
            return None;
        }
        let mut traffic = Traffic { features, ..Traffic::clone(&self.traffic) };
        traffic.inherits.extend(base.traffic.ids().cloned());
        Some(Self { traffic: Arc::new(traffic), service: self.service.clone() })
    }

    fn is_for_requests(&self) -> bool {
        self.traffic.features != Features::default() || self.service == ServiceFeatures::default()
    }

    fn replaces(&self, base: &Self) -> bool {
        let (own, base) = (&self.traffic.features, &base.traffic.features);
        let combined = over(own, base);
        over(base, &combined) != combined
    }
}

/// Features, with the features of `base` that they lack.
pub(super) fn over(own: &Features, base: &Features) -> Features {
    let Features {
        timeouts,
        retries,
        limits,
        request_headers,
        response_headers,
        url_rewrite,
        redirect,
        direct_response,
        fault,
        split,
        load_balancing,
        mirrors,
        cache,
        bandwidth,
        error_pages,
        response_rewrite,
        endpoint_form,
        secure_upstream,
        unrecorded,
        spans,
        returns,
        template_headers,
        hsts,
    } = own.clone();
    let answers = redirect.is_some() || direct_response.is_some();
    Features {
        timeouts: RouteTimeouts {
            request: timeouts.request.or(base.timeouts.request),
            backend_request: timeouts.backend_request.or(base.timeouts.backend_request),
            connect: timeouts.connect.or(base.timeouts.connect),
            response: timeouts.response.or(base.timeouts.response),
            idle: timeouts.idle.or(base.timeouts.idle),
            request_body: timeouts.request_body.or(base.timeouts.request_body),
            tunnel: timeouts.tunnel.or(base.timeouts.tunnel),
        },
        retries: match (retries, &base.retries) {
            (Some(own), Some(base)) => Some(Retries { budget: own.budget.or(base.budget), ..own }),
            (own, base) => own.or_else(|| base.clone()),
        },
        limits: BodyLimits {
            request_body: limits.request_body.or(base.limits.request_body),
            response_body: limits.response_body.or(base.limits.response_body),
            response_head: limits.response_head.or(base.limits.response_head),
            replay: limits.replay.or(base.limits.replay),
        },
        request_headers: or(request_headers, &base.request_headers),
        response_headers: or(response_headers, &base.response_headers),
        url_rewrite: or(url_rewrite, &base.url_rewrite),
        redirect: if answers { redirect } else { base.redirect.clone() },
        direct_response: if answers { direct_response } else { base.direct_response.clone() },
        fault: or(fault, &base.fault),
        split: split.or_else(|| base.split.clone()),
        load_balancing: or(load_balancing, &base.load_balancing),
        mirrors: or(mirrors, &base.mirrors),
        cache: cache.or_else(|| base.cache.clone()),
        bandwidth: bandwidth.or(base.bandwidth),
        error_pages: error_pages.or_else(|| base.error_pages.clone()),
        response_rewrite: response_rewrite.or_else(|| base.response_rewrite.clone()),
        endpoint_form: or(endpoint_form, &base.endpoint_form),
        unrecorded: or(unrecorded, &base.unrecorded),
        spans: or(spans, &base.spans),
        secure_upstream: secure_upstream.or_else(|| base.secure_upstream.clone()),
        returns: or(returns, &base.returns),
        template_headers: template_headers.or_else(|| base.template_headers.clone()),
        hsts: hsts.or(base.hsts),
    }
}

/// A feature, or the feature of `base` instead of a feature that changes nothing.
fn or<T: Clone + Default + PartialEq>(own: T, base: &T) -> T {
    if own == T::default() { base.clone() } else { own }
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
        config.rules().filter_map(|route| route.traffic.as_ref()).flat_map(|traffic| traffic.ids()).collect();
    let with_existing_targets = attached.policies().iter().filter_map(|Policy { at, value, .. }| {
        let traffic = value.as_ref().map(|value| &value.traffic)?;
        governing.contains(&traffic.id).then_some((*at, traffic))
    });
    let references = with_existing_targets.flat_map(|(at, traffic)| {
        let features = &traffic.features;
        let backends = features.split.iter().flat_map(|split| split.backends.iter().enumerate());
        let branches = backends.map(|(index, backend)| (Place::Branch(index), &backend.upstream));
        let mirrors = features.mirrors.iter().map(|mirror| (Place::Mirror, &mirror.upstream));
        let pages = features.error_pages.iter().map(|pages| (Place::ErrorPages, &pages.upstream));
        let named = branches.chain(mirrors).chain(pages);
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
            traffic.ids().for_each(|id| _ = idle.entry(id).or_insert(route));
        }
    }
    for Policy { at, value, .. } in attached.policies() {
        let caches = value.as_ref().is_some_and(|value| value.traffic.features.cache.is_some());
        if let Some(route) = idle.get(&at.id()).filter(|_| caches) {
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
