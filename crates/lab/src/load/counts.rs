//! What a thread counts.

use hdrhistogram::Histogram;

use super::nanos::Nanos;

/// Why a request, or an attempt to open a connection, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody listens.
    Refused,
    /// Another error of connecting: no route, reset.
    Unreachable,
    /// This machine has no port or no file descriptor left: it is not the server's fault.
    Exhausted,
    /// The handshake failed: an alert, a certificate that is not good, no common algorithm, not TLS at all.
    Handshake,
    /// The connection was closed or reset during the handshake.
    HandshakeClosed,
    ConnectTimeout,
    HandshakeTimeout,
    /// The answer was not complete in time.
    AnswerTimeout,
    /// Closed before the first byte of the answer.
    Closed,
    /// Reset before the first byte of the answer.
    Reset,
    /// Ended by a TLS alert instead of an answer, as when a certificate of the client's is asked for in vain.
    Alert,
    /// Closed or reset within an answer.
    Truncated,
    /// The server took back a stream of HTTP/2 that it had not looked at: REFUSED_STREAM.
    StreamRefused,
    /// The server reset a stream of HTTP/2, for another reason, before the first byte of the answer.
    StreamReset,
    /// The server said by GOAWAY that it will not look at the request's stream.
    GoneAway,
    /// What came is not HTTP, or its TLS records are broken.
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

/// What is wrong with a complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It does not repeat the id of the request.
    MissingId,
    /// It repeats another id.
    OtherId,
    /// Its body is not as long as the back end says.
    Length,
    /// Bytes came that belong to no answer.
    Surplus,
    /// Its trailers do not say that the call went well: no grpc-status, or one that is not 0.
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

/// What a thread counts; and all threads together, once it is added up.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Requests that were sent. Each is answered, or failed by another failure than one of connecting.
    pub(crate) sent: u64,
    /// How many of them were POSTs.
    pub(crate) posts: u64,
    /// Complete answers of any status.
    pub(crate) answered: u64,
    /// Connections that were made, with the handshake.
    pub(crate) connected: u64,
    /// Connections that the server closed between two requests, or after an answer that said so.
    pub(crate) closed_idle: u64,
    /// Bytes of answers, without TLS.
    pub(crate) bytes: u64,
    failures: [u64; Failure::ALL.len()],
    wrong: [u64; Wrong::ALL.len()],
    statuses: Vec<u64>,
    /// In microseconds, from when a request was due to the end of its answer.
    pub(crate) latency: Histogram<u64>,
    /// In microseconds, from when it was sent.
    pub(crate) uncorrected: Histogram<u64>,
    /// In microseconds, how late a request was sent although its connection was idle: this program's own delay.
    pub(crate) lateness: Histogram<u64>,
    /// Answers a second, in intervals of a tenth of one.
    pub(crate) rates: Vec<f64>,
    /// The run in intervals, from when the first request was due.
    pub(crate) intervals: Vec<Interval>,
    first: Nanos,
    interval: Nanos,
}

/// What became of the requests that were due in an interval of a run.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) answered: u64,
    /// Errors of all kinds; those of connecting by when they happened.
    pub(crate) errors: u64,
    /// In microseconds, corrected, to two significant digits: 13 KiB.
    pub(crate) latency: Histogram<u32>,
}

impl Interval {
    fn new() -> Self {
        // As below.
        let latency = Histogram::new_with_bounds(1, MAX_MICROS, 2).expect("valid bounds");
        Self { answered: 0, errors: 0, latency }
    }
}

/// Latencies are recorded up to 1 h.
const MAX_MICROS: u64 = 3_600_000_000;

impl Counts {
    pub(crate) fn new(first: Nanos, interval: Nanos) -> Self {
        // At three significant digits, as wrk2 has it; these bounds are valid.
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

    /// An answer to a request that was due and sent at these times.
    pub(crate) fn answer(&mut self, status: u16, due: Nanos, sent: Nanos, now: Nanos) {
        self.answered += 1;
        // Three digits always fit.
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

    /// A failure that belongs to this moment.
    pub(crate) fn fail(&mut self, failure: Failure, at: Nanos) {
        self.failures[failure as usize] += 1;
        self.interval_of(at).errors += 1;
    }

    /// Something wrong that belongs to this moment.
    pub(crate) fn wrong(&mut self, wrong: Wrong, at: Nanos) {
        self.wrong[wrong as usize] += 1;
        self.interval_of(at).errors += 1;
    }

    /// What is before the first request belongs to its interval.
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

    /// The statuses that came, with how often.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        (0..).zip(self.statuses.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// How many answers had a status that is not 2xx.
    pub(crate) fn not_2xx(&self) -> u64 {
        self.statuses().filter(|(status, _)| !(200..300).contains(status)).map(|(_, count)| count).sum()
    }

    /// Everything that went wrong, whatever it was.
    pub(crate) fn errors(&self) -> u64 {
        self.failures.iter().sum::<u64>() + self.wrong.iter().sum::<u64>() + self.not_2xx()
    }

    /// Takes in what another thread counted.
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
    fn what_happens_belongs_to_the_interval_in_which_it_was_due() {
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
    fn each_kind_has_a_name_of_its_own_and_its_place() {
        let mut names: Vec<&str> = Failure::ALL.iter().map(|failure| failure.name()).collect();
        names.extend(Wrong::ALL.iter().map(|wrong| wrong.name()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Failure::ALL.len() + Wrong::ALL.len());
        assert!(Failure::ALL.iter().enumerate().all(|(place, failure)| *failure as usize == place));
        assert!(Wrong::ALL.iter().enumerate().all(|(place, wrong)| *wrong as usize == place));
    }
}
