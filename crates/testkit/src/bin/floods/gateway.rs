//! The flooded gateway: its process, its counters, its memory and CPU time.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, ensure};
use sluicegate_netns::Process;
use sluicegate_testkit::client;
use sluicegate_testkit::tls::Authority;

/// The timeout for the start of a program.
const START: Duration = Duration::from_secs(10);

/// The counters of floods: the name in the metrics, and the name in the table.
const COUNTED: [(&str, &str); 5] = [
    ("sluicegate_http2_floods_total", "floods"),
    ("sluicegate_tls_handshake_failures_total", "TLS"),
    ("sluicegate_client_faults_total", "fault"),
    ("sluicegate_requests_rejected_total", "rejected"),
    ("sluicegate_requests_aborted_total", "aborted"),
];

/// A gateway with a backend, each in a process of its own.
pub(crate) struct Gateway {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    admin: SocketAddr,
    pub(crate) process: Process,
    _backends: [Process; 2],
}

/// The path for the flooder. The path has a separate backend, whose failures do not affect the load.
pub(crate) const FLOODED: &str = "/flood";

impl Gateway {
    pub(crate) async fn start(program: &Path, lab: &Path, directory: &Path) -> anyhow::Result<Self> {
        let [http, https, admin, backend, flooded] = free_addrs()?;
        let backends = [back_end(lab, backend).await?, back_end(lab, flooded).await?];
        let certificate = Authority::of_process().issue(&["localhost"]);
        fs::write(
            directory.join("all.yaml"),
            [manifests(backend, flooded), certificate.secret("localhost")].concat(),
        )?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--manifests").arg(directory);
        command.arg("--listen").arg(http.to_string()).arg("--listen-https").arg(https.to_string());
        command.arg("--admin").arg(admin.to_string());
        command.args(["--default-tls-certificate", "default/localhost"]);
        let mut process = Process::start(command)?;
        process.wait_for_ok(http, "/", START).await?;
        Ok(Self { http, https, admin, process, _backends: backends })
    }

    /// The gateway's counters of floods.
    pub(crate) async fn counts(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let response = client::get(self.admin, "localhost", "/metrics").await?;
        ensure!(response.status == 200, "/metrics responds with {}", response.status);
        Ok(response.text().lines().filter_map(counted).collect())
    }

    /// The current memory, and the peak since [`forget_peak`](Self::forget_peak), in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()))?;
        let kib = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        let (now, most) = kib("VmRSS:").zip(kib("VmHWM:")).context("the kernel does not tell the memory")?;
        Ok((now * 1024, most * 1024))
    }

    /// Resets the peak to the current memory (proc(5), clear_refs).
    pub(crate) fn forget_peak(&self) -> io::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.process.pid()), "5")
    }
}

/// A sample of a flood counter, with its name for the table.
fn counted(line: &str) -> Option<(String, u64)> {
    let (sample, value) = line.rsplit_once(' ')?;
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let (_, title) = COUNTED.into_iter().find(|(counted, _)| *counted == name)?;
    // {reason="timeout"}
    let label = labels.split('"').nth(1).unwrap_or_default();
    Some((format!("{title} {label}").trim_end().to_owned(), value.parse().ok()?))
}

async fn back_end(lab: &Path, addr: SocketAddr) -> anyhow::Result<Process> {
    let mut command = Command::new(lab);
    command.arg("backend").arg("--listen").arg(addr.to_string());
    let mut process = Process::start(command)?;
    process.wait_for_ok(addr, "/healthz", START).await.context("a backend")?;
    Ok(process)
}

fn manifests(backend: SocketAddr, flooded: SocketAddr) -> String {
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: all}}
spec:
  rules:
    - http:
        paths:
          - {{path: /, pathType: Prefix, backend: {{service: {{name: echo, port: {{number: 80}}}}}}}}
          - {{path: {FLOODED}, pathType: Prefix, backend: {{service: {{name: flooded, port: {{number: 80}}}}}}}}
"
    );
    let service = |name: &str, addr: SocketAddr| {
        let (ip, port) = (addr.ip(), addr.port());
        format!(
            "---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [{ip}]}}]
"
        )
    };
    [ingress, service("echo", backend), service("flooded", flooded)].concat()
}

/// Free addresses.
fn free_addrs<const N: usize>() -> io::Result<[SocketAddr; N]> {
    // All listeners stay open until all addresses are known.
    let mut listeners = Vec::new();
    let mut addrs = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for addr in &mut addrs {
        let listener = TcpListener::bind(*addr)?;
        *addr = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_counters_are_read_from_the_metrics_of_the_gateway() {
        let sample = |line| counted(line).map(|(name, count)| format!("{name} {count}"));
        let floods = sample("sluicegate_http2_floods_total 3");
        assert_eq!(floods.as_deref(), Some("floods 3"));
        let timeout = sample("sluicegate_tls_handshake_failures_total{reason=\"timeout\"} 7");
        assert_eq!(timeout.as_deref(), Some("TLS timeout 7"));
        assert_eq!(sample("sluicegate_requests_total{code=\"200\"} 7"), None);
        assert_eq!(sample("# TYPE sluicegate_http2_floods counter"), None);
    }
}
