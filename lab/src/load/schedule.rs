//! The times at which requests are due.

use super::nanos::Nanos;

/// The longest lateness of a request that was due before the end. A machine that is busy for a moment at the end of a
/// run loses no request. An overloaded server does not receive its whole backlog.
const GRACE: Nanos = Nanos::from_millis(100);

/// The times at which requests are due. They do not depend on the server, which makes the load open-loop.
///
/// All requests of a run are due at even distances. They are assigned to the connections in turn, so that the requests
/// of one connection are due at even distances too, and no two connections at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The number of connections. They begin to open at even distances until `first`.
    pub(crate) connections: u64,
    /// The time at which the first request is due.
    pub(crate) first: Nanos,
    /// No request is due at this time or later.
    pub(crate) end: Nanos,
    pub(crate) pace: Pace,
}

/// The pace of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// The requests per second of all connections together.
    Rate(f64),
    /// Each connection sends the next request after the last response: a closed loop.
    Closed,
}

impl Schedule {
    /// The same schedule, until this time at most.
    pub(crate) fn until(self, end: Nanos) -> Self {
        Self { end: self.end.min(end), ..self }
    }

    /// The time of the first opening of a connection.
    pub(crate) fn opens(&self, connection: u64) -> Nanos {
        Nanos((u128::from(self.first.0) * u128::from(connection) / u128::from(self.connections)) as u64)
    }

    /// The time at which the request with this number (from 0) of this connection (from 0) is due, if there is one.
    /// Unknown in a closed loop.
    pub(crate) fn due(&self, connection: u64, number: u64) -> Option<Nanos> {
        let Pace::Rate(rate) = self.pace else { return None };
        let place = number.checked_mul(self.connections)?.checked_add(connection)?;
        // The product is exact enough: 2^53 ns are 104 days.
        let due = self.first + Nanos((place as f64 * 1e9 / rate).round() as u64);
        (due < self.end).then_some(due)
    }

    /// The time at which the request with this number of this connection was due, if it may be sent now.
    pub(crate) fn released(&self, connection: u64, number: u64, now: Nanos) -> Option<Nanos> {
        if now < self.first || now >= self.last_send() {
            return None;
        }
        match self.pace {
            Pace::Rate(_) => self.due(connection, number).filter(|due| *due <= now),
            Pace::Closed => Some(now),
        }
    }

    /// The end of all sending.
    pub(crate) fn last_send(&self) -> Nanos {
        match self.pace {
            Pace::Rate(_) => self.end + GRACE,
            Pace::Closed => self.end,
        }
    }

    /// The number of requests of this connection that are due; unknown in a closed loop.
    pub(crate) fn requests_of(&self, connection: u64) -> Option<u64> {
        let before = self.requests()?.saturating_sub(connection);
        Some(before.div_ceil(self.connections))
    }

    /// The number of requests that are due in all; unknown in a closed loop.
    pub(crate) fn requests(&self) -> Option<u64> {
        let all = Self { connections: 1, ..*self };
        let Pace::Rate(rate) = self.pace else { return None };
        let mut count = ((self.end - self.first).seconds() * rate) as u64;
        while all.due(0, count).is_some() {
            count += 1;
        }
        while count > 0 && all.due(0, count - 1).is_none() {
            count -= 1;
        }
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(connections: u64, rate: f64, millis: u64) -> Schedule {
        let (first, end) = (Nanos::from_millis(100), Nanos::from_millis(100 + millis));
        Schedule { connections, first, end, pace: Pace::Rate(rate) }
    }

    #[test]
    fn requests_of_all_connections_are_due_at_even_intervals() {
        let schedule = schedule(4, 1000.0, 50);
        let mut dues: Vec<Nanos> =
            (0..4).flat_map(|connection| (0..).map_while(move |n| schedule.due(connection, n))).collect();
        dues.sort();
        let expected: Vec<Nanos> = (0..50).map(|n| Nanos::from_millis(100 + n)).collect();
        assert_eq!(dues, expected);
        assert_eq!(schedule.requests(), Some(50));
    }

    #[test]
    fn schedule_of_an_uneven_rate_does_not_drift() {
        let schedule = schedule(7, 30_001.0, 180_000);
        let requests = schedule.requests().unwrap();
        assert_eq!(requests, 5_400_180);
        let last = requests - 1;
        let due = schedule.due(last % 7, last / 7).unwrap();
        assert!(schedule.end - due < Nanos(2 * 33_333), "{due:?}");
        assert_eq!(schedule.due(requests % 7, requests / 7), None);
    }

    #[test]
    fn slow_rate_leaves_some_connections_without_requests() {
        let schedule = schedule(10, 0.5, 3000);
        assert_eq!(schedule.requests(), Some(2));
        assert_eq!(schedule.due(1, 0), Some(Nanos::from_millis(2100)));
        assert_eq!(schedule.due(2, 0), None);
    }

    #[test]
    fn sum_of_requests_over_all_connections_is_the_total() {
        for (connections, rate, millis) in
            [(4, 1000.0, 50), (7, 30_001.0, 1003), (10, 0.5, 3000), (3, 333.3, 1)]
        {
            let schedule = schedule(connections, rate, millis);
            let each: Vec<u64> = (0..connections).map(|one| schedule.requests_of(one).unwrap()).collect();
            assert_eq!(each.iter().sum::<u64>(), schedule.requests().unwrap());
            for (one, count) in (0..).zip(each) {
                assert_eq!(schedule.due(one, count), None);
                assert!(count == 0 || schedule.due(one, count - 1).is_some());
            }
        }
    }

    #[test]
    fn schedule_releases_no_request_before_its_due_time_or_after_the_end() {
        let schedule = schedule(2, 1000.0, 50);
        let at = Nanos::from_millis;
        assert_eq!(schedule.released(1, 1, at(102)), None);
        assert_eq!(schedule.released(1, 1, at(103)), Some(at(103)));
        assert_eq!(schedule.released(1, 1, at(149)), Some(at(103)));
        assert_eq!(schedule.released(1, 1, at(249)), Some(at(103)), "late, but not too late");
        assert_eq!(schedule.released(1, 1, at(250)), None);
        let closed = Schedule { pace: Pace::Closed, ..schedule };
        assert_eq!(closed.released(0, 9, at(99)), None);
        assert_eq!(closed.released(0, 9, at(120)), Some(at(120)));
        assert_eq!(closed.released(0, 9, at(150)), None);
        assert_eq!(closed.requests(), None);
    }

    #[test]
    fn schedule_of_a_load_that_ends_early_counts_only_requests_due_before_its_end() {
        let at = Nanos::from_millis;
        let whole = schedule(4, 1000.0, 50);
        assert_eq!(whole.until(at(120)).requests(), Some(20));
        assert_eq!(whole.until(at(50)).requests(), Some(0), "before the first one was due");
        assert_eq!(whole.until(at(500)).requests(), Some(50), "after the end");
    }

    #[test]
    fn connections_open_at_even_intervals_before_the_first_request() {
        let schedule = schedule(4, 1000.0, 50);
        let opens: Vec<u64> = (0..4).map(|connection| schedule.opens(connection).0 / 1_000_000).collect();
        assert_eq!(opens, [0, 25, 50, 75]);
    }
}
