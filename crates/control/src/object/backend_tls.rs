//! `BackendTLSPolicy`, which the gateway cannot honour yet. The gateway sends no request in clear text to a Service that has
//! one.

use std::sync::Arc;

use super::gateway_api::{BackendTlsPolicySpec, Written};
use super::kind::Raw;
use super::{Object, ObjectRef, annotation};
use crate::problem::Findings;

/// A checked `BackendTLSPolicy`: the Services of its namespace that need TLS.
#[derive(Debug, PartialEq)]
pub(crate) struct BackendTlsPolicy {
    pub(crate) services: Vec<Arc<str>>,
}

impl Raw for Written<BackendTlsPolicySpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        annotation::check_names(object.kind, self.metadata.annotations.as_ref(), findings);
        findings.warning(
            "spec",
            "is not supported: HTTPRoutes respond with 500 for the Services of spec.targetRefs",
        );
        let targets = self.spec.unwrap_or_default().target_refs.unwrap_or_default().into_iter();
        let services = targets.filter(|target| {
            target.group.as_ref().is_none_or(String::is_empty)
                && target.kind.as_ref().is_none_or(|kind| kind == "Service")
        });
        let services = services.filter_map(|target| target.name.map(Into::into)).collect();
        Some(BackendTlsPolicy { services }.into())
    }
}
