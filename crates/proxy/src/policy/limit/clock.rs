//! The time by which limits count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A clock in nanoseconds. That of a server which several data planes share is set by what the server tells, so that all number
/// windows alike.
#[derive(Debug)]
pub(super) struct Clock {
    epoch: Instant,
    /// What it shows at the epoch.
    start: AtomicU64,
}

impl Clock {
    /// One that begins at 0.
    pub(super) fn new() -> Self {
        Self { epoch: Instant::now(), start: AtomicU64::new(0) }
    }

    /// One that shows the time since 1970, as this machine has it until a server tells.
    pub(super) fn of_server() -> Self {
        Self { start: AtomicU64::new(since_1970()), ..Self::new() }
    }

    /// The time from the epoch, which nobody sets.
    pub(super) fn elapsed(&self, at: Instant) -> u64 {
        nanos(at.saturating_duration_since(self.epoch))
    }

    /// What it shows so long after the epoch.
    pub(super) fn shown(&self, elapsed: u64) -> u64 {
        self.start.load(Ordering::Relaxed).saturating_add(elapsed)
    }

    /// Sets it to what a server showed some time between these two moments, by no more than is certain: a process that was kept
    /// from reading the answer for a second cannot tell when in that second it was given.
    pub(super) fn set(&self, shown: u64, asked: Instant, answered: Instant) {
        let (asked, answered) = (self.elapsed(asked), self.elapsed(answered));
        let start = self.start.load(Ordering::Relaxed);
        let (least, most) = (shown.saturating_sub(answered), shown.saturating_sub(asked));
        if !(least..=most).contains(&start) {
            self.start.store(start.clamp(least, most), Ordering::Relaxed);
        }
    }
}

/// What this machine's clock shows, in nanoseconds.
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
    fn clock_moves_only_beyond_the_round_trip_uncertainty() {
        let clock = Clock::new();
        let (asked, answered) =
            (clock.epoch + Duration::from_nanos(1000), clock.epoch + Duration::from_nanos(2000));
        clock.set(1700, asked, answered);
        assert_eq!(clock.shown(0), 0);
        clock.set(1_000_000, asked, answered);
        assert_eq!(clock.shown(2000), 1_000_000);
        clock.set(900_000, asked, answered);
        assert_eq!(clock.shown(1000), 900_000, "and back");
        // A little behind, and an answer that was read late.
        clock.set(899_990, asked, clock.epoch + Duration::from_secs(1));
        assert_eq!(clock.shown(1000), 899_990);
    }
}
