//! Runs one gateway under the load.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use sluicegate_netns::{NODE, Process};
use tempfile::TempDir;
use tokio::time::Instant;

use super::machine::{self, Cpus};
use super::running::{Gateway, Place, Start};
use super::stage::Stage;
use super::timeline::{Happened, Moment, Player, moments, pods_needed};
use super::watch::{Seen, watch};
use crate::backend::journal;
use crate::certificate::{Issuer, Key};
use crate::experiment::{self, Declared, Experiment, Step};
use crate::gateway::{Api, Config, HOST, Kind, Protocol};
use crate::results::{ConfigFile, CpuSample, Deliveries, Event, Load, Machine, Run};

/// The time that wrk2 leaves between the connects of a thread.
const BETWEEN_CONNECTS: Duration = Duration::from_millis(5);

/// The duration of the closed loop that finds the highest rate of a gateway.
const SATURATION: Duration = Duration::from_secs(5);

/// The longest delay of a load beyond its planned duration: the load waits for responses until their timeout.
const GRACE: Duration = Duration::from_secs(30);

/// The number of idle connections to pods that nginx' controllers keep in the studies.
const KEPT: u32 = 100;

/// One gateway, and its load.
pub(crate) struct Turn<'t> {
    pub(crate) kind: &'static Kind,
    /// Requests per second; [`None`] for a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) experiment: &'t Experiment,
    pub(crate) cpus: &'t Cpus,
    pub(crate) tools: &'t Path,
    pub(crate) workers: usize,
    pub(crate) options: Vec<String>,
    /// The folder of the results.
    pub(crate) directory: &'t Path,
}

/// The results of a turn.
pub(crate) struct Done {
    pub(crate) run: Run,
    pub(crate) command: String,
    pub(crate) files: Vec<ConfigFile>,
}

impl Turn<'_> {
    /// The rate of the gateway in a closed loop, in requests per second.
    pub(crate) async fn saturate(self) -> anyhow::Result<f64> {
        Ok(self.carry_out(&[], SATURATION, "saturation").await?.run.load.requests_per_s)
    }

    /// The run without changes, or the run with them.
    pub(crate) async fn run(self, is_baseline: bool) -> anyhow::Result<Done> {
        let Declared { load, timeline, .. } = &self.experiment.declared;
        let duration = load.duration;
        if is_baseline {
            return self.carry_out(&[], duration, "static").await;
        }
        let name = self.experiment.name.clone();
        self.carry_out(timeline, duration, &name).await
    }

    async fn carry_out(&self, steps: &[Step], duration: Duration, label: &str) -> anyhow::Result<Done> {
        let moments = moments(steps, duration);
        let Set { mut gateway, mut stage, mut issuer, scratch: _scratch } = self.set(&moments).await?;
        let json = self.directory.join(format!("{}-{label}.load.json", self.kind.name));
        let (load, ramp) = self.load(&gateway, duration, &json);
        let (start, end) = (Instant::now() + ramp, Instant::now() + ramp + duration);
        let mut load = stage.namespace.enter(|| machine::start_load(load))??;
        let (mut happened, mut seen) = (Happened::default(), Seen::default());
        // The watch uses the process id, because the timeline changes the gateway during the measurement.
        let watched = gateway.process.pid();
        let notice = self.experiment.declared.pods.notice;
        let player = Player::new(&mut stage, &mut gateway, &mut issuer, notice, &mut happened);
        let all = async {
            tokio::try_join!(player.play(&moments, start, end), finish(&mut load, ramp + duration + GRACE))
        };
        tokio::select! {
            done = all => { done?; }
            failed = watch(watched, &mut seen) => failed?,
        }
        gateway.ensure_running()?;
        let text = fs::read_to_string(&json).with_context(|| format!("reading {}", json.display()))?;
        let load: Load = serde_json::from_str(&text).context("what the load has written")?;
        let journals = journal::read(&stage.journals()).context("the pods' journals")?;
        let deliveries = (load.requests.posts > 0).then_some(Deliveries {
            sent: load.requests.posts,
            delivered: journals.delivered,
            duplicated: journals.duplicated,
        });
        let run = Run { deliveries, ..collect(label, steps.is_empty(), load, &happened, &seen) };
        Ok(Done { run, command: gateway.command, files: gateway.files })
    }

    /// Sets the stage, and starts the gateway on it.
    async fn set(&self, moments: &[Moment]) -> anyhow::Result<Set> {
        let pods = &self.experiment.declared.pods;
        let scratch = TempDir::with_prefix("sluicegate-lab-").context("a folder for the gateway's files")?;
        let stage = Stage::set(pods, pods_needed(moments, pods.count), scratch.path()).await?;
        let mut issuer = Issuer::new(Key::Rsa)?;
        let (certificate, _) = issuer.issue()?;
        let (endpoints, hosts) = (stage.endpoints(), Vec::new());
        let config = Config { endpoints, protocol: Protocol::Http1, certificate, hosts, api: Api::Nothing };
        let directory = scratch.path().join("gateway");
        fs::create_dir(&directory)?;
        let start = Start {
            kind: self.kind,
            cpus: self.cpus,
            workers: self.workers,
            kept: KEPT,
            tools: self.tools,
            options: self.options.clone(),
            directory,
            place: Place::Node(Arc::clone(&stage.namespace)),
            http: (NODE, 80).into(),
            https: (NODE, 443).into(),
            admin: (Ipv4Addr::LOCALHOST, 9901).into(),
        };
        let gateway = Gateway::start(start, config).await?;
        Ok(Set { gateway, stage, issuer, scratch })
    }

    /// The load's command, and the time at which its first request is due.
    fn load(&self, gateway: &Gateway, duration: Duration, json: &Path) -> (Command, Duration) {
        let declared = &self.experiment.declared.load;
        let ramp = ramp(declared);
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "sluicegate-lab".into()));
        command.args(["load", "-t1", "--verify"]);
        command.arg(format!("-c{}", declared.connections));
        command.arg(format!("-d{}s", duration.as_secs_f64()));
        if let Some(rate) = self.rate {
            command.arg(format!("-R{rate}"));
        }
        command.arg("--timeout").arg(format!("{}ms", declared.timeout.as_millis()));
        command.arg("--ramp").arg(format!("{}ms", ramp.as_millis()));
        if declared.posts > 0 {
            command.arg("--posts").arg(declared.posts.to_string());
        }
        let (scheme, address) =
            if declared.tls { ("https", gateway.site.https) } else { ("http", gateway.site.http) };
        command.arg("--json").arg(json).arg("--connect-to").arg(address.to_string());
        command.arg(format!("{scheme}://{HOST}{}", declared.path));
        (command, ramp)
    }
}

/// A prepared stage. The fields are dropped in this order.
struct Set {
    gateway: Gateway,
    stage: Stage,
    issuer: Issuer,
    scratch: TempDir,
}

/// The time in which the connections are opened.
pub(crate) fn ramp(load: &experiment::Load) -> Duration {
    BETWEEN_CONNECTS * u32::try_from(load.connections).unwrap_or(u32::MAX)
}

/// The run as stored in the results.
fn collect(label: &str, is_baseline: bool, load: Load, happened: &Happened, seen: &Seen) -> Run {
    let start = UNIX_EPOCH + Duration::from_millis(u64::try_from(load.started_unix_ms).unwrap_or(0));
    let since = |at: SystemTime| match at.duration_since(start) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    };
    let events = happened.events.iter().map(|(at, kind, text)| Event {
        at_s: since(*at),
        kind: (*kind).to_owned(),
        text: text.clone(),
    });
    let followed = happened.followed.iter().map(|(at, followed)| {
        let mut followed = followed.clone();
        followed.at_s = since(*at);
        followed
    });
    let cpu = seen.cpu.windows(2).filter_map(|pair| {
        let [(from, before), (to, after)] = pair else { return None };
        let span = to.duration_since(*from).ok()?.as_secs_f64();
        let cpus = after.saturating_sub(*before).as_secs_f64() / span.max(1e-9);
        Some(CpuSample { at_s: since(*to), cpus })
    });
    // The cost of opening the connections is not part of the cost of the requests.
    let cpu = cpu.filter(|sample| sample.at_s > 0.0 && sample.at_s <= load.duration_s).collect();
    Run {
        label: label.to_owned(),
        is_baseline,
        events: events.collect(),
        followed: followed.collect(),
        cpu,
        peak_rss_mib: seen.peak_bytes as f64 / f64::from(1 << 20),
        deliveries: None,
        load,
    }
}

async fn finish(load: &mut Process, limit: Duration) -> anyhow::Result<()> {
    let status = load.wait(limit).await.context("the load")?;
    ensure!(status.success(), "the load ended with {status}; it printed:\n{}", load.output());
    Ok(())
}

/// The load of all gateways, in words.
pub(crate) fn setting(declared: &Declared, rate: f64, workers: usize, machine: &Machine) -> Vec<String> {
    let (load, pods) = (&declared.load, &declared.pods);
    let scheme = if load.tls { "HTTPS (RSA 2048)" } else { "HTTP" };
    let list = |cpus: &[usize]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut lines = vec![
        format!(
            "{rate} requests/s for {} over {} kept-alive connections, {scheme}; open loop, latency from when each request was due",
            humantime::format_duration(load.duration),
            load.connections
        ),
        format!(
            "A connect or a request that takes longer than {} has failed",
            humantime::format_duration(load.timeout)
        ),
        format!(
            "{} pods, each a process with its own address on a bridge; a gateway is notified of each change after {}",
            pods.count,
            humantime::format_duration(pods.notice)
        ),
        format!(
            "{workers} worker{} on CPU {}; load and pods on CPU {}",
            if workers == 1 { "" } else { "s" },
            list(&machine.gateway_cpus),
            list(&machine.other_cpus)
        ),
    ];
    if load.posts > 0 {
        lines.push(format!("{} of 100 requests are a POST, which may not be delivered twice", load.posts));
    }
    lines
}

/// A run in one line.
pub(crate) fn line(name: &str, run: &Run) -> String {
    let Load { requests, errors, latency, .. } = &run.load;
    let at = |name: &str| latency.percentiles_us.get(name).map_or(0.0, |micros| *micros as f64 / 1e3);
    format!(
        "{name:<14} {:<10} {:>8} requests  errors: connect {}, timeout {}, read {}, non-2xx {}  p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms",
        run.label,
        requests.sent,
        errors.connect,
        errors.timeout,
        errors.read,
        errors.not_2xx,
        at("50"),
        at("99"),
        at("99.9"),
        latency.max_us as f64 / 1e3
    )
}
