//! The clock of limits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A clock in nanoseconds. The clock of a shared limit follows the server, so that all data planes number windows alike.
#[derive(Debug)]
pub(super) struct Clock {
    epoch: Instant,
    /// The time of the clock at the epoch.
    start: AtomicU64,
}

impl Clock {
    /// A clock that begins at 0.
    pub(super) fn new() -> Self {
        Self { epoch: Instant::now(), start: AtomicU64::new(0) }
    }

    /// A clock with the time since 1970: the time of this machine until the server reports its time.
    pub(super) fn of_server() -> Self {
        Self { start: AtomicU64::new(since_1970()), ..Self::new() }
    }

    /// The time since the epoch, which is never adjusted.
    pub(super) fn elapsed(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.epoch))
    }

    /// The time of the clock at `elapsed` after the epoch.
    pub(super) fn shown(&self, elapsed: u64) -> u64 {
        self.start.load(Ordering::Relaxed).saturating_add(elapsed)
    }

    /// Sets the clock to the time that a server showed at some moment between these two. The clock moves only as far as
    /// is certain: a process that read the answer a second late cannot know when in that second the server answered.
    pub(super) fn set(&self, shown: u64, asked: Instant, answered: Instant) {
        let (asked, answered) = (self.elapsed(asked), self.elapsed(answered));
        let start = self.start.load(Ordering::Relaxed);
        let (least, most) = (shown.saturating_sub(answered), shown.saturating_sub(asked));
        if !(least..=most).contains(&start) {
            self.start.store(start.clamp(least, most), Ordering::Relaxed);
        }
    }
}

/// The time of this machine, in nanoseconds.
pub(super) fn since_1970() -> u64 {
    nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_adjusted_only_if_the_difference_exceeds_the_round_trip_time() {
        let clock = Clock::new();
        let (asked, answered) =
            (clock.epoch + Duration::from_nanos(1000), clock.epoch + Duration::from_nanos(2000));
        clock.set(1700, asked, answered);
        assert_eq!(clock.shown(0), 0);
        clock.set(1_000_000, asked, answered);
        assert_eq!(clock.shown(2000), 1_000_000);
        clock.set(900_000, asked, answered);
        assert_eq!(clock.shown(1000), 900_000, "and back");
        // An answer with a slightly earlier time, and an answer that was read late.
        clock.set(899_990, asked, clock.epoch + Duration::from_secs(1));
        assert_eq!(clock.shown(1000), 899_990);
    }
}
