//! Sluicegate: manifests in a directory, of which each is replaced when it changes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
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
    version: |tools| version_of(&program(tools), &["--version"]),
    works: &Work::ALL,
    prepare,
};

/// Built from this repository.
fn program(tools: &Path) -> PathBuf {
    tools.join("sluicegate")
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let manifests = site.directory.join("manifests");
    fs::create_dir(&manifests).with_context(|| format!("making {}", manifests.display()))?;
    let driver = Sluicegate { manifests };
    for part in [Part::Hosts, Part::Endpoints, Part::Certificate] {
        driver.write(part, config)?;
    }
    let mut command = Command::new(program(&site.tools));
    command.arg("serve").arg("--manifests").arg(&driver.manifests);
    command.arg("--listen").arg(site.http.to_string()).arg("--listen-https").arg(site.https.to_string());
    command.arg("--admin").arg(site.admin.to_string()).arg("--workers").arg(site.workers.to_string());
    command.args(&site.options);
    let file = |name: &str, text| ConfigFile { name: name.to_owned(), text };
    let files = vec![file("ingress.yaml", ingress(config)), file("endpoints.yaml", endpoints(config))];
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
