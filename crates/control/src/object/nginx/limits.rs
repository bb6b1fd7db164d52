//! Limits of requests, connections and bandwidth by client IP.

use sluicegate_model::feature::LimitStatus;
use sluicegate_model::feature::bandwidth::BytesPerSecond;
use sluicegate_model::feature::rate_limit::Requests;
use sluicegate_model::value::Size;

use super::Meaning::Sets;
use super::Row;
use super::access::{Networks, networks};
use super::value::Value;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `limit-rps`.
    pub(crate) per_second: Option<Requests>,
    /// `limit-rpm`.
    pub(crate) per_minute: Option<Requests>,
    /// `limit-connections`.
    pub(crate) connections: Option<Requests>,
    /// `limit-burst-multiplier`.
    pub(crate) burst_multiplier: Option<u32>,
    /// `limit-allowlist`.
    pub(crate) exempt: Option<Networks>,
    /// `limit-whitelist`, the former name.
    pub(crate) former_exempt: Option<Networks>,
    /// `limit-rate`, in bytes per second.
    pub(crate) rate: Option<BytesPerSecond>,
    /// `limit-rate-after`, in bytes.
    pub(crate) rate_after: Option<Size>,
    /// `limit-req-status-code` of the ConfigMap.
    pub(crate) rate_status: Option<LimitStatus>,
    /// `limit-conn-status-code` of the ConfigMap.
    pub(crate) connections_status: Option<LimitStatus>,
}

/// A number of requests; `None` for 0 or less.
fn requests(value: &Value<'_>) -> Result<Option<Requests>, String> {
    match value.number()? {
        number @ 1.. => Requests::new(number).map(Some).map_err(|fault| fault.to_string()),
        _ => Ok(None),
    }
}

/// A size in KiB; 0 for 0 or less.
fn kibibytes(value: &Value<'_>) -> Result<u64, String> {
    Ok(u64::try_from(value.number()?).unwrap_or(0).saturating_mul(1024))
}

/// A status of refused requests.
fn status(value: &Value<'_>) -> Result<LimitStatus, String> {
    LimitStatus::new(value.number()?).map_err(|fault| fault.to_string())
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "limit-rps",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.per_second = requests(value)?;
            Ok(())
        }),
        sets: "The requests of a client IP in a second. Further requests receive 503.",
        default: "",
    },
    Row {
        name: "limit-rpm",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.per_minute = requests(value)?;
            Ok(())
        }),
        sets: "The requests of a client IP in a minute. Further requests receive 503.",
        default: "",
    },
    Row {
        name: "limit-burst-multiplier",
        restricts: true,
        meaning: Sets(|settings, value| {
            let number = value.number()?;
            let multiplier = u32::try_from(number).map_err(|_| format!("{number} is negative"))?;
            settings.limits.burst_multiplier = Some(multiplier);
            Ok(())
        }),
        sets: "The burst of `limit-rps` and `limit-rpm`, as a multiple of the rate.",
        default: "`5`",
    },
    Row {
        name: "limit-connections",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.connections = requests(value)?;
            Ok(())
        }),
        sets: "The requests of a client IP in flight. Further requests receive 503.",
        default: "",
    },
    Row {
        name: "limit-allowlist",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.exempt = Some(networks(value)?);
            Ok(())
        }),
        sets: "The client IPs without `limit-rps`, `limit-rpm` and `limit-connections`.",
        default: "",
    },
    Row {
        name: "limit-whitelist",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.former_exempt = Some(networks(value)?);
            Ok(())
        }),
        sets: "The former name of `limit-allowlist`, which has precedence.",
        default: "",
    },
    Row {
        name: "limit-rate",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.rate = Some(kibibytes(value)?).filter(|bytes| *bytes > 0).map(Size::of);
            Ok(())
        }),
        sets: "The bandwidth of each response, in KiB per second. `0`: no limit.",
        default: "`0`",
    },
    Row {
        name: "limit-rate-after",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.rate_after = Some(Size::of(kibibytes(value)?));
            Ok(())
        }),
        sets: "The KiB at the begin of a response without `limit-rate`.",
        default: "`0`",
    },
];

/// The keys of the ConfigMap that no annotation has.
pub(super) const KEYS: &[Row] = &[
    Row {
        name: "limit-req-status-code",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.rate_status = Some(status(value)?);
            Ok(())
        }),
        sets: "The status of requests above `limit-rps` and `limit-rpm`, from 400 to 599.",
        default: "`503`",
    },
    Row {
        name: "limit-conn-status-code",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.limits.connections_status = Some(status(value)?);
            Ok(())
        }),
        sets: "The status of requests above `limit-connections`, from 400 to 599.",
        default: "`503`",
    },
];
