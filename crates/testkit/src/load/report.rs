//! The counts of a load.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The maximum number of examples of failures.
const EXAMPLES: usize = 20;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Idempotent: a gateway may retry the request.
    Get,
    /// Not idempotent: a gateway sends the request at most once if an endpoint may have processed it.
    Post,
}

/// The reason of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// No connection.
    Connect,
    /// No complete response in time.
    Timeout,
    /// The connection closed or broke between the start of the request and the end of its response.
    Read,
    /// The response is not HTTP.
    Malformed,
    /// A complete response with a status other than 200.
    Status(u16),
    /// A complete response with the wrong body.
    Body,
}

/// The counts and latencies of a load, at a moment or at its end.
#[derive(Clone)]
pub struct Report {
    /// Successful requests.
    pub ok: u64,
    /// Failed requests by kind and reason.
    pub failed: BTreeMap<(Kind, Failure), u64>,
    /// Further connections after the first, because the server closed gracefully.
    pub reconnects: u64,
    /// Some failures as text.
    pub examples: Vec<String>,
    /// Latencies of successful requests, in microseconds.
    pub latency: Histogram<u64>,
    /// The duration of the load.
    pub elapsed: Duration,
}

impl Report {
    /// The number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// The number of failed requests of this kind.
    pub fn failures_of(&self, kind: Kind) -> u64 {
        self.failed.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| count).sum()
    }

    /// The number of requests that failed for this reason.
    pub fn failures_by(&self, failure: Failure) -> u64 {
        self.failed.iter().filter(|((_, by), _)| *by == failure).map(|(_, count)| count).sum()
    }

    /// The number of finished requests.
    pub fn requests(&self) -> u64 {
        self.ok + self.failures()
    }

    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency quantile (0.0 to 1.0) of successful requests.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(quantile))
    }

    /// The greatest latency of a successful request.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.latency.max())
    }

    /// Adds the counts of another load at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.ok += other.ok;
        for (failed, count) in &other.failed {
            *self.failed.entry(*failed).or_default() += count;
        }
        self.reconnects += other.reconnects;
        self.examples.extend(other.examples.iter().take(EXAMPLES - self.examples.len()).cloned());
        self.latency.add(&other.latency).expect("the same bounds");
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub(super) fn succeed(&mut self, latency: Duration) {
        self.ok += 1;
        self.latency.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn fail(&mut self, kind: Kind, failure: Failure, what: impl FnOnce() -> String) {
        *self.failed.entry((kind, failure)).or_default() += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(what());
        }
    }
}

impl Default for Report {
    fn default() -> Self {
        // 1 us to 10 min at three significant digits; these bounds are valid.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("valid histogram bounds");
        Self {
            ok: 0,
            failed: BTreeMap::new(),
            reconnects: 0,
            examples: Vec::new(),
            latency,
            elapsed: Duration::ZERO,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests in {:.1?} ({:.0}/s), {} failed, {} reconnects, p50 {:?}, p99 {:?}, p99.9 {:?}, p99.99 {:?}, \
             max {:?}",
            self.requests(),
            self.elapsed,
            self.per_second(),
            self.failures(),
            self.reconnects,
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(0.999),
            self.quantile(0.9999),
            self.max(),
        )?;
        for ((kind, failure), count) in &self.failed {
            write!(f, "\n  {count} x {kind:?}: {failure}")?;
        }
        for example in &self.examples {
            write!(f, "\n  e.g. {example}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Timeout => f.write_str("timeout"),
            Self::Read => f.write_str("read"),
            Self::Malformed => f.write_str("malformed"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Body => f.write_str("wrong body"),
        }
    }
}
