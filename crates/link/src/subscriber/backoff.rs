//! How long to wait before the control plane is asked again.

use std::time::Duration;

/// Before the first attempt after a call that worked, at most: a thousand data planes lose theirs at one moment.
const FIRST: Duration = Duration::from_millis(200);
/// The longest.
const MAX: Duration = Duration::from_secs(1);

/// Doubles from 200 ms to 1 s, and waits between half of that and all of it; anything up to 200 ms after a call that
/// worked.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn worked(&mut self) {
        self.failures = 0;
    }

    pub(super) fn next(&mut self) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.failures.min(8)).min(MAX);
        let shortest = if self.failures == 0 { 0.0 } else { 0.5 };
        self.failures = self.failures.saturating_add(1);
        longest.mul_f64(shortest + (1.0 - shortest) * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_a_second_and_resets_after_success() {
        let mut backoff = Backoff::default();
        for (shortest, longest) in [(0, 200), (200, 400), (400, 800), (500, 1000), (500, 1000)] {
            let (wait, range) = (backoff.next(), shortest..=longest);
            assert!(range.contains(&wait.as_millis()), "{wait:?} is not in {range:?}");
        }
        backoff.worked();
        assert!(backoff.next() <= FIRST);
    }
}
