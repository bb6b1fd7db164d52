//! The windows of quotas.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _};
use sluicegate_model::feature::{CalendarUnit, Quota, QuotaWindow};

/// The windows of a quota. All times are in seconds since 1970.
#[derive(Debug)]
pub(crate) enum Windows {
    Calendar(Calendar),
    /// A window starts with its first request, and has this length.
    FromFirstRequest(u64),
}

/// Units of the calendar, with the present unit. The calendar computes a unit once.
#[derive(Debug)]
pub(crate) struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    start: AtomicU64,
    /// Written after `start`.
    end: AtomicU64,
}

impl Windows {
    pub(super) fn new(quota: &Quota) -> Self {
        match quota.window() {
            QuotaWindow::FromFirstRequest(period) => Self::FromFirstRequest(period.get().as_secs().max(1)),
            QuotaWindow::Calendar(unit, zone) => {
                let zone = zone.and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC);
                Self::Calendar(Calendar { unit, zone, start: AtomicU64::new(0), end: AtomicU64::new(0) })
            }
        }
    }

    /// The length of the window that is open at `now`, in seconds.
    pub(crate) fn length(&self, now: u64) -> u64 {
        match self {
            Self::FromFirstRequest(length) => *length,
            Self::Calendar(calendar) => {
                let (start, end) = calendar.at(now);
                end.saturating_sub(start).max(1)
            }
        }
    }
}

impl Calendar {
    /// The start and the end of the unit with this time.
    pub(super) fn at(&self, now: u64) -> (u64, u64) {
        // A start that is newer than the end is the end of the unit before, so it is later than `now`.
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        if (start..end).contains(&now) {
            return (start, end);
        }
        let (start, end) = self.compute(now).unwrap_or((now, now + 3600));
        self.end.store(0, Ordering::Release);
        self.start.store(start, Ordering::Release);
        self.end.store(end, Ordering::Release);
        (start, end)
    }

    /// The start and the end of the unit with this time, without a use of the stored unit.
    pub(super) fn compute(&self, now: u64) -> Option<(u64, u64)> {
        let time = Timestamp::from_second(i64::try_from(now).ok()?).ok()?;
        let zoned = time.to_zoned(self.zone.clone());
        let day = zoned.date();
        let (first, length): (Date, Span) = match self.unit {
            CalendarUnit::Hour => {
                // An hour that the end of daylight saving time repeats is two hours of the calendar.
                let local = i64::try_from(now).ok()? + i64::from(zoned.offset().seconds());
                let start = now.checked_sub(u64::try_from(local.rem_euclid(3600)).ok()?)?;
                return Some((start, start + 3600));
            }
            CalendarUnit::Day => (day, 1.day()),
            CalendarUnit::Week => {
                let since_monday = i64::from(day.weekday().to_monday_zero_offset());
                (day.checked_sub(since_monday.days()).ok()?, 1.week())
            }
            CalendarUnit::Month => (day.first_of_month(), 1.month()),
            CalendarUnit::Year => (day.first_of_year(), 1.year()),
        };
        let midnight = |day: Date| {
            let time = day.to_zoned(self.zone.clone()).ok()?.timestamp();
            u64::try_from(time.as_second()).ok()
        };
        Some((midnight(first)?, midnight(first.checked_add(length).ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(unit: &str, zone: &str) -> Calendar {
        let quota = serde_json::json!({"name": "a", "requests": 1, "calendar": unit, "timeZone": zone});
        match Windows::new(&serde_json::from_value(quota).unwrap()) {
            Windows::Calendar(calendar) => calendar,
            Windows::FromFirstRequest(_) => panic!("a calendar was asked for"),
        }
    }

    fn seconds(text: &str) -> u64 {
        u64::try_from(text.parse::<Timestamp>().unwrap().as_second()).unwrap()
    }

    fn assert_window(unit: &str, zone: &str, now: &str, [start, end]: [&str; 2]) {
        let calendar = calendar(unit, zone);
        let expected = (seconds(start), seconds(end));
        assert_eq!(calendar.at(seconds(now)), expected, "{unit} {zone} {now}");
        assert_eq!(calendar.at(expected.0), expected, "its first second");
        assert_eq!(calendar.at(expected.1).0, expected.1, "the next window starts at its end");
    }

    #[test]
    fn calendar_windows_are_units_of_the_time_zone() {
        let now = "2026-03-29T12:34:56Z";
        assert_window("Hour", "UTC", now, ["2026-03-29T12:00:00Z", "2026-03-29T13:00:00Z"]);
        assert_window("Hour", "Asia/Kolkata", now, ["2026-03-29T12:30:00Z", "2026-03-29T13:30:00Z"]);
        // Daylight saving time begins: the day has 23 hours.
        assert_window("Day", "Europe/Berlin", now, ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        assert_window("Week", "UTC", now, ["2026-03-23T00:00:00Z", "2026-03-30T00:00:00Z"]);
        assert_window("Month", "Europe/Berlin", now, ["2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"]);
        assert_window(
            "Month",
            "UTC",
            "2028-02-29T00:00:00Z",
            ["2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"],
        );
        assert_window("Year", "Pacific/Auckland", now, ["2025-12-31T11:00:00Z", "2026-12-31T11:00:00Z"]);
    }
}
