//! The gateway's CPU time and memory during the load.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use sluicegate_netns::process::{cpu_time_of_tree, tree};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two samples.
const EVERY: Duration = Duration::from_millis(500);

/// The samples of a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The time of the sample, and the CPU time until then.
    pub(crate) cpu: Vec<(SystemTime, Duration)>,
    /// The greatest memory of all its processes, with shared memory counted once.
    pub(crate) peak_bytes: u64,
}

/// Samples a process and its descendants for as long as it is polled. A caller that stops polling has the results in
/// `seen`.
pub(crate) async fn watch(pid: u32, seen: &mut Seen) -> anyhow::Result<()> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        seen.look(pid)?;
    }
}

impl Seen {
    /// Adds a sample.
    pub(crate) fn look(&mut self, pid: u32) -> anyhow::Result<()> {
        self.cpu.push((SystemTime::now(), cpu_time_of_tree(pid)?));
        self.peak_bytes = self.peak_bytes.max(memory_of_tree(pid)?);
        Ok(())
    }
}

/// The memory of a process and its descendants, in bytes, with shared memory counted once.
pub(crate) fn memory_of_tree(pid: u32) -> io::Result<u64> {
    Ok(tree(pid)?.into_iter().map(memory).sum())
}

/// The memory of a process in bytes, with its part of memory that several processes share (`proc(5)`, Pss). 0 after the
/// process has ended.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
