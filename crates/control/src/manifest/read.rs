//! From a written object to a checked object, with the strictness of its kind.

use serde_json::Value;

use super::typed::{self, Manner};
use crate::object::kind::Raw;
use crate::object::{Object, ObjectRef};
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
    read::<R>(Manner::Strict, value, object, findings)
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
