//! Metrics of the process from the kernel, with the names of Prometheus' own libraries.

use std::fmt;
use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::families::Families;

/// Values that do not change while the process lives.
pub(super) struct Process {
    /// The start of the process in seconds since 1970, if known.
    start: Option<f64>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self { start: start() }
    }

    pub(super) fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families.counter(
            "process_cpu_seconds",
            "CPU time of the process in user mode and in the kernel, in seconds",
            cpu_seconds(),
        )?;
        if let Some(start) = self.start {
            families.gauge(
                "process_start_time_seconds",
                "Start time of the process, in seconds since 1970",
                start,
            )?;
        }
        if let Some(memory) = Memory::read() {
            families.gauge(
                "process_resident_memory_bytes",
                "Resident memory of the process, in bytes",
                memory.resident,
            )?;
        }
        if let Some(open) = open_fds() {
            families.gauge("process_open_fds", "Open file descriptors of the process", open)?;
        }
        // Without a limit, there is no metric.
        match getrlimit(Resource::Nofile).current {
            Some(limit) => {
                families.gauge("process_max_fds", "Limit of open file descriptors of the process", limit)
            }
            None => Ok(()),
        }
    }

    /// The start of the process in seconds since 1970, if known.
    pub(super) fn start_seconds(&self) -> Option<f64> {
        self.start
    }
}

/// The CPU time of the process in user mode and in the kernel.
pub(super) fn cpu_seconds() -> f64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "exact to the microsecond for 285 years")]
    let seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    seconds
}

/// The memory of the process in bytes.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) of_addresses: u64,
    pub(super) resident: u64,
}

impl Memory {
    /// `size` and `resident` of proc_pid_statm(5).
    pub(super) fn read() -> Option<Self> {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = statm.split_ascii_whitespace().map_while(|pages| pages.parse::<u64>().ok());
        let mut bytes = || Some(pages.next()? * page_size() as u64);
        Some(Self { of_addresses: bytes()?, resident: bytes()? })
    }
}

/// The transfer of the process from and to storage, in bytes.
pub(super) struct Storage {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Storage {
    /// proc_pid_io(5).
    pub(super) fn read() -> Option<Self> {
        let io = fs::read_to_string("/proc/self/io").ok()?;
        let value = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some(Self { read: value("read_bytes:")?, written: value("write_bytes:")? })
    }
}

/// `starttime` of proc_pid_stat(5), in ticks since the system booted, and `btime` of proc_stat(5).
fn start() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses, which may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "exact to the tick")]
    let start = boot as f64 + ticks as f64 / clock_ticks_per_second() as f64;
    Some(start)
}

/// The number of open files, without the directory that lists the files.
fn open_fds() -> Option<u64> {
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}
