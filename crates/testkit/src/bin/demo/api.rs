//! The API of the demo: two operations, a plan with a quota, and a consumer with a key.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use sluicegate_testkit::client::Client;
use tokio::time::{interval, timeout};

/// The host of the API. Names below `localhost` are loopback addresses (RFC 6761, 6.3).
pub(crate) const HOST: &str = "pets.localhost";

/// The header with the key.
pub(crate) const KEY_HEADER: &str = "X-API-Key";

/// The requests per second.
const RATE: u32 = 20;

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(5);

const MANIFEST: &str = include_str!("api.yaml");

/// A key for the API.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) key: String,
}

impl Api {
    /// Writes the API to a folder of manifests, and issues the key with the program.
    pub(crate) fn start(manifests: &Path, program: &Path) -> anyhow::Result<Self> {
        let path = manifests.join("api.yaml");
        fs::write(&path, MANIFEST)?;
        let mut command = Command::new(program);
        let issued = command.args(["key", "issue", "alice", "--manifest"]).arg(&path).output();
        let issued = issued.with_context(|| format!("starting {}", program.display()))?;
        let error = String::from_utf8_lossy(&issued.stderr);
        ensure!(issued.status.success(), "sluicegate key issue: {error}");
        Ok(Self { key: String::from_utf8_lossy(&issued.stdout).trim().to_owned() })
    }

    /// Calls both operations forever, also with a wrong key. Ends with an error if a call has another result than expected.
    pub(crate) async fn call(&self, addr: SocketAddr) -> anyhow::Result<()> {
        let mut client = Client::connect(addr).await?;
        let mut ticks = interval(Duration::from_secs(1) / RATE);
        for number in 0_u64.. {
            ticks.tick().await;
            let path = if number % 3 == 0 { "/v1/pets".to_owned() } else { format!("/v1/pets/{number}") };
            let (key, status) = if number % 50 == 49 { ("wrong", 401) } else { (&*self.key, 200) };
            let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{KEY_HEADER}: {key}\r\n\r\n");
            let response = timeout(PATIENCE, client.request(request)).await;
            let response = response.context("a call of the API took too long")??;
            ensure!(
                response.status == status,
                "GET {path} of the API has the status {} instead of {status}: {}",
                response.status,
                response.text()
            );
        }
        Ok(())
    }
}
