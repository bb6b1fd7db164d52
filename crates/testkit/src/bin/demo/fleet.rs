//! The backends of the demo: processes that start, and die by SIGKILL.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use tokio::time::sleep;

use crate::slice::Slice;

/// The time for which the slice still contains a dead backend.
const LATE: Duration = Duration::from_millis(50);

/// The hosts of 127.0.1.0/24 for backends, in turn.
const HOSTS: std::ops::RangeInclusive<u8> = 1..=250;

/// The running backends, oldest first, with their EndpointSlice.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// This program, which is also the backend.
    program: PathBuf,
    slice: Slice,
    backends: VecDeque<(IpAddr, Process)>,
    next_host: u8,
    changes: u64,
}

impl Fleet {
    /// Starts this many backends and writes the slice.
    pub(crate) async fn start(slice: Slice, size: usize) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let backends = VecDeque::new();
        let mut fleet = Self { program, slice, backends, next_host: *HOSTS.start(), changes: 0 };
        fleet.scale(size).await?;
        fleet.changes = 0;
        Ok(fleet)
    }

    /// The number of running backends.
    pub(crate) fn len(&self) -> usize {
        self.backends.len()
    }

    /// The number of scalings.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Scales the fleet. Each new backend has an address of its own, and enters the slice when it serves. To scale
    /// down, kills the oldest backends, which leave the slice a little later.
    pub(crate) async fn scale(&mut self, size: usize) -> anyhow::Result<()> {
        while self.backends.len() < size {
            self.add().await?;
        }
        let surplus = self.backends.len() - size;
        for (_, mut process) in self.backends.drain(..surplus) {
            process.kill()?;
        }
        if surplus > 0 {
            sleep(LATE).await;
        }
        let ready: Vec<IpAddr> = self.backends.iter().map(|(ip, _)| *ip).collect();
        self.slice.write(&ready)?;
        self.changes += 1;
        Ok(())
    }

    async fn add(&mut self) -> anyhow::Result<()> {
        let ip = IpAddr::from([127, 0, 1, self.next_host]);
        self.next_host = if self.next_host == *HOSTS.end() { *HOSTS.start() } else { self.next_host + 1 };
        let addr = SocketAddr::new(ip, self.slice.port());
        let mut command = Command::new(&self.program);
        command.arg("--backend").arg(addr.to_string());
        let mut process = Process::start(command)?;
        let served = process.wait_for_ok(addr, "/healthz", Duration::from_secs(5)).await;
        served.with_context(|| format!("a backend at {addr}"))?;
        self.backends.push_back((ip, process));
        Ok(())
    }
}

/// Serves as a backend until SIGKILL.
pub(crate) async fn serve(addr: SocketAddr) -> anyhow::Result<ExitCode> {
    let _backend =
        Backend::start_at(addr, Behaviour::ok()).await.with_context(|| format!("listening at {addr}"))?;
    std::future::pending().await
}
