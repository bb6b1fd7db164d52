//! What a client connection takes of a gateway's memory while it waits for its next request.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use sluicegate_netns::process::tree;
use sluicegate_testkit::client::Client;
use tokio::time::sleep;

use crate::gateway::{Gateway, RSA};
use crate::handshakes;

/// How many connections wait: fewer than nginx and HAProxy are configured to allow.
const CONNECTIONS: usize = 1500;
/// How many are there before, so that what they share is not counted.
const FIRST: usize = 100;
/// How long gateways have to give back what they do not need.
const SETTLE: Duration = Duration::from_secs(1);

/// What a connection takes, in KiB.
#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    name: &'static str,
    http: f64,
    https: Option<f64>,
}

impl Idle {
    /// Measures what a gateway's processes have resident before and with connections that have had one request each.
    pub(crate) async fn of(gateway: &Gateway) -> anyhow::Result<Self> {
        let name = gateway.kind.name();
        // All stay until the end: what one left behind would be used for the next.
        let mut waiting = Vec::with_capacity(2 * (FIRST + CONNECTIONS));
        let http = each(&mut waiting, gateway, gateway.addr, false).await.with_context(|| name.to_owned())?;
        let https = match gateway.tls {
            Some(addr) => {
                let each = each(&mut waiting, gateway, addr, true).await;
                Some(each.with_context(|| format!("{name} over TLS"))?)
            }
            None => None,
        };
        Ok(Self { name, http, https })
    }
}

/// A line of the table.
impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let https = self.https.map_or("-".to_owned(), |https| format!("{https:.1}"));
        write!(f, "{:<15}{:>14.1}{https:>14}", self.name, self.http)
    }
}

pub(crate) const HEADING: &str = "idle connection      HTTP, KiB    HTTPS, KiB";

async fn each(
    waiting: &mut Vec<Client>,
    gateway: &Gateway,
    addr: SocketAddr,
    over_tls: bool,
) -> anyhow::Result<f64> {
    connect(waiting, FIRST, addr, over_tls).await?;
    sleep(SETTLE).await;
    let before = resident(gateway)?;
    connect(waiting, CONNECTIONS, addr, over_tls).await?;
    sleep(SETTLE).await;
    let more = resident(gateway)?.saturating_sub(before);
    Ok(more as f64 / 1024.0 / CONNECTIONS as f64)
}

async fn connect(
    waiting: &mut Vec<Client>,
    count: usize,
    addr: SocketAddr,
    over_tls: bool,
) -> anyhow::Result<()> {
    for _ in 0..count {
        let mut client = match over_tls {
            true => Client::connect_tls(addr, &handshakes::options(), RSA).await?,
            false => Client::connect(addr).await?,
        };
        let response = client.request(format!("GET / HTTP/1.1\r\nHost: {RSA}\r\n\r\n")).await?;
        ensure!(response.status == 200, "the answer is {}", response.status);
        waiting.push(client);
    }
    Ok(())
}

/// The bytes of a gateway's processes that are in memory, what they share counted once.
fn resident(gateway: &Gateway) -> anyhow::Result<u64> {
    let mut kib = 0;
    for pid in tree(gateway.process.pid())? {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        kib += line.trim().trim_end_matches(" kB").trim().parse::<u64>()?;
    }
    Ok(kib * 1024)
}
