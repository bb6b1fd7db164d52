//! The node of an experiment: its pods, and the gateway in front of them.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::process::Signal;
use sluicegate_netns::{Namespace, Pod as Network, Process};

use super::running::{Place, reach};
use crate::experiment::Pods as Declared;

/// The port of the pods.
const PORT: u16 = 8080;

/// The maximum number of pods for which a node has addresses.
const MAX_PODS: usize = 200;

/// A node with its pods. Its content ends with it.
pub(crate) struct Stage {
    pods: Vec<Pod>,
    /// Networks prepared for pods, so that the lab only starts a process for a new pod. The next pod takes the last
    /// network.
    spare: Vec<Network>,
    /// Networks of killed pods. The removal of a network takes much CPU time, and must not happen during a measurement.
    gone: Vec<Network>,
    started: usize,
    declared: Declared,
    /// The folder of the pods' journals.
    directory: PathBuf,
    pub(crate) namespace: Arc<Namespace>,
}

struct Pod {
    name: String,
    process: Process,
    network: Network,
    /// Whether its address swallows packets.
    is_silent: bool,
}

impl Stage {
    /// A stage with its first pods, of `needed` pods over time.
    pub(crate) async fn set(declared: &Declared, needed: usize, directory: &Path) -> anyhow::Result<Self> {
        let namespace = Arc::new(Namespace::create()?);
        let mut spare = Vec::new();
        for _ in 0..needed.min(MAX_PODS) {
            spare.push(namespace.pod()?);
        }
        spare.reverse();
        let (pods, directory) = (Vec::new(), directory.to_owned());
        let mut stage = Self {
            pods,
            spare,
            gone: Vec::new(),
            started: 0,
            declared: declared.clone(),
            directory,
            namespace,
        };
        stage.add(declared.count).await?;
        Ok(stage)
    }

    /// The addresses of the pods in any state, the oldest first.
    pub(crate) fn endpoints(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(|pod| (pod.network.ip(), PORT).into()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Starts this many pods, and waits until they are ready. Returns their names.
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
            self.pods.push(Pod { name, process, network, is_silent: false });
        }
        let place = Place::Node(Arc::clone(&self.namespace));
        for pod in &mut self.pods[first..] {
            let address = SocketAddr::new(pod.network.ip(), PORT);
            reach(&place, &mut pod.process, address, "/healthz").await.context("a pod")?;
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

    /// Kills this many of the oldest pods, all at once, as a node does: the process receives SIGKILL, then its address
    /// is gone.
    pub(crate) fn kill(&mut self, count: usize) -> anyhow::Result<()> {
        for mut pod in self.pods.drain(..count) {
            pod.process.kill()?;
            pod.silence()?;
            self.gone.push(pod.network);
        }
        Ok(())
    }

    /// From now on, the addresses of this many of the oldest pods drop all packets.
    pub(crate) fn blackhole(&mut self, count: usize) -> anyhow::Result<()> {
        self.pods.iter_mut().take(count).try_for_each(Pod::silence)
    }

    /// Restores the addresses of all silent pods.
    pub(crate) fn restore(&mut self) -> anyhow::Result<()> {
        for pod in self.pods.iter_mut().filter(|pod| pod.is_silent) {
            pod.network.restore()?;
            pod.is_silent = false;
        }
        Ok(())
    }

    /// From now on, this many of the oldest pods refuse connects.
    pub(crate) fn refuse(&self, count: usize) -> anyhow::Result<()> {
        self.pods.iter().take(count).try_for_each(|pod| pod.process.signal(Signal::USR1))
    }

    /// All pods accept connections again. The call has no effect on pods that accept already.
    pub(crate) fn accept(&self) -> anyhow::Result<()> {
        self.pods.iter().try_for_each(|pod| pod.process.signal(Signal::USR2))
    }

    /// The journals of all pods, including killed pods.
    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        (1..=self.started).map(|number| self.directory.join(format!("pod-{number}.journal"))).collect()
    }
}

impl Pod {
    fn silence(&mut self) -> anyhow::Result<()> {
        if !self.is_silent {
            self.network.blackhole()?;
            self.is_silent = true;
        }
        Ok(())
    }
}
