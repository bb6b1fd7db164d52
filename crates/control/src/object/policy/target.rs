//! The targets of a policy.

use std::fmt;
use std::sync::Arc;

use sluicegate_model::value::syntax;

use super::written::target::{TargetKind, TargetRef};
use crate::object::{Kind, gateway_api};
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
    /// The only port of a Service, listener of a Gateway or rule of a route that the policy applies to.
    pub(crate) section: Option<Arc<str>>,
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
            Self::Gateway => Kind::Gateway,
            Self::HttpRoute => Kind::HttpRoute,
            Self::GrpcRoute => Kind::GrpcRoute,
            Self::Api => Kind::Api,
        }
    }

    /// The parts that `sectionName` selects.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Gateway => "listener",
            Self::HttpRoute | Self::GrpcRoute => "rule",
            Self::Service => "port",
            Self::Api => "operation",
            Self::Ingress => "part",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Ingress => "networking.k8s.io",
            Self::Service => "",
            Self::Gateway | Self::HttpRoute | Self::GrpcRoute => gateway_api::GROUP,
            Self::Api => super::GROUP,
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
        findings
            .error("spec.targetRefs", "is missing: name a Gateway, a route, an Api, an Ingress or a Service");
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
    if section_name.is_some() && kind == TargetKind::Ingress {
        return Err(("sectionName", "names no part of an Ingress: remove the field".to_owned()));
    }
    if section_name.as_deref() == Some("") {
        let fault = "is empty: name a listener, a rule, an operation or a port, or remove the field";
        return Err(("sectionName", fault.to_owned()));
    }
    Ok(Target { index, kind, name: name.into(), section: section_name.map(Into::into) })
}
