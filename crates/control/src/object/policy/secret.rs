//! Values of Secrets that policies and consumers name.

use std::sync::Arc;

use sluicegate_model::value::secret::SecretKeyRef;

use crate::object::{Kind, ObjectRef};

/// A value of a Secret in the namespace of the naming object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecretValue {
    pub(crate) secret: ObjectRef,
    pub(crate) key: Box<str>,
}

impl SecretValue {
    /// The named value, with the key `default` if the reference has no key.
    pub(crate) fn new(named: &SecretKeyRef, default: &str, namespace: &Arc<str>) -> Self {
        let secret =
            ObjectRef { kind: Kind::Secret, namespace: namespace.clone(), name: named.name.as_str().into() };
        Self { secret, key: named.key.as_deref().unwrap_or(default).into() }
    }
}

/// The bytes of a secret that was written as a line of text.
pub(crate) fn without_line_end(value: &[u8]) -> &[u8] {
    let end = value.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    end.map_or(&[], |end| &value[..=end])
}
