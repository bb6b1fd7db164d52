//! `ReferenceGrant`.

use super::gateway_api::{ReferenceGrantSpec, Written};
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// A checked `ReferenceGrant`: the objects that may name Services, Secrets or ConfigMaps of its namespace.
#[derive(Debug, PartialEq)]
pub(crate) struct ReferenceGrant {
    /// Objects of this kind in this namespace.
    from: Vec<(Kind, Box<str>)>,
    /// Services, Secrets or ConfigMaps: the object of this name, or all. Routes name only XBackends of their own namespace.
    to: Vec<(Kind, Option<Box<str>>)>,
}

impl ReferenceGrant {
    pub(crate) fn check(raw: Written<ReferenceGrantSpec>, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::ReferenceGrant, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let mut missing = |field: String, value: Option<String>| match value {
            Some(value) if !value.is_empty() => Some(value),
            _ => {
                findings.error(field, "is missing");
                None
            }
        };
        let mut from = Vec::new();
        for (index, entry) in spec.from.unwrap_or_default().into_iter().enumerate() {
            let group = missing(format!("spec.from[{index}].group"), entry.group);
            let kind = missing(format!("spec.from[{index}].kind"), entry.kind);
            let namespace = missing(format!("spec.from[{index}].namespace"), entry.namespace);
            let (Some(group), Some(kind), Some(namespace)) = (group, kind, namespace) else { continue };
            // Other kinds concern their own controllers.
            let is_known = |kind: &Kind| kind.group() == group && kind.is_of_gateway_api();
            if let Some(kind) = Kind::parse(&kind).filter(is_known) {
                from.push((kind, namespace.into()));
            }
        }
        let mut to = Vec::new();
        for (index, entry) in spec.to.unwrap_or_default().into_iter().enumerate() {
            let kind = missing(format!("spec.to[{index}].kind"), entry.kind);
            let kind = kind.and_then(|kind| Kind::parse(&kind)).filter(|kind| {
                matches!(kind, Kind::Service | Kind::Secret | Kind::ConfigMap)
                    && entry.group.as_deref().unwrap_or_default() == kind.group()
            });
            if let Some(kind) = kind {
                to.push((kind, entry.name.filter(|name| !name.is_empty()).map(Into::into)));
            }
        }
        Self { from, to }
    }

    /// Whether objects of this kind in this namespace may name this object.
    pub(crate) fn allows(&self, kind: Kind, namespace: &str, (to, name): (Kind, &str)) -> bool {
        self.from.iter().any(|(from, within)| *from == kind && **within == *namespace)
            && self.to.iter().any(|(kind, one)| *kind == to && one.as_deref().is_none_or(|one| one == name))
    }
}

impl Raw for Written<ReferenceGrantSpec> {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(ReferenceGrant::check(self, findings).into())
    }
}
