//! The end of an outage of the API server: changes of routes wait until every watch has resumed.
//!
//! The watches of different kinds resume one after another. Between the first and the last, the objects are those of different times: a
//! Secret may be gone while the deletion of its Consumer is still unknown. Routes from such objects could reject valid requests.

use std::time::{Duration, Instant};

/// The longest wait. A watch may fail for longer, such as if the API server cannot convert the objects of one kind.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait for the last watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resumption {
    /// The end of the wait, after the first watch has resumed.
    until: Option<Instant>,
}

impl Resumption {
    /// Notes that a watch no longer works. A wait in progress goes on.
    pub(super) fn failed(&mut self, now: Instant) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// Notes that a watch works again.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.until.get_or_insert(now + WAIT_MAX);
    }

    /// The end of the wait, if changes of routes wait. `is_complete` tells whether all watches work.
    pub(super) fn waits(&mut self, is_complete: bool, now: Instant) -> Option<Instant> {
        if is_complete {
            self.until = None;
        }
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_from_the_first_watch_to_the_last() {
        let (mut resumption, start) = (Resumption::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        resumption.failed(at(0));
        assert_eq!(resumption.waits(false, at(100)), None, "no watch has resumed");
        resumption.resumed(at(100));
        resumption.resumed(at(101));
        assert_eq!(resumption.waits(false, at(101)), Some(at(105)));
        assert_eq!(resumption.waits(true, at(102)), None, "all watches work");
        assert_eq!(resumption, Resumption::default());
    }

    #[test]
    fn changes_wait_only_once_for_a_watch_that_does_not_resume() {
        let (mut resumption, start) = (Resumption::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        resumption.failed(at(0));
        resumption.resumed(at(1));
        assert_eq!(resumption.waits(false, at(6)), None);
        resumption.resumed(at(7));
        assert_eq!(resumption.waits(false, at(7)), None, "the wait of this outage is over");
        resumption.failed(at(20));
        resumption.resumed(at(21));
        assert_eq!(resumption.waits(false, at(22)), Some(at(26)), "the next outage");
    }
}
