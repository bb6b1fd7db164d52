//! One line on the terminal while a load runs.

use std::io::Write as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::counts::Counts;
use super::nanos::Nanos;
use super::plan::Plan;
use super::spectrum::percentile;
use super::text::micros;

/// One line on the terminal, written anew each second.
pub(crate) struct Progress {
    heard: Receiver<(usize, Counts)>,
    /// What each thread said last.
    threads: Vec<Option<Counts>>,
    duration: Nanos,
}

impl Progress {
    /// For a load, and where its threads say once a second what they counted.
    pub(crate) fn of(plan: &Plan) -> (Self, SyncSender<(usize, Counts)>) {
        let (watch, heard) = sync_channel(plan.threads);
        let duration = plan.schedule.end - plan.schedule.first;
        (Self { heard, threads: vec![None; plan.threads], duration }, watch)
    }

    /// Shows it until the last thread has ended.
    pub(crate) fn show(mut self) {
        let mut second: u64 = 0;
        while let Ok((index, counts)) = self.heard.recv() {
            self.threads[index] = Some(counts);
            // The first one speaks for the second.
            if index > 0 {
                continue;
            }
            second += 1;
            let mut all = Counts::new();
            for counts in self.threads.iter().flatten() {
                all.add(counts);
            }
            let total = self.duration.seconds();
            let mut terminal = std::io::stderr().lock();
            // A terminal that went away needs no progress.
            let _ = write!(
                terminal,
                "\r\x1b[K  {second}s of {total:.0}s: {:.0} requests/s, {} errors, p50 {}, p99 {}",
                all.answered as f64 / second as f64,
                all.errors(),
                micros(percentile(&all.latency, 0.5) as f64),
                micros(percentile(&all.latency, 0.99) as f64),
            );
            let _ = terminal.flush();
        }
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
}
