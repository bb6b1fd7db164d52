//! The server that shares the counts of a policy's limits between data planes.

use std::sync::Arc;

use sluicegate_model::policy::{Redis, RedisTls, Shared};
use sluicegate_model::value::syntax;

use super::secret::SecretValue;
use super::written::rate_limit as written;
use crate::problem::{Findings, Severity};

const FIELD: &str = "spec.shared.redis";

/// A server with settings in Secrets.
#[derive(Debug, PartialEq)]
pub(crate) struct Sharing {
    /// The settings without the values of Secrets.
    pub(crate) redis: Redis,
    pub(crate) needs: Vec<Need>,
}

/// A setting of the server that is in a Secret.
#[derive(Debug, PartialEq)]
pub(crate) struct Need {
    /// The field that names it.
    pub(crate) field: String,
    pub(crate) value: SecretValue,
    pub(crate) what: Needed,
}

/// The kind of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    Password,
    /// The CA certificates for the server.
    Authorities,
}

/// The server that shares limits, without the values of Secrets: it is unusable without them. With an error, each data
/// plane counts for itself.
pub(crate) fn check(
    written: written::Shared,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (Shared, Option<Sharing>) {
    let mut of_shared = Findings::default();
    let (redis, needs) = check_redis(written.redis, namespace, &mut of_shared);
    let unusable = fault(&of_shared);
    findings.0.append(&mut of_shared.0);
    match (unusable, needs.is_empty()) {
        (Some(unusable), _) => (unusable, None),
        (None, true) => (Shared::Redis(Arc::new(redis)), None),
        (None, false) => {
            (Shared::Unusable("its Secret has not been read".into()), Some(Sharing { redis, needs }))
        }
    }
}

/// The error in `spec.shared`, as the sharing that results from it.
pub(super) fn fault(findings: &Findings) -> Option<Shared> {
    let is_error = |severity, field: &str| severity == Severity::Error && field.starts_with("spec.shared");
    let error = findings.0.iter().find(|finding| is_error(finding.severity, &finding.field))?;
    Some(Shared::Unusable(format!("{}: {}", error.field, error.message).into()))
}

fn check_redis(written: written::Redis, namespace: &Arc<str>, findings: &mut Findings) -> (Redis, Vec<Need>) {
    let mut needs = Vec::new();
    if written.username.is_some() && written.password_secret_ref.is_none() {
        findings.error(format!("{FIELD}.username"), "has no password: write passwordSecretRef");
    }
    if let Some(named) = written.password_secret_ref {
        let field = format!("{FIELD}.passwordSecretRef");
        let value = SecretValue::new(&named, "password", namespace);
        needs.push(Need { field, value, what: Needed::Password });
    }
    let tls = written.tls.map(|tls| {
        if let Some(named) = tls.ca_certificate_ref {
            let field = format!("{FIELD}.tls.caCertificateRef");
            let value = SecretValue::new(&named, "ca.crt", namespace);
            needs.push(Need { field, value, what: Needed::Authorities });
        }
        let host = syntax::server_host(&written.address).unwrap_or_default();
        let server_name = tls.server_name.as_deref().unwrap_or(host).into();
        RedisTls { server_name, authorities: Vec::new() }
    });
    let redis = Redis {
        username: written.username,
        password: None,
        tls,
        database: written.database,
        prefix: written.prefix,
        interval: written.interval,
        timeout: written.timeout,
        address: written.address,
    };
    (redis, needs)
}
