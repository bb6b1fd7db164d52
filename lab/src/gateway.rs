//! The gateways under test: their start, and the notification of changes.
//!
//! All gateways do the same work, so that only their implementation differs: one host over HTTP and HTTPS with the same
//! key, the same added headers for the pods, keep-alive connections on both sides, no logs, the same number of workers.
//! Each gateway receives endpoints, certificates and routes in the same way as from its controller.

pub(crate) mod api;
pub(crate) mod catalogue;
mod envoy;
mod floor;
mod haproxy;
mod nginx;
mod nginx_lua;
pub(crate) mod order;
pub(crate) mod refusals;
mod sluicegate;
#[cfg(test)]
mod tests;
mod traefik;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use sluicegate_netns::Process;

pub(crate) use self::api::Api;
use crate::experiment::{Functions, Work};
use crate::results::{ConfigFile, OfGateway};

/// The host that all gateways route to the pods.
pub(crate) const HOST: &str = "app.example.com";

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The pods of the single upstream.
    pub(crate) endpoints: Vec<SocketAddr>,
    /// The protocol of the pods.
    pub(crate) protocol: Protocol,
    /// The certificate for every host, over TLS 1.2 and 1.3.
    pub(crate) certificate: Pem,
    /// Additional hosts with routes to the same pods. The gateway responds with 404 to requests for all other hosts.
    pub(crate) hosts: Vec<String>,
    /// The functions applied to calls beside forwarding; for gateways that have them.
    pub(crate) api: Api,
}

/// The protocol of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// gRPC: HTTP/2 in clear text.
    Grpc,
}

/// A certificate chain and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pem {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// The changed part of a [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Endpoints,
    Certificate,
    Hosts,
}

/// The place where a gateway runs.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The directory of this gateway, empty at first.
    pub(crate) directory: PathBuf,
    /// The addresses of plain HTTP and HTTPS, for all hosts.
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    /// The address of an admin interface, on loopback.
    pub(crate) admin: SocketAddr,
    /// Serving threads or processes.
    pub(crate) workers: usize,
    /// The number of idle connections to pods that each nginx worker keeps, which nginx requires. The other gateways
    /// keep all connections, or more than a run has.
    pub(crate) kept: u32,
    /// The folder with programs that are not in PATH: `target/tools`.
    pub(crate) tools: PathBuf,
    /// Additional options for the command line of the gateway.
    pub(crate) options: Vec<String>,
}

/// A kind of gateway.
pub(crate) struct Kind {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The usual name.
    pub(crate) title: &'static str,
    /// The way in which the gateway receives endpoints, certificates and routes, in a sentence for the report.
    pub(crate) learns: &'static str,
    /// The version that the program prints, or the reason why it cannot run. `tools` as in [`Site`].
    pub(crate) version: fn(tools: &Path) -> anyhow::Result<String>,
    /// The kinds of work that the gateway can do.
    pub(crate) works: &'static [Work],
    /// The functions of an API gateway that it has here.
    pub(crate) functions: &'static [Functions],
    /// Writes its configuration.
    pub(crate) prepare: fn(&Site, &Config) -> anyhow::Result<Prepared>,
}

impl Kind {
    /// The gateway's entry in reports, without figures.
    pub(crate) fn unmeasured(&self, version: &str) -> OfGateway {
        OfGateway {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            version: version.to_owned(),
            learns: self.learns.to_owned(),
            ..OfGateway::default()
        }
    }

    /// Whether the gateway can apply these functions.
    pub(crate) fn has(&self, functions: Functions) -> bool {
        functions == Functions::None || self.functions.contains(&functions)
    }

    pub(crate) fn can(&self, work: Work) -> bool {
        self.works.contains(&work)
    }
}

/// A gateway that can be started.
pub(crate) struct Prepared {
    pub(crate) command: Command,
    /// The written files, without keys.
    pub(crate) files: Vec<ConfigFile>,
    pub(crate) driver: Box<dyn Driver>,
}

/// Notifies a running gateway of changes. Its calls run in the gateway's network namespace, block, and end by
/// themselves within seconds.
pub(crate) trait Driver: Send {
    /// Called when the gateway accepts its first connection, for gateways that receive their endpoints only then.
    fn started(&mut self, _process: &Process, _config: &Config) -> anyhow::Result<()> {
        Ok(())
    }

    /// Applies a new part of the configuration.
    fn apply(&mut self, process: &Process, part: Part, config: &Config) -> anyhow::Result<()>;
}

/// The gateways that `all` means, in the order of reports.
pub(crate) const ALL: [&Kind; 6] =
    [&sluicegate::KIND, &nginx::KIND, &nginx_lua::KIND, &haproxy::KIND, &envoy::KIND, &traefik::KIND];

/// The gateways that take part only if the user names them.
pub(crate) const EXTRA: [&Kind; 3] = [&sluicegate::BARE, &sluicegate::BASELINE, &floor::KIND];

impl ConfigFile {
    fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }
}

/// The gateway with this name.
pub(crate) fn named(name: &str) -> anyhow::Result<&'static Kind> {
    let mut all = ALL.iter().chain(&EXTRA);
    let known = || ALL.iter().chain(&EXTRA).map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let kind = all.find(|kind| kind.name == name);
    kind.copied().with_context(|| format!("{name}: no such gateway; there are {}", known()))
}

/// The first line of a program's version output.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    Ok(line.with_context(|| format!("{} does not print its version", program.display()))?.trim().to_owned())
}

/// Writes a file in one step, so that no reader sees half of it.
pub(crate) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    // In the same folder, since a rename does not cross file systems; with a name that gateways ignore.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("writing {}", path.display()))
}

/// A template with each `{name}` replaced by its value.
fn fill(template: &str, values: &[(&str, &dyn ToString)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), &value.to_string())
    })
}
