//! `ListenerSet`.

use super::gateway::{Listener, RejectedListener, check_listeners};
use super::gateway_api::{GROUP, ListenerSetSpec, ObjectReference, Written};
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// The field of the Gateway, as problems name it.
pub(crate) const PARENT_FIELD: &str = "spec.parentRef";

/// A checked `ListenerSet`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct ListenerSet {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The Gateway of the set; `None` if the reference is invalid.
    pub(crate) gateway: Option<ObjectRef>,
    /// Its valid listeners.
    pub(crate) listeners: Vec<Listener>,
    /// Its other listeners.
    pub(crate) rejected: Vec<RejectedListener>,
}

impl ListenerSet {
    pub(crate) fn check(raw: Written<ListenerSetSpec>, object: &ObjectRef, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::ListenerSet, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let gateway = check_parent(spec.parent_ref, object, findings);
        let written = spec.listeners.unwrap_or_default();
        if written.is_empty() {
            findings.error("spec.listeners", "is missing: a ListenerSet without listeners serves nothing");
        }
        let (listeners, rejected) = check_listeners(written, &object.namespace, findings);
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            generation: raw.metadata.generation,
            gateway,
            listeners,
            rejected,
        }
    }
}

/// The Gateway of a set.
fn check_parent(
    written: Option<ObjectReference>,
    object: &ObjectRef,
    findings: &mut Findings,
) -> Option<ObjectRef> {
    let Some(ObjectReference { group, kind, namespace, name }) = written else {
        findings.error(PARENT_FIELD, "is missing: name a Gateway");
        return None;
    };
    let kind = kind.unwrap_or_else(|| Kind::Gateway.as_str().to_owned());
    if group.is_some_and(|group| group != GROUP) || kind != Kind::Gateway.as_str() {
        let fault = format!("{kind:?} is not supported; the listeners are not served. Name a Gateway");
        findings.warning(format!("{PARENT_FIELD}.kind"), fault);
        return None;
    }
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        findings.error(format!("{PARENT_FIELD}.name"), "is missing: name a Gateway");
        return None;
    };
    let namespace = namespace.map_or_else(|| object.namespace.clone(), Into::into);
    Some(ObjectRef { kind: Kind::Gateway, namespace, name: name.into() })
}

impl Raw for Written<ListenerSetSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(ListenerSet::check(self, object, findings).into())
    }
}
