//! Which endpoints are avoided although they take connections.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Ejection, Health, HealthCheck, HealthCheckKind};

use super::{Refusal, duration, known, nanos};
use crate::proto;

/// No check goes round more often, whoever says so.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

impl From<&Ejection> for proto::Ejection {
    fn from(Ejection { consecutive_errors, time, max_percent }: &Ejection) -> Self {
        Self {
            consecutive_errors: *consecutive_errors,
            time: nanos(*time),
            max_percent: (*max_percent).into(),
        }
    }
}

impl TryFrom<proto::Ejection> for Ejection {
    type Error = Refusal;

    fn try_from(ejection: proto::Ejection) -> Result<Self, Refusal> {
        match (ejection.consecutive_errors, u8::try_from(ejection.max_percent)) {
            (consecutive_errors @ 1..=1000, Ok(max_percent @ 1..=100)) => {
                let time = duration(ejection.time, "the time of an ejection")?;
                Ok(Self { consecutive_errors, time, max_percent })
            }
            _ => Err(Refusal::Invalid("an ejection")),
        }
    }
}

impl From<&HealthCheck> for proto::HealthCheck {
    fn from(check: &HealthCheck) -> Self {
        let HealthCheck { kind, interval, timeout, healthy, unhealthy } = check;
        let message = Self {
            interval: nanos(*interval),
            timeout: nanos(*timeout),
            healthy: *healthy,
            unhealthy: *unhealthy,
            ..Self::default()
        };
        match kind {
            HealthCheckKind::Tcp => Self { kind: proto::HealthCheckKind::Tcp.into(), ..message },
            HealthCheckKind::Http { path, host, from, to } => Self {
                kind: proto::HealthCheckKind::Http.into(),
                path: path.to_string(),
                host: host.as_ref().map(ToString::to_string),
                from: (*from).into(),
                to: (*to).into(),
                ..message
            },
            HealthCheckKind::Grpc { service } => {
                Self { kind: proto::HealthCheckKind::Grpc.into(), service: service.to_string(), ..message }
            }
        }
    }
}

impl TryFrom<proto::HealthCheck> for HealthCheck {
    type Error = Refusal;

    fn try_from(check: proto::HealthCheck) -> Result<Self, Refusal> {
        let kind = match known(check.kind, "the kind of a health check")? {
            proto::HealthCheckKind::None => return Err(Refusal::Missing("the kind of a health check")),
            proto::HealthCheckKind::Tcp => HealthCheckKind::Tcp,
            proto::HealthCheckKind::Http => {
                // Both go into heads as they are.
                let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
                let is_host = check.host.as_deref().is_none_or(|host| is_plain(host) && !host.is_empty());
                if !check.path.starts_with('/') || !is_plain(&check.path) || !is_host {
                    return Err(Refusal::Invalid("the path of a health check"));
                }
                let status =
                    |status: u32| u16::try_from(status).ok().filter(|status| (100..=599).contains(status));
                let (Some(from), Some(to)) = (status(check.from), status(check.to)) else {
                    return Err(Refusal::Invalid("the statuses of a health check"));
                };
                HealthCheckKind::Http { path: check.path.into(), host: check.host.map(Into::into), from, to }
            }
            proto::HealthCheckKind::Grpc => HealthCheckKind::Grpc { service: check.service.into() },
        };
        let interval = duration(check.interval, "the interval of a health check")?;
        if interval < INTERVAL_MIN
            || !(1..=100).contains(&check.healthy)
            || !(1..=100).contains(&check.unhealthy)
        {
            return Err(Refusal::Invalid("a health check"));
        }
        let timeout = duration(check.timeout, "the time of a health check")?;
        Ok(Self { kind, interval, timeout, healthy: check.healthy, unhealthy: check.unhealthy })
    }
}

/// What is said of the health of endpoints.
pub(super) fn health(
    ejection: Option<proto::Ejection>,
    check: Option<proto::HealthCheck>,
) -> Result<Option<Arc<Health>>, Refusal> {
    if ejection.is_none() && check.is_none() {
        return Ok(None);
    }
    let ejection = ejection.map(TryInto::try_into).transpose()?;
    Ok(Some(Arc::new(Health { ejection, check: check.map(TryInto::try_into).transpose()? })))
}
