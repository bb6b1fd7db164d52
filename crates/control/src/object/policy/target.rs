//! The targets of a policy.

use std::fmt;
use std::sync::Arc;

use sluicegate_model::value::syntax;

use super::written::target::{TargetKind, TargetRef};
use crate::object::Kind;
use crate::problem::Findings;

/// The maximum number of targets of a policy.
const TARGETS_MAX: usize = 16;

/// A valid target of a policy, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its place in `spec.targetRefs`.
    pub(crate) index: usize,
    pub(crate) kind: TargetKind,
    pub(crate) name: Arc<str>,
    /// The only port of a Service that the policy applies to.
    pub(crate) port: Option<Arc<str>>,
}

impl Target {
    /// Its field, as problems name it.
    pub(crate) fn field(&self) -> String {
        format!("spec.targetRefs[{}]", self.index)
    }
}

impl TargetKind {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Ingress => Kind::Ingress,
            Self::Service => Kind::Service,
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Ingress => "networking.k8s.io",
            Self::Service => "",
        }
    }
}

impl fmt::Display for TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// The valid targets of a list.
pub(crate) fn check(written: Vec<(usize, TargetRef)>, findings: &mut Findings) -> Vec<Target> {
    if written.is_empty() {
        findings.error("spec.targetRefs", "is missing: name an Ingress or a Service");
    }
    if written.len() > TARGETS_MAX {
        let count = written.len();
        findings.error("spec.targetRefs", format!("has {count} entries, but may have at most {TARGETS_MAX}"));
    }
    let checked = written.into_iter().map(|(index, target)| {
        check_one(index, target)
            .map_err(|(within, fault)| findings.error(format!("spec.targetRefs[{index}].{within}"), fault))
    });
    checked.filter_map(Result::ok).collect()
}

fn check_one(index: usize, written: TargetRef) -> Result<Target, (&'static str, String)> {
    let TargetRef { group, kind, name, section_name } = written;
    if group != kind.group() {
        return Err(("group", format!("{group:?} has no {kind}: write group: {:?}", kind.group())));
    }
    if let Some(fault) = syntax::dns_name_fault(&name) {
        return Err(("name", format!("{name:?} {fault}")));
    }
    if section_name.is_some() && kind != TargetKind::Service {
        return Err(("sectionName", "is the port of a Service: write it only with kind: Service".to_owned()));
    }
    if section_name.as_deref() == Some("") {
        return Err(("sectionName", "is empty: name a port, or remove the field".to_owned()));
    }
    Ok(Target { index, kind, name: name.into(), port: section_name.map(Into::into) })
}
