//! The counts of a thread.

use hdrhistogram::Histogram;

use super::nanos::Nanos;

/// The reason why a request, or an attempt to open a connection, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server refused the connection: no process listens.
    Refused,
    /// Another error of connecting: no route, reset.
    Unreachable,
    /// This machine has no free port or no free file descriptor: the server is not at fault.
    Exhausted,
    /// The handshake failed: an alert, an invalid certificate, no common algorithm, not TLS at all.
    Handshake,
    /// The connection was closed or reset during the handshake.
    HandshakeClosed,
    ConnectTimeout,
    HandshakeTimeout,
    /// The response was not complete in time.
    AnswerTimeout,
    /// The connection was closed before the first byte of the response.
    Closed,
    /// The connection was reset before the first byte of the response.
    Reset,
    /// A TLS alert came instead of a response, such as when the server requires a client certificate.
    Alert,
    /// The connection was closed or reset within a response.
    Truncated,
    /// The server refused an HTTP/2 stream that it had not processed: REFUSED_STREAM.
    StreamRefused,
    /// The server reset an HTTP/2 stream, for another reason, before the first byte of the response.
    StreamReset,
    /// The server announced by GOAWAY that it will not process the request's stream.
    GoneAway,
    /// The input is not HTTP, or its TLS records are invalid.
    Malformed,
    Write,
}

/// The four classes of the study, and of wrk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Connect,
    Read,
    Write,
    Timeout,
}

impl Failure {
    pub(crate) const ALL: [Self; 17] = [
        Self::Refused,
        Self::Unreachable,
        Self::Exhausted,
        Self::Handshake,
        Self::HandshakeClosed,
        Self::ConnectTimeout,
        Self::HandshakeTimeout,
        Self::AnswerTimeout,
        Self::Closed,
        Self::Reset,
        Self::Alert,
        Self::Truncated,
        Self::StreamRefused,
        Self::StreamReset,
        Self::GoneAway,
        Self::Malformed,
        Self::Write,
    ];

    pub(crate) fn class(self) -> Class {
        match self {
            Self::Refused | Self::Unreachable | Self::Exhausted | Self::Handshake | Self::HandshakeClosed => {
                Class::Connect
            }
            Self::ConnectTimeout | Self::HandshakeTimeout | Self::AnswerTimeout => Class::Timeout,
            Self::Closed
            | Self::Reset
            | Self::Alert
            | Self::Truncated
            | Self::StreamRefused
            | Self::StreamReset
            | Self::GoneAway
            | Self::Malformed => Class::Read,
            Self::Write => Class::Write,
        }
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "connect_refused",
            Self::Unreachable => "connect_other",
            Self::Exhausted => "connect_no_port",
            Self::Handshake => "tls_handshake",
            Self::HandshakeClosed => "tls_closed",
            Self::ConnectTimeout => "connect_timeout",
            Self::HandshakeTimeout => "tls_timeout",
            Self::AnswerTimeout => "answer_timeout",
            Self::Closed => "read_closed",
            Self::Reset => "read_reset",
            Self::Alert => "read_tls_alert",
            Self::Truncated => "read_truncated",
            Self::StreamRefused => "h2_refused",
            Self::StreamReset => "h2_reset",
            Self::GoneAway => "h2_goaway",
            Self::Malformed => "read_malformed",
            Self::Write => "write",
        }
    }
}

/// The fault of a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The response does not repeat the id of the request.
    MissingId,
    /// The response repeats another id.
    OtherId,
    /// The body has another length than the backend declares.
    Length,
    /// Bytes arrived that belong to no response.
    Surplus,
    /// The trailers do not report the success of the call: no grpc-status, or another value than 0.
    Call,
}

impl Wrong {
    pub(crate) const ALL: [Self; 5] =
        [Self::MissingId, Self::OtherId, Self::Length, Self::Surplus, Self::Call];

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MissingId => "missing_id",
            Self::OtherId => "other_id",
            Self::Length => "wrong_length",
            Self::Surplus => "surplus_bytes",
            Self::Call => "grpc_status",
        }
    }
}

/// The counts of a thread; after [`add`](Self::add), of all threads.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Requests that were sent. Each has a response, or failed by another failure than a failed connect.
    pub(crate) sent: u64,
    /// The number of POSTs among them.
    pub(crate) posts: u64,
    /// Complete responses of any status.
    pub(crate) answered: u64,
    /// Opened connections, with the handshake.
    pub(crate) connected: u64,
    /// Connections that the server closed between two requests, or after a response that announced the close.
    pub(crate) closed_idle: u64,
    /// Bytes of responses, without TLS.
    pub(crate) bytes: u64,
    failures: [u64; Failure::ALL.len()],
    wrong: [u64; Wrong::ALL.len()],
    statuses: Vec<u64>,
    /// In microseconds, from the time at which a request was due to the end of its response.
    pub(crate) latency: Histogram<u64>,
    /// In microseconds, from the time at which a request was sent.
    pub(crate) uncorrected: Histogram<u64>,
    /// In microseconds, the lateness of requests whose connection was idle. This program causes the lateness.
    pub(crate) lateness: Histogram<u64>,
    /// Responses per second, in intervals of a tenth of a second.
    pub(crate) rates: Vec<f64>,
    /// The run in intervals, from the time at which the first request was due.
    pub(crate) intervals: Vec<Interval>,
    first: Nanos,
    interval: Nanos,
}

/// The results of the requests that were due in an interval of a run.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) answered: u64,
    /// Errors of all kinds; errors of connects count at their own time.
    pub(crate) errors: u64,
    /// In microseconds, corrected, to two significant digits: 13 KiB.
    pub(crate) latency: Histogram<u32>,
}

impl Interval {
    fn new() -> Self {
        // The bounds are valid, as below.
        let latency = Histogram::new_with_bounds(1, MAX_MICROS, 2).expect("valid bounds");
        Self { answered: 0, errors: 0, latency }
    }
}

/// Latencies are recorded up to 1 h.
const MAX_MICROS: u64 = 3_600_000_000;

impl Counts {
    pub(crate) fn new(first: Nanos, interval: Nanos) -> Self {
        // At three significant digits, as in wrk2; these bounds are valid.
        let histogram = Histogram::new_with_bounds(1, MAX_MICROS, 3).expect("valid bounds");
        Self {
            sent: 0,
            posts: 0,
            answered: 0,
            connected: 0,
            closed_idle: 0,
            bytes: 0,
            failures: [0; Failure::ALL.len()],
            wrong: [0; Wrong::ALL.len()],
            statuses: vec![0; 1000],
            latency: histogram.clone(),
            uncorrected: histogram.clone(),
            lateness: histogram,
            rates: Vec::new(),
            intervals: Vec::new(),
            first,
            interval,
        }
    }

    /// Counts the response to a request that was due and sent at these times.
    pub(crate) fn answer(&mut self, status: u16, due: Nanos, sent: Nanos, now: Nanos) {
        self.answered += 1;
        // A status has three digits and always fits.
        self.statuses[usize::from(status)] += 1;
        let latency = (now - due).micros();
        self.latency.saturating_record(latency);
        let is_error = !(200..300).contains(&status);
        let interval = self.interval_of(due);
        interval.answered += 1;
        interval.errors += u64::from(is_error);
        interval.latency.saturating_record(latency);
        self.uncorrected.saturating_record((now - sent).micros());
    }

    /// Counts a failure at this time.
    pub(crate) fn fail(&mut self, failure: Failure, at: Nanos) {
        self.failures[failure as usize] += 1;
        self.interval_of(at).errors += 1;
    }

    /// Counts a wrong response at this time.
    pub(crate) fn wrong(&mut self, wrong: Wrong, at: Nanos) {
        self.wrong[wrong as usize] += 1;
        self.interval_of(at).errors += 1;
    }

    /// A time before the first request counts in the first interval.
    fn interval_of(&mut self, at: Nanos) -> &mut Interval {
        let index = ((at - self.first).0 / self.interval.0) as usize;
        while self.intervals.len() <= index {
            self.intervals.push(Interval::new());
        }
        &mut self.intervals[index]
    }

    pub(crate) fn failures(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    pub(crate) fn class(&self, class: Class) -> u64 {
        let of_class = |failure: &&Failure| failure.class() == class;
        Failure::ALL.iter().filter(of_class).map(|failure| self.failures(*failure)).sum()
    }

    pub(crate) fn wrongs(&self, wrong: Wrong) -> u64 {
        self.wrong[wrong as usize]
    }

    /// The received statuses, with their counts.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..).zip(self.statuses.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// The number of responses with another status than 2xx.
    pub(crate) fn not_2xx(&self) -> u64 {
        self.statuses().filter(|(status, _)| !(200..300).contains(status)).map(|(_, count)| count).sum()
    }

    /// The number of all errors.
    pub(crate) fn errors(&self) -> u64 {
        self.failures.iter().sum::<u64>() + self.wrong.iter().sum::<u64>() + self.not_2xx()
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.posts += other.posts;
        self.answered += other.answered;
        self.connected += other.connected;
        self.closed_idle += other.closed_idle;
        self.bytes += other.bytes;
        for (mine, more) in self.failures.iter_mut().zip(&other.failures) {
            *mine += more;
        }
        for (mine, more) in self.wrong.iter_mut().zip(&other.wrong) {
            *mine += more;
        }
        for (mine, more) in self.statuses.iter_mut().zip(&other.statuses) {
            *mine += more;
        }
        for (mine, more) in [
            (&mut self.latency, &other.latency),
            (&mut self.uncorrected, &other.uncorrected),
            (&mut self.lateness, &other.lateness),
        ] {
            mine.add(more).expect("the same bounds");
        }
        self.rates.extend_from_slice(&other.rates);
        while self.intervals.len() < other.intervals.len() {
            self.intervals.push(Interval::new());
        }
        for (mine, more) in self.intervals.iter_mut().zip(&other.intervals) {
            mine.answered += more.answered;
            mine.errors += more.errors;
            mine.latency.add(&more.latency).expect("the same bounds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_counted_in_the_interval_of_its_due_time() {
        let at = Nanos::from_millis;
        let new = || Counts::new(at(500), at(1000));
        let (mut one, mut other) = (new(), new());
        one.fail(Failure::Refused, at(100));
        one.answer(200, at(1400), at(1450), at(1700));
        other.answer(503, at(1499), at(1499), at(3500));
        other.fail(Failure::Closed, at(2600));
        one.add(&other);
        let intervals: Vec<(u64, u64, u64)> = one
            .intervals
            .iter()
            .map(|interval| (interval.answered, interval.errors, interval.latency.max() / 10_000))
            .collect();
        assert_eq!(intervals, [(2, 2, 200), (0, 0, 0), (0, 1, 0)]);
        assert_eq!((one.answered, one.not_2xx(), one.errors()), (2, 1, 3));
        assert_eq!((one.class(Class::Connect), one.class(Class::Read)), (1, 1));
        assert_eq!(one.statuses().collect::<Vec<_>>(), [(200, 1), (503, 1)]);
        assert_eq!((one.uncorrected.min(), one.latency.min()), (249_984, 299_776));
    }

    #[test]
    fn error_kinds_have_unique_names_and_indices() {
        let mut names: Vec<&str> = Failure::ALL.iter().map(|failure| failure.name()).collect();
        names.extend(Wrong::ALL.iter().map(|wrong| wrong.name()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Failure::ALL.len() + Wrong::ALL.len());
        assert!(Failure::ALL.iter().enumerate().all(|(place, failure)| *failure as usize == place));
        assert!(Wrong::ALL.iter().enumerate().all(|(place, wrong)| *wrong as usize == place));
    }
}
