//! The table: a line for each flood, printed at its end.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::flooder::Counts;
use crate::load::Behaved;

const MIB: f64 = 1024.0 * 1024.0;

/// The results of one phase: the load beside one flood, or alone.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) sent: Option<Sent>,
    /// The gateway's counters.
    pub(crate) counted: BTreeMap<String, u64>,
    /// The gateway's peak memory, in bytes.
    pub(crate) peak: u64,
    /// The gateway's CPU time.
    pub(crate) cpu: Duration,
    pub(crate) load: Behaved,
}

/// The flooder's counts.
pub(crate) struct Sent {
    connections: u64,
    cut_off: u64,
    bytes: u64,
    frames: u64,
}

impl Sent {
    pub(crate) fn of(counts: &Counts) -> Self {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            connections: read(&counts.connections),
            cut_off: read(&counts.cut_off),
            bytes: read(&counts.bytes),
            frames: read(&counts.frames),
        }
    }
}

/// Prints the title and the columns of the table.
pub(crate) fn print_start(seconds: u64, rate: f64, memory: u64) {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "Each flood for {seconds} s, by one thread at the lowest priority, beside {rate} requests/s over HTTPS: 45 % HTTP/1.1\n\
         and 45 % HTTP/2 on persistent connections, 10 % on new connections. {cpus} CPUs for the gateway, its backend, the load and the \
         flooder.\n\
         The gateway had {:.1} MiB at the start.\n",
        memory as f64 / MIB
    );
    println!(
        "{:<15}{:>12}{:>9}{:>9}{:>9}{:>10}{:>7}{:>10}{:>8}{:>9}{:>9}{:>12}  counted by the gateway",
        "flood",
        "connections",
        "cut off",
        "MiB sent",
        "frames k",
        "peak MiB",
        "CPU s",
        "requests",
        "failed",
        "p50 ms",
        "p99 ms",
        "new p99 ms"
    );
}

/// Prints the memory after all floods.
pub(crate) fn print_end(memory: u64) {
    println!("\nThe gateway has {:.1} MiB now.", memory as f64 / MIB);
}

impl Phase {
    pub(crate) fn print(&self) {
        let Self { name, sent, counted, peak, cpu, load } = self;
        let [connections, cut_off, bytes, frames] = match sent {
            None => ["-", "-", "-", "-"].map(str::to_owned),
            Some(sent) => [
                sent.connections.to_string(),
                sent.cut_off.to_string(),
                format!("{:.0}", sent.bytes as f64 / MIB),
                if sent.frames == 0 { "-".to_owned() } else { (sent.frames / 1000).to_string() },
            ],
        };
        let counted: Vec<String> = counted.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let millis = |time: Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
        println!(
            "{name:<15}{connections:>12}{cut_off:>9}{bytes:>9}{frames:>9}{:>10.1}{:>7.1}{:>10}{:>8}{:>9}{:>9}{:>12}  {}",
            *peak as f64 / MIB,
            cpu.as_secs_f64(),
            load.requests(),
            load.failures(),
            millis(load.kept.quantile(0.5)),
            millis(load.kept.quantile(0.99)),
            millis(load.new.quantile(0.99)),
            counted.join(", ")
        );
        for example in load.kept.examples.iter().chain(&load.new.examples).take(5) {
            println!("  e.g. {example}");
        }
    }
}
