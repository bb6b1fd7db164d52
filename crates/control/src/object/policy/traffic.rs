//! `TrafficPolicy`.
//!
//! A part with an error has no effect; the other parts apply.

use std::sync::Arc;

use sluicegate_model::feature::{CircuitBreaker, Features, ServiceFeatures};
use sluicegate_model::policy::Traffic;
use sluicegate_model::{Health, Upstream};

use super::target::Target;
use super::written::target::TargetKind;
use crate::object::ObjectRef;
use crate::problem::Findings;

/// A checked `TrafficPolicy`. Its upstreams are as written: the namespace, the Service and the number of the port.
#[derive(Debug, PartialEq)]
pub(crate) struct TrafficPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) targets: Vec<Target>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) service: ServiceFeatures,
}

/// Overrides the annotations of the Service.
pub(crate) fn apply(features: &ServiceFeatures, upstream: &mut Upstream) {
    let CircuitBreaker { max_requests, max_requests_per_endpoint, ejection } = features.circuit_breaker;
    let limits = &mut upstream.limits;
    limits.max_requests = max_requests.map(|most| most.get()).or(limits.max_requests);
    limits.max_requests_per_endpoint =
        max_requests_per_endpoint.map(|most| most.get()).or(limits.max_requests_per_endpoint);
    let check = features.health_check.clone();
    let has_health = ejection.is_some() || check.is_some();
    upstream.health = has_health.then(|| Arc::new(Health { ejection, check }));
}

impl TrafficPolicy {
    pub(crate) fn new(
        created: Option<i64>,
        targets: Vec<Target>,
        mut features: Features,
        mut service: ServiceFeatures,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        for upstream in features.upstreams_mut() {
            upstream.namespace = object.namespace.clone();
        }
        // On an Ingress, these settings would also change Services that other routes lead to.
        if !targets.iter().all(|target| target.kind == TargetKind::Service) {
            let ServiceFeatures { circuit_breaker, health_check } = std::mem::take(&mut service);
            for (field, is_written) in [
                ("spec.circuitBreaker", circuit_breaker != CircuitBreaker::default()),
                ("spec.healthCheck", health_check.is_some()),
            ] {
                if is_written {
                    findings.error(field, "is only for Services: name only Services in targetRefs");
                }
            }
        }
        Self {
            created,
            targets,
            traffic: Arc::new(Traffic { features, ..Traffic::new(object.id()) }),
            service,
        }
    }
}

/// The field of a backend of a split.
pub(crate) fn split_backend_field(index: usize) -> String {
    format!("spec.split.backends[{index}].serviceRef")
}

/// The field of the mirror's Service.
pub(crate) const MIRROR_FIELD: &str = "spec.mirror.serviceRef";

/// The field of the Service with the error pages.
pub(crate) const ERROR_PAGES_FIELD: &str = "spec.errorPages.serviceRef";
