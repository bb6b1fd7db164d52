//! The pace of the changes of each user: a change rewrites an object, and the gateway reads the object again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of changes at once, and the time after which one more is allowed.
const CHANGES: u32 = 20;
const EVERY: Duration = Duration::from_secs(6);

/// The changes of each user that count now, and the time of the last change of this number. The users of a file are bounded.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<String, (u32, Instant)>>);

impl Pace {
    /// Counts a change of a user.
    ///
    /// # Errors
    ///
    /// The time until the next change, if the user made too many changes.
    pub(super) fn count(&self, user: &str, now: Instant) -> Result<(), Duration> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_past = |since: Instant| now.saturating_duration_since(since) >= EVERY * CHANGES;
        users.retain(|_, (_, since)| !is_past(*since));
        let (count, since) = users.entry(user.to_owned()).or_insert((0, now));
        let elapsed = now.saturating_duration_since(*since);
        let ended = u32::try_from(elapsed.as_secs() / EVERY.as_secs()).unwrap_or(u32::MAX);
        if ended > 0 {
            (*count, *since) = (count.saturating_sub(ended), now);
        }
        if *count >= CHANGES {
            return Err(EVERY.saturating_sub(elapsed));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_makes_a_bounded_number_of_changes_and_does_not_slow_others_down() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..CHANGES {
            assert_eq!(pace.count("bob", now), Ok(()));
        }
        assert_eq!(pace.count("bob", now), Err(EVERY));
        assert_eq!(pace.count("eve", now), Ok(()));
        assert_eq!(pace.count("bob", now + EVERY), Ok(()));
        assert!(pace.count("bob", now + EVERY).is_err());
        assert_eq!(pace.count("bob", now + 2 * EVERY * CHANGES), Ok(()));
        assert_eq!(pace.0.lock().expect("a lock").len(), 1, "users without recent changes are forgotten");
    }
}
