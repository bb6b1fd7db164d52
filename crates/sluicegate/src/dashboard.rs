//! The dashboard and the developer portal, as options, and what they show of the control plane.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use sluicegate_admin::{Admin, Hosts};
use sluicegate_control::{
    Place, Problem, Published, PublishedApi, PublishedConsumer, PublishedPlan, PublishedSubscription,
    Severity,
};
use sluicegate_dashboard::{
    Access, Api, Catalogue, Changes, Consumer, Dashboard, Environment, History, Key, Plan, Portal, Quotas,
    SiteKind, Subscribed, Subscription, TokenFile,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::address::local_address;
use crate::changes::{Objects, changer};
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
    /// The file for the login: a token of at least 16 bytes, or YAML with users (roles and tokens) and the login by OpenID Connect.
    /// The process reads the file again when it changes, and a new token ends all sessions of its user. [default: no login]
    #[arg(long, value_name = "FILE", requires = "dashboard_address")]
    dashboard_token_file: Option<PathBuf>,
    /// Let operators change objects in the dashboard: issue, rotate, revoke and remove keys, and approve, reject, suspend and
    /// resume subscriptions. In a cluster, each change needs a Kubernetes token of the user. With --manifests, the gateway changes
    /// the files.
    #[arg(long, requires_all = ["dashboard_address", "dashboard_token_file"])]
    dashboard_changes: bool,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Developer portal")]
pub(crate) struct PortalArgs {
    /// The address of the developer portal, such as localhost:9904. The portal shows the Apis and Plans whose spec.catalogue
    /// names the visitor, and accepts 64 connections at once. [default: no portal]
    #[arg(long, value_name = "ADDRESS", value_parser = local_address)]
    portal_address: Option<SocketAddr>,
    /// A host name that the portal accepts, beside localhost and IP addresses; may be given several times.
    /// [default: none, and any name if --portal-address is not a loopback address]
    #[arg(long, value_name = "NAME", requires = "portal_address")]
    portal_host: Vec<String>,
    /// The file with the users of the portal in YAML, each with a name, groups, Consumers and a token, and with the login by OpenID
    /// Connect. The process reads the file again when it changes. [default: no login, so the portal shows only what is public]
    #[arg(long, value_name = "FILE", requires = "portal_address")]
    portal_token_file: Option<PathBuf>,
}

/// The dashboard and the portal before their start.
pub(crate) struct SiteParts {
    pub(crate) dashboard: DashboardArgs,
    pub(crate) portal: PortalArgs,
    pub(crate) knowledge: Knowledge,
    pub(crate) objects: Objects,
}

/// The objects that the control plane serves, for the dashboard and the portal.
#[derive(Clone)]
pub(crate) struct Knowledge {
    pub(crate) published: watch::Receiver<Arc<Published>>,
    pub(crate) problems: watch::Receiver<Arc<[Problem]>>,
}

/// The dashboard and the portal with their sockets.
pub(crate) struct OpenSites {
    dashboard: Option<(Dashboard, TcpListener)>,
    portal: Option<(Portal, TcpListener)>,
}

impl SiteParts {
    /// Opens the sockets, or takes the sockets of the predecessor.
    pub(crate) fn open(
        self,
        admin: &Admin,
        (is_control_plane, quotas): (bool, Arc<dyn Quotas>),
        inherited: &[OwnedFd],
    ) -> anyhow::Result<OpenSites> {
        let Self { dashboard, portal, knowledge, objects } = self;
        let (of_users, of_gateway) =
            (changer(objects.clone(), &knowledge, true), changer(objects, &knowledge, false));
        let catalogue: Arc<dyn Catalogue> = Arc::new(knowledge);
        let dashboard = dashboard.open((admin, is_control_plane), (&catalogue, of_users), inherited)?;
        let portal = portal.open((admin, quotas), (&catalogue, of_gateway), inherited)?;
        Ok(OpenSites { dashboard, portal })
    }
}

impl DashboardArgs {
    fn open(
        self,
        (admin, is_control_plane): (&Admin, bool),
        (catalogue, changes): (&Arc<dyn Catalogue>, Arc<dyn Changes>),
        inherited: &[OwnedFd],
    ) -> anyhow::Result<Option<(Dashboard, TcpListener)>> {
        let Some(address) = self.dashboard_address else { return Ok(None) };
        let access = match &self.dashboard_token_file {
            Some(file) => Access::Token(
                TokenFile::open(file, SiteKind::Dashboard)
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
            catalogue: catalogue.clone(),
            is_control_plane,
            hosts: Hosts::of(address, self.dashboard_host),
            access,
            changes: self.dashboard_changes.then_some(changes),
            history: Arc::new(History::default()),
        };
        Ok(Some((dashboard, socket)))
    }
}

impl PortalArgs {
    fn open(
        self,
        (admin, quotas): (&Admin, Arc<dyn Quotas>),
        (catalogue, changes): (&Arc<dyn Catalogue>, Arc<dyn Changes>),
        inherited: &[OwnedFd],
    ) -> anyhow::Result<Option<(Portal, TcpListener)>> {
        let Some(address) = self.portal_address else { return Ok(None) };
        let open = |file: &PathBuf| TokenFile::open(file, SiteKind::Portal).map(Arc::new);
        let users = self.portal_token_file.as_ref().map(open).transpose();
        let users = users.context("cannot read the users of the portal (--portal-token-file)")?;
        let socket = own_socket(address, inherited)
            .with_context(|| format!("cannot serve the portal at {address} (--portal-address)"))?;
        let portal = Portal {
            admin: admin.clone(),
            catalogue: catalogue.clone(),
            hosts: Hosts::of(address, self.portal_host),
            users,
            changes,
            quotas,
        };
        Ok(Some((portal, socket)))
    }
}

impl OpenSites {
    /// Whether there is a dashboard.
    pub(crate) fn has_dashboard(&self) -> bool {
        self.dashboard.is_some()
    }

    /// The sockets, for a successor.
    pub(crate) fn sockets(&self) -> std::io::Result<Vec<TcpListener>> {
        let of_dashboard = self.dashboard.iter().map(|(_, socket)| socket);
        let of_portal = self.portal.iter().map(|(_, socket)| socket);
        of_dashboard.chain(of_portal).map(TcpListener::try_clone).collect()
    }

    /// Serves until the tasks are aborted.
    pub(crate) fn start(self) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let listener = |socket: TcpListener| {
            socket.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(socket)
        };
        let mut tasks = Vec::new();
        if let Some((dashboard, socket)) = self.dashboard {
            let listener = listener(socket)?;
            tasks.push(tokio::spawn(async move {
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
            }));
        }
        if let Some((portal, socket)) = self.portal {
            let listener = listener(socket)?;
            tasks.push(tokio::spawn(async move {
                if let Err(error) = portal.serve(listener).await {
                    tracing::error!(%error, "the portal ended");
                }
            }));
        }
        Ok(tasks)
    }
}

impl Catalogue for Knowledge {
    fn apis(&self) -> Vec<Api> {
        self.published().apis.iter().map(api).collect()
    }

    fn document(&self, namespace: &str, name: &str, environment: &str) -> Option<serde_json::Value> {
        let published = self.published();
        let api = published.apis.iter().find(|api| *api.namespace == *namespace && *api.name == *name)?;
        api.document(environment)
    }

    fn plans(&self) -> Vec<Plan> {
        self.published().plans.iter().map(plan).collect()
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        self.published().subscriptions.iter().map(subscription).collect()
    }

    fn consumers(&self) -> Vec<Consumer> {
        self.published().consumers.iter().map(consumer).collect()
    }

    fn problems(&self) -> Vec<sluicegate_dashboard::Problem> {
        let problems = self.problems.borrow().clone();
        let mut problems: Vec<&Problem> = problems.iter().collect();
        problems.sort_by_key(|problem| problem.severity);
        problems.into_iter().map(problem).collect()
    }
}

impl Knowledge {
    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.borrow().clone()
    }
}

fn text(text: &Option<Box<str>>) -> Option<String> {
    text.as_ref().map(ToString::to_string)
}

fn origin(place: &Option<Place>) -> Option<String> {
    place.as_ref().map(ToString::to_string)
}

fn api(api: &PublishedApi) -> Api {
    let environments = api.environments.iter().map(|environment| Environment {
        name: environment.name.to_string(),
        hosts: environment.hosts.iter().map(ToString::to_string).collect(),
        base_path: environment.base_path.to_string(),
        upstream: environment.upstream.to_string(),
        https: environment.has_certificate,
        has_own_document: environment.has_own_document,
        operations: environment.operations(),
    });
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
        origin: origin(&api.origin),
        visible_to: api.visibility.clone(),
    }
}

fn plan(plan: &PublishedPlan) -> Plan {
    Plan {
        namespace: plan.object.namespace.to_string(),
        name: plan.object.name.to_string(),
        title: plan.title.to_string(),
        description: text(&plan.description),
        limits: plan.limits.clone(),
        concurrency: plan.concurrency.clone(),
        quotas: plan.quotas.clone(),
        needs_approval: plan.needs_approval,
        origin: origin(&plan.origin),
        visible_to: plan.visibility.clone(),
    }
}

fn subscription(of: &PublishedSubscription) -> Subscription {
    let apis = of.apis.iter().map(|(api, sets)| Subscribed {
        name: api.name.to_string(),
        operation_sets: sets.as_ref().map(|sets| sets.iter().map(ToString::to_string).collect()),
    });
    Subscription {
        namespace: of.object.namespace.to_string(),
        name: of.object.name.to_string(),
        consumer_namespace: of.consumer.namespace.to_string(),
        consumer: of.consumer.name.to_string(),
        plan: of.plan.name.to_string(),
        apis: apis.collect(),
        state: of.state,
        message: of.message.to_string(),
        created: of.created,
        manager: text(&of.manager),
        origin: origin(&of.origin),
    }
}

fn consumer(of: &PublishedConsumer) -> Consumer {
    let keys = of.keys.iter().map(|key| Key {
        name: text(&key.name),
        expires: key.expires,
        is_revoked: key.is_revoked,
        secret: key.secret.as_ref().map(ToString::to_string),
    });
    Consumer {
        namespace: of.object.namespace.to_string(),
        name: of.object.name.to_string(),
        username: of.username.to_string(),
        keys: keys.collect(),
        origin: origin(&of.origin),
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
