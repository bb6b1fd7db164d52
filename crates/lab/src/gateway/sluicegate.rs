//! Sluicegate: manifests in a directory, of which each is replaced when it changes.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, replace, version_of};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "sluicegate",
    title: "Sluicegate",
    learns: "Watches a directory of manifests, as its controller watches the API server; no reload.",
    version: |_| version_of(&program(), &["--version"]),
    works: &Work::ALL,
    prepare,
};

/// The fault that the lab has to find: each request has one try, and what does not answer is waited for.
pub(crate) const BARE: Kind = Kind {
    name: "sluicegate-bare",
    title: "Sluicegate, retries and hedging off",
    learns: "As Sluicegate, with --attempts 1 and all that sends a request or a connect again off.",
    version: KIND.version,
    works: KIND.works,
    prepare: prepare_bare,
};

/// What [`BARE`] is told beside the rest.
const ONE_TRY: [&str; 8] =
    ["--attempts", "1", "--connect-hedge", "0s", "--unacknowledged-timeout", "0s", "--endpoint-wait", "0s"];

/// The one that was built together with this program, else the one in PATH.
fn program() -> PathBuf {
    let built = std::env::current_exe().ok().and_then(|lab| {
        // Programs of tests are a folder further down, in deps.
        lab.ancestors().skip(1).take(2).map(|folder| folder.join("sluicegate")).find(|file| file.is_file())
    });
    built.unwrap_or_else(|| "sluicegate".into())
}

fn prepare_bare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    // First, so that what the user gives still decides.
    let options = ONE_TRY.iter().map(|option| (*option).to_owned()).chain(site.options.clone()).collect();
    prepare(&Site { options, ..site.clone() }, config)
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let manifests = site.directory.join("manifests");
    fs::create_dir(&manifests).with_context(|| format!("making {}", manifests.display()))?;
    let driver = Sluicegate { manifests };
    for part in [Part::Hosts, Part::Endpoints, Part::Certificate] {
        driver.write(part, config)?;
    }
    let mut command = Command::new(program());
    command.arg("serve").arg("--manifests").arg(&driver.manifests);
    command.arg("--listen").arg(site.http.to_string()).arg("--listen-https").arg(site.https.to_string());
    command.arg("--admin").arg(site.admin.to_string()).arg("--workers").arg(site.workers.to_string());
    command.args(&site.options);
    let files = vec![
        ConfigFile::new("ingress.yaml", &ingress(config)),
        ConfigFile::new("endpoints.yaml", &endpoints(config)),
    ];
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Sluicegate {
    manifests: PathBuf,
}

impl Driver for Sluicegate {
    fn apply(&mut self, _: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        self.write(part, config)
    }
}

impl Sluicegate {
    fn write(&self, part: Part, config: &Config) -> anyhow::Result<()> {
        let (name, text) = match part {
            Part::Endpoints => ("endpoints.yaml", endpoints(config)),
            Part::Certificate => ("secret.yaml", secret(&config.certificate)),
            Part::Hosts => ("ingress.yaml", ingress(config)),
        };
        replace(&self.manifests.join(name), &text)
    }
}

/// One Ingress for all hosts, and the Service.
fn ingress(config: &Config) -> String {
    let mut text = "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app, namespace: default, annotations: {sluicegate.dev/ssl-redirect: \"false\"}}
spec:
  tls: [{secretName: app}]
  rules:
"
    .to_owned();
    for host in [HOST].into_iter().chain(config.hosts.iter().map(String::as_str)) {
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "    - host: {host}
      http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: app, port: {{name: http}}}}}}}}]}}"
        );
    }
    let protocol = match config.protocol {
        Protocol::Http1 => "http",
        Protocol::Grpc => "kubernetes.io/h2c",
    };
    text + &format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: app, namespace: default}}
spec:
  ports: [{{name: http, port: 80, appProtocol: {protocol}}}]
"
    )
}

/// The pods of a Service have one port.
fn endpoints(config: &Config) -> String {
    let port = config.endpoints.first().map_or(80, std::net::SocketAddr::port);
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: app-1, namespace: default, labels: {{kubernetes.io/service-name: app}}}}
addressType: IPv4
ports: [{{name: http, port: {port}, protocol: TCP}}]
endpoints:
"
    );
    for endpoint in &config.endpoints {
        let _ = writeln!(text, "  - {{addresses: [{}], conditions: {{ready: true}}}}", endpoint.ip());
    }
    if config.endpoints.is_empty() {
        text += "  []\n";
    }
    text
}

fn secret(Pem { chain, key }: &Pem) -> String {
    let (chain, key) = (BASE64_STANDARD.encode(chain), BASE64_STANDARD.encode(key));
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: app, namespace: default}}
type: kubernetes.io/tls
data: {{tls.crt: {chain}, tls.key: {key}}}
"
    )
}
