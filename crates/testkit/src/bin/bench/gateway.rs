//! The back ends, and the gateways before them, each configured for the same work.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, net};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use sluicegate_testkit::client;
use sluicegate_testkit::process::Process;
use sluicegate_testkit::tls::Issued;

/// How many back ends.
const BACKENDS: u8 = 5;

/// How long a program may take to serve.
const START: Duration = Duration::from_secs(10);

/// What can be measured, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// This project.
    Sluicegate,
    /// nginx, one worker.
    Nginx,
    /// HAProxy, one thread.
    Haproxy,
    /// A byte forwarder: the least that a proxy can cost.
    Floor,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Sluicegate, Self::Nginx, Self::Haproxy, Self::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sluicegate => "sluicegate",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Floor => "floor",
        }
    }

    /// What the program says about itself; `None` if it cannot be run.
    pub(crate) fn version(self, program: &Path) -> Option<String> {
        match self {
            Self::Sluicegate => version_of(program, &["--version"]),
            Self::Nginx | Self::Haproxy => version_of(program, &["-v"]),
            Self::Floor => program.exists().then(|| "recv, send, recv, send".to_owned()),
        }
    }
}

/// The first line that a program prints about itself.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // "nginx version: nginx/1.22.1", "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"
    let line = text.lines().next()?.trim_start_matches("nginx version: ");
    Some(line.split(" - ").next().unwrap_or(line).to_owned())
}

/// Five back ends at 127.0.1.1 to 127.0.1.5: one nginx, which answers from memory, so that they are never
/// what is measured.
#[derive(Debug)]
pub(crate) struct Backends {
    port: u16,
    pub(crate) process: Process,
}

impl Backends {
    pub(crate) async fn start(directory: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut servers = String::new();
        for addr in addrs(port) {
            writeln!(servers, "listen {addr};")?;
        }
        let http = format!("server {{ {servers} location / {{ return 200 \"{}\"; }} }}", body());
        let command = nginx(directory, "backends", &http)?;
        let mut process = Process::start(command)?;
        for addr in addrs(port) {
            process.wait_for_ok(addr, "/", START).await?;
        }
        Ok(Self { port, process })
    }

    fn addrs(&self) -> Vec<SocketAddr> {
        addrs(self.port)
    }
}

/// A gateway that is running.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) kind: Kind,
    pub(crate) version: String,
    /// Where it serves plain HTTP.
    pub(crate) addr: SocketAddr,
    /// Where it serves HTTPS; the floor does not.
    pub(crate) tls: Option<SocketAddr>,
    pub(crate) process: Process,
}

impl Gateway {
    pub(crate) async fn start(
        kind: Kind,
        program: &Path,
        version: String,
        backends: &Backends,
        certificate: &Issued,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let tls = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let command = match kind {
            Kind::Sluicegate => sluicegate(program, [addr, tls], backends, certificate, directory)?,
            Kind::Nginx => {
                nginx(directory, "nginx", &nginx_proxy([addr, tls], backends, certificate, directory)?)?
            }
            Kind::Haproxy => haproxy([addr, tls], backends, certificate, directory)?,
            Kind::Floor => {
                let mut command = Command::new(program);
                command.arg(addr.to_string()).args(backends.addrs().iter().map(ToString::to_string));
                command
            }
        };
        let mut process = Process::start(command)?;
        process.wait_for_ok(addr, "/", START).await?;
        let tls = (kind != Kind::Floor).then_some(tls);
        Ok(Self { kind, version, addr, tls, process })
    }

    /// Makes sure that it really serves what the back ends serve.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        for _ in 0..usize::from(BACKENDS) * 2 {
            let response = client::get(self.addr, "bench.example", "/")
                .await
                .with_context(|| format!("asking {}", self.kind.name()))?;
            ensure!(
                response.status == 200 && response.body == body().as_bytes(),
                "{} answers {} with {} bytes",
                self.kind.name(),
                response.status,
                response.body.len()
            );
        }
        Ok(())
    }
}

fn body() -> String {
    "0123456789abcdef".repeat(64)
}

fn addrs(port: u16) -> Vec<SocketAddr> {
    (1..=BACKENDS).map(|host| SocketAddr::from(([127, 0, 1, host], port))).collect()
}

fn free_port() -> anyhow::Result<u16> {
    Ok(net::TcpListener::bind("127.0.0.1:0").context("looking for a free port")?.local_addr()?.port())
}

fn nginx(directory: &Path, name: &str, http: &str) -> anyhow::Result<Command> {
    let prefix = directory.join(name);
    fs::create_dir(&prefix)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {what}_temp;\n"))
        .concat();
    let text = format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{temporary}access_log off;\nkeepalive_requests 100000000;\n{http}\n}}\n"
    );
    fs::write(prefix.join("nginx.conf"), text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&prefix).args(["-e", "stderr", "-c", "nginx.conf"]);
    Ok(command)
}

fn nginx_proxy(
    [addr, tls]: [SocketAddr; 2],
    backends: &Backends,
    certificate: &Issued,
    directory: &Path,
) -> anyhow::Result<String> {
    let (chain, key) = (directory.join("nginx.crt"), directory.join("nginx.key"));
    fs::write(&chain, &certificate.chain_pem)?;
    fs::write(&key, &certificate.key_pem)?;
    let (chain, key) = (chain.display(), key.display());
    let mut servers = String::new();
    for backend in backends.addrs() {
        writeln!(servers, "server {backend};")?;
    }
    Ok(format!(
        "upstream backends {{\n{servers}keepalive 128;\nkeepalive_requests 100000000;\n}}\n\
         server {{\nlisten {addr};\nlisten {tls} ssl http2;\n\
         ssl_certificate {chain};\nssl_certificate_key {key};\nssl_protocols TLSv1.2 TLSv1.3;\n\
         location / {{\n\
         proxy_pass http://backends;\n\
         proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Forwarded-Host $http_host;\n\
         proxy_set_header X-Forwarded-Port $server_port;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\n\
         proxy_set_header X-Real-IP $remote_addr;\n\
         proxy_set_header X-Request-ID $request_id;\n\
         }}\n}}"
    ))
}

fn haproxy(
    [addr, tls]: [SocketAddr; 2],
    backends: &Backends,
    certificate: &Issued,
    directory: &Path,
) -> anyhow::Result<Command> {
    let pem = directory.join("haproxy.pem");
    fs::write(&pem, [&*certificate.chain_pem, &*certificate.key_pem].concat())?;
    let pem = pem.display();
    let mut servers = String::new();
    for (number, backend) in backends.addrs().iter().enumerate() {
        writeln!(servers, "    server s{number} {backend}")?;
    }
    let text = format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 60s
    timeout client 75s
    timeout server 60s
    timeout http-request 60s
    timeout http-keep-alive 75s
frontend front
    bind {addr}
    bind {tls} ssl crt {pem} alpn h2,http/1.1
    option forwardfor
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Port %[dst_port]
    http-request set-header X-Forwarded-Proto http if !{{ ssl_fc }}
    http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
    http-request set-header X-Real-IP %[src]
    http-request set-header X-Request-ID %[uuid()]
    default_backend back
backend back
    balance roundrobin
    http-reuse always
{servers}"
    );
    let path = directory.join("haproxy.cfg");
    fs::write(&path, text)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-q").arg("-f").arg(path);
    Ok(command)
}

fn sluicegate(
    program: &Path,
    [addr, tls]: [SocketAddr; 2],
    backends: &Backends,
    certificate: &Issued,
    directory: &Path,
) -> anyhow::Result<Command> {
    let manifests = directory.join("manifests");
    fs::create_dir(&manifests)?;
    let addresses: String =
        backends.addrs().iter().map(|addr| format!("  - addresses: [{}]\n", addr.ip())).collect();
    let text = format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: bench, namespace: default, annotations: {{sluicegate.dev/ssl-redirect: \"false\"}}}}
spec:
  tls: [{{secretName: bench}}]
  rules:
    - http:
        paths:
          - path: /
            pathType: Prefix
            backend: {{service: {{name: bench, port: {{name: http}}}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: bench, namespace: default}}
spec:
  ports:
    - {{name: http, port: 80}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: bench-1
  namespace: default
  labels: {{kubernetes.io/service-name: bench}}
addressType: IPv4
ports:
  - {{name: http, port: {}, protocol: TCP}}
endpoints:
{addresses}{}",
        backends.port,
        certificate.secret("bench")
    );
    fs::write(manifests.join("bench.yaml"), text)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--manifests").arg(manifests);
    command.arg("--listen").arg(addr.to_string()).arg("--listen-https").arg(tls.to_string());
    command.args(["--workers", "1"]);
    command.arg("--admin").arg(format!("127.0.0.1:{}", free_port()?));
    Ok(command)
}
