//! `make bench`: what a request costs, gateway beside gateway, in one run.
//!
//! One worker each, five back ends, 1 KB answers, the same forwarding headers; over HTTP and HTTPS with 100 kept-alive
//! connections, over HTTP/2 with 20 connections of 10 requests at a time, the same with unary calls of gRPC, and with a new
//! TLS connection for each request (RSA 2048 and ECDSA P-256, TLS 1.3, X25519, nothing resumed).
//! The gateways take turns (A B C A B C ...), so that what the machine does meanwhile falls on all of them.
//! The figure is CPU time per request from the kernel's accounting; its ratio to Sluicegate's is what can be
//! compared between machines.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the result of this program is what it prints")]

mod calls;
mod configure;
mod gateway;
mod handshakes;
mod idle;
mod measure;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;

use self::gateway::{Backends, Certificates, Gateway, Kind};
use self::handshakes::signature_micros;
use self::idle::Idle;
use self::measure::Work;
use self::report::{Report, Signature};

/// Measures the CPU time per request of gateways, side by side.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// How long each gateway is loaded at a time.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many times each gateway takes its turn.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Measure these gateways only.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Measure this work only.
    #[arg(long, value_enum, value_delimiter = ',')]
    work: Vec<Work>,
    /// How many kept-alive connections load a gateway.
    #[arg(long, default_value_t = 100)]
    connections: usize,
    /// The sluicegate binary [default: beside this one]
    #[arg(long)]
    sluicegate: Option<PathBuf>,
    /// The envoy binary
    #[arg(long, default_value = "envoy")]
    envoy: PathBuf,
    /// Write the result here too, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run(&Arguments::parse()).await else { return ExitCode::SUCCESS };
    eprintln!("bench: {error:#}");
    ExitCode::FAILURE
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    measure::load_generator_version().context("wrk loads the gateways: install the package wrk")?;
    let beside = std::env::current_exe()?;
    let sluicegate = arguments.sluicegate.clone().unwrap_or_else(|| beside.with_file_name("sluicegate"));
    let floor = beside.with_file_name("floor");
    let directory = tempfile::tempdir()?;
    let unary = beside.with_file_name("unary");
    let mut backends = Backends::start(&unary, directory.path()).await.context("the back ends")?;

    let certificates = Certificates::new();
    let mut gateways = Vec::new();
    for kind in Kind::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&kind) {
            continue;
        }
        let program = match kind {
            Kind::Sluicegate => sluicegate.clone(),
            Kind::Envoy => arguments.envoy.clone(),
            Kind::Floor => floor.clone(),
            Kind::Nginx | Kind::Haproxy => kind.name().into(),
        };
        let Some(version) = kind.version(&program) else {
            eprintln!("{}: skipped, {} cannot be run", kind.name(), program.display());
            continue;
        };
        let started = Gateway::start(kind, &program, version, &backends, &certificates, directory.path());
        gateways.push(started.await?);
    }
    ensure!(!gateways.is_empty(), "there is no gateway to measure");

    let duration = Duration::from_secs(arguments.seconds);
    let signature = Signature {
        rsa_2048_micros: signature_micros(&certificates.rsa)?,
        ecdsa_p256_micros: signature_micros(&certificates.ecdsa)?,
    };
    let mut report = Report::new(arguments.seconds, arguments.connections, signature);
    // First, before the works leave memory behind that is free and still there.
    if arguments.work.is_empty() {
        for gateway in gateways.iter().filter(|gateway| gateway.tls.is_some()) {
            let idle = Idle::of(gateway).await?;
            eprintln!("idle {idle} KiB");
            report.idle.push(idle);
        }
    }
    for work in Work::ALL {
        if !arguments.work.is_empty() && !arguments.work.contains(&work) {
            continue;
        }
        let able: Vec<&Gateway> = gateways.iter().filter(|gateway| work.target(gateway).is_some()).collect();
        for gateway in &able {
            measure::run(gateway, work, Duration::from_secs(1), arguments.connections).await?;
        }
        report.begin(work, &able);
        for repeat in 1..=arguments.repeats {
            for (index, gateway) in able.iter().enumerate() {
                let run = measure::run(gateway, work, duration, arguments.connections).await?;
                let (repeats, name) = (arguments.repeats, gateway.kind.name());
                eprintln!("{} {repeat}/{repeats} {name:<10} {run}", work.name());
                report.add(index, run);
            }
        }
    }
    for process in gateways.iter_mut().map(|gateway| &mut gateway.process).chain(backends.processes()) {
        process.stop(Duration::from_secs(2)).await?;
    }
    println!("\n{report}");
    if let Some(path) = &arguments.json {
        std::fs::write(path, report.to_json()?).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
