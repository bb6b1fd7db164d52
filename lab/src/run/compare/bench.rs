//! The place of comparisons: loopback, with backends that start with each gateway.

use std::cell::RefCell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;
use sluicegate_netns::Process;
use tempfile::TempDir;

use super::super::args::RunArgs;
use super::super::machine::Cpus;
use super::super::running::{Gateway, Place, Start, reach};
use super::task::Task;
use crate::certificate::{Issuer, Key};
use crate::experiment::Work;
use crate::gateway::api::Limit;
use crate::gateway::{Api, Config, Kind, Protocol};

/// The number of backends: addresses of one process.
pub(super) const BACKENDS: u8 = 5;

/// The number of idle connections to backends that gateways keep: more than any comparison has, so that gateways close
/// no connection early.
const KEPT: u32 = 4096;

/// The common data of all comparisons of an experiment.
pub(in super::super) struct Bench<'b> {
    pub(super) all: &'b [usize],
    tools: &'b Path,
    args: &'b RunArgs,
    /// The cache of keys and tokens, because 10,000 signatures take seconds.
    apis: RefCell<Vec<(Task, Limit, Api)>>,
}

/// The backends, which end with this value.
pub(super) struct Backends {
    pub(super) addresses: Vec<SocketAddr>,
    _process: Process,
}

/// A running gateway, with the folder of its files. The gateway ends with this value.
pub(super) struct Standing {
    pub(super) gateway: Gateway,
    pub(super) scratch: TempDir,
}

impl<'b> Bench<'b> {
    pub(in super::super) fn new(all: &'b [usize], tools: &'b Path, args: &'b RunArgs) -> Self {
        Self { all, tools, args, apis: RefCell::default() }
    }

    /// Keys and tokens for a task, which all gateways share.
    fn api(&self, task: Task, limit: Limit) -> anyhow::Result<Api> {
        let mut apis = self.apis.borrow_mut();
        let is_it =
            |of: &Task, to: &Limit| (of.functions, of.callers, *to) == (task.functions, task.callers, limit);
        if let Some((.., api)) = apis.iter().find(|(of, to, _)| is_it(of, to)) {
            return Ok(api.clone());
        }
        let api = Api::new(task.functions, task.callers, limit)?;
        apis.push((task, limit, api.clone()));
        Ok(api)
    }

    /// Moves the load and the backends, which this thread starts, to their CPUs.
    pub(super) fn divide(&self, workers: usize) -> anyhow::Result<Cpus> {
        let cpus = Cpus::divide(self.all, workers);
        cpus.take_others()?;
        Ok(cpus)
    }

    /// Starts a gateway for a task, with a limit for consumers if the task has one.
    pub(super) async fn start(
        &self,
        kind: &'static Kind,
        task: Task,
        workers: usize,
        limit: Limit,
        backends: &Backends,
    ) -> anyhow::Result<Standing> {
        let cpus = self.divide(workers)?;
        let scratch = TempDir::with_prefix("sluicegate-lab-").context("a folder for the gateway's files")?;
        let key = if task.work == Work::TlsP256 { Key::P256 } else { Key::Rsa };
        let (certificate, _) = Issuer::new(key)?.issue()?;
        let protocol = if task.work == Work::Grpc { Protocol::Grpc } else { Protocol::Http1 };
        let api = self.api(task, limit)?;
        let endpoints = backends.addresses.clone();
        let config = Config { endpoints, protocol, certificate, hosts: Vec::new(), api };
        let directory = scratch.path().join("gateway");
        fs::create_dir(&directory)?;
        let start = Start {
            kind,
            cpus: &cpus,
            workers,
            kept: KEPT,
            tools: self.tools,
            options: self.args.options_of(kind.name),
            directory,
            place: Place::Loopback,
            http: free_address()?,
            https: free_address()?,
            admin: free_address()?,
        };
        Ok(Standing { gateway: Gateway::start(start, config).await?, scratch })
    }
}

impl Backends {
    /// Starts the backends at otherwise unused addresses of loopback, on the CPUs of this thread.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let port = free_address()?.port();
        let addresses: Vec<SocketAddr> =
            (1..=BACKENDS).map(|host| SocketAddr::from(([127, 0, 1, host], port))).collect();
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("backend").arg("--quiet");
        for address in &addresses {
            command.arg("--listen").arg(address.to_string());
        }
        let mut process = Process::start(command)?;
        for address in &addresses {
            reach(&Place::Loopback, &mut process, *address, "/healthz").await.context("the back ends")?;
        }
        Ok(Self { addresses, _process: process })
    }
}

/// A free address of loopback, another one at each call. Its port is below the ports that Linux gives to outgoing
/// connections, so that no connection takes the port before the gateway listens.
fn free_address() -> anyhow::Result<SocketAddr> {
    const PORTS: std::ops::Range<u16> = 20_000..30_000;
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let length = PORTS.end - PORTS.start;
    let first = std::process::id() % u32::from(length);
    for _ in 0..length {
        let offset = (first + u32::from(CALLS.fetch_add(1, Ordering::Relaxed))) % u32::from(length);
        let port = PORTS.start + u16::try_from(offset).unwrap_or_default();
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Ok(listener.local_addr()?);
        }
    }
    anyhow::bail!("no port from {} to {} of 127.0.0.1 is free", PORTS.start, PORTS.end)
}
