//! The bandwidth of responses (nginx: `limit_rate`).

use std::time::Duration;

use sluicegate_model::feature::Bandwidth;
use sluicegate_model::value::Size;
use tokio::time::Instant;

use crate::deadline::after;

/// The bytes that wait for one write: as many as the bandwidth allows in this part of a second.
const WRITES_PER_SECOND: u64 = 10;

/// The most bytes that wait for one write.
const WRITE_MAX: u64 = 64 * 1024;

/// The bandwidth of one response.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: u64,
    /// The number of bytes that the response may send at any speed.
    free: u64,
    since: Instant,
}

impl Throttle {
    pub(crate) fn new(bandwidth: &Bandwidth, since: Instant) -> Self {
        let per_second = bandwidth.per_second.get();
        // As in nginx, the bytes of the first second need not wait.
        let free = bandwidth.after.map_or(0, Size::get).saturating_add(per_second);
        Self { per_second, free, since }
    }

    /// The number of bytes that the response may send now, after `sent` bytes: at least one. The error is the time from
    /// which the response may send more.
    pub(crate) fn room(&self, sent: u64, now: Instant) -> Result<usize, Instant> {
        let elapsed = now.saturating_duration_since(self.since);
        let earned = elapsed.as_nanos() * u128::from(self.per_second) / NANOS;
        let allowed = self.free.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX));
        let least = (self.per_second / WRITES_PER_SECOND).clamp(1, WRITE_MAX);
        let room = allowed.saturating_sub(sent);
        if room >= least {
            return Ok(usize::try_from(room).unwrap_or(usize::MAX));
        }
        let owed = u128::from(sent.saturating_add(least).saturating_sub(self.free));
        let nanos = (owed * NANOS).div_ceil(u128::from(self.per_second));
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Err(after(self.since, wait))
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that a response of this length takes.
    fn time(length: u64, per_second: u64, after: u64) -> Duration {
        let bandwidth = Bandwidth { per_second: Size::of(per_second), after: Some(Size::of(after)) };
        let since = Instant::now();
        let throttle = Throttle::new(&bandwidth, since);
        let (mut now, mut sent) = (since, 0);
        while sent < length {
            match throttle.room(sent, now) {
                Ok(room) => sent += (room as u64).min(length - sent),
                Err(until) => {
                    assert!(until > now, "a wait without an end");
                    now = until;
                }
            }
        }
        now - since
    }

    #[test]
    fn response_takes_the_time_that_its_bandwidth_allows_behind_its_first_second_and_its_free_bytes() {
        for (length, per_second, after, seconds) in [
            (1000, 1000, 0, 0),
            (5000, 1000, 0, 4),
            (5000, 1000, 3000, 1),
            (5000, 1000, 9000, 0),
            (10_000_000, 1 << 20, 0, 9),
            (3, 1, 0, 2),
        ] {
            let took = time(length, per_second, after);
            let ideal = Duration::from_secs(seconds);
            assert!(
                took >= ideal.saturating_sub(Duration::from_millis(600)),
                "{length} at {per_second}: {took:?}"
            );
            assert!(took <= ideal + Duration::from_millis(101), "{length} at {per_second}: {took:?}");
        }
    }

    #[test]
    fn largest_bandwidth_does_not_overflow() {
        let largest = Bandwidth { per_second: Size::of(1 << 40), after: Some(Size::of(u64::MAX)) };
        let since = Instant::now();
        let throttle = Throttle::new(&largest, since);
        assert!(throttle.room(0, since + Duration::from_secs(1 << 30)).is_ok());
        assert!(throttle.room(u64::MAX, since).is_err());
        let least = Bandwidth { per_second: Size::of(1), after: None };
        assert!(Throttle::new(&least, since).room(u64::MAX, since).is_err());
    }
}
