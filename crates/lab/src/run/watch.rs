//! The gateway's CPU time and memory while it is loaded.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use sluicegate_netns::process::{cpu_time_of_tree, tree};
use tokio::time::{MissedTickBehavior, interval};

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// What was seen of a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// When, and how much CPU time it had used by then.
    pub(crate) cpu: Vec<(SystemTime, Duration)>,
    /// The most memory of all its processes, with what they share counted once.
    pub(crate) peak_bytes: u64,
}

/// Looks at a process and its descendants for as long as it is polled. `seen` is what a caller that stops polling has.
pub(crate) async fn watch(pid: u32, seen: &mut Seen) -> anyhow::Result<()> {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        seen.look(pid)?;
    }
}

impl Seen {
    /// Adds how it is now.
    pub(crate) fn look(&mut self, pid: u32) -> anyhow::Result<()> {
        self.cpu.push((SystemTime::now(), cpu_time_of_tree(pid)?));
        self.peak_bytes = self.peak_bytes.max(memory_of_tree(pid)?);
        Ok(())
    }
}

/// The memory of a process and its descendants, in bytes, with what they share counted once.
pub(crate) fn memory_of_tree(pid: u32) -> io::Result<u64> {
    Ok(tree(pid)?.into_iter().map(memory).sum())
}

/// The memory of a process in bytes; what several share is divided among them (`proc(5)`, Pss). 0 once it has ended.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
