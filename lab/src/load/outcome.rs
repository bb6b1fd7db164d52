//! The counts of all threads of a load, and values derived from them.

use std::time::{Duration, SystemTime};

use super::counts::{Class, Counts};
use super::nanos::Nanos;
use super::plan::Plan;
use super::schedule::Pace;
use super::stop::Signal;

/// The lateness of this program at which its latencies are no longer the server's.
const LATE: u64 = 1000;

/// The results of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    /// The counts of all threads.
    pub(crate) counts: Counts,
    /// The time at which the first request was due.
    pub(crate) started: SystemTime,
    /// The time in which requests were due; until the last response in a closed loop, and if some were never sent.
    pub(crate) elapsed: Nanos,
    /// Requests that were due before the end and never sent; unknown in a closed loop.
    pub(crate) unsent: Option<u64>,
    /// The CPU time of this program.
    pub(crate) cpu: Nanos,
    /// The signal that ended it early.
    pub(crate) ended_by: Option<Signal>,
}

impl Outcome {
    /// `began`: the start of the clock, on which everything ended at `ended`. `stopped`: the time after which no more
    /// requests were due, and the signal, if the load ended before the plan's time was over.
    pub(super) fn new(
        plan: Plan,
        threads: &[Counts],
        began: SystemTime,
        ended: Nanos,
        cpu: Nanos,
        stopped: Option<(Nanos, Signal)>,
    ) -> Self {
        let mut counts = Counts::new(plan.schedule.first, plan.interval);
        for thread in threads {
            counts.add(thread);
        }
        let schedule = match stopped {
            Some((at, _)) => plan.schedule.until(at),
            None => plan.schedule,
        };
        let ended_by = stopped.map(|(_, signal)| signal);
        let unsent = schedule.requests().map(|due| due - counts.sent.min(due));
        let elapsed = match unsent {
            Some(0) => schedule.end - schedule.first,
            Some(_) | None => ended - schedule.first,
        };
        let started = began + Duration::from_nanos(schedule.first.0);
        Self { plan, counts, started, elapsed, unsent, cpu, ended_by }
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.counts.answered as f64 / self.elapsed.seconds().max(1e-9)
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.counts.bytes as f64 / self.elapsed.seconds().max(1e-9)
    }

    /// The CPU time of this program for each response, in microseconds.
    pub(crate) fn cpu_per_request(&self) -> Option<f64> {
        let answered = self.counts.answered;
        (answered > 0).then(|| self.cpu.0 as f64 / 1e3 / answered as f64)
    }

    /// Whether the load sent all requests, without an error.
    pub(crate) fn is_clean(&self) -> bool {
        self.counts.errors() == 0 && self.unsent.unwrap_or(0) == 0
    }

    /// The reasons why the figures may be this program's rather than the server's.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(signal) = self.ended_by {
            let planned = (self.plan.schedule.end - self.plan.schedule.first).seconds();
            let elapsed = self.elapsed.seconds();
            warnings.push(format!("{signal} ended the load after {elapsed:.1} s of {planned:.1} s."));
        }
        if let Some(unsent @ 1..) = self.unsent {
            let (connections, due) = (self.plan.schedule.connections, unsent + self.counts.sent);
            warnings.push(format!(
                "{unsent} of {due} requests were due and never sent: {connections} connections could not keep the rate. \
                 Their latency would have been worse than any that is shown."
            ));
        }
        let late = self.counts.lateness.value_at_quantile(0.99);
        if late > LATE {
            warnings.push(format!(
                "one request in a hundred was sent {:.1} ms late or more although its connection was free: this machine is \
                 too busy for the rate.",
                late as f64 / 1e3
            ));
        }
        let exhausted = self.counts.failures(super::counts::Failure::Exhausted);
        if exhausted > 0 {
            warnings.push(format!(
                "{exhausted} connects failed because this machine has no port or file descriptor left."
            ));
        }
        if self.plan.schedule.pace != Pace::Closed && self.counts.class(Class::Timeout) > 0 {
            warnings.push(
                "requests that ran into the timeout have no latency, so they are in no percentile."
                    .to_owned(),
            );
        }
        warnings
    }
}
