//! The machine of an experiment, and the division of its CPUs.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::Context as _;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use sluicegate_netns::Process;

use crate::results::Machine;

/// The least load per CPU at which a machine is too busy for a measurement.
const BUSY: f64 = 0.4;

/// The nice value of the load: the kernel gives it some thirty times the weight of a pod.
pub(crate) const PRIORITY: i32 = -15;

/// The division of the CPUs: the gateway has separate CPUs, so that its figures are comparable. The load and the pods
/// share the others. On a machine with one CPU all processes share that CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    pub(crate) gateway: Vec<usize>,
    pub(crate) others: Vec<usize>,
}

impl Cpus {
    /// The CPUs that this process may use, before the division.
    pub(crate) fn all() -> anyhow::Result<Vec<usize>> {
        let all = sched_getaffinity(None).context("asking for this process' CPUs")?;
        Ok((0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect())
    }

    /// The division with this many CPUs for the gateway, if a CPU remains for the others. Otherwise all processes share
    /// all CPUs.
    pub(crate) fn divide(all: &[usize], workers: usize) -> Self {
        if workers >= all.len() {
            return Self { gateway: all.to_vec(), others: all.to_vec() };
        }
        let (gateway, others) = all.split_at(workers);
        Self { gateway: gateway.to_vec(), others: others.to_vec() }
    }

    /// Moves this thread, and the processes that it starts, to the CPUs of the load and the pods.
    pub(crate) fn take_others(&self) -> anyhow::Result<()> {
        take(&self.others)
    }

    /// Moves this thread, and the processes that it starts, to the CPUs of the gateway.
    pub(crate) fn take_gateway(&self) -> anyhow::Result<()> {
        take(&self.gateway)
    }

    /// The machine before the first run.
    pub(crate) fn machine(&self) -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let load = read("/proc/loadavg");
        Machine {
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cpus: self.gateway.iter().chain(&self.others).collect::<BTreeSet<_>>().len(),
            memory_mib: kib / 1024,
            load_before: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0),
            gateway_cpus: self.gateway.clone(),
            other_cpus: self.others.clone(),
        }
    }
}

/// Starts the load from a separate thread. The load has a higher priority than the pods, because a late load would add
/// to the measured latencies.
pub(crate) fn start_load(command: Command) -> anyhow::Result<Process> {
    // Without root the load keeps its priority.
    let _ = setpriority_process(None, PRIORITY);
    Process::start(command)
}

fn take(cpus: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).context("choosing CPUs")
}

/// The reasons why the figures may show the machine rather than the gateways.
pub(crate) fn warnings(machine: &Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    let Machine { load_before, cpus, .. } = machine;
    if *load_before > BUSY * *cpus as f64 {
        warnings.push(format!(
            "This was not a quiet machine: its load was {load_before} on {cpus} CPUs before the first run. Latencies and CPU times are \
             inflated."
        ));
    }
    if machine.gateway_cpus.iter().any(|cpu| machine.other_cpus.contains(cpu)) {
        warnings.push(
            "The gateway shared its CPUs with the load and the pods. The figures understate its \
             capacity."
                .to_owned(),
        );
    }
    warnings
}
