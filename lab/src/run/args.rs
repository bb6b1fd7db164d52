//! The options of `sluicegate-lab run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::experiment::{Declared, Step};
use crate::gateway::{self, Kind};

#[derive(Clone, Debug, Args)]
#[command(
    disable_version_flag = true,
    after_help = "The command needs root, for network namespaces, and iproute2. `make peers` installs the other gateways; the command \
                  reports and skips a missing gateway.\n\
                  Example: sluicegate-lab run dynamic --gateways sluicegate,nginx --rate 2000 --duration 30s"
)]
pub(crate) struct RunArgs {
    /// The name of a built-in experiment (`sluicegate-lab experiments` lists them), or the path of a .yaml file.
    pub(super) experiment: String,
    /// The gateways that take part: names, comma separated, or all. [default: the gateways of the experiment, else all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    gateways: Vec<String>,
    /// The requests per second, instead of the experiment's rate. More than 0, at most 100000000. [default: the
    /// experiment's rate, else 80 % of the rate of the slowest gateway in a closed loop]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// The duration of each load, instead of the experiment's, such as 30s or 3m. 1s to 24h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// The number of connections of the load, instead of the experiment's. 1 to 30000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=30_000))]
    connections: Option<u64>,
    /// The timeout of a connect or a request, instead of the experiment's, such as 500ms or 2s. 1ms to 1h.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Exit with 1 after any error of one of these gateways, comma separated. [default: none]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) fail_on_errors: Vec<String>,
    /// The speed of the timeline: its pauses are divided by this factor. 0.001 to 1000.
    #[arg(long, value_name = "FACTOR", value_parser = factor, default_value = "1")]
    speed: f64,
    /// The number of turns of each gateway in a comparison, instead of the experiment's. 1 to 1000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    turns: Option<u64>,
    /// Skip the run without changes that precedes each run with changes.
    #[arg(long)]
    no_baseline: bool,
    /// The number of worker threads or processes of each gateway. A gateway gets as many CPUs for itself, if the
    /// machine has more. 1 to 1024.
    #[arg(long, value_name = "N", value_parser = workers, default_value = "1")]
    pub(super) workers: usize,
    /// A further option for the command line of a gateway; may be given several times: --option
    /// sluicegate=--attempts=1. [default: none]
    #[arg(long = "option", value_name = "GATEWAY=OPTION")]
    options: Vec<String>,
    /// The folder in which the folder of the results is created.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The folder with programs that are not in PATH, as `make peers` installs them.
    #[arg(long, value_name = "DIR", default_value = "target/tools")]
    tools: PathBuf,
}

impl RunArgs {
    /// Replaces settings of the file with options of the command line.
    pub(super) fn change(&self, declared: &mut Declared) {
        let load = &mut declared.load;
        load.rate = self.rate.or(load.rate);
        load.duration = self.duration.unwrap_or(load.duration);
        load.timeout = self.timeout.unwrap_or(load.timeout);
        load.connections = self.connections.unwrap_or(load.connections);
        declared.baseline &= !self.no_baseline;
        hasten(&mut declared.timeline, self.speed);
        let are_several = declared.compare.len() > 1;
        for compare in &mut declared.compare {
            compare.duration = self.duration.unwrap_or(compare.duration);
            compare.connections = self.connections.unwrap_or(compare.connections);
            compare.turns = self.turns.map_or(compare.turns, |turns| turns as usize);
            // Of several comparisons, closed loops without a rate remain closed loops.
            if let Some(rate) = self.rate.filter(|_| !are_several || !compare.rates.is_empty()) {
                compare.rates = vec![rate];
            }
        }
    }

    pub(super) fn gateways(&self, declared: &Declared) -> anyhow::Result<Vec<&'static Kind>> {
        let names = if self.gateways.is_empty() { &declared.gateways } else { &self.gateways };
        let kinds = if names.is_empty() || names.iter().any(|name| name == "all") {
            gateway::ALL.to_vec()
        } else {
            names.iter().map(|name| gateway::named(name)).collect::<Result<_, _>>()?
        };
        for option in &self.options {
            let Some((name, _)) = option.split_once('=') else {
                bail!("--option {option}: write GATEWAY=OPTION")
            };
            let takes_part = kinds.iter().any(|kind| kind.name == name);
            ensure!(takes_part, "--option {option}: {name} takes no part");
        }
        Ok(kinds)
    }

    /// The additional options of this gateway.
    pub(super) fn options_of(&self, name: &str) -> Vec<String> {
        let of = |option: &String| option.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        self.options.iter().filter_map(of).collect()
    }

    pub(super) fn tools(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.tools).context("--tools")
    }

    /// Creates a new folder: `results/2026-11-21-193000-dynamic`.
    pub(super) fn directory(&self, experiment: &str) -> anyhow::Result<PathBuf> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let stamp = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        let stamp = stamp.trim_end_matches('Z').replace('T', "-").replace(':', "");
        let path = self.results.join(format!("{stamp}-{experiment}"));
        fs::create_dir_all(&path).with_context(|| format!("--results: making {}", path.display()))?;
        std::path::absolute(Path::new(&path)).context("--results")
    }
}

/// Divides the pauses by `speed`.
fn hasten(steps: &mut [Step], speed: f64) {
    for step in steps {
        match step {
            Step::Sleep(time) => *time = time.div_f64(speed),
            Step::Repeat(steps) => hasten(steps, speed),
            _ => {}
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s or 3m"))?;
    let is_good = (Duration::from_secs(1)..=Duration::from_secs(24 * 3600)).contains(&time);
    if is_good { Ok(time) } else { Err("it has to be from 1s to 24h".to_owned()) }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write 500ms or 2s"))?;
    let is_good = (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&time);
    if is_good { Ok(time) } else { Err("it has to be from 1ms to 1h".to_owned()) }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| (0.001..=1000.0).contains(factor));
    factor.ok_or_else(|| "write a number from 0.001 to 1000".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e8);
    rate.ok_or_else(|| "write requests a second: over 0, at most 100000000".to_owned())
}

fn workers(text: &str) -> Result<usize, String> {
    let workers = text.parse().ok().filter(|workers| (1..=1024).contains(workers));
    workers.ok_or_else(|| "write a number from 1 to 1024".to_owned())
}
