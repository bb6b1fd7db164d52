//! The contact with the API server: whether the watches work, and until when the API server confirmed the endpoints.

use std::time::SystemTime;

/// The contact with the API server. A silent API server is noticed after up to 10 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    is_connected: bool,
    confirmed: Confirmed,
}

/// The time until which the watches of the endpoints worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Confirmed {
    /// The endpoints have not been listed yet.
    #[default]
    Never,
    Until(SystemTime),
    /// The watches work.
    Now,
}

impl Contact {
    /// Whether all watches work.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The time until which the API server confirmed the endpoints: `now` while the watches of the endpoints work. `None` before the
    /// first list.
    #[must_use]
    pub fn endpoints_confirmed(&self, now: SystemTime) -> Option<SystemTime> {
        match self.confirmed {
            Confirmed::Never => None,
            Confirmed::Until(time) => Some(time),
            Confirmed::Now => Some(now),
        }
    }

    /// The contact after `now`, at which all watches work or not, and the watches of the endpoints work or not.
    pub(super) fn next(self, is_connected: bool, has_endpoints: bool, now: SystemTime) -> Self {
        let confirmed = match self.confirmed {
            _ if has_endpoints => Confirmed::Now,
            Confirmed::Now => Confirmed::Until(now),
            before => before,
        };
        Self { is_connected, confirmed }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn endpoints_are_confirmed_until_their_watch_fails() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let never = Contact::default().next(false, false, at(1));
        assert_eq!(never.endpoints_confirmed(at(2)), None);
        let works = never.next(true, true, at(3));
        assert_eq!(works.endpoints_confirmed(at(9)), Some(at(9)));
        let failed = works.next(false, false, at(10));
        assert_eq!(failed.endpoints_confirmed(at(50)), Some(at(10)));
        let still = failed.next(false, false, at(20));
        assert_eq!((still.endpoints_confirmed(at(50)), still.is_connected()), (Some(at(10)), false));
        // Only the watches of other kinds fail.
        let partly = still.next(false, true, at(60));
        assert_eq!((partly.endpoints_confirmed(at(70)), partly.is_connected()), (Some(at(70)), false));
    }
}
