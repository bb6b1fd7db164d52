//! `make floods`: the effect of hostile clients on a gateway, and on a well-behaved client beside them.
//!
//! The gateway runs in a process of its own. A steady load sends requests over HTTP/1.1 and HTTP/2 with TLS, on
//! persistent and on new connections: first alone, then beside each flood in turn. Latencies start at the scheduled
//! time of a request. The flooder is one thread at the lowest priority, so that it takes no CPU time from others: the
//! load loses only to the gateway's work for the flooder. Exits with 1 if a request of the load failed, never because
//! of a latency.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the result of this program is what it prints")]

mod flooder;
mod frames;
mod gateway;
mod hello;
mod kind;
mod load;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum as _};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::time::sleep;

use self::flooder::Flooder;
use self::gateway::Gateway;
use self::kind::Kind;
use self::load::WellBehaved;
use self::report::{Phase, Sent};

/// File descriptors beside the flooder's connections.
const OTHER_FILES: u64 = 1000;

/// Floods a gateway beside a well-behaved client.
#[derive(Debug, Parser)]
#[command(name = "floods")]
struct Arguments {
    /// The duration of each flood, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The number of connections of a flooder.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// The number of half-open TLS handshakes, if the limit of open files allows this number.
    #[arg(long, default_value_t = 10_000)]
    half_open: usize,
    /// The requests per second of the well-behaved client.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// The floods to run, comma separated. [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
    /// The sluicegate program. [default: beside this program]
    #[arg(long)]
    sluicegate: Option<PathBuf>,
    /// The sluicegate-lab program, for the backend. [default: beside this program]
    #[arg(long)]
    lab: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(&Arguments::parse()).await.unwrap_or_else(|error| {
        eprintln!("floods: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let program = arguments.sluicegate.clone().unwrap_or_else(|| own.with_file_name("sluicegate"));
    let lab = arguments.lab.clone().unwrap_or_else(|| own.with_file_name("sluicegate-lab"));
    let files = raise_limit().context("the limit of open files")?;
    let many = arguments.half_open.min(usize::try_from(files.saturating_sub(OTHER_FILES))?);
    let directory = tempfile::tempdir()?;
    let mut gateway = Gateway::start(&program, &lab, directory.path()).await?;
    report::print_start(arguments.seconds, arguments.rate, gateway.memory()?.0);

    let kinds: Vec<Kind> =
        if arguments.only.is_empty() { Kind::value_variants().to_vec() } else { arguments.only.clone() };
    let mut failures = 0;
    for kind in [None].into_iter().chain(kinds.into_iter().map(Some)) {
        let connections = kind.map_or(0, |kind| kind.connections(arguments.connections, many));
        let phase = phase(&gateway, kind, connections, arguments).await?;
        failures += phase.load.failures();
        phase.print();
        if !gateway.process.is_running() {
            bail!("the gateway has ended; it printed:\n{}", gateway.process.output());
        }
        // The rest of a flood must not count for the next flood.
        sleep(Duration::from_secs(1)).await;
    }
    report::print_end(gateway.memory()?.0);
    gateway.process.stop(Duration::from_secs(2)).await?;
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The load beside one flood, or alone.
async fn phase(
    gateway: &Gateway,
    kind: Option<Kind>,
    connections: usize,
    arguments: &Arguments,
) -> anyhow::Result<Phase> {
    let before = gateway.counts().await?;
    let load = WellBehaved::start(gateway.https, arguments.rate).await?;
    gateway.forget_peak()?;
    let cpu = gateway.process.cpu_time()?;
    let flooder = kind.map(|kind| {
        let addr = if kind.is_of_tls() { gateway.https } else { gateway.http };
        Flooder::start(kind, addr, connections)
    });
    let flooder = flooder.transpose()?;
    sleep(Duration::from_secs(arguments.seconds)).await;
    let (cpu, (_, peak)) = (gateway.process.cpu_time()? - cpu, gateway.memory()?);
    let load = load.stop().await?;
    let sent = flooder.map(Flooder::stop).transpose()?.map(|counts| Sent::of(&counts));
    let mut counted = gateway.counts().await?;
    for (name, count) in &mut counted {
        *count -= before.get(name).copied().unwrap_or_default();
    }
    counted.retain(|_, count| *count > 0);
    Ok(Phase { name: kind.map_or("alone", Kind::name), sent, counted, peak, cpu, load })
}

/// Raises the limit of open files to its maximum, for the gateway too. Returns the limit.
fn raise_limit() -> anyhow::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.current.unwrap_or(u64::MAX))
}
