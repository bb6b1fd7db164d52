//! `SecurityPolicy`.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::policy::security::OriginPattern;
use sluicegate_model::policy::{Cors, Security};
use sluicegate_model::value::syntax;

use super::authentication::{self, Need};
use super::target::Target;
use super::written::security::{self as written, SecurityParts};
use super::{authorization, duration, list, origin};
use crate::object::ObjectRef;
use crate::problem::{Findings, Severity};

/// The methods of cross-origin requests, if a policy lists none.
const CORS_METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The time that a browser caches a preflight by default (Fetch standard, "CORS-preflight fetch").
const CORS_MAX_AGE: Duration = Duration::from_secs(5);

/// The longest such time: no browser caches a preflight for longer.
const CORS_MAX_AGE_MAX: Duration = Duration::from_hours(24);

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
        let cors = parts.cors.map(|cors| check_cors(cors, findings));
        let (authentication, needs) = parts
            .authentication
            .map(|written| authentication::check(written, &object.namespace, findings))
            .unzip();
        // Without a readable authentication, each rule about callers would be an error of its own.
        let is_readable = !findings.has_errors();
        let authorization = parts.authorization.filter(|_| is_readable).map(|written| {
            authorization::check(written, &object.namespace, authentication.as_ref(), findings)
        });
        let security = Security {
            id: object.id(),
            refuses: refusal(findings),
            ip_access: parts.ip_access,
            cors,
            authentication,
            authorization,
            forward_overrides: parts.forward_override_headers,
        };
        Self { created, targets, security: Arc::new(security), needs: needs.unwrap_or_default() }
    }
}

/// The reason why a policy cannot be honoured: its first error.
fn refusal(findings: &Findings) -> Option<Box<str>> {
    let error = findings.0.iter().find(|finding| finding.severity == Severity::Error)?;
    Some(format!("{}: {}", error.field, error.message).into())
}

fn check_cors(written: written::Cors, findings: &mut Findings) -> Cors {
    let credentials = written.allow_credentials.unwrap_or_default();
    let written_origins = list::filled(Some(written.allow_origins), 64, "spec.cors.allowOrigins", findings);
    let mut origins = Vec::new();
    for (index, text) in written_origins.into_iter().enumerate() {
        let field = format!("spec.cors.allowOrigins[{index}]");
        match origin::parse(&text) {
            Ok(OriginPattern::Any) if credentials => findings
                .error(field, "* cannot be combined with allowCredentials, because any page could act as its visitors: name the origins"),
            Ok(origin) => origins.push(origin),
            Err(fault) => findings.error(field, fault),
        }
    }
    let methods = match written.allow_methods {
        None => CORS_METHODS.map(Box::from).to_vec(),
        Some(methods) => tokens(
            list::filled(Some(methods), 32, "spec.cors.allowMethods", findings),
            "spec.cors.allowMethods",
            findings,
        ),
    };
    for (index, method) in methods.iter().enumerate() {
        if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let fault = format!(
                "{method:?} is not a method that browsers use: write {}",
                method.to_ascii_uppercase()
            );
            findings.warning(format!("spec.cors.allowMethods[{index}]"), fault);
        }
    }
    let headers = list::bounded(written.allow_headers, 64, "spec.cors.allowHeaders", findings);
    let expose = list::bounded(written.expose_headers, 64, "spec.cors.exposeHeaders", findings);
    if credentials && expose.iter().any(|name| name == "*") {
        let fault = "* has no effect with allowCredentials (Fetch standard): name the headers";
        findings.warning("spec.cors.exposeHeaders", fault);
    }
    let max_age = written.max_age.and_then(|text| {
        let range = Duration::ZERO..=CORS_MAX_AGE_MAX;
        duration::check(&text, range, "0s and 24h", "spec.cors.maxAge", findings)
    });
    Cors {
        origins,
        methods,
        headers: lower_case(tokens(headers, "spec.cors.allowHeaders", findings)),
        expose: lower_case(tokens(expose, "spec.cors.exposeHeaders", findings)),
        credentials,
        max_age: max_age.unwrap_or(CORS_MAX_AGE),
    }
}

/// Names of methods or headers; `*` is also such a name.
fn tokens(written: Vec<String>, field: &str, findings: &mut Findings) -> Vec<Box<str>> {
    let mut tokens = Vec::with_capacity(written.len());
    for (index, name) in written.into_iter().enumerate() {
        match syntax::token_fault(&name) {
            None => tokens.push(name.into()),
            Some(fault) => findings.error(format!("{field}[{index}]"), format!("{name:?} {fault}")),
        }
    }
    tokens
}

fn lower_case(names: Vec<Box<str>>) -> Vec<Box<str>> {
    names.into_iter().map(|name| name.to_ascii_lowercase().into()).collect()
}
