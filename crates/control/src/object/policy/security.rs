//! `SecurityPolicy`.

use std::sync::Arc;

use sluicegate_model::policy::Security;

use super::authentication::{self, Need};
use super::authorization;
use super::target::Target;
use super::written::security::SecurityParts;
use crate::object::ObjectRef;
use crate::problem::{Findings, Severity};

/// A checked `SecurityPolicy`.
#[derive(Debug, PartialEq)]
pub(crate) struct SecurityPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    pub(crate) targets: Vec<Target>,
    /// The policy without the values of Secrets, which are not usable yet. With an error it refuses every request.
    pub(crate) security: Arc<Security>,
    /// The parts that are in Secrets.
    pub(crate) needs: Vec<Need>,
}

impl SecurityPolicy {
    /// `findings` are the findings of reading the object. With an error among them the policy refuses every request to its
    /// targets. An invalid target is no reason to refuse requests to the other targets.
    pub(crate) fn new(
        created: Option<i64>,
        targets: Vec<Target>,
        parts: SecurityParts,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        let authentication = parts.authentication;
        let mut needs = Vec::new();
        if let Some(authentication) = &authentication {
            authentication::check(authentication, findings);
            needs = authentication::needs(authentication, &object.namespace);
        }
        // Without a readable authentication, each rule about callers would be an error of its own.
        let is_readable = !findings.has_errors();
        let authorization = parts.authorization.filter(|_| is_readable).map(|mut authorization| {
            authorization::check(&mut authorization, &object.namespace, authentication.as_ref(), findings);
            authorization
        });
        let security = Security {
            id: object.id(),
            refuses: refusal(findings),
            ip_access: parts.ip_access,
            cors: parts.cors,
            authentication,
            authorization,
            forward_overrides: parts.forward_override_headers,
            inherits: Vec::new(),
            filters: Vec::new(),
            satisfies_any: false,
        };
        Self { created, targets, security: Arc::new(security), needs }
    }
}

/// The reason why a policy cannot be honoured: its first error.
fn refusal(findings: &Findings) -> Option<Box<str>> {
    let error = findings.0.iter().find(|finding| finding.severity == Severity::Error)?;
    Some(format!("{}: {}", error.field, error.message).into())
}
