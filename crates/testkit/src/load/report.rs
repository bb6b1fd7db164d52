//! What a load counted.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// How many examples of failures are kept in words.
const EXAMPLES: usize = 20;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Idempotent: a gateway may repeat it.
    Get,
    /// Not idempotent: sent at most once if it may have been processed.
    Post,
}

/// Why a request counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// No connection.
    Connect,
    /// No complete answer in time.
    Timeout,
    /// The connection closed or broke after the request was begun and before its answer was complete.
    Read,
    /// The answer is not HTTP.
    Malformed,
    /// A complete answer with another status than 200.
    Status(u16),
    /// A complete answer with the wrong body.
    Body,
}

/// The counts and latencies of a load, so far or in all.
#[derive(Clone)]
pub struct Report {
    /// Requests answered well.
    pub ok: u64,
    /// Failed requests by kind and reason.
    pub failed: BTreeMap<(Kind, Failure), u64>,
    /// Connections made after the first of each, because the server closed politely.
    pub reconnects: u64,
    /// Some failures in words.
    pub examples: Vec<String>,
    /// Latencies of the good answers, in microseconds.
    pub latency: Histogram<u64>,
    /// How long the load has run.
    pub elapsed: Duration,
}

impl Report {
    /// How many requests failed.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    /// How many requests of this kind failed.
    pub fn failures_of(&self, kind: Kind) -> u64 {
        self.failed.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| count).sum()
    }

    /// How many requests failed for this reason.
    pub fn failures_by(&self, failure: Failure) -> u64 {
        self.failed.iter().filter(|((_, by), _)| *by == failure).map(|(_, count)| count).sum()
    }

    /// How many requests have an outcome.
    pub fn requests(&self) -> u64 {
        self.ok + self.failures()
    }

    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The latency below which this share (0.0 to 1.0) of the good answers lies.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(quantile))
    }

    /// The greatest latency of a good answer.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.latency.max())
    }

    /// Takes in what another load counted at the same time.
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
