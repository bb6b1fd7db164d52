//! The dashboard, as options, and what it shows of the control plane.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use sluicegate_admin::{Admin, Hosts};
use sluicegate_control::{Problem, PublishedApi, Severity};
use sluicegate_dashboard::{Access, Api, Catalogue, Dashboard, Environment, History, TokenFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::address::local_address;
use crate::gateway::own_socket;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Dashboard")]
pub(crate) struct DashboardArgs {
    /// The address of the dashboard, such as localhost:9903. If other machines can reach the address,
    /// --dashboard-token-file is required. The dashboard accepts 64 connections at once. [default: no dashboard]
    #[arg(long, value_name = "ADDRESS", value_parser = local_address)]
    pub(crate) dashboard_address: Option<SocketAddr>,
    /// A host name that the dashboard accepts, beside localhost and IP addresses; may be given several times.
    /// [default: none, and any name if --dashboard-address is not a loopback address]
    #[arg(long, value_name = "NAME", requires = "dashboard_address")]
    dashboard_host: Vec<String>,
    /// The file with the token for the login, of at least 16 bytes. The process reads the file again when it changes, and
    /// a new token ends all sessions. [default: no login]
    #[arg(long, value_name = "FILE", requires = "dashboard_address")]
    dashboard_token_file: Option<PathBuf>,
}

/// A dashboard before its start.
pub(crate) struct DashboardParts {
    pub(crate) args: DashboardArgs,
    pub(crate) knowledge: Knowledge,
}

/// What the control plane knows.
pub(crate) struct Knowledge {
    pub(crate) apis: watch::Receiver<Arc<[PublishedApi]>>,
    pub(crate) problems: watch::Receiver<Arc<[Problem]>>,
}

/// A dashboard with its socket.
pub(crate) struct OpenDashboard {
    dashboard: Dashboard,
    socket: TcpListener,
}

impl DashboardParts {
    /// Opens the socket of the dashboard, or takes the socket of the predecessor. `None` without a dashboard.
    pub(crate) fn open(
        self,
        admin: &Admin,
        is_control_plane: bool,
        inherited: &[OwnedFd],
    ) -> anyhow::Result<Option<OpenDashboard>> {
        let Self { args, knowledge } = self;
        let Some(address) = args.dashboard_address else { return Ok(None) };
        let access = match &args.dashboard_token_file {
            Some(file) => Access::Token(
                TokenFile::open(file)
                    .context("cannot protect the dashboard (--dashboard-token-file)")?
                    .into(),
            ),
            None => {
                anyhow::ensure!(
                    address.ip().to_canonical().is_loopback(),
                    "other machines can reach the dashboard at {address} (--dashboard-address): set \
                     --dashboard-token-file, or use an address such as localhost:9903"
                );
                Access::Open
            }
        };
        let socket = own_socket(address, inherited)
            .with_context(|| format!("cannot serve the dashboard at {address} (--dashboard-address)"))?;
        let dashboard = Dashboard {
            admin: admin.clone(),
            catalogue: Arc::new(knowledge),
            is_control_plane,
            hosts: Hosts::of(address, args.dashboard_host),
            access,
            history: Arc::new(History::default()),
        };
        Ok(Some(OpenDashboard { dashboard, socket }))
    }
}

impl OpenDashboard {
    /// The socket, for a successor.
    pub(crate) fn socket(&self) -> std::io::Result<TcpListener> {
        self.socket.try_clone()
    }

    /// Serves until the task is aborted.
    pub(crate) fn start(self) -> anyhow::Result<JoinHandle<()>> {
        let Self { dashboard, socket } = self;
        socket.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(socket)?;
        Ok(tokio::spawn(async move {
            let (registry, last_change) =
                (dashboard.admin.registry.clone(), dashboard.admin.last_change.clone());
            let sampling = dashboard.history.clone().follow(registry, last_change);
            tokio::select! {
                served = dashboard.serve(listener) => {
                    if let Err(error) = served {
                        tracing::error!(%error, "the dashboard ended");
                    }
                }
                () = sampling => {}
            }
        }))
    }
}

impl Catalogue for Knowledge {
    fn apis(&self) -> Vec<Api> {
        self.apis.borrow().iter().map(api).collect()
    }

    fn document(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        let apis = self.apis.borrow().clone();
        apis.iter().find(|api| *api.namespace == *namespace && *api.name == *name)?.document()
    }

    fn problems(&self) -> Vec<sluicegate_dashboard::Problem> {
        let problems = self.problems.borrow().clone();
        let mut problems: Vec<&Problem> = problems.iter().collect();
        problems.sort_by_key(|problem| problem.severity);
        problems.into_iter().map(problem).collect()
    }
}

fn api(api: &PublishedApi) -> Api {
    let environments = api.environments.iter().map(|environment| Environment {
        name: environment.name.to_string(),
        hosts: environment.hosts.iter().map(ToString::to_string).collect(),
        base_path: environment.base_path.to_string(),
        upstream: environment.upstream.to_string(),
        https: environment.has_certificate,
    });
    let text = |text: &Option<Box<str>>| text.as_ref().map(ToString::to_string);
    Api {
        namespace: api.namespace.to_string(),
        name: api.name.to_string(),
        title: api.title.to_string(),
        version: api.version.to_string(),
        owner: text(&api.owner),
        state: api.state,
        deprecation: api.deprecation,
        sunset: api.sunset,
        versioning: text(&api.versioning),
        operations: api.operations(),
        environments: environments.collect(),
        origin: text(&api.origin),
    }
}

fn problem(problem: &Problem) -> sluicegate_dashboard::Problem {
    let place = problem.origin.file.as_ref().map(|file| match problem.line() {
        0 => file.display().to_string(),
        line => format!("{}:{line}", file.display()),
    });
    sluicegate_dashboard::Problem {
        severity: match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        },
        place,
        object: problem.object.as_ref().map(ToString::to_string),
        field: problem.field.clone(),
        message: problem.message.clone(),
    }
}
