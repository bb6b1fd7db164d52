//! The node of an experiment: its pods, and the gateway before them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sluicegate_netns::{NODE, Namespace, Pod as Network, Process};
use tokio::time::sleep;

use super::machine::Cpus;
use super::probe;
use crate::experiment::Pods as Declared;
use crate::gateway::{Config, Driver, HOST, Kind, Part, Site};
use crate::results::ConfigFile;

/// Where the pods listen.
const PORT: u16 = 8080;

/// How long anything may take to serve.
const START: Duration = Duration::from_secs(30);

/// The most pods that a node has addresses for.
const MAX_PODS: usize = 200;

/// A node with its pods. What is in it ends with it.
pub(crate) struct Stage {
    pods: Vec<Pod>,
    /// Whose networks are there already, so that starting one takes no more than a process. The next is the last.
    spare: Vec<Network>,
    started: usize,
    declared: Declared,
    /// Where the pods' journals are.
    directory: PathBuf,
    pub(crate) namespace: Arc<Namespace>,
}

struct Pod {
    name: String,
    process: Process,
    network: Network,
}

impl Stage {
    /// With its first pods, of `needed` over time.
    pub(crate) async fn set(declared: &Declared, needed: usize, directory: &Path) -> anyhow::Result<Self> {
        let namespace = Arc::new(Namespace::create()?);
        let mut spare = Vec::new();
        for _ in 0..needed.min(MAX_PODS) {
            spare.push(namespace.pod()?);
        }
        spare.reverse();
        let (pods, directory) = (Vec::new(), directory.to_owned());
        let mut stage = Self { pods, spare, started: 0, declared: declared.clone(), directory, namespace };
        stage.add(declared.count).await?;
        Ok(stage)
    }

    /// Where the pods are, the oldest first, whatever has become of them.
    pub(crate) fn endpoints(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(|pod| (pod.network.ip(), PORT).into()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Starts so many pods, and waits until they are ready. Gives their names.
    pub(crate) async fn add(&mut self, count: usize) -> anyhow::Result<Vec<String>> {
        let first = self.pods.len();
        for _ in 0..count {
            let network = match self.spare.pop() {
                Some(network) => network,
                None => self.namespace.pod()?,
            };
            self.started += 1;
            let name = format!("pod-{}", self.started);
            let process = network.spawn(self.command(&name, network.ip())?)?;
            self.pods.push(Pod { name, process, network });
        }
        for pod in &mut self.pods[first..] {
            let address = SocketAddr::new(pod.network.ip(), PORT);
            reach(&self.namespace, &mut pod.process, address, "/healthz").await.context("a pod")?;
        }
        Ok(self.pods[first..].iter().map(|pod| pod.name.clone()).collect())
    }

    fn command(&self, name: &str, ip: IpAddr) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("backend").arg("--quiet").arg("--name").arg(name);
        command.arg("--listen").arg(SocketAddr::new(ip, PORT).to_string());
        command.arg("--journal").arg(self.directory.join(format!("{name}.journal")));
        command.arg("--start-up").arg(humantime::format_duration(self.declared.start_up).to_string());
        Ok(command)
    }

    /// Kills the oldest so many, all at once, as a node does it: the process with SIGKILL, then its address is gone.
    pub(crate) fn kill(&mut self, count: usize) -> anyhow::Result<()> {
        for mut pod in self.pods.drain(..count) {
            pod.process.kill()?;
            pod.network.blackhole()?;
        }
        Ok(())
    }

    /// The addresses of the oldest so many swallow packets from now on.
    pub(crate) fn blackhole(&self, count: usize) -> anyhow::Result<()> {
        self.pods.iter().take(count).try_for_each(|pod| pod.network.blackhole())
    }

    /// Those so many have their addresses again.
    pub(crate) fn restore(&self, count: usize) -> anyhow::Result<()> {
        self.pods.iter().take(count).try_for_each(|pod| pod.network.restore())
    }

    /// The oldest so many refuse from now on, or accept again.
    pub(crate) fn refuse(&self, count: usize, refuse: bool) -> anyhow::Result<()> {
        let signal = if refuse { Signal::USR1 } else { Signal::USR2 };
        for pod in self.pods.iter().take(count) {
            kill_process(id(&pod.process)?, signal).context("a signal to a pod")?;
        }
        Ok(())
    }

    /// The journals of all pods that there were.
    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        (1..=self.started).map(|number| self.directory.join(format!("pod-{number}.journal"))).collect()
    }
}

fn id(process: &Process) -> anyhow::Result<Pid> {
    i32::try_from(process.pid()).ok().and_then(Pid::from_raw).context("a process id")
}

/// A gateway that is running on a stage.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    driver: Box<dyn Driver>,
    pub(crate) config: Config,
    pub(crate) site: Site,
    pub(crate) command: String,
    pub(crate) files: Vec<ConfigFile>,
    namespace: Arc<Namespace>,
}

/// What a gateway is started with, beside what it serves.
pub(crate) struct Start<'s> {
    pub(crate) kind: &'s Kind,
    pub(crate) cpus: &'s Cpus,
    pub(crate) workers: usize,
    pub(crate) tools: &'s Path,
    pub(crate) options: Vec<String>,
    /// Its own, empty.
    pub(crate) directory: PathBuf,
}

impl Gateway {
    /// Starts one on the node, and waits until it serves over HTTP and accepts for HTTPS.
    pub(crate) async fn start(start: Start<'_>, config: Config, stage: &Stage) -> anyhow::Result<Self> {
        let Start { kind, cpus, workers, tools, options, directory } = start;
        let site = Site {
            directory,
            http: (NODE, 80).into(),
            https: (NODE, 443).into(),
            admin: (Ipv4Addr::LOCALHOST, 9901).into(),
            workers,
            tools: tools.to_owned(),
            options,
        };
        let prepared = (kind.prepare)(&site, &config)?;
        let words = std::iter::once(prepared.command.get_program()).chain(prepared.command.get_args());
        let command = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let namespace = Arc::clone(&stage.namespace);
        let process = namespace.enter(|| {
            cpus.take_gateway()?;
            Process::start(prepared.command)
        })??;
        let (driver, files) = (prepared.driver, prepared.files);
        let mut gateway = Self { process, driver, config, site, command, files, namespace };
        gateway.wait().await.with_context(|| format!("starting {}", kind.name))?;
        Ok(gateway)
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let Self { process, driver, config, site, namespace, .. } = self;
        for address in [site.http, site.https] {
            until(namespace, process, &format!("{address} to accept"), || probe::accepts(address)).await?;
        }
        namespace.enter(|| driver.started(process, config))??;
        reach(namespace, process, site.http, "/").await
    }

    /// Makes a part of what it serves new, and tells it.
    pub(crate) fn change(&mut self, part: Part, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
        change(&mut self.config);
        let Self { process, driver, config, namespace, .. } = self;
        ensure!(process.is_running(), "it has ended; it printed:\n{}", process.output());
        namespace.enter(|| driver.apply(process, part, config))?
    }
}

/// Waits until a path is answered by 200.
async fn reach(
    namespace: &Namespace,
    process: &mut Process,
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<()> {
    let is_ok = || probe::get(address, HOST, path).is_ok_and(|answer| answer.status == 200);
    until(namespace, process, &format!("200 from http://{address}{path}"), is_ok).await
}

/// Waits until this holds in the namespace; an error when the process ends.
async fn until(
    namespace: &Namespace,
    process: &mut Process,
    what: &str,
    holds: impl Fn() -> bool + Sync,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + START;
    while !namespace.enter(&holds)? {
        let printed = || process.output();
        ensure!(Instant::now() < deadline, "waited in vain for {what}; it printed:\n{}", printed());
        ensure!(process.is_running(), "it ended while waiting for {what}; it printed:\n{}", process.output());
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
