//! A gateway process with a directory of manifests, in front of in-process backends.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluicegate_netns::Process;
use sluicegate_testkit::backend::Backend;
use sluicegate_testkit::client;
use tempfile::TempDir;

/// The timeout of every wait in a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Waits until a condition is met.
pub(crate) async fn until(mut is_met: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    tokio::time::timeout(LIMIT, async {
        while !is_met().await? {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await?
}

/// A directory of manifests, and the addresses of the gateway that serves it.
pub(crate) struct Site {
    dir: TempDir,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Site {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { dir: tempfile::tempdir()?, http: free_address()?, admin: free_address()? })
    }

    /// A site in front of these backends.
    pub(crate) fn of<'b>(backends: impl IntoIterator<Item = &'b Backend>) -> anyhow::Result<Self> {
        let site = Self::new()?;
        site.save_all(backends)?;
        Ok(site)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Saves a manifest atomically: writes a hidden file, then renames it.
    pub(crate) fn save(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let hidden = self.path().join(format!(".{name}.new"));
        std::fs::write(&hidden, text)?;
        std::fs::rename(&hidden, self.path().join(name))?;
        Ok(())
    }

    /// Saves a Service with these backends, and an Ingress that routes all paths to the Service.
    pub(crate) fn save_all<'b>(&self, backends: impl IntoIterator<Item = &'b Backend>) -> anyhow::Result<()> {
        self.save("service.yaml", SERVICE)?;
        self.save_endpoints(backends)?;
        self.save("ingress.yaml", &ingress("web", "/"))
    }

    pub(crate) fn save_endpoints<'b>(
        &self,
        backends: impl IntoIterator<Item = &'b Backend>,
    ) -> anyhow::Result<()> {
        self.save("slices.yaml", &slices(backends.into_iter().map(Backend::addr)))
    }

    /// Starts a gateway for the site without waiting for its readiness.
    pub(crate) fn start(&self, options: &[&str]) -> anyhow::Result<Process> {
        Process::start(self.command(options))
    }

    /// The command of a gateway for the site. The gateway has two workers, unless an option says otherwise. After the first response
    /// that shows a change, another worker may still serve the state before.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = sluicegate();
        command.args(["serve", "--manifests"]).arg(self.path());
        command.args(["--listen", &self.http.to_string(), "--admin", &self.admin.to_string()]);
        if !options.iter().any(|option| option.starts_with("--workers")) {
            command.arg("--workers=2");
        }
        command.args(options);
        command
    }

    /// Starts a gateway for the site, and waits until the gateway is ready.
    pub(crate) async fn serve(&self, options: &[&str]) -> anyhow::Result<Process> {
        let mut gateway = self.start(options)?;
        gateway.wait_for_ok(self.admin, "/readyz", LIMIT).await?;
        Ok(gateway)
    }

    pub(crate) async fn status(&self, path: &str) -> anyhow::Result<u16> {
        Ok(client::get(self.http, "localhost", path).await?.status)
    }

    /// Waits until a path responds with this status.
    pub(crate) async fn wait_for_status(&self, path: &str, status: u16) -> anyhow::Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            let found = self.status(path).await;
            if matches!(found, Ok(found) if found == status) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < end, "{path} is {found:?}, not {status}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn sluicegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
}

pub(crate) const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ports: [{name: http, port: 80, targetPort: 8080}]
";

/// An Ingress without a host.
pub(crate) fn ingress(name: &str, path: &str) -> String {
    format!(
        "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}}}
spec:
  rules:
  - http:
      paths:
      - path: {path}
        pathType: Prefix
        backend: {{service: {{name: web, port: {{name: http}}}}}}
"
    )
}

/// One EndpointSlice per address, because the ports of in-process backends differ.
pub(crate) fn slices(addresses: impl IntoIterator<Item = SocketAddr>) -> String {
    let slice = |(index, address): (usize, SocketAddr)| {
        format!(
            "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-{index}, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {}}}]
endpoints: [{{addresses: [{}]}}]
",
            address.port(),
            address.ip()
        )
    };
    addresses.into_iter().enumerate().map(slice).collect()
}

/// An address with a port without a listener, another one for each call. Linux chooses ports above this range for clients
/// (`ip_local_port_range`), so no client of another test takes the port before the gateway listens.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let next = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(FIRST + next % COUNT)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    anyhow::bail!("no port from {FIRST} on is free")
}
