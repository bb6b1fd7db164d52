//! The cost of kinds of work, gateway beside gateway, on loopback.
//!
//! | module | content |
//! |---|---|
//! | [`mod@bench`] | the gateway and its backends |
//! | [`task`] | the load |
//! | [`checks`] | whether the gateway denies bad calls, before any measurement |
//! | [`single`] | one request at a time, beside the same request without a gateway |
//! | [`idle`] | the memory of idle connections |
//! | [`limits`] | the unavoidable cost of every gateway |

mod bench;
mod checks;
mod idle;
mod limits;
mod single;
mod task;

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use sluicegate_netns::process::cpu_time_of_tree;
use tokio::time::sleep;

use self::bench::{BACKENDS, Backends, Standing};
use self::task::{HANDSHAKES, HTTP2_CONNECTIONS, RAMP, STREAMS, Task};
use super::{Entrant, say};
use crate::experiment::{Compare, Work};
use crate::gateway::Kind;
use crate::gateway::api::Limit;
use crate::results::{ConfigFile, Load, OfGateway, Point};

pub(super) use self::bench::Bench;

/// The longest delay of a load beyond its planned duration.
const GRACE: Duration = Duration::from_secs(30);

/// The results of all comparisons.
pub(super) struct Compared {
    pub(super) gateways: Vec<OfGateway>,
    pub(super) setting: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// The gateways and tasks without figures.
    failed: Vec<(usize, Task)>,
}

/// One turn of all gateways.
#[derive(Clone, Copy, Debug)]
struct Turn {
    task: Task,
    workers: usize,
    rate: Option<f64>,
    number: usize,
}

/// Makes all comparisons, one after the other.
pub(super) async fn run(
    compares: &[Compare],
    bench: &Bench<'_>,
    kinds: &[Entrant],
) -> anyhow::Result<Compared> {
    let mut compared = Compared {
        gateways: kinds.iter().map(|Entrant { kind, version }| kind.unmeasured(version)).collect(),
        setting: Vec::new(),
        warnings: Vec::new(),
        failed: Vec::new(),
    };
    for (gateway, checks) in compared.gateways.iter_mut().zip(checks::check(compares, bench, kinds).await?) {
        gateway.checks = checks;
    }
    for compare in compares {
        Comparison { compare, bench, kinds }.run(&mut compared).await?;
    }
    // The comparisons share most of these lines.
    compared.setting = unique(std::mem::take(&mut compared.setting));
    compared.warnings = unique(std::mem::take(&mut compared.warnings));
    Ok(compared)
}

/// The lines without repeats, in their order.
fn unique(lines: Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    for line in lines {
        if !all.contains(&line) {
            all.push(line);
        }
    }
    all
}

/// The compared tasks, and their setting.
struct Comparison<'c> {
    compare: &'c Compare,
    bench: &'c Bench<'c>,
    kinds: &'c [Entrant],
}

impl Comparison<'_> {
    async fn run(&self, compared: &mut Compared) -> anyhow::Result<()> {
        for (index, Entrant { kind, .. }) in self.kinds.iter().enumerate() {
            if self.compare.idle > 0 && kind.can(Work::Https) {
                match idle::measure(self.bench, kind, self.compare.idle).await {
                    Ok(idle) => compared.gateways[index].idle = Some(idle),
                    // The figures of the other comparisons remain valid.
                    Err(error) => {
                        let warning = format!("{}: no memory of idle connections: {error:#}", kind.title);
                        say(&warning);
                        compared.warnings.push(warning);
                    }
                }
            }
        }
        let cpus = self.bench.all.len();
        let (possible, too_many): (Vec<usize>, Vec<usize>) =
            self.compare.workers.iter().partition(|workers| **workers <= cpus);
        if !too_many.is_empty() {
            compared
                .warnings
                .push(format!("{too_many:?} workers were not tried: this machine has {cpus} CPUs."));
        }
        for turn in self.turns(&possible) {
            match turn.task.work {
                Work::Single => self.single(turn, compared).await?,
                _ => self.turn(turn, compared).await,
            }
        }
        let floor =
            compared.gateways.iter_mut().find(|gateway| self.compare.limits && gateway.name == "floor");
        if let Some(floor) = floor {
            floor.points.extend(limits::signatures(self.compare)?);
        }
        if possible.iter().any(|workers| *workers >= cpus) {
            compared.warnings.push(format!(
                "With {cpus} workers the gateways shared their CPUs with the load and the backends. The figures \
                 understate the capacity of the gateways."
            ));
        }
        compared.setting.extend(self.setting());
        Ok(())
    }

    /// All turns. Each gateway and each work has its first turn before any has its second turn, so that compared
    /// figures are close together in time.
    fn turns(&self, workers: &[usize]) -> Vec<Turn> {
        let Compare { rates, turns, .. } = self.compare;
        let rates: Vec<Option<f64>> = match rates.is_empty() {
            true => vec![None],
            false => rates.iter().copied().map(Some).collect(),
        };
        let tasks = Task::all(self.compare);
        let mut all = Vec::new();
        for number in 1..=*turns {
            for task in &tasks {
                for workers in workers {
                    let turn =
                        |rate: &Option<f64>| Turn { task: *task, workers: *workers, rate: *rate, number };
                    all.extend(rates.iter().map(turn));
                }
            }
        }
        all
    }

    /// The gateways that take part in this task, with their places: they can do the task, passed their checks, and have
    /// not failed.
    fn able<'s>(&'s self, task: Task, compared: &Compared) -> Vec<(usize, &'s Entrant)> {
        let mut able = Vec::new();
        for (index, entrant) in self.kinds.iter().enumerate() {
            let Entrant { kind, .. } = entrant;
            if !task.suits(kind) || compared.failed.contains(&(index, task)) {
                continue;
            }
            // The lab does not measure a gateway that failed its checks. The report shows the failure.
            let name = task.functions.name();
            let checks = &compared.gateways[index].checks;
            if checks.iter().all(|checks| checks.functions != name || checks.are_kept()) {
                able.push((index, entrant));
            }
        }
        able
    }

    /// Loads one gateway after the other.
    async fn turn(&self, turn: Turn, compared: &mut Compared) {
        for (index, Entrant { kind, .. }) in self.able(turn.task, compared) {
            match self.measure(kind, turn).await {
                Ok((point, standing)) => compared.add(index, kind, point, &standing),
                // The figures of the other gateways remain valid.
                Err(error) => compared.fail(index, kind, turn.task, &error),
            }
        }
    }

    /// Loads all gateways at once, request by request.
    async fn single(&self, turn: Turn, compared: &mut Compared) -> anyhow::Result<()> {
        let able = self.able(turn.task, compared);
        let measured =
            single::measure(self.bench, &able, turn.task, turn.number, self.compare.requests).await;
        for (index, point, standing) in measured.with_context(|| turn.task.name())? {
            compared.add(index, self.kinds[index].kind, point, &standing);
        }
        Ok(())
    }

    /// Starts a gateway and loads it.
    async fn measure(&self, kind: &'static Kind, turn: Turn) -> anyhow::Result<(Point, Standing)> {
        let Turn { task, workers, rate, number } = turn;
        self.bench.divide(workers)?;
        let backends = Backends::start().await?;
        let mut standing = self.bench.start(kind, task, workers, Limit::HIGH, &backends).await?;
        let gateway = &mut standing.gateway;
        let mut load = task.load(task.connections(self.compare), gateway, standing.scratch.path())?;
        load.command.arg(format!("-d{}s", self.compare.duration.as_secs_f64()));
        if let Some(rate) = rate {
            load.command.arg(format!("-R{rate}"));
        }
        let json = load.json().to_owned();
        let mut load = load.start()?;
        // The measurement excludes the opening of connections, unless it measures the opening.
        if !task.is_new_each() {
            sleep(RAMP).await;
        }
        let before = cpu_time_of_tree(gateway.process.pid())?;
        let status = load.wait(RAMP + self.compare.duration + GRACE).await?;
        let cpu = cpu_time_of_tree(gateway.process.pid())?.saturating_sub(before);
        ensure!(status.success(), "the load ended with {status}:\n{}", load.output());
        gateway.ensure_running()?;
        let load: Load =
            serde_json::from_str(&fs::read_to_string(&json)?).context("what the load has written")?;
        let answered = load.requests.answered;
        let at =
            |name: &str| load.latency.percentiles_us.get(name).map_or(0.0, |micros| *micros as f64 / 1e3);
        let point = Point {
            work: task.name(),
            workers,
            turn: number,
            rate,
            requests: answered,
            requests_per_s: load.requests_per_s,
            errors: load.errors.total,
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / (answered as f64).max(1.0),
            cpus: cpu.as_secs_f64() / load.elapsed_s.max(1e-9),
            p50_ms: at("50"),
            p99_ms: at("99"),
            functions: task.with_functions(),
            ..Point::default()
        };
        Ok((point, standing))
    }

    fn setting(&self) -> Vec<String> {
        let Compare { works, sizes, turns, duration, requests, .. } = self.compare;
        let sizes: Vec<String> = sizes.iter().map(|size| size.name()).collect();
        let answers = if sizes.is_empty() { "1 KB".to_owned() } else { sizes.join(" and ") };
        let mut lines = Vec::new();
        if works.contains(&Work::Single) {
            lines.push(format!(
                "{}: {turns} turns of {requests} rounds, each round straight to a back end and through each gateway, on new \
                 connections; answers of {answers}",
                Work::Single.name()
            ));
        }
        if works.iter().any(|work| *work != Work::Single) {
            lines.push(format!(
                "{}: {turns} turns of {} each, gateway after gateway; medians. Answers of {answers}, of {BACKENDS} addresses on \
                 loopback; {}",
                self.rates_named(),
                humantime::format_duration(*duration),
                self.connections().join(", ")
            ));
            lines.push(
                "A gateway with n workers has n CPUs for itself, if one is left for the load and the back ends"
                    .to_owned(),
            );
        }
        lines
    }

    fn rates_named(&self) -> &'static str {
        if self.compare.rates.is_empty() { "As fast as it goes" } else { "At rising rates" }
    }

    /// The number of connections, for each kind of work.
    fn connections(&self) -> Vec<String> {
        let Compare { works, connections, .. } = self.compare;
        let has = |all: &[Work]| all.iter().any(|work| works.contains(work));
        let mut words = Vec::new();
        if has(&[Work::Http, Work::Json, Work::Https]) {
            words.push(format!("{connections} connections kept alive"));
        }
        if has(&[Work::Http2, Work::Grpc]) {
            words.push(format!("{HTTP2_CONNECTIONS} of HTTP/2 and gRPC with {STREAMS} requests each"));
        }
        if has(&[Work::TlsRsa, Work::TlsP256]) {
            words.push(format!("{HANDSHAKES} new TLS connections at a time, nothing resumed"));
        }
        words
    }
}

impl Compared {
    fn add(&mut self, index: usize, kind: &Kind, point: Point, standing: &Standing) {
        say(&line(kind.name, &point));
        let gateway = &mut self.gateways[index];
        let functions = point.functions.as_ref().map(|functions| functions.name.clone());
        gateway.points.push(point);
        gateway.command.clone_from(&standing.gateway.command);
        // The files that differ from the stored files. Ports and the folder do not count.
        let folder = standing.scratch.path().display().to_string();
        for file in &standing.gateway.files {
            let text = file.text.replace(&folder, "FOLDER");
            let masked = without_digits(&text);
            if gateway.files.iter().any(|other| without_digits(&other.text) == masked) {
                continue;
            }
            let is_taken = gateway.files.iter().any(|other| other.name == file.name);
            let name = match functions.as_ref().filter(|_| is_taken) {
                Some(functions) => format!("{}, {functions}", file.name),
                None => file.name.clone(),
            };
            if gateway.files.iter().all(|other| other.name != name) {
                gateway.files.push(ConfigFile { name, text });
            }
        }
    }

    fn fail(&mut self, index: usize, kind: &Kind, task: Task, error: &anyhow::Error) {
        let failure = format!("{}, {}: not measured: {error:#}", kind.title, task.name());
        say(&failure);
        self.warnings.push(failure);
        self.failed.push((index, task));
    }
}

fn without_digits(text: &str) -> String {
    text.replace(|character: char| character.is_ascii_digit(), "")
}

/// A point in one line.
fn line(name: &str, point: &Point) -> String {
    let Point { work, workers, turn, rate, requests_per_s, errors, cpu_us_per_request, cpus, p99_ms, .. } =
        point;
    let rate = rate.map_or(String::new(), |rate| format!(" at {rate}/s"));
    format!(
        "{work:<34} turn {turn}, {workers} workers{rate}  {name:<14} {cpu_us_per_request:8.2} us CPU/request, {requests_per_s:7.0} requests/s, \
         {cpus:.2} CPUs, p99 {p99_ms:.2} ms, {errors} errors"
    )
}
