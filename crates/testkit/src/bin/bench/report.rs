//! The table, and the same as JSON.

use std::fmt;

use serde::Serialize;

use crate::gateway::{Gateway, Kind};
use crate::idle::{self, Idle};
use crate::measure::{Run, Work};

/// The load per CPU from which on a machine is too busy to measure on.
const BUSY: f64 = 0.4;

/// All turns of all gateways.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    kernel: String,
    cpus: usize,
    /// The load average of the last minute before the first turn: what else the machine was doing.
    load_before: f64,
    seconds: u64,
    connections: usize,
    /// What the private key's part of a handshake takes by itself, in Sluicegate's library.
    signature: Signature,
    works: Vec<OfWork>,
    /// What waiting connections take.
    pub(crate) idle: Vec<Idle>,
}

/// What one signature takes in CPU time, in microseconds, by the kind of key.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Signature {
    pub(crate) rsa_2048_micros: f64,
    pub(crate) ecdsa_p256_micros: f64,
}

impl Signature {
    /// What a handshake of this work cannot do without.
    fn of(self, work: &str) -> Option<f64> {
        let micros =
            [(Work::HandshakesRsa, self.rsa_2048_micros), (Work::HandshakesEcdsa, self.ecdsa_p256_micros)];
        micros.into_iter().find(|(of, _)| of.name() == work).map(|(_, micros)| micros)
    }
}

/// All turns of one kind of work.
#[derive(Debug, Serialize)]
struct OfWork {
    work: &'static str,
    gateways: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    version: String,
    runs: Vec<Run>,
}

/// The middle and the ends of one figure over all turns.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Report {
    pub(crate) fn new(seconds: u64, connections: usize, signature: Signature) -> Self {
        Self {
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load_average(),
            seconds,
            connections,
            signature,
            works: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// What is added from now on is of this work.
    pub(crate) fn begin(&mut self, work: Work, gateways: &[&Gateway]) {
        let entry = |gateway: &&Gateway| Entry {
            name: gateway.kind.name(),
            version: gateway.version.clone(),
            runs: Vec::new(),
        };
        self.works.push(OfWork { work: work.name(), gateways: gateways.iter().map(entry).collect() });
    }

    pub(crate) fn add(&mut self, gateway: usize, run: Run) {
        if let Some(work) = self.works.last_mut() {
            work.gateways[gateway].runs.push(run);
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

impl Entry {
    fn p99_in_words(&self) -> String {
        let p99 = self.spread(|run| run.p99_millis).median;
        if p99.is_nan() { "-".to_owned() } else { format!("{p99:.2}") }
    }

    fn spread(&self, of: impl Fn(&Run) -> f64) -> Spread {
        let mut values: Vec<f64> = self.runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (values.first(), values.last()) else {
            return Spread { median: f64::NAN, least: f64::NAN, most: f64::NAN };
        };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Spread { median, least, most }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpus, load_before, seconds, connections, signature, works, idle: waiting } = self;
        let turns = works.first().and_then(|work| work.gateways.first()).map_or(0, |entry| entry.runs.len());
        writeln!(
            f,
            "1 KB answers, 5 back ends, 1 worker; {connections} connections kept alive, of HTTP/2 and gRPC 20 with"
        )?;
        writeln!(f, "10 requests each, or a new one for each request (TLS 1.3, X25519, nothing resumed);")?;
        writeln!(f, "{turns} turns of {seconds} s each, medians; {cpus} CPUs, Linux {kernel}")?;
        if *load_before > BUSY * *cpus as f64 {
            writeln!(
                f,
                "NOT A QUIET MACHINE: load {load_before} on {cpus} CPUs before the first turn. Preempted work runs"
            )?;
            writeln!(f, "from cold caches: the times are inflated, and the ratios are provisional.")?;
        }
        for work in works {
            writeln!(f)?;
            work.fmt(f)?;
            if let Some(micros) = signature.of(work.work) {
                let rate = 1e6 / micros;
                writeln!(
                    f,
                    "{:<15}{micros:>14.2}{:>20}{rate:>13.0}{:>45}",
                    "signature", "", "aws-lc, by itself"
                )?;
            }
        }
        if !waiting.is_empty() {
            writeln!(f, "\n{}", idle::HEADING)?;
        }
        for entry in waiting {
            writeln!(f, "{entry}")?;
        }
        Ok(())
    }
}

impl fmt::Display for OfWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, gateways } = self;
        let own = gateways.iter().find(|entry| entry.name == Kind::Sluicegate.name());
        let own = own.map(|entry| entry.spread(|run| run.cpu_micros_per_request).median);
        writeln!(
            f,
            "{:<15}{:>14}{:>20}{:>13}{:>11}{:>17}  version",
            work, "us CPU/req", "least - most", "requests/s", "p99 ms", "cost/sluicegate"
        )?;
        for entry in gateways {
            let cpu = entry.spread(|run| run.cpu_micros_per_request);
            let spread = format!("{:.2} - {:.2}", cpu.least, cpu.most);
            let ratio = own.map_or("-".to_owned(), |own| format!("{:.2}", cpu.median / own));
            writeln!(
                f,
                "{:<15}{:>14.2}{spread:>20}{:>13.0}{:>11}{ratio:>17}  {}",
                entry.name,
                cpu.median,
                entry.spread(|run| run.requests_per_second).median,
                entry.p99_in_words(),
                entry.version
            )?;
        }
        Ok(())
    }
}
