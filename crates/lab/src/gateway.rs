//! The gateways under test: how each is started, and how it is told of changes.
//!
//! All do the same work, so that what is compared is how they do it: one host over HTTP and HTTPS with the same key, the
//! same headers added for the pods, connections kept alive on both sides, logs off, so many workers. Each is told of
//! endpoints, certificates and routes in the way in which its controller tells it.

pub(crate) mod api;
mod envoy;
mod floor;
mod haproxy;
mod nginx;
mod nginx_lua;
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

/// What a gateway serves.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The pods of the one upstream.
    pub(crate) endpoints: Vec<SocketAddr>,
    /// What they speak.
    pub(crate) protocol: Protocol,
    /// What clients are shown for every host, over TLS 1.2 and 1.3.
    pub(crate) certificate: Pem,
    /// Further hosts that are routed to the same pods. Those that are not here are answered 404.
    pub(crate) hosts: Vec<String>,
    /// What is done with calls beside passing them on; for kinds that can.
    pub(crate) api: Api,
}

/// What the pods speak.
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

/// Which part of a [`Config`] is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Endpoints,
    Certificate,
    Hosts,
}

/// Where a gateway is to run.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Its own, empty at first.
    pub(crate) directory: PathBuf,
    /// Where it serves plain HTTP and HTTPS, for all hosts.
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    /// For an admin interface, on loopback.
    pub(crate) admin: SocketAddr,
    /// Threads or processes that serve.
    pub(crate) workers: usize,
    /// How many idle connections to pods each of nginx' workers keeps, which has to be said there. The others keep as many as
    /// there are, or more than a run has.
    pub(crate) kept: u32,
    /// Where the programs are that are not in PATH: `target/tools`.
    pub(crate) tools: PathBuf,
    /// Further options for the gateway's own command line.
    pub(crate) options: Vec<String>,
}

/// A kind of gateway.
pub(crate) struct Kind {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// As people know it.
    pub(crate) title: &'static str,
    /// How it learns of endpoints, certificates and routes, in a sentence for the report.
    pub(crate) learns: &'static str,
    /// What the program says of its version; why it cannot be run, if it cannot. `tools` as in [`Site`].
    pub(crate) version: fn(tools: &Path) -> anyhow::Result<String>,
    /// What it can be compared in.
    pub(crate) works: &'static [Work],
    /// Whether it has the functions of an API gateway here.
    pub(crate) has_functions: bool,
    /// Writes its configuration.
    pub(crate) prepare: fn(&Site, &Config) -> anyhow::Result<Prepared>,
}

impl Kind {
    /// What reports say of it, without figures.
    pub(crate) fn unmeasured(&self, version: &str) -> OfGateway {
        OfGateway {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            version: version.to_owned(),
            learns: self.learns.to_owned(),
            ..OfGateway::default()
        }
    }

    /// Whether it takes part where this is done with calls.
    pub(crate) fn has(&self, functions: Functions) -> bool {
        self.has_functions || functions == Functions::None
    }

    pub(crate) fn can(&self, work: Work) -> bool {
        self.works.contains(&work)
    }
}

/// A gateway that can be started.
pub(crate) struct Prepared {
    pub(crate) command: Command,
    /// What was written, but for keys.
    pub(crate) files: Vec<ConfigFile>,
    pub(crate) driver: Box<dyn Driver>,
}

/// Tells a gateway that is running what is new. Its calls are made in the gateway's network namespace, block, and end by
/// themselves within seconds.
pub(crate) trait Driver: Send {
    /// It accepts connections for the first time: for those that are told of their endpoints only then.
    fn started(&mut self, _process: &Process, _config: &Config) -> anyhow::Result<()> {
        Ok(())
    }

    /// This part of the configuration is new.
    fn apply(&mut self, process: &Process, part: Part, config: &Config) -> anyhow::Result<()>;
}

/// Those that `all` means, in the order of reports.
pub(crate) const ALL: [&Kind; 6] =
    [&sluicegate::KIND, &nginx::KIND, &nginx_lua::KIND, &haproxy::KIND, &envoy::KIND, &traefik::KIND];

/// Those that take part only when they are named.
pub(crate) const EXTRA: [&Kind; 2] = [&sluicegate::BARE, &floor::KIND];

impl ConfigFile {
    fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }
}

/// The kind of this name.
pub(crate) fn named(name: &str) -> anyhow::Result<&'static Kind> {
    let mut all = ALL.iter().chain(&EXTRA);
    let known = || ALL.iter().chain(&EXTRA).map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let kind = all.find(|kind| kind.name == name);
    kind.copied().with_context(|| format!("{name}: no such gateway; there are {}", known()))
}

/// The first line that a program prints about itself.
pub(crate) fn version_of(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    Ok(line.with_context(|| format!("{} says nothing of its version", program.display()))?.trim().to_owned())
}

/// Writes a file in one step, so that nobody reads half of it.
pub(crate) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    // Beside it, since a rename does not cross file systems; with a name that no watcher takes for configuration.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.new"));
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("writing {}", path.display()))
}

/// A template with each `{name}` in it replaced by its value.
fn fill(template: &str, values: &[(&str, &dyn ToString)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), &value.to_string())
    })
}
