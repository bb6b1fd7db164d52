//! Traefik, which watches a folder of files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, fill, replace, version_of};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "traefik",
    title: "Traefik",
    learns: "Watches a folder of files, and puts changes off for 2 s after one (providersThrottleDuration), as it does \
             with what its Kubernetes provider sees; no reload, no retries. It gives requests no X-Request-ID.",
    version,
    works: &Work::ALL,
    functions: &[],
    prepare,
};

fn version(tools: &Path) -> anyhow::Result<String> {
    let line = version_of(&program(tools), &["version"])?;
    Ok(line.replacen("Version:", "Traefik", 1).split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The program in the folder of `scripts/setup peers`, else in PATH.
fn program(tools: &Path) -> PathBuf {
    Some(tools.join("traefik")).filter(|file| file.is_file()).unwrap_or_else(|| "traefik".into())
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let watched = site.directory.join("dynamic");
    fs::create_dir(&watched).with_context(|| format!("making {}", watched.display()))?;
    let driver = Traefik { aside: site.directory.clone(), watched };
    for part in [Part::Hosts, Part::Endpoints, Part::Certificate] {
        driver.write(part, config)?;
    }
    let text = fill(
        include_str!("templates/traefik.yaml"),
        &[("http", &site.http), ("https", &site.https), ("directory", &driver.watched.display())],
    );
    let file = site.directory.join("traefik.yaml");
    replace(&file, &text)?;
    let mut command = Command::new(program(&site.tools));
    command.env("GOMAXPROCS", site.workers.to_string());
    command.arg(format!("--configFile={}", file.display())).args(&site.options);
    let files = vec![
        ConfigFile::new("traefik.yaml", &text),
        ConfigFile::new("routes.yaml", &routes(&config.hosts)),
        ConfigFile::new("endpoints.yaml", &endpoints(config)),
    ];
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Traefik {
    /// The folder where new files are written.
    aside: PathBuf,
    /// The watched folder: all its files are one configuration.
    watched: PathBuf,
}

impl Driver for Traefik {
    fn apply(&mut self, _: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        self.write(part, config)
    }
}

impl Traefik {
    fn write(&self, part: Part, config: &Config) -> anyhow::Result<()> {
        let (name, text) = match part {
            Part::Endpoints => ("endpoints.yaml", endpoints(config)),
            Part::Certificate => ("certificate.yaml", certificate(&config.certificate)),
            Part::Hosts => ("routes.yaml", routes(&config.hosts)),
        };
        // In another folder: each file that appears or disappears in the watched folder counts as a change, and delays
        // the next ones.
        let new = self.aside.join(name);
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.watched.join(name)))
            .with_context(|| format!("writing {name}"))
    }
}

/// Two routers for each host, as Traefik's Kubernetes provider creates them from an Ingress with TLS.
fn routes(hosts: &[String]) -> String {
    let mut text = "http:\n  routers:\n".to_owned();
    for (number, host) in [HOST].into_iter().chain(hosts.iter().map(String::as_str)).enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "    http-{number}: {{entryPoints: [http], rule: \"Host(`{host}`)\", service: app}}
    https-{number}: {{entryPoints: [https], rule: \"Host(`{host}`)\", service: app, tls: {{}}}}
"
        );
    }
    text
}

fn endpoints(config: &Config) -> String {
    let mut text = "http:
  services:
    app:
      loadBalancer:
        passHostHeader: true
        servers:
"
    .to_owned();
    let scheme = match config.protocol {
        Protocol::Http1 => "http",
        Protocol::Grpc => "h2c",
    };
    for endpoint in &config.endpoints {
        let _ = writeln!(text, "        - url: {scheme}://{endpoint}");
    }
    if config.endpoints.is_empty() {
        text += "          []\n";
    }
    text
}

/// The certificate for every name, and for clients without a server name.
fn certificate(Pem { chain, key }: &Pem) -> String {
    // A JSON string is a YAML string.
    let [chain, key] = [chain, key].map(|pem| serde_json::Value::from(pem.as_str()));
    format!(
        "tls:
  certificates:
  - {{certFile: {chain}, keyFile: {key}}}
  stores:
    default:
      defaultCertificate: {{certFile: {chain}, keyFile: {key}}}
"
    )
}
