//! `sluicegate-lab run`: an experiment, with each gateway in turn.
//!
//! The input is an experiment's file and the gateways' names. The output is a folder with `results.json` and its
//! reports. Each run has its own network namespace that resembles a node. The gateway has separate CPUs, and the load
//! and the pods share the others.
//!
//! | module | content |
//! |---|---|
//! | [`args`] | the options |
//! | [`compare`] | the cost of kinds of work, instead of a timeline |
//! | [`machine`] | the machine, and the division of its CPUs |
//! | [`stage`], [`running`] | the node with its pods, and the gateway |
//! | [`timeline`] | the changes, with their times |
//! | [`probe`] | whether a change has taken effect |
//! | [`watch`] | the gateway's CPU time and memory over time |
//! | [`turn`] | one gateway under the load |

mod args;
mod compare;
mod machine;
mod probe;
mod running;
mod stage;
mod timeline;
mod turn;
mod watch;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use sluicegate_netns::Namespace;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::args::RunArgs;
use self::compare::Bench;
use self::machine::Cpus;
use self::turn::Turn;
use crate::experiment::Experiment;
use crate::gateway::{self, Kind};
use crate::report;
use crate::results::{Machine, OfGateway, Results, Saturation, Skipped};

/// The rate of the load, as a share of the highest rate of the slowest gateway.
const SHARE_OF_SATURATION: f64 = 0.8;

/// Carries out an experiment, and writes its results.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let mut experiment = Experiment::find(&args.experiment)?;
    args.change(&mut experiment.declared);
    // The gateways may open as many files as this process: each client may need two files of a gateway.
    crate::load::allow_files(experiment.declared.load.connections * 3 + 1024)?;
    let tools = args.tools()?;
    let (kinds, skipped) = select(args, &experiment, &tools)?;
    if experiment.declared.compare.is_empty() {
        Namespace::available().map_err(|why| anyhow::anyhow!("{}: {why}", experiment.name))?;
    }
    let all = Cpus::all()?;
    let cpus = Cpus::divide(&all, args.workers);
    cpus.take_others()?;
    let directory = args.directory(&experiment.name)?;
    let lab =
        Lab { args, experiment: &experiment, all: &all, cpus: &cpus, tools: &tools, directory: &directory };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let results = runtime.block_on(async {
        tokio::select! {
            results = lab.run(&kinds, skipped) => results,
            // Started processes end when their values are dropped.
            interrupted = interrupted() => interrupted.and_then(|()| bail!("interrupted")),
        }
    })?;
    store(&results, &directory)?;
    let failed = args.fail_on_errors.iter().any(|name| !is_clean(&results, name));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Waits for Ctrl-C or SIGTERM.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// The gateways that take part, with their versions, and the gateways that cannot take part.
fn select(
    args: &RunArgs,
    experiment: &Experiment,
    tools: &Path,
) -> anyhow::Result<(Vec<Entrant>, Vec<Skipped>)> {
    let mut wanted = args.gateways(&experiment.declared)?;
    let has_limits = experiment.declared.compare.iter().any(|compare| compare.limits);
    if has_limits && wanted.iter().all(|kind| kind.name != "floor") {
        wanted.push(gateway::named("floor")?);
    }
    let (mut kinds, mut skipped) = (Vec::new(), Vec::new());
    for kind in wanted {
        match (kind.version)(tools) {
            Ok(version) => kinds.push(Entrant { kind, version }),
            Err(why) => {
                say(&format!("{} is skipped: {why:#}", kind.name));
                skipped.push(Skipped { gateway: kind.name.to_owned(), why: format!("{why:#}") });
            }
        }
    }
    ensure!(!kinds.is_empty(), "none of the gateways can be run; `make peers` installs what is missing");
    Ok((kinds, skipped))
}

/// A gateway that takes part.
struct Entrant {
    kind: &'static Kind,
    version: String,
}

/// The common data of all turns of an experiment.
struct Lab<'l> {
    args: &'l RunArgs,
    experiment: &'l Experiment,
    /// All CPUs, and their division.
    all: &'l [usize],
    cpus: &'l Cpus,
    tools: &'l Path,
    directory: &'l Path,
}

impl Lab<'_> {
    async fn run(&self, kinds: &[Entrant], mut skipped: Vec<Skipped>) -> anyhow::Result<Results> {
        let (started, began) = (SystemTime::now(), Instant::now());
        let machine = self.cpus.machine();
        let declared = &self.experiment.declared;
        if !declared.compare.is_empty() {
            let Lab { all, tools, args, .. } = *self;
            let bench = Bench::new(all, tools, args);
            let compared = compare::run(&declared.compare, &bench, kinds).await?;
            let setting = compared.setting;
            let mut results = self.results(machine, started, began, compared.gateways, skipped);
            results.setting = setting;
            results.warnings.extend(compared.warnings);
            return Ok(results);
        }
        let saturation = match declared.load.rate {
            Some(_) => Vec::new(),
            None => self.saturate(kinds).await?,
        };
        let slowest = saturation.iter().map(|each| each.requests_per_s).fold(f64::INFINITY, f64::min);
        let rate = declared.load.rate.unwrap_or((slowest * SHARE_OF_SATURATION / 10.0).floor() * 10.0);
        let runs = usize::from(declared.baseline) + usize::from(!declared.timeline.is_empty());
        let runs = kinds.len() * runs.max(1);
        let each = declared.load.duration + turn::ramp(&declared.load);
        say(&format!(
            "{runs} runs at {rate} requests/s, about {} min",
            (each * runs as u32).as_secs().div_ceil(60)
        ));
        let mut gateways = Vec::new();
        for Entrant { kind, version } in kinds {
            match self.turns(kind, version, rate).await {
                Ok(gateway) => gateways.push(gateway),
                // The figures of the other gateways remain valid.
                Err(error) => {
                    say(&format!("{}: {error:#}", kind.name));
                    let why = format!("it took part and could not go on: {error:#}");
                    skipped.push(Skipped { gateway: kind.name.to_owned(), why });
                }
            }
        }
        let mut results = self.results(machine, started, began, gateways, skipped);
        results.setting = turn::setting(declared, rate, self.args.workers, &results.machine);
        results.saturation = saturation;
        Ok(results)
    }

    fn results(
        &self,
        machine: Machine,
        started: SystemTime,
        began: Instant,
        gateways: Vec<OfGateway>,
        skipped: Vec<Skipped>,
    ) -> Results {
        let Experiment { name, text, declared } = self.experiment;
        Results {
            schema: 1,
            experiment: name.clone(),
            title: declared.title.clone(),
            about: declared.about.clone(),
            declared: text.clone(),
            published: declared.published.clone(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            started_unix_ms: started.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
            took_s: began.elapsed().as_secs_f64(),
            setting: Vec::new(),
            warnings: machine::warnings(&machine),
            machine,
            prices: declared.compare.iter().flat_map(|compare| compare.prices.clone()).collect(),
            saturation: Vec::new(),
            gateways,
            skipped,
        }
    }

    /// The rate of each gateway in a closed loop of the same kind, in requests per second.
    async fn saturate(&self, kinds: &[Entrant]) -> anyhow::Result<Vec<Saturation>> {
        let mut saturation = Vec::new();
        for Entrant { kind, .. } in kinds {
            // A gateway that fails here fails again in its turn, which reports the error.
            let Ok(requests_per_s) = self.turn(kind, None).saturate().await else { continue };
            say(&format!("{}: {requests_per_s:.0} requests/s in a closed loop", kind.name));
            saturation.push(Saturation { gateway: kind.name.to_owned(), requests_per_s });
        }
        ensure!(!saturation.is_empty(), "no gateway can be run; give a --rate to see why");
        Ok(saturation)
    }

    /// The runs of one gateway.
    async fn turns(&self, kind: &'static Kind, version: &str, rate: f64) -> anyhow::Result<OfGateway> {
        let mut gateway = kind.unmeasured(version);
        let is_changed = !self.experiment.declared.timeline.is_empty();
        let baseline = self.experiment.declared.baseline || !is_changed;
        for is_baseline in [true, false] {
            if if is_baseline { baseline } else { is_changed } {
                let done = self.turn(kind, Some(rate)).run(is_baseline).await?;
                say(&turn::line(kind.name, &done.run));
                gateway.runs.push(done.run);
                (gateway.command, gateway.files) = (done.command, done.files);
            }
        }
        Ok(gateway)
    }

    fn turn(&self, kind: &'static Kind, rate: Option<f64>) -> Turn<'_> {
        Turn {
            kind,
            rate,
            experiment: self.experiment,
            cpus: self.cpus,
            tools: self.tools,
            workers: self.args.workers,
            options: self.args.options_of(kind.name),
            directory: self.directory,
        }
    }
}

/// Whether this gateway took part without any error.
fn is_clean(results: &Results, name: &str) -> bool {
    let gateway = results.gateways.iter().find(|gateway| gateway.name == name);
    gateway.is_some_and(|gateway| {
        let runs = gateway.runs.iter().all(|run| {
            let duplicated = run.deliveries.map_or(0, |deliveries| deliveries.duplicated);
            run.load.errors.total + run.load.requests.unsent.unwrap_or(0) + duplicated == 0
        });
        runs && gateway.points.iter().all(|point| point.errors == 0)
    })
}

/// Writes the results, and the reports for readers.
fn store(results: &Results, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("results.json");
    let json = serde_json::to_string_pretty(results)?;
    fs::write(&path, json).with_context(|| format!("writing {}", path.display()))?;
    report::write(results, &directory.join("report.html"), &directory.join("report.md"))?;
    say(&report::summary(results));
    say(&format!("The report: {}", directory.join("report.html").display()));
    Ok(())
}

/// Reports the progress.
fn say(message: &str) {
    // A closed standard error is no error.
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}
