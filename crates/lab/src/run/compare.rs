//! What kinds of work cost, gateway beside gateway, on loopback.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use sluicegate_netns::Process;
use sluicegate_netns::process::cpu_time_of_tree;
use tempfile::TempDir;
use tokio::time::sleep;

use super::args::RunArgs;
use super::machine::{Cpus, start_load};
use super::running::{Gateway, Place, Start, reach};
use super::watch::memory_of_tree;
use super::{Entrant, say};
use crate::certificate::{Issuer, Key};
use crate::experiment::{Compare, Work};
use crate::gateway::{Config, HOST, Kind, Protocol};
use crate::results::{Idle, Load, OfGateway, Point};

/// How many back ends there are: addresses of one process.
const BACKENDS: u8 = 5;

/// Connections of HTTP/2, and requests at a time on each.
const HTTP2_CONNECTIONS: u64 = 20;
const STREAMS: u64 = 10;

/// How many new TLS connections are made at a time.
const HANDSHAKES: u64 = 16;

/// How long connections take to be opened before the first request.
const RAMP: Duration = Duration::from_millis(500);

/// How much longer than planned a load may take.
const GRACE: Duration = Duration::from_secs(30);

/// How many connections are there before those whose memory is looked at, so that what all share is not counted.
const FIRST: u64 = 100;

/// For how long signatures are made.
const SIGNING: Duration = Duration::from_millis(500);

/// What is compared, and with what.
pub(super) struct Comparison<'c> {
    pub(super) compare: &'c Compare,
    pub(super) all: &'c [usize],
    pub(super) tools: &'c Path,
    pub(super) args: &'c RunArgs,
}

/// What came of a comparison.
pub(super) struct Compared {
    pub(super) gateways: Vec<OfGateway>,
    pub(super) setting: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// One turn of one gateway.
#[derive(Clone, Copy, Debug)]
struct Turn {
    work: Work,
    workers: usize,
    rate: Option<f64>,
    number: usize,
}

impl Comparison<'_> {
    pub(super) async fn run(&self, kinds: &[Entrant]) -> anyhow::Result<Compared> {
        let mut gateways: Vec<OfGateway> =
            kinds.iter().map(|Entrant { kind, version }| kind.unmeasured(version)).collect();
        let mut warnings = Vec::new();
        for (index, Entrant { kind, .. }) in kinds.iter().enumerate() {
            if self.compare.idle > 0 && kind.can(Work::Https) {
                gateways[index].idle = Some(self.idle(kind).await.with_context(|| kind.name.to_owned())?);
            }
        }
        let (possible, too_many): (Vec<usize>, Vec<usize>) =
            self.compare.workers.iter().partition(|workers| **workers <= self.all.len());
        if !too_many.is_empty() {
            warnings.push(format!(
                "{too_many:?} workers were not tried: this machine has {} CPUs.",
                self.all.len()
            ));
        }
        let mut failed = Vec::new();
        for turn in self.turns(&possible) {
            for (index, Entrant { kind, .. }) in kinds.iter().enumerate() {
                if !kind.can(turn.work) || failed.contains(&(index, turn.work)) {
                    continue;
                }
                match self.measure(kind, turn).await {
                    Ok((point, gateway)) => {
                        say(&line(kind.name, &point));
                        gateways[index].points.push(point);
                        (gateways[index].command, gateways[index].files) = (gateway.command, gateway.files);
                    }
                    // The others' figures are good all the same.
                    Err(error) => {
                        let failure =
                            format!("{}, {}: not measured: {error:#}", kind.title, turn.work.name());
                        say(&failure);
                        warnings.push(failure);
                        failed.push((index, turn.work));
                    }
                }
            }
        }
        if let Some(floor) =
            gateways.iter_mut().find(|gateway| self.compare.limits && gateway.name == "floor")
        {
            floor.points.extend(self.signatures()?);
        }
        if possible.iter().any(|workers| *workers >= self.all.len()) {
            warnings.push(format!(
                "With {} workers the gateways shared their CPUs with the load and the back ends, which took from what they could do.",
                self.all.len()
            ));
        }
        Ok(Compared { gateways, setting: self.setting(), warnings })
    }

    /// All turns, in the order in which the gateways take them.
    fn turns(&self, workers: &[usize]) -> Vec<Turn> {
        let Compare { works, rates, turns, .. } = self.compare;
        let rates: Vec<Option<f64>> = match rates.is_empty() {
            true => vec![None],
            false => rates.iter().copied().map(Some).collect(),
        };
        let mut all = Vec::new();
        for work in works {
            for number in 1..=*turns {
                for workers in workers {
                    let turn =
                        |rate: &Option<f64>| Turn { work: *work, workers: *workers, rate: *rate, number };
                    all.extend(rates.iter().map(turn));
                }
            }
        }
        all
    }

    /// Loads a gateway that is started for it.
    async fn measure(&self, kind: &'static Kind, turn: Turn) -> anyhow::Result<(Point, Gateway)> {
        let Turn { work, workers, rate, number } = turn;
        let (site, mut gateway) = self.start(kind, work, workers).await?;
        let json = site.scratch.path().join("load.json");
        let mut command = load(work, self.connections(work));
        command.arg(format!("-d{}s", self.compare.duration.as_secs_f64()));
        if let Some(rate) = rate {
            command.arg(format!("-R{rate}"));
        }
        let mut load = start_load_aside(with_target(command, &gateway, work, &json))?;
        // Opening connections is not what is measured, but where it is all that is measured.
        if !is_new_each(work) {
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
            work: work.name().to_owned(),
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
        };
        Ok((point, gateway))
    }

    fn connections(&self, work: Work) -> u64 {
        match work {
            Work::Http | Work::Https => self.compare.connections,
            Work::Http2 | Work::Grpc => HTTP2_CONNECTIONS,
            // What all of them can do.
            Work::TlsRsa | Work::TlsP256 => HANDSHAKES,
        }
    }

    async fn start(
        &self,
        kind: &'static Kind,
        work: Work,
        workers: usize,
    ) -> anyhow::Result<(Site, Gateway)> {
        let cpus = Cpus::divide(self.all, workers);
        cpus.take_others()?;
        let scratch = TempDir::with_prefix("sluicegate-lab-").context("a folder for the gateway's files")?;
        let (endpoints, backend) = backends().await?;
        let key = if work == Work::TlsP256 { Key::P256 } else { Key::Rsa };
        let (certificate, _) = Issuer::new(key)?.issue()?;
        let protocol = if work == Work::Grpc { Protocol::Grpc } else { Protocol::Http1 };
        let config = Config { endpoints, protocol, certificate, hosts: Vec::new() };
        let directory = scratch.path().join("gateway");
        fs::create_dir(&directory)?;
        let start = Start {
            kind,
            cpus: &cpus,
            workers,
            tools: self.tools,
            options: self.args.options_of(kind.name),
            directory,
            place: Place::Loopback,
            http: free_address()?,
            https: free_address()?,
            admin: free_address()?,
        };
        let gateway = Gateway::start(start, config).await?;
        Ok((Site { _backend: backend, scratch }, gateway))
    }

    /// What a connection that waits for its next request takes of a gateway's memory.
    async fn idle(&self, kind: &'static Kind) -> anyhow::Result<Idle> {
        let connections = self.compare.idle;
        let mut kib = [0.0; 2];
        for (kib, work) in kib.iter_mut().zip([Work::Http, Work::Https]) {
            // One for both, so that only the connections are different.
            let (site, gateway) = self.start(kind, work, 1).await?;
            let mut bytes = [0; 2];
            for (bytes, connections) in bytes.iter_mut().zip([FIRST, FIRST + connections]) {
                let mut command = load(work, connections);
                let json = site.scratch.path().join("idle.json");
                // Each connection has a request every other second.
                command.args(["-d5s".to_owned(), format!("-R{}", connections / 2)]);
                let mut load = start_load_aside(with_target(command, &gateway, work, &json))?;
                sleep(RAMP + Duration::from_secs(4)).await;
                *bytes = memory_of_tree(gateway.process.pid())?;
                let status = load.wait(GRACE).await?;
                ensure!(status.success(), "the load ended with {status}:\n{}", load.output());
            }
            *kib = bytes[1].saturating_sub(bytes[0]) as f64 / 1024.0 / connections as f64;
        }
        let [http_kib, https_kib] = kib;
        say(&format!(
            "{:<14} idle connections: {http_kib:.1} KiB over HTTP, {https_kib:.1} over HTTPS",
            kind.name
        ));
        Ok(Idle { connections, http_kib, https_kib })
    }

    /// What the private key's part of a handshake takes by itself: below it no gateway with this library can come.
    fn signatures(&self) -> anyhow::Result<Vec<Point>> {
        let mut points = Vec::new();
        for (work, key, name) in
            [(Work::TlsRsa, Key::Rsa, "signature, RSA"), (Work::TlsP256, Key::P256, "signature, P-256")]
        {
            if !self.compare.works.contains(&work) {
                continue;
            }
            for turn in 1..=self.compare.turns {
                let micros = signature_micros(key)?;
                points.push(Point {
                    work: name.to_owned(),
                    workers: 1,
                    turn,
                    requests_per_s: 1e6 / micros,
                    cpu_us_per_request: micros,
                    cpus: 1.0,
                    ..Point::default()
                });
            }
        }
        Ok(points)
    }

    fn setting(&self) -> Vec<String> {
        let Compare { connections, turns, duration, .. } = self.compare;
        vec![
            format!(
                "{turns} turns of {} each, gateway after gateway; medians",
                humantime::format_duration(*duration)
            ),
            format!(
                "1 KB answers of {BACKENDS} addresses on loopback; {connections} connections kept alive, of HTTP/2 and gRPC \
                 {HTTP2_CONNECTIONS} with {STREAMS} requests each, of new TLS connections {HANDSHAKES} at a time, nothing resumed"
            ),
            "A gateway with n workers has n CPUs for itself, if one is left for the load and the back ends"
                .to_owned(),
        ]
    }
}

/// What a gateway stands before, and where its files are. Ends with it.
struct Site {
    _backend: Process,
    scratch: TempDir,
}

/// Starts the back ends, at addresses of loopback that nobody else has.
async fn backends() -> anyhow::Result<(Vec<SocketAddr>, Process)> {
    let port = free_address()?.port();
    let endpoints: Vec<SocketAddr> =
        (1..=BACKENDS).map(|host| SocketAddr::from(([127, 0, 1, host], port))).collect();
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.arg("backend").arg("--quiet");
    for endpoint in &endpoints {
        command.arg("--listen").arg(endpoint.to_string());
    }
    let mut process = Process::start(command)?;
    for endpoint in &endpoints {
        reach(&Place::Loopback, &mut process, *endpoint, "/healthz").await.context("the back ends")?;
    }
    Ok((endpoints, process))
}

fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?)
}

fn is_new_each(work: Work) -> bool {
    matches!(work, Work::TlsRsa | Work::TlsP256)
}

/// The load's options for a kind of work.
fn load(work: Work, connections: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "sluicegate-lab".into()));
    command.args(["load", "-t1"]).arg(format!("-c{connections}"));
    match work {
        Work::Http | Work::Https => {}
        Work::Http2 => drop(command.args(["--h2", "--streams"]).arg(STREAMS.to_string())),
        Work::Grpc => drop(command.args(["--h2", "--grpc", "--streams"]).arg(STREAMS.to_string())),
        // What all of them can do.
        Work::TlsRsa | Work::TlsP256 => drop(command.args(["--new-connections", "--curves", "X25519"])),
    }
    if !is_new_each(work) {
        command.arg("--ramp").arg(format!("{}ms", RAMP.as_millis()));
    }
    command
}

/// Starts it from a thread of its own, whose priority it has.
fn start_load_aside(command: Command) -> anyhow::Result<Process> {
    Place::Loopback.enter(|| start_load(command))?
}

/// The same with where it goes, and where it writes what it counted.
fn with_target(mut command: Command, gateway: &Gateway, work: Work, json: &Path) -> Command {
    let (scheme, address) =
        if work == Work::Http { ("http", gateway.site.http) } else { ("https", gateway.site.https) };
    let path = if work == Work::Grpc { "/bench.Unary/Call" } else { "/" };
    command.arg("--json").arg(json).arg("--connect-to").arg(address.to_string());
    command.arg(format!("{scheme}://{HOST}{path}"));
    command
}

/// The CPU time of a signature in microseconds.
fn signature_micros(key: Key) -> anyhow::Result<f64> {
    let (pem, _) = Issuer::new(key)?.issue()?;
    let key = any_supported_type(&PrivateKeyDer::from_pem_slice(pem.key.as_bytes())?)?;
    let schemes = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::ECDSA_NISTP256_SHA256];
    let signer = key.choose_scheme(&schemes).context("a key that neither signs by RSA nor with P-256")?;
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
    let start = cpu_time()?;
    let mut times = 0_u32;
    loop {
        signer.sign(b"what is signed is hashed first")?;
        times += 1;
        let took = cpu_time()? - start;
        if took > SIGNING {
            return Ok(took.as_secs_f64() * 1e6 / f64::from(times));
        }
    }
}

/// A point in one line.
fn line(name: &str, point: &Point) -> String {
    let Point { work, workers, turn, rate, requests_per_s, errors, cpu_us_per_request, cpus, p99_ms, .. } =
        point;
    let rate = rate.map_or(String::new(), |rate| format!(" at {rate}/s"));
    format!(
        "{work:<15} turn {turn}, {workers} workers{rate}  {name:<14} {cpu_us_per_request:8.2} us CPU/request, {requests_per_s:7.0} requests/s, \
         {cpus:.2} CPUs, p99 {p99_ms:.2} ms, {errors} errors"
    )
}
