//! The back ends, and the gateways before them.

use std::fmt::Write;
use std::net::{self, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use sluicegate_model::KeyKind;
use sluicegate_netns::Process;
use sluicegate_testkit::client;
use sluicegate_testkit::tls::{Authority, Issued};

use crate::configure::{self, Site};

/// How many back ends.
const BACKENDS: u8 = 5;

/// The name with the RSA certificate, and the one with the ECDSA certificate.
pub(crate) const RSA: &str = "bench.example";
pub(crate) const ECDSA: &str = "ecdsa.bench.example";

/// The path that the gateways give to the back ends of gRPC: the service.
pub(crate) const SERVICE: &str = "/bench.Unary";

/// The length of the string in an answer of gRPC, in bytes.
pub(crate) const MESSAGE: usize = 1024;

/// How long a program may take to serve.
const START: Duration = Duration::from_secs(10);

/// What can be measured, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// This project.
    Sluicegate,
    /// nginx, one worker.
    Nginx,
    /// HAProxy, one thread.
    Haproxy,
    /// Envoy, one worker.
    Envoy,
    /// A byte forwarder: the least that a proxy can cost.
    Floor,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Sluicegate, Self::Nginx, Self::Haproxy, Self::Envoy, Self::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sluicegate => "sluicegate",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Floor => "floor",
        }
    }

    /// What the program says about itself; `None` if it cannot be run.
    pub(crate) fn version(self, program: &Path) -> Option<String> {
        match self {
            Self::Sluicegate => version_of(program, &["--version"]),
            Self::Envoy => {
                // "envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL"
                let version = version_of(program, &["--version"])?;
                Some(format!("envoy/{}", version.split('/').rev().nth(3)?))
            }
            Self::Nginx | Self::Haproxy => version_of(program, &["-v"]),
            Self::Floor => program.exists().then(|| "recv, send, recv, send".to_owned()),
        }
    }
}

/// The first line that a program prints about itself.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // "nginx version: nginx/1.22.1", "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"
    let line = text.lines().find(|line| !line.is_empty())?.trim_start_matches("nginx version: ");
    Some(line.split(" - ").next().unwrap_or(line).to_owned())
}

/// Five back ends at 127.0.1.1 to 127.0.1.5, so lean that they are never what is measured: one nginx, which answers from
/// memory, and for gRPC one `unary`.
#[derive(Debug)]
pub(crate) struct Backends {
    port: u16,
    grpc_port: u16,
    nginx: Process,
    unary: Process,
}

impl Backends {
    pub(crate) async fn start(unary: &Path, directory: &Path) -> anyhow::Result<Self> {
        let (port, grpc_port) = (free_port()?, free_port()?);
        let mut servers = String::new();
        for addr in addrs(port) {
            writeln!(servers, "listen {addr};")?;
        }
        let http = format!("server {{ {servers} location / {{ return 200 \"{}\"; }} }}", body());
        let mut nginx = Process::start(configure::nginx(directory, "backends", &http)?)?;
        let mut command = Command::new(unary);
        command.args(addrs(grpc_port).iter().map(ToString::to_string)).arg(MESSAGE.to_string());
        let mut unary = Process::start(command)?;
        for addr in addrs(port) {
            nginx.wait_for_ok(addr, "/", START).await.context("nginx")?;
        }
        for addr in addrs(grpc_port) {
            unary.wait_for_port(addr, START).await?;
        }
        Ok(Self { port, grpc_port, nginx, unary })
    }

    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        addrs(self.port)
    }

    /// Those that answer calls of gRPC.
    pub(crate) fn grpc_addrs(&self) -> Vec<SocketAddr> {
        addrs(self.grpc_port)
    }

    pub(crate) fn processes(&mut self) -> [&mut Process; 2] {
        [&mut self.nginx, &mut self.unary]
    }
}

/// What the gateways show: a certificate for each kind of key, for a name of its own.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) rsa: Issued,
    pub(crate) ecdsa: Issued,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
        let issue = |name, kind| Authority::of_process().issue_with(&[name], kind, tomorrow);
        Self { rsa: issue(RSA, KeyKind::Rsa), ecdsa: issue(ECDSA, KeyKind::Ecdsa) }
    }
}

/// A gateway that is running.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    /// Where it serves plain HTTP.
    pub(crate) addr: SocketAddr,
    /// Where it serves HTTPS; the floor does not.
    pub(crate) tls: Option<SocketAddr>,
    pub(crate) process: Process,
}

impl Gateway {
    pub(crate) async fn start(
        kind: Kind,
        program: &Path,
        version: String,
        backends: &Backends,
        certificates: &Certificates,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let http = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let tls = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let site = Site { http, tls, admin, backends, certificates, directory };
        let mut process = Process::start(site.command(kind, program)?)?;
        process.wait_for_ok(http, "/", START).await?;
        let tls = (kind != Kind::Floor).then_some(tls);
        Ok(Self { kind, version, addr: http, tls, process })
    }

    /// Makes sure that it really serves what the back ends serve.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        for _ in 0..usize::from(BACKENDS) * 2 {
            let response = client::get(self.addr, RSA, "/")
                .await
                .with_context(|| format!("asking {}", self.kind.name()))?;
            ensure!(
                response.status == 200 && response.body == body().as_bytes(),
                "{} answers {} with {} bytes",
                self.kind.name(),
                response.status,
                response.body.len()
            );
        }
        Ok(())
    }
}

fn body() -> String {
    "0123456789abcdef".repeat(64)
}

fn addrs(port: u16) -> Vec<SocketAddr> {
    (1..=BACKENDS).map(|host| SocketAddr::from(([127, 0, 1, host], port))).collect()
}

fn free_port() -> anyhow::Result<u16> {
    Ok(net::TcpListener::bind("127.0.0.1:0").context("looking for a free port")?.local_addr()?.port())
}
