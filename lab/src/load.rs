//! `sluicegate-lab load`: a constant-rate, open-loop load over HTTP/1.1 and HTTP/2, with and without TLS.
//!
//! The load knows the due time of each request before it sends the first request, and latency starts at the due time.
//! So a stalled server cannot make the load wait, and cannot hide its delay (coordinated omission). The input is
//! options; the output is text, JSON and a histogram.
//!
//! | module | content |
//! |---|---|
//! | [`args`], [`target`] | the options and the URL |
//! | [`plan`] | the combined options |
//! | [`schedule`] | the time at which each request is due; no I/O |
//! | [`connection`] | the state of a connection; no I/O |
//! | [`request`], [`answer`] | the messages; no I/O |
//! | [`http2`] | the messages of HTTP/2; no I/O |
//! | [`stream`], [`tls`] | nonblocking sockets, and TLS over them |
//! | [`worker`] | a thread with its event loop |
//! | [`counts`] | the counts of a thread |
//! | [`outcome`] | the counts of all threads |
//! | [`stop`] | signals, which end a load early |
//! | [`text`], [`json`], [`spectrum`] | the output of the results |
//! | [`progress`] | one line while it runs |
//! | [`nanos`] | time as numbers |

mod answer;
mod args;
mod connection;
mod counts;
mod http2;
mod json;
mod nanos;
mod outcome;
mod plan;
mod progress;
mod request;
mod schedule;
mod spectrum;
mod stop;
mod stream;
mod target;
mod text;
mod tls;
mod worker;

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::args::LoadArgs;
use self::nanos::{Clock, Nanos};
use self::outcome::Outcome;
use self::plan::Plan;
use self::progress::Progress;
pub(crate) use self::request::{ID_HEADER, LENGTH_HEADER};
use self::stop::Stop;
use self::worker::Worker;

/// Runs the load, and prints the results.
pub(crate) fn run(args: LoadArgs) -> anyhow::Result<ExitCode> {
    let plan = args.plan()?;
    allow_files(plan.schedule.connections)?;
    // Opens the files before the load, so that a file error ends the program before the load.
    let hgrm = args.hgrm.as_deref().map(create).transpose()?;
    let json = args.json.as_deref().filter(|path| *path != Path::new("-")).map(create).transpose()?;
    let json_only = args.json.as_deref() == Some(Path::new("-"));
    if !json_only {
        print(&text::heading(&plan))?;
    }
    let stop = Stop::on_signals().context("handlers of signals")?;
    let outcome = load(&plan, &stop)?;
    if !json_only {
        print(&text::of(&outcome, args.parts()))?;
    }
    if let Some(mut file) = hgrm {
        file.write_all(spectrum::hgrm(&outcome.counts.latency).as_bytes()).context("--hgrm")?;
    }
    if json_only {
        print(&(json::of(&outcome)? + "\n"))?;
    } else if let Some(mut file) = json {
        file.write_all(json::of(&outcome)?.as_bytes()).context("--json")?;
    }
    if let Some(signal) = outcome.ended_by {
        // The exit status that shells use for a process that a signal has ended.
        return Ok(ExitCode::from(128 + signal.number()));
    }
    let failed = args.fail_on_errors && !outcome.is_clean();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("{} cannot be written", path.display()))
}

/// A closed reader is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Each connection is a file, and a shell usually allows 1024.
pub(crate) fn allow_files(connections: u64) -> anyhow::Result<()> {
    let needed = connections + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let most = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    ensure!(
        most >= needed && setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).is_ok(),
        "-c {connections}: this process may open {most} files only; raise the limit (ulimit -Hn)"
    );
    Ok(())
}

fn load(plan: &Plan, stop: &Stop) -> anyhow::Result<Outcome> {
    let clock = Clock::start();
    let started = SystemTime::now();
    let cpu = cpu_time();
    let (progress, watch) = if std::io::stderr().is_terminal() {
        let (progress, watch) = Progress::of(plan);
        (Some(progress), Some(watch))
    } else {
        (None, None)
    };
    let workers: Vec<Worker<'_>> = (0..plan.threads)
        .map(|index| Worker::new(plan, clock, stop, index, watch.clone()))
        .collect::<Result<_, _>>()
        .context("an epoll set for each thread")?;
    drop(watch);
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(index, worker)| {
                let named = std::thread::Builder::new().name(format!("load {index}"));
                named.spawn_scoped(scope, move || worker.run())
            })
            .collect::<Result<_, _>>()
            .context("a thread")?;
        if let Some(progress) = progress {
            progress.show();
        }
        let mut all = Vec::new();
        for thread in threads {
            // A panic of a thread is a panic of the program.
            let counts = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.push(counts.context("waiting for events")?);
        }
        anyhow::Ok(all)
    })?;
    Ok(Outcome::new(plan.clone(), &counts, started, clock.now(), cpu_time() - cpu, stop.ended()))
}

/// The CPU time of this process.
fn cpu_time() -> Nanos {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
