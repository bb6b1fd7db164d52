//! The back ends of the demo: processes that are started, and killed without a warning.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use sluicegate_netns::Process;
use tokio::time::sleep;

use crate::slice::Slice;

/// How long the slice still names a back end that is dead.
const LATE: Duration = Duration::from_millis(50);

/// The hosts of 127.0.1.0/24 that back ends take in turn.
const HOSTS: std::ops::RangeInclusive<u8> = 1..=250;

/// The running back ends, oldest first, and the EndpointSlice that names them.
#[derive(Debug)]
pub(crate) struct Fleet {
    program: PathBuf,
    slice: Slice,
    backends: VecDeque<(IpAddr, Process)>,
    next_host: u8,
    changes: u64,
}

impl Fleet {
    /// Starts this many back ends and writes the slice.
    pub(crate) async fn start(program: &Path, slice: Slice, size: usize) -> anyhow::Result<Self> {
        let backends = VecDeque::new();
        let mut fleet =
            Self { program: program.to_owned(), slice, backends, next_host: *HOSTS.start(), changes: 0 };
        fleet.scale(size).await?;
        fleet.changes = 0;
        Ok(fleet)
    }

    /// How many back ends run.
    pub(crate) fn len(&self) -> usize {
        self.backends.len()
    }

    /// How many times the fleet was scaled.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds back ends, each at an address of its own, named by the slice once they serve; or kills the oldest
    /// ones, which the slice names a little longer.
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
        command.arg("backend").arg("--listen").arg(addr.to_string());
        let mut process = Process::start(command)?;
        let served = process.wait_for_ok(addr, "/healthz", Duration::from_secs(5)).await;
        served.with_context(|| format!("a back end at {addr}"))?;
        self.backends.push_back((ip, process));
        Ok(())
    }
}
