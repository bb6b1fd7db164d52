//! The delay before the next connection attempt.

use std::time::Duration;

/// The longest delay of the first attempt after a successful call: when a control plane ends, all its data planes
/// reconnect at the same moment.
const FIRST: Duration = Duration::from_millis(200);
/// The longest delay.
const MAX: Duration = Duration::from_secs(1);

/// The delay doubles from 200 ms to 1 s, with a random value between half of the delay and the whole delay. After a
/// successful call the delay is up to 200 ms.
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
    fn reconnect_backoff_doubles_up_to_a_second_and_resets_after_success() {
        let mut backoff = Backoff::default();
        for (shortest, longest) in [(0, 200), (200, 400), (400, 800), (500, 1000), (500, 1000)] {
            let (wait, range) = (backoff.next(), shortest..=longest);
            assert!(range.contains(&wait.as_millis()), "{wait:?} is not in {range:?}");
        }
        backoff.worked();
        assert!(backoff.next() <= FIRST);
    }
}
