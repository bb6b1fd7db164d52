//! `XBackendTrafficPolicy` (GEP-3388): the retry constraint and the session persistence of Services.
//!
//! A part with an error has no effect; the other part applies.

use std::fmt::Display;

use sluicegate_model::feature::{Affinity, RetryConstraint};
use sluicegate_model::value::span::HOUR;
use sluicegate_model::value::{Number, Span, span};

use super::backend_tls::{self, Target};
use super::gateway_api::{
    self, BackendTrafficPolicySpec, BudgetDetails, EXPERIMENTAL_GROUP, LocalObjectReference, RequestRate,
    Written,
};
use super::kind::Raw;
use super::{Object, ObjectRef, annotation, session_persistence};
use crate::problem::Findings;
use crate::x_backend;

const RETRY_CONSTRAINT: &str = "spec.retryConstraint";
const SESSION_PERSISTENCE: &str = "spec.sessionPersistence";

/// A checked `XBackendTrafficPolicy`.
#[derive(Debug, PartialEq)]
pub(crate) struct BackendTrafficPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The Services and XBackends of its namespace that the policy applies to.
    pub(crate) targets: Vec<Target>,
    pub(crate) retry_constraint: Option<RetryConstraint>,
    /// The session persistence.
    pub(crate) affinity: Option<Affinity>,
}

/// A Service, or an XBackend by the Service of its upstream.
fn target(raw: LocalObjectReference, index: usize, findings: &mut Findings) -> Option<Target> {
    let is_x_backend =
        raw.kind.as_deref() == Some("XBackend") && raw.group.as_deref() == Some(EXPERIMENTAL_GROUP);
    match &raw.name {
        Some(name) if is_x_backend && !name.is_empty() => {
            Some(Target { index, service: x_backend::service_of(name), port: None })
        }
        _ => Target::check(raw.into(), index, findings),
    }
}

/// The valid form of a retry constraint; `None` if a field is invalid, which is then an error.
fn retry_constraint(
    written: gateway_api::RetryConstraint,
    findings: &mut Findings,
) -> Option<RetryConstraint> {
    let default = RetryConstraint::default();
    let BudgetDetails { percent, interval } = written.budget.unwrap_or_default();
    let RequestRate { count, interval: min_interval } = written.min_retry_rate.unwrap_or_default();
    let mut fault = |within: &str, fault: &dyn Display| {
        findings.error_or(
            format!("{RETRY_CONSTRAINT}.{within}"),
            fault.to_string(),
            "retries are not limited",
        );
    };
    let percent = percent.map_or(Ok(default.percent), Number::new);
    let percent = percent.map_err(|error| fault("budget.percent", &error));
    let interval = interval.map_or(Ok(default.interval), |text| parsed::<1000>(&text));
    let interval = interval.map_err(|error| fault("budget.interval", &error));
    // A number of 0 is only for the retry budget of a TrafficPolicy.
    let count = count.map_or(Ok(default.min_retries), |count| {
        Number::<u32, 1, 1_000_000>::new(count).map(|count| Number::of(count.get().into()))
    });
    let count = count.map_err(|error| fault("minRetryRate.count", &error));
    let min_interval = min_interval.map_or(Ok(default.min_interval), |text| parsed::<1>(&text));
    let min_interval = min_interval.map_err(|error| fault("minRetryRate.interval", &error));
    let (Ok(percent), Ok(interval), Ok(min_retries), Ok(min_interval)) =
        (percent, interval, count, min_interval)
    else {
        return None;
    };
    Some(RetryConstraint { percent, interval, min_retries, min_interval })
}

/// A duration from `MIN` milliseconds to one hour.
fn parsed<const MIN: u64>(text: &str) -> Result<Span<MIN, HOUR>, String> {
    let duration = span::within(text, MIN, HOUR)?;
    Span::new(duration).ok_or_else(|| format!("{text:?} is out of range"))
}

impl Raw for Written<BackendTrafficPolicySpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        annotation::check_names(object.kind, self.metadata.annotations.as_ref(), findings);
        let spec = self.spec.unwrap_or_default();
        let targets = backend_tls::targets(spec.target_refs, target, findings);
        let retry_constraint = spec.retry_constraint.and_then(|written| retry_constraint(written, findings));
        let affinity = spec.session_persistence.and_then(|written| {
            let default_name = session_persistence::default_name(object, SESSION_PERSISTENCE);
            let affinity = session_persistence::check(written, SESSION_PERSISTENCE, &default_name, findings)?;
            // The gateway chooses the backend by its weight, in each release: the policy is for the endpoints of one Service.
            Some(Affinity { over_weights: false, ..affinity })
        });
        let created = self.metadata.creation_timestamp.map(|time| time.0.as_second());
        let generation = self.metadata.generation;
        Some(BackendTrafficPolicy { created, generation, targets, retry_constraint, affinity }.into())
    }
}
