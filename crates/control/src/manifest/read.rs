//! From a written object to a checked object, with the strictness of its kind.

use serde_json::Value;
use sluicegate_model::feature::{Features, ServiceFeatures};

use super::typed::{self, Manner};
use crate::object::gateway_api::Written;
use crate::object::kind::Raw;
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::security::SecurityPolicy;
use crate::object::policy::traffic::TrafficPolicy;
use crate::object::policy::written::rate_limit::RateLimitParts;
use crate::object::policy::written::security::SecurityParts;
use crate::object::policy::{self, target};
use crate::object::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// Unknown fields cause warnings.
pub(crate) fn lenient<R: Raw>(value: &Value, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
    read::<R>(Manner::Lenient, value, object, findings)
}

/// Unknown fields cause warnings, and no message repeats a value.
pub(crate) fn confidential<R: Raw>(
    value: &Value,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<Object> {
    read::<R>(Manner::Confidential, value, object, findings)
}

/// Unknown or empty fields of the specification are errors.
pub(crate) fn strict<R: Raw>(value: &Value, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
    read::<R>(Manner::Strict(object.kind), value, object, findings)
}

/// A SecurityPolicy, part by part: all errors are reported, and each error closes the policy.
pub(crate) fn security_policy(value: &Value, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
    let kind = object.kind;
    let spec = spec(value, kind, "write targetRefs and the requirements on callers", findings);
    // An invalid target is no reason to close the other targets.
    let mut of_targets = Findings::default();
    let targets = match spec.is_null() {
        true => Vec::new(),
        false => target::check(typed::entries(spec, "targetRefs", kind, findings), &mut of_targets),
    };
    if spec.get("targetRefs").is_none() {
        findings.0.append(&mut of_targets.0);
    }
    let parts: SecurityParts = typed::parts(spec, kind, findings);
    typed::report_unknown_parts(spec, kind, findings);
    let policy = SecurityPolicy::new(policy::created(value), targets, parts, object, findings);
    findings.0.append(&mut of_targets.0);
    Some(policy.into())
}

/// A RateLimitPolicy, limit by limit: a limit with an error limits nothing.
pub(crate) fn rate_limit_policy(
    value: &Value,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<Object> {
    let kind = object.kind;
    let spec = spec(value, kind, "write targetRefs and limits or concurrency", findings);
    let targets = match spec.is_null() {
        true => Vec::new(),
        false => target::check(typed::entries(spec, "targetRefs", kind, findings), findings),
    };
    let rates = typed::valid_entries(spec, "limits", kind, findings);
    let concurrency = typed::valid_entries(spec, "concurrency", kind, findings);
    let parts: RateLimitParts = typed::parts(spec, kind, findings);
    typed::report_unknown_parts(spec, kind, findings);
    let created = policy::created(value);
    let limits = (rates, concurrency);
    Some(RateLimitPolicy::new(created, targets, limits, parts, spec, object, findings).into())
}

/// A TrafficPolicy, part by part.
pub(crate) fn traffic_policy(value: &Value, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
    let kind = object.kind;
    let spec = spec(value, kind, "write targetRefs and at least one other part", findings);
    let targets = match spec.is_null() {
        true => Vec::new(),
        false => target::check(typed::entries(spec, "targetRefs", kind, findings), findings),
    };
    let features: Features = typed::parts(spec, kind, findings);
    let service: ServiceFeatures = typed::parts(spec, kind, findings);
    typed::report_unknown_parts(spec, kind, findings);
    let created = policy::created(value);
    Some(TrafficPolicy::new(created, targets, features, service, object, findings).into())
}

/// The specification of a policy. Problems of the fields around the specification are reported.
fn spec<'v>(value: &'v Value, kind: Kind, hint: &str, findings: &mut Findings) -> &'v Value {
    let raw = typed::parse::<Written<Value>>(value, Manner::Strict(kind), findings);
    let annotations = raw.as_ref().and_then(|raw| raw.metadata.annotations.as_ref());
    annotation::check_names(kind, annotations, findings);
    let spec = value.get("spec").unwrap_or(&Value::Null);
    if spec.is_null() {
        findings.error("spec", format!("is missing: {hint}"));
    }
    spec
}

fn read<R: Raw>(
    manner: Manner,
    value: &Value,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<Object> {
    match typed::parse::<R>(value, manner, findings) {
        Some(raw) => raw.check(object, findings),
        None => R::unreadable(value, object, findings),
    }
}
