//! The state of one connection, without I/O: the permitted next steps, and the start and end times of latencies.

use super::nanos::Nanos;
use super::schedule::Schedule;

/// The longest pause before another attempt after repeated failures.
const MAX_BACKOFF: Nanos = Nanos::from_millis(100);

/// The state of one connection. Its methods take events, and return the next steps.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Its number among all connections, from 0.
    number: u64,
    /// The number of the next request, from 0. Earlier requests were sent.
    next: u64,
    phase: Phase,
    /// The time of the last opening.
    opened: Nanos,
    /// The deadline of the opening.
    deadline: Nanos,
    /// The number of sent requests with incomplete responses.
    under_way: usize,
    /// The maximum of `under_way`.
    at_once: usize,
    /// The number of openings in a row without a complete response.
    failures: u32,
    /// Whether a response has arrived since the opening.
    is_proven: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Closed, and to be opened at some time.
    Down,
    Connecting,
    /// The TLS handshake is in progress.
    Handshaking,
    Open,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    /// The time at which it should have been sent.
    pub(crate) due: Nanos,
    /// The time at which it was sent.
    pub(crate) sent: Nanos,
}

impl Connection {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            number,
            next: 0,
            phase: Phase::Down,
            opened: Nanos::ZERO,
            deadline: Nanos::MAX,
            under_way: 0,
            at_once: 1,
            failures: 0,
            is_proven: false,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The time of the last opening.
    pub(crate) fn opened(&self) -> Nanos {
        self.opened
    }

    /// The opening begins. The connect and the handshake must end before the deadline.
    pub(crate) fn open(&mut self, now: Nanos, deadline: Nanos) {
        debug_assert_eq!(self.phase, Phase::Down);
        self.phase = Phase::Connecting;
        self.opened = now;
        self.is_proven = false;
        self.deadline = deadline;
    }

    pub(crate) fn begin_handshake(&mut self) {
        self.phase = Phase::Handshaking;
    }

    /// The connection is open, and carries at most this many requests at once.
    pub(crate) fn ready(&mut self, at_once: usize) {
        self.phase = Phase::Open;
        self.at_once = at_once;
        self.deadline = Nanos::MAX;
    }

    /// Limits the requests at once from now on.
    pub(crate) fn limit(&mut self, at_once: usize) {
        self.at_once = at_once;
    }

    /// The number of sent requests with incomplete responses.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether an unsent request is due.
    pub(crate) fn has_due(&self, now: Nanos, schedule: &Schedule) -> bool {
        schedule.released(self.number, self.next, now).is_some()
    }

    /// The due time of the request that must be sent now, if any. The request counts as sent, regardless of its result.
    pub(crate) fn take_due(&mut self, now: Nanos, schedule: &Schedule) -> Option<Nanos> {
        if self.phase != Phase::Open || self.under_way >= self.at_once {
            return None;
        }
        let due = schedule.released(self.number, self.next, now)?;
        self.next += 1;
        self.under_way += 1;
        Some(due)
    }

    /// A response is complete.
    pub(crate) fn answered(&mut self) {
        self.under_way -= 1;
        self.failures = 0;
        self.is_proven = true;
    }

    /// Records that a request receives no response. The other requests are not affected.
    pub(crate) fn give_up(&mut self) {
        self.under_way -= 1;
    }

    /// Whether a response has arrived since the opening.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The connection is closed, by either side and for any reason. Returns the time of the next opening: at once after
    /// a complete response, and later and later without one, so that the load does not flood a dead server.
    pub(crate) fn close(&mut self, now: Nanos) -> Nanos {
        let backoff = match self.failures {
            0 => Nanos::ZERO,
            failures => MAX_BACKOFF.min(Nanos::from_millis(1 << (failures - 1).min(20))),
        };
        self.failures = if self.is_proven { 0 } else { self.failures.saturating_add(1) };
        self.phase = Phase::Down;
        self.under_way = 0;
        self.deadline = Nanos::MAX;
        now + backoff
    }

    /// Whether the opening has exceeded its deadline.
    pub(crate) fn is_expired(&self, now: Nanos) -> bool {
        now >= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Pace;
    use super::*;

    const fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// A request every 10 ms on one connection.
    const SCHEDULE: Schedule =
        Schedule { connections: 1, first: at(0), end: at(1000), pace: Pace::Rate(100.0) };

    fn idle() -> Connection {
        let mut connection = Connection::new(0);
        connection.open(at(0), at(2000));
        connection.ready(1);
        connection
    }

    /// Sends a request if one is due, and returns its due time.
    fn send(connection: &mut Connection, now: Nanos) -> Option<Nanos> {
        connection.take_due(now, &SCHEDULE)
    }

    #[test]
    fn late_connection_sends_overdue_requests_and_counts_latency_from_their_due_times() {
        let mut connection = idle();
        assert_eq!(send(&mut connection, at(0)), Some(at(0)));
        assert_eq!(send(&mut connection, at(10)), None, "one at a time");
        // The response arrives at 35 ms. Meanwhile three more requests became due, which are sent one after another.
        for (now, due) in [(35, 10), (36, 20), (37, 30)] {
            connection.answered();
            assert_eq!(send(&mut connection, at(now)), Some(at(due)));
        }
        connection.answered();
        assert_eq!(send(&mut connection, at(38)), None);
        assert_eq!(send(&mut connection, at(40)), Some(at(40)));
    }

    #[test]
    fn latency_of_requests_due_during_an_outage_starts_at_the_due_time() {
        let mut connection = idle();
        assert_eq!(send(&mut connection, at(0)), Some(at(0)));
        assert_eq!(connection.close(at(5)), at(5), "opened again at once");
        assert!(!connection.has_due(at(9), &SCHEDULE) && connection.has_due(at(10), &SCHEDULE));
        assert_eq!(send(&mut connection, at(10)), None);
        connection.open(at(10), at(2010));
        assert_eq!(connection.opened(), at(10));
        assert_eq!(send(&mut connection, at(20)), None);
        connection.begin_handshake();
        assert_eq!(send(&mut connection, at(30)), None);
        connection.ready(1);
        // The load does not retry the failed request.
        assert_eq!(send(&mut connection, at(42)), Some(at(10)));
        assert_eq!(connection.next, 2);
    }

    #[test]
    fn reconnect_delay_grows_while_the_server_is_unreachable() {
        let mut connection = Connection::new(0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            connection.open(at(0), at(2000));
            waits.push((connection.close(at(1000)) - at(1000)).0 / 1_000_000);
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100]);
        connection.open(at(0), at(2000));
        connection.ready(1);
        assert_eq!(connection.close(at(1000)), at(1100), "accepting is not enough");
        connection.open(at(0), at(2000));
        connection.ready(1);
        assert!(send(&mut connection, at(0)).is_some());
        connection.answered();
        assert_eq!(connection.close(at(1000)), at(1000));
    }

    #[test]
    fn http2_connection_respects_the_limit_of_requests_in_flight() {
        let mut connection = idle();
        connection.limit(3);
        let dues: Vec<Nanos> = std::iter::from_fn(|| send(&mut connection, at(500))).collect();
        assert_eq!(dues, [at(0), at(10), at(20)]);
        connection.answered();
        connection.give_up();
        assert_eq!(connection.under_way(), 1);
        let dues: Vec<Nanos> = std::iter::from_fn(|| send(&mut connection, at(500))).collect();
        assert_eq!(dues, [at(30), at(40)]);
        connection.limit(0);
        connection.answered();
        assert_eq!(send(&mut connection, at(500)), None, "the server takes no more");
        connection.close(at(500));
        assert_eq!(connection.under_way(), 0);
    }

    #[test]
    fn timeout_applies_to_connection_attempts_but_not_to_idle_connections() {
        let mut connection = Connection::new(0);
        assert!(!connection.is_expired(at(999_999)));
        connection.open(at(0), at(100));
        assert!(!connection.is_expired(at(99)) && connection.is_expired(at(100)));
        connection.begin_handshake();
        assert!(connection.is_expired(at(100)), "connecting and the handshake share a limit");
        connection.ready(1);
        assert!(!connection.is_expired(at(999_999)));
    }

    /// A server responds in 1 ms, but pauses from 0.5 s to 0.6 s of each second. One connection sends a request every
    /// 10 ms. The request at the beginning of a pause waits for the whole pause, and nine more requests wait for a
    /// part.
    #[test]
    fn stall_delays_every_request_that_is_due_during_the_stall() {
        let mut connection = idle();
        let mut corrected = Vec::new();
        let mut uncorrected = Vec::new();
        let mut now = at(0);
        while now < at(1000) {
            let Some(due) = send(&mut connection, now) else {
                now = now + at(1);
                continue;
            };
            let sent = now;
            let is_stalled = (at(500)..at(600)).contains(&now);
            now = if is_stalled { at(600) } else { now + at(1) };
            connection.answered();
            corrected.push((now - due).0 / 1_000_000);
            uncorrected.push((now - sent).0 / 1_000_000);
        }
        assert_eq!(corrected.len(), 100);
        let slow =
            |latencies: &[u64]| -> Vec<u64> { latencies.iter().copied().filter(|ms| *ms > 1).collect() };
        // The request due at 500 has its response at 600, the request due at 510 at 601, and so on until the connection
        // has caught up: due at 600, response at 610.
        assert_eq!(slow(&corrected), [100, 91, 82, 73, 64, 55, 46, 37, 28, 19, 10]);
        assert_eq!(slow(&uncorrected), [100], "what a closed loop would see");
    }
}
