//! The load of a task, and the command of the load.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use sluicegate_netns::Process;

use super::super::machine::start_load;
use super::super::running::{Gateway, Place};
use crate::experiment::{Compare, Functions, Size, Work};
use crate::gateway::api::Header;
use crate::gateway::{Api, HOST, Kind, order};
use crate::report;
use crate::results::WithFunctions;

/// Connections of HTTP/2, and requests in flight on each.
pub(super) const HTTP2_CONNECTIONS: u64 = 20;
pub(super) const STREAMS: u64 = 10;

/// The number of new TLS connections in progress at a time.
pub(super) const HANDSHAKES: u64 = 16;

/// The time for opening the connections before the first request.
pub(super) const RAMP: Duration = Duration::from_millis(500);

/// The load of gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) work: Work,
    /// The size of response bodies; `None` for the metadata of a pod.
    pub(super) size: Option<Size>,
    pub(super) functions: Functions,
    /// The number of callers; 0 if no key or token is necessary.
    pub(super) callers: usize,
}

impl Task {
    /// All tasks of a comparison, without repeats.
    pub(super) fn all(compare: &Compare) -> Vec<Self> {
        let Compare { works, sizes, functions, callers, .. } = compare;
        let sizes: Vec<Option<Size>> = match sizes.is_empty() {
            true => vec![None],
            false => sizes.iter().copied().map(Some).collect(),
        };
        let mut all = Vec::new();
        for work in works {
            for size in &sizes {
                for functions in functions {
                    for callers in callers {
                        let callers = if functions.have_callers() { *callers } else { 0 };
                        let task = Self { work: *work, size: *size, functions: *functions, callers };
                        if !all.contains(&task) {
                            all.push(task);
                        }
                    }
                }
            }
        }
        all
    }

    /// A task without any functions.
    pub(super) fn plain(work: Work) -> Self {
        Self { work, size: None, functions: Functions::None, callers: 0 }
    }

    /// Its name in reports: `HTTP, 1 KB, API key, 10,000 callers`.
    pub(super) fn name(&self) -> String {
        let mut name = self.name_without();
        if let Some(with) = self.with_functions() {
            name += &format!(", {}", with.name);
            if with.callers > 0 {
                name += &format!(", {}", report::counted(with.callers as u64, "caller"));
            }
        }
        name
    }

    /// The name of the same task without functions.
    fn name_without(&self) -> String {
        let size = self.size.map_or(String::new(), |size| format!(", {}", size.name()));
        self.work.name().to_owned() + &size
    }

    pub(super) fn with_functions(&self) -> Option<WithFunctions> {
        (self.functions != Functions::None).then(|| WithFunctions {
            name: self.functions.name().to_owned(),
            callers: self.callers,
            without: self.name_without(),
        })
    }

    /// Whether a kind of gateway can do the task.
    pub(super) fn suits(&self, kind: &Kind) -> bool {
        kind.can(self.work) && kind.has(self.functions)
    }

    /// Whether each request has its own connection, so that the measurement covers only the opening of connections.
    pub(super) fn is_new_each(&self) -> bool {
        matches!(self.work, Work::TlsRsa | Work::TlsP256)
    }

    pub(super) fn connections(&self, compare: &Compare) -> u64 {
        match self.work {
            Work::Single => 1,
            Work::Http | Work::Json | Work::Https => compare.connections,
            Work::Http2 | Work::Grpc => HTTP2_CONNECTIONS,
            // A number that all gateways support.
            Work::TlsRsa | Work::TlsP256 => HANDSHAKES,
        }
    }

    /// Path and query.
    pub(super) fn path(&self, api: &Api) -> String {
        match self.work {
            Work::Grpc => "/bench.Unary/Call".to_owned(),
            _ => api.path(self.size.map(|size| size.bytes)),
        }
    }

    /// The load, which writes to this folder.
    pub(super) fn load(&self, connections: u64, gateway: &Gateway, scratch: &Path) -> anyhow::Result<Load> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        command.args(["load", "-t1"]).arg(format!("-c{connections}"));
        match self.work {
            Work::Single | Work::Http | Work::Https => {}
            Work::Json => {
                let path = scratch.join("body");
                fs::write(&path, order::body()).with_context(|| format!("writing {}", path.display()))?;
                command.args(["--posts", "100", "-H", "Content-Type: application/json", "--body"]).arg(path);
            }
            Work::Http2 => drop(command.args(["--h2", "--streams"]).arg(STREAMS.to_string())),
            Work::Grpc => drop(command.args(["--h2", "--grpc", "--streams"]).arg(STREAMS.to_string())),
            // A group that all gateways support.
            Work::TlsRsa | Work::TlsP256 => drop(command.args(["--new-connections", "--curves", "X25519"])),
        }
        if !self.is_new_each() {
            command.arg("--ramp").arg(format!("{}ms", RAMP.as_millis()));
        }
        match &*gateway.config.api.good() {
            [] => {}
            [Header { name, value }] => drop(command.arg("-H").arg(format!("{name}: {value}"))),
            all @ [Header { name, .. }, ..] => {
                let path = scratch.join("values");
                let lines: String = all.iter().map(|header| format!("{}\n", header.value)).collect();
                fs::write(&path, lines).with_context(|| format!("writing {}", path.display()))?;
                command.arg("--header-values").arg(format!("{name}: {}", path.display()));
            }
        }
        let api = &gateway.config.api;
        let paths = api.paths(self.size.map(|size| size.bytes));
        if !paths.is_empty() {
            let file = scratch.join("paths");
            fs::write(&file, paths.join("\n")).with_context(|| format!("writing {}", file.display()))?;
            command.arg("--paths").arg(file);
        }
        let is_plain = matches!(self.work, Work::Single | Work::Http | Work::Json);
        let (scheme, address) =
            if is_plain { ("http", gateway.site.http) } else { ("https", gateway.site.https) };
        let json = scratch.join("load.json");
        command.arg("--json").arg(&json).arg("--connect-to").arg(address.to_string());
        command.arg(format!("{scheme}://{HOST}{}", self.path(api)));
        Ok(Load { command, json })
    }
}

/// A load that is ready to start.
pub(super) struct Load {
    pub(super) command: Command,
    json: std::path::PathBuf,
}

impl Load {
    /// Starts the load from a separate thread, whose priority the load has.
    pub(super) fn start(self) -> anyhow::Result<Process> {
        Place::Loopback.enter(|| start_load(self.command))?
    }

    /// The file to which the load writes its results.
    pub(super) fn json(&self) -> &Path {
        &self.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn task_name_contains_only_the_varied_parameters() {
        let compare = Experiment::find("gateway").unwrap().declared.compare;
        let names = |compare| Task::all(compare).iter().map(Task::name).collect::<Vec<_>>();
        assert_eq!(names(&compare[0]), ["One request, 0 KB", "One request, 1 KB"]);
        assert_eq!(names(&compare[2]), ["HTTP"]);
        let all = names(&compare[3]);
        let begin =
            ["HTTP, 1 KB", "HTTP, 1 KB, JWT HS256, 1 caller", "HTTP, 1 KB, JWT HS256, 10,000 callers"];
        assert_eq!(all[..3], begin);
        assert_eq!(all.len(), 9, "{all:?}");
        let last = *Task::all(&compare[3]).last().unwrap();
        assert_eq!(last.with_functions().unwrap().without, all[0]);
    }
}
