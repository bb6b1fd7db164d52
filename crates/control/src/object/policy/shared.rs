//! The server that shares the counts of a policy's limits between data planes.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::policy::{Redis, RedisTls, Shared};
use sluicegate_model::value::syntax;

use super::duration;
use super::secret::{self, SecretValue};
use super::written::rate_limit as written;
use crate::problem::{Findings, Severity};

const FIELD: &str = "spec.shared.redis";

const DATABASE_MAX: i64 = 65_535;

const INTERVAL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_millis(50);

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
pub(super) fn check(
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
    let host = match host_of(&written.address) {
        Ok(host) => host,
        Err(fault) => {
            findings.error(format!("{FIELD}.address"), format!("{:?} {fault}", written.address));
            ""
        }
    };
    if written.username.is_some() && written.password_secret_ref.is_none() {
        findings.error(format!("{FIELD}.username"), "has no password: write passwordSecretRef");
    }
    if let Some(fault) = written.username.as_deref().and_then(syntax::value_fault) {
        findings.error(format!("{FIELD}.username"), fault);
    }
    if let Some(named) = written.password_secret_ref {
        let field = format!("{FIELD}.passwordSecretRef");
        let value = secret::check(named, "password", namespace, &field, findings);
        needs.extend(value.map(|value| Need { field, value, what: Needed::Password }));
    }
    let tls = written.tls.map(|tls| {
        if let Some(named) = tls.ca_certificate_ref {
            let field = format!("{FIELD}.tls.caCertificateRef");
            let value = secret::check(named, "ca.crt", namespace, &field, findings);
            needs.extend(value.map(|value| Need { field, value, what: Needed::Authorities }));
        }
        if let Some(name) = &tls.server_name
            && let Some(fault) = syntax::dns_name_fault(name)
        {
            findings.error(format!("{FIELD}.tls.serverName"), format!("{name:?} {fault}"));
        }
        let server_name = tls.server_name.as_deref().unwrap_or(host).into();
        RedisTls { server_name, authorities: Vec::new() }
    });
    let database = written.database.unwrap_or_default();
    if !(0..=DATABASE_MAX).contains(&database) {
        findings
            .error(format!("{FIELD}.database"), format!("{database} is not between 0 and {DATABASE_MAX}"));
    }
    let mut time = |text: Option<String>, name: &str, range, named, default| {
        let checked =
            text.map(|text| duration::check(&text, range, named, &format!("{FIELD}.{name}"), findings));
        checked.flatten().unwrap_or(default)
    };
    let intervals = Duration::from_millis(5)..=Duration::from_secs(1);
    let interval = time(written.interval, "interval", intervals, "5ms and 1s", INTERVAL);
    let timeouts = Duration::from_millis(5)..=Duration::from_secs(5);
    let timeout = time(written.timeout, "timeout", timeouts, "5ms and 5s", TIMEOUT);
    let redis = Redis {
        username: written.username.map(Into::into),
        password: None,
        tls,
        database: u32::try_from(database).unwrap_or_default(),
        prefix: check_prefix(written.prefix, findings),
        interval,
        timeout,
        address: written.address.into(),
    };
    (redis, needs)
}

/// The host of an address, without brackets.
fn host_of(address: &str) -> Result<&str, String> {
    let form = "is not a host with a port: write it as valkey.default.svc:6379";
    if address.contains("//") {
        return Err("is a URL: write only the host and the port, and tls: {} for rediss".to_owned());
    }
    let (host, port) = address.rsplit_once(':').ok_or(form)?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("has no port from 1 to 65535: write it as valkey.default.svc:6379".to_owned());
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().map(|_| inner).map_err(|_| form.to_owned());
    }
    match syntax::dns_name_fault(host) {
        None => Ok(host),
        Some(fault) => Err(fault.to_string()),
    }
}

fn check_prefix(written: Option<String>, findings: &mut Findings) -> Box<str> {
    let prefix = written.unwrap_or_else(|| "sluicegate".to_owned());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
        let fault = format!("{prefix:?} is invalid: write 1 to 64 letters, digits and any of -_.:/");
        findings.error(format!("{FIELD}.prefix"), fault);
    }
    prefix.into()
}
