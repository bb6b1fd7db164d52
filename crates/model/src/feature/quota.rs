//! Quotas: how much a subscription may use in a long window.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::encoding::Bound;
use crate::value::span::HOUR;
use crate::value::{LimitName, Number, Size, Span, TimeZoneName};

/// The number of requests of a quota.
pub type QuotaRequests = Number<i64, 1, 1_000_000_000_000>;

/// The number of bytes of a quota.
pub type QuotaBytes = Size<1, { 1 << 50 }>;

/// A quota: exactly one of requests and bytes, and exactly one of calendar and period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.requests) != has(self.bytes)", "message": "write exactly one of requests and bytes" },
    { "rule": "has(self.calendar) != has(self.period)", "message": "write exactly one of calendar and period" },
    { "rule": "!has(self.timeZone) || has(self.calendar)", "message": "timeZone is only for calendar" }
]))]
#[cbor(map)]
pub struct Quota {
    /// The name of the quota in headers, logs and metrics: lower-case letters, digits and hyphens.
    #[n(0)]
    pub name: LimitName,
    /// The number of requests in a window. 1 to 1000000000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub requests: Option<QuotaRequests>,
    /// The number of bytes of requests and responses with their heads in a window, such as 10Gi. The gateway adds the bytes of
    /// a request when the request ends, so requests in flight may exceed the quota. 1 to 1048576Gi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub bytes: Option<QuotaBytes>,
    /// The windows are the hours, days, weeks (from Monday), months or years of the calendar in timeZone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub calendar: Option<CalendarUnit>,
    /// A window starts with the first request of the subscription, and has this length. The first request after its end starts
    /// the next window. 1m to 9600h (400 days).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub period: Option<QuotaPeriod>,
    /// The time zone of the calendar, such as Europe/Berlin. Default: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub time_zone: Option<TimeZoneName>,
}

/// The length of a window that starts with the first request.
pub type QuotaPeriod = Span<60_000, { 9600 * HOUR }>;

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum CalendarUnit {
    /// An hour.
    #[n(0)]
    Hour,
    /// A day.
    #[n(1)]
    Day,
    /// A week, from Monday (ISO 8601).
    #[n(2)]
    Week,
    /// A month.
    #[n(3)]
    Month,
    /// A year.
    #[n(4)]
    Year,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaUnit {
    /// Requests.
    Requests,
    /// Bytes.
    Bytes,
}

/// The windows of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaWindow<'q> {
    /// Units of the calendar in a time zone; `None`: UTC.
    Calendar(CalendarUnit, Option<&'q TimeZoneName>),
    /// This time from the first request on.
    FromFirstRequest(QuotaPeriod),
}

impl Quota {
    /// What the quota counts, and the most that it allows.
    #[must_use]
    pub fn most(&self) -> (QuotaUnit, u64) {
        match (self.requests, self.bytes) {
            (Some(requests), _) => (QuotaUnit::Requests, requests.get().unsigned_abs()),
            (None, bytes) => (QuotaUnit::Bytes, bytes.map_or(0, Size::get)),
        }
    }

    /// The windows.
    #[must_use]
    pub fn window(&self) -> QuotaWindow<'_> {
        match (self.calendar, self.period) {
            (None, Some(period)) => QuotaWindow::FromFirstRequest(period),
            (unit, _) => QuotaWindow::Calendar(unit.unwrap_or(CalendarUnit::Month), self.time_zone.as_ref()),
        }
    }
}

impl Check for Quota {
    fn check(&self, at: &mut Faults<'_>) {
        if self.requests.is_some() == self.bytes.is_some() {
            at.error("requests", "needs exactly one of requests and bytes");
        }
        if self.calendar.is_some() == self.period.is_some() {
            at.error("calendar", "needs exactly one of calendar and period");
        }
        if self.time_zone.is_some() && self.calendar.is_none() {
            at.error("timeZone", "is only for calendar: remove it");
        }
    }
}

/// The decoder applies the same conditions as the check of YAML.
impl Bound for Quota {
    type Value = Self;
    const FIELD: &'static str = "a quota";

    fn allows(quota: &Self) -> bool {
        super::is_valid(quota)
    }
}
