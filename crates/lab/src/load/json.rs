//! What came of a load, for programs.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::counts::{Class, Failure, Interval, Wrong};
use super::nanos::Nanos;
use super::outcome::Outcome;
use super::schedule::Pace;
use super::spectrum::{self, PERCENTILES, Point};

/// Everything. Times are in the unit that a name ends in; the names stay, more may come.
#[derive(Debug, Serialize)]
struct Document<'o> {
    program: &'static str,
    version: &'static str,
    url: &'o str,
    address: String,
    threads: usize,
    connections: u64,
    /// Requests a second that were wanted; null in a closed loop.
    rate: Option<f64>,
    duration_s: f64,
    timeout_s: f64,
    ramp_s: f64,
    /// When the first request was due, since 1970.
    started_unix_ms: u128,
    /// How long requests were due; until the last answer in a closed loop, and if some were never sent.
    elapsed_s: f64,
    requests: Requests,
    requests_per_s: f64,
    bytes_read: u64,
    bytes_per_s: f64,
    connected: u64,
    closed_between_requests: u64,
    statuses: BTreeMap<u16, u64>,
    errors: Errors,
    /// From when each request was due.
    latency: Latency,
    /// From when each request was sent.
    uncorrected_latency: Latency,
    /// How late requests were sent although their connection was free: this program's own delay.
    lateness: Latency,
    interval_s: f64,
    /// The run over time, by when requests were due.
    intervals: Vec<OverTime>,
    cpu_s: f64,
    cpu_us_per_request: Option<f64>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Requests {
    /// null in a closed loop.
    due: Option<u64>,
    sent: u64,
    answered: u64,
    /// Due and never sent; null in a closed loop.
    unsent: Option<u64>,
}

#[derive(Debug, Serialize)]
struct OverTime {
    /// Since the first request was due.
    at_s: f64,
    answered: u64,
    errors: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

impl OverTime {
    fn of((index, interval): (usize, &Interval), length: Nanos) -> Self {
        let latency = &interval.latency;
        let at = |quantile| latency.value_at_quantile(quantile).min(latency.max());
        Self {
            at_s: index as f64 * length.seconds(),
            answered: interval.answered,
            errors: interval.errors,
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: latency.max(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Errors {
    /// All of them.
    total: u64,
    connect: u64,
    read: u64,
    write: u64,
    timeout: u64,
    not_2xx: u64,
    /// The first four once more, by what happened.
    kinds: BTreeMap<&'static str, u64>,
    /// Complete answers that are wrong.
    wrong: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Latency {
    count: u64,
    min_us: u64,
    mean_us: f64,
    stdev_us: f64,
    max_us: u64,
    percentiles_us: BTreeMap<&'static str, u64>,
    /// Value in microseconds, quantile, how many lie at it or below.
    spectrum: Vec<(u64, f64, u64)>,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let percentiles =
            PERCENTILES.iter().map(|(name, quantile)| (*name, spectrum::percentile(histogram, *quantile)));
        let point = |Point { value, quantile, count }| (value, quantile, count);
        Self {
            count: histogram.len(),
            min_us: histogram.min(),
            mean_us: histogram.mean(),
            stdev_us: histogram.stdev(),
            max_us: histogram.max(),
            percentiles_us: percentiles.collect(),
            spectrum: spectrum::points(histogram).map(point).collect(),
        }
    }
}

pub(crate) fn of(outcome: &Outcome) -> serde_json::Result<String> {
    let Outcome { plan, counts, .. } = outcome;
    let schedule = &plan.schedule;
    let kinds = Failure::ALL.iter().map(|failure| (failure.name(), counts.failures(*failure)));
    let wrong = Wrong::ALL.iter().map(|wrong| (wrong.name(), counts.wrongs(*wrong)));
    serde_json::to_string_pretty(&Document {
        program: "sluicegate-lab load",
        version: env!("CARGO_PKG_VERSION"),
        url: &plan.target.url,
        address: plan.address.to_string(),
        threads: plan.threads,
        connections: schedule.connections,
        rate: match schedule.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::Closed => None,
        },
        duration_s: (schedule.end - schedule.first).seconds(),
        timeout_s: plan.timeout.seconds(),
        ramp_s: schedule.first.seconds(),
        started_unix_ms: outcome.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
        elapsed_s: outcome.elapsed.seconds(),
        requests: Requests {
            due: outcome.unsent.map(|unsent| unsent + counts.sent),
            sent: counts.sent,
            answered: counts.answered,
            unsent: outcome.unsent,
        },
        requests_per_s: outcome.requests_per_second(),
        bytes_read: counts.bytes,
        bytes_per_s: outcome.bytes_per_second(),
        connected: counts.connected,
        closed_between_requests: counts.closed_idle,
        statuses: counts.statuses().collect(),
        errors: Errors {
            total: counts.errors(),
            connect: counts.class(Class::Connect),
            read: counts.class(Class::Read),
            write: counts.class(Class::Write),
            timeout: counts.class(Class::Timeout),
            not_2xx: counts.not_2xx(),
            kinds: kinds.collect(),
            wrong: wrong.collect(),
        },
        latency: Latency::of(&counts.latency),
        uncorrected_latency: Latency::of(&counts.uncorrected),
        lateness: Latency::of(&counts.lateness),
        interval_s: plan.interval.seconds(),
        intervals: counts
            .intervals
            .iter()
            .enumerate()
            .map(|each| OverTime::of(each, plan.interval))
            .collect(),
        cpu_s: outcome.cpu.seconds(),
        cpu_us_per_request: outcome.cpu_per_request(),
        warnings: outcome.warnings(),
    })
}
