//! Values of Secrets that policies and consumers name.

use std::sync::Arc;

use sluicegate_model::value::syntax;

use super::written::credential::SecretKeyRef;
use crate::object::{Kind, ObjectRef};
use crate::problem::Findings;

/// A value of a Secret in the namespace of the naming object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecretValue {
    pub(crate) secret: ObjectRef,
    pub(crate) key: Box<str>,
}

/// The named value, with the default key `key` if the reference has none.
pub(crate) fn check(
    written: SecretKeyRef,
    key: &str,
    namespace: &Arc<str>,
    field: &str,
    findings: &mut Findings,
) -> Option<SecretValue> {
    if let Some(fault) = syntax::dns_name_fault(&written.name) {
        findings.error(format!("{field}.name"), format!("{:?} {fault}", written.name));
        return None;
    }
    if written.key.as_deref() == Some("") {
        findings
            .error(format!("{field}.key"), "is empty: name a key of the Secret's data, or remove the field");
        return None;
    }
    let secret = ObjectRef { kind: Kind::Secret, namespace: namespace.clone(), name: written.name.into() };
    Some(SecretValue { secret, key: written.key.as_deref().unwrap_or(key).into() })
}

/// The bytes of a secret that was written as a line of text.
pub(crate) fn without_line_end(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    end.map_or(&[], |end| &value[..=end])
}
