//! From a written object to a checked object, with the strictness of its kind.

use serde_json::Value;
use sluicegate_model::feature::{Features, ServiceFeatures};

use super::typed::{self, Manner};
use crate::object::gateway_api::Written;
use crate::object::kind::Raw;
use crate::object::policy::traffic::TrafficPolicy;
use crate::object::policy::{self, target};
use crate::object::{Object, ObjectRef, annotation};
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

/// A TrafficPolicy, part by part.
pub(crate) fn traffic_policy(value: &Value, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
    let kind = object.kind;
    let raw = typed::parse::<Written<Value>>(value, Manner::Strict(kind), findings);
    let annotations = raw.as_ref().and_then(|raw| raw.metadata.annotations.as_ref());
    annotation::check_names(kind, annotations, findings);
    let spec = value.get("spec").unwrap_or(&Value::Null);
    let targets = if spec.is_null() {
        findings.error("spec", "is missing: write targetRefs and at least one other part");
        Vec::new()
    } else {
        target::check(typed::entries(spec, "targetRefs", kind, findings), findings)
    };
    let features: Features = typed::parts(spec, kind, findings);
    let service: ServiceFeatures = typed::parts(spec, kind, findings);
    typed::report_unknown_parts(spec, kind, findings);
    let created = policy::created(value);
    Some(TrafficPolicy::new(created, targets, features, service, object, findings).into())
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
