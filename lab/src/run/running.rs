//! A running gateway, and its place.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sluicegate_netns::{Namespace, Process};
use tokio::time::sleep;

use super::machine::Cpus;
use super::probe;
use crate::experiment::Work;
use crate::gateway::api::Call;
use crate::gateway::{Config, Driver, HOST, Kind, Part, Site};
use crate::results::ConfigFile;

/// The longest time until a server is ready.
const START: Duration = Duration::from_secs(30);

/// The place where a process runs.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// On the machine's own loopback.
    Loopback,
    /// On the node of a stage.
    Node(Arc<Namespace>),
}

impl Place {
    /// Runs this on a thread there. Processes that it starts belong there, and use the CPUs of the thread.
    pub(crate) fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            Self::Loopback => std::thread::scope(|scope| {
                let thread = scope.spawn(run);
                Ok(thread.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked)))
            }),
            Self::Node(namespace) => namespace.enter(run),
        }
    }
}

/// A running gateway on a stage.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    driver: Box<dyn Driver>,
    pub(crate) config: Config,
    pub(crate) site: Site,
    pub(crate) command: String,
    pub(crate) files: Vec<ConfigFile>,
    place: Place,
}

/// The start of a gateway, without the configuration that it serves.
pub(crate) struct Start<'s> {
    pub(crate) kind: &'s Kind,
    pub(crate) cpus: &'s Cpus,
    pub(crate) workers: usize,
    /// As in [`Site`].
    pub(crate) kept: u32,
    pub(crate) tools: &'s Path,
    pub(crate) options: Vec<String>,
    /// The directory of this gateway, empty.
    pub(crate) directory: PathBuf,
    pub(crate) place: Place,
    /// The addresses of plain HTTP and HTTPS, and of a possible admin interface.
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway on the node, and waits until it serves over HTTP and accepts connections for HTTPS.
    pub(crate) async fn start(start: Start<'_>, config: Config) -> anyhow::Result<Self> {
        let Start { kind, cpus, workers, kept, tools, options, directory, place, http, https, admin } = start;
        let site = Site { directory, http, https, admin, workers, kept, tools: tools.to_owned(), options };
        let prepared = (kind.prepare)(&site, &config)?;
        let words = std::iter::once(prepared.command.get_program()).chain(prepared.command.get_args());
        let command = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let process = place.enter(|| {
            cpus.take_gateway()?;
            Process::start(prepared.command)
        })??;
        let (driver, files) = (prepared.driver, prepared.files);
        let mut gateway = Self { process, driver, config, site, command, files, place };
        gateway.wait(kind).await.with_context(|| format!("starting {}", kind.name))?;
        Ok(gateway)
    }

    async fn wait(&mut self, kind: &Kind) -> anyhow::Result<()> {
        let Self { process, driver, config, site, place, .. } = self;
        let is_secured = kind.can(Work::Https);
        for address in [Some(site.http), is_secured.then_some(site.https)].into_iter().flatten() {
            until(place, process, &format!("{address} to accept"), || probe::accepts(address)).await?;
        }
        place.enter(|| driver.started(process, config))??;
        // The last permitted caller, which the gateway admits once all callers are known.
        let good = Call::good(config.api.good().pop());
        let path = config.api.path(None);
        let is_ok = || probe::call(site.http, HOST, &path, &good).is_ok_and(|answer| answer.status == 200);
        until(place, process, &format!("200 from http://{}", site.http), is_ok).await
    }

    /// An error with the output of the gateway, if it has ended.
    pub(crate) fn ensure_running(&mut self) -> anyhow::Result<()> {
        let process = &mut self.process;
        ensure!(process.is_running(), "it has ended; it printed:\n{}", process.output());
        Ok(())
    }

    /// Changes a part of the configuration, and notifies the gateway.
    pub(crate) fn change(&mut self, part: Part, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
        change(&mut self.config);
        let Self { process, driver, config, place, .. } = self;
        place.enter(|| driver.apply(process, part, config))?
    }
}

/// Waits until the response for a path has status 200.
pub(crate) async fn reach(
    place: &Place,
    process: &mut Process,
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<()> {
    let is_ok = || probe::get(address, HOST, path).is_ok_and(|answer| answer.status == 200);
    until(place, process, &format!("200 from http://{address}{path}"), is_ok).await
}

/// Waits until this holds in the namespace; an error if the process ends.
async fn until(
    place: &Place,
    process: &mut Process,
    what: &str,
    holds: impl Fn() -> bool + Sync,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + START;
    while !place.enter(&holds)? {
        let printed = || process.output();
        ensure!(Instant::now() < deadline, "waited in vain for {what}; it printed:\n{}", printed());
        ensure!(process.is_running(), "it ended while waiting for {what}; it printed:\n{}", process.output());
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
