//! One line on the terminal while a load runs.

use std::io::Write as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hdrhistogram::Histogram;

use super::nanos::Nanos;
use super::plan::Plan;
use super::spectrum::percentile;
use super::text::micros;

/// The line on the terminal, rewritten each second.
pub(crate) struct Progress {
    heard: Receiver<Sample>,
    /// The last sample of each thread.
    threads: Vec<Option<Sample>>,
    duration: Nanos,
}

/// The counts of a thread so far.
pub(crate) struct Sample {
    pub(crate) thread: usize,
    /// The time since the first request was due.
    pub(crate) at: Nanos,
    pub(crate) answered: u64,
    pub(crate) errors: u64,
    pub(crate) latency: Histogram<u64>,
}

impl Progress {
    /// The progress of a load, and the channel for the samples that its threads send once a second.
    pub(crate) fn of(plan: &Plan) -> (Self, SyncSender<Sample>) {
        let (watch, heard) = sync_channel(plan.threads);
        let threads = (0..plan.threads).map(|_| None).collect();
        (Self { heard, threads, duration: plan.schedule.end - plan.schedule.first }, watch)
    }

    /// Shows the line until the last thread has ended.
    pub(crate) fn show(mut self) {
        let mut before = (0, Nanos::ZERO);
        let mut samples = 0;
        while let Ok(sample) = self.heard.recv() {
            let (thread, at) = (sample.thread, sample.at);
            self.threads[thread] = Some(sample);
            samples += 1;
            if samples < self.threads.len() {
                continue;
            }
            samples = 0;
            let heard: Vec<&Sample> = self.threads.iter().flatten().collect();
            let mut latency: Option<Histogram<u64>> = None;
            for sample in &heard {
                match &mut latency {
                    None => latency = Some(sample.latency.clone()),
                    Some(all) => all.add(&sample.latency).expect("the same bounds"),
                }
            }
            let Some(latency) = latency else { continue };
            let answered: u64 = heard.iter().map(|sample| sample.answered).sum();
            let rate = answered.saturating_sub(before.0) as f64 / (at - before.1).seconds().max(1e-3);
            let errors: u64 = heard.iter().map(|sample| sample.errors).sum();
            let mut terminal = std::io::stderr().lock();
            // The load continues if the terminal is closed.
            let _ = write!(
                terminal,
                "\r\x1b[K  {:.0}s of {:.0}s: {rate:.0} requests/s, {errors} errors, p50 {}, p99 {}",
                at.seconds(),
                self.duration.seconds(),
                micros(percentile(&latency, 0.5) as f64),
                micros(percentile(&latency, 0.99) as f64),
            );
            let _ = terminal.flush();
            before = (answered, at);
        }
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
}
