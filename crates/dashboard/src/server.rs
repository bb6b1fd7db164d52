//! The dashboard: its documents and its changes.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use sluicegate_admin::{Hosts, Pages};
use sluicegate_http_server::{Counters, Plain, Server};
use tokio::net::TcpListener;
use tokio::time::interval;

use crate::Dashboard;
use crate::access::{Role, SiteKind, TokenFile, User};
use crate::changes::{Change, ChangeError};
use crate::data::Data;
use crate::response::{Body, check_change, denied, error, of_admin, wrong_method};
use crate::site::{Answer, BOUNDS, Served, Site, api_of_page, document_response, make};

/// The time between two looks for memory that no request uses.
const FORGET: Duration = Duration::from_secs(15);

/// The documents that are pages of the admin interface.
const OF_ADMIN: [&str; 2] = ["analytics", "audit"];

const SITE: SiteKind = SiteKind::Dashboard;

impl Dashboard {
    /// Serves until the future is dropped, which closes every connection.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let site = DashboardSite::new(self);
        let data = site.data.clone();
        let forgetting = async move {
            let mut ticks = interval(FORGET);
            loop {
                ticks.tick().await;
                data.forget();
            }
        };
        let counters = Arc::<Counters>::default();
        let server = Server {
            name: "the dashboard",
            bounds: BOUNDS,
            counters,
            transport: Plain,
            handler: Served(site),
        };
        tokio::select! {
            served = server.serve(listener) => served,
            () = forgetting => Ok(()),
        }
    }
}

/// The part of the dashboard that the portal does not have.
pub(crate) struct DashboardSite {
    dashboard: Dashboard,
    data: Arc<Data>,
    /// The pages of the admin interface, of which `/analytics` and `/audit` are parts of the dashboard.
    admin: Arc<Pages>,
}

impl DashboardSite {
    fn new(dashboard: Dashboard) -> Self {
        let admin = Pages::new(dashboard.admin.clone()).into();
        Self { data: Data::new(dashboard.clone()), admin, dashboard }
    }

    /// The user of a request.
    fn user(&self, request: &Request<Bytes>) -> Result<Arc<User>, Box<Response<Body>>> {
        self.dashboard.access.check(request).map_err(|reason| denied(reason, SITE).into())
    }
}

impl Site for DashboardSite {
    const KIND: SiteKind = SITE;

    fn hosts(&self) -> &Hosts {
        &self.dashboard.hosts
    }

    fn users(&self) -> Option<&TokenFile> {
        self.dashboard.access.users()
    }

    /// The user, and what the user may do.
    fn session(&self, request: &Request<Bytes>) -> Result<Value, Box<Response<Body>>> {
        let access = &self.dashboard.access;
        let user = access.check(request).ok();
        let changes = self.dashboard.changes.as_ref();
        let role = user.as_ref().map(|user| user.role);
        Ok(json!({
            "login": user.is_none(),
            "protected": access.users().is_some(),
            "user": user.as_ref().map(|user| &user.name).filter(|name| !name.is_empty()),
            "role": role.map(Role::as_str),
            "changes": changes.is_some() && role == Some(Role::Operator),
            "needs_kubernetes_token": changes.is_some_and(|changes| changes.needs_token()),
        }))
    }

    async fn document(&self, request: &Request<Bytes>, name: &str) -> Answer {
        self.user(request)?;
        let query = request.uri().query().unwrap_or_default().to_owned();
        if OF_ADMIN.contains(&name) {
            return Ok(of_admin(&self.admin, name, &query).await);
        }
        let (data, name) = (self.data.clone(), name.to_owned());
        let document = tokio::task::spawn_blocking(move || data.document(&name, &query)).await;
        Ok(match document {
            Ok(document) => document_response(request, document),
            Err(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "The document failed. The log has the reason.")
            }
        })
    }

    /// Makes a change.
    async fn change(&self, request: &Request<Bytes>) -> Answer {
        let Some(changes) = &self.dashboard.changes else {
            let message = "The dashboard changes nothing. To allow changes, start the gateway with --dashboard-changes.";
            return Ok(wrong_method("GET", message));
        };
        check_change(request)?;
        let user = self.user(request)?;
        if user.role < Role::Operator {
            let message = "A viewer cannot change objects. The role operator can (--dashboard-token-file).";
            return Ok(error(StatusCode::FORBIDDEN, message));
        }
        let change = Change::read(request.body())
            .map_err(|message| Box::new(error(StatusCode::BAD_REQUEST, &message)))?;
        let token = request.headers().get("x-kubernetes-token").and_then(|token| token.to_str().ok());
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        if changes.needs_token() && token.is_none() {
            let message = "A change in a cluster needs your token for the Kubernetes API.";
            return Ok(error(StatusCode::BAD_REQUEST, message));
        }
        let made = make(&**changes, SITE, &user, change, token.map(str::to_owned)).await;
        Ok(made.unwrap_or_else(|ChangeError { status, message, .. }| error(status, &message)))
    }

    /// The hosts to which a page may send requests: the page of an API tries its operations. Without a login there are none,
    /// because the names of hosts are data.
    async fn hosts_of_page(&self, request: &Request<Bytes>) -> Vec<String> {
        let Some((namespace, name)) = api_of_page(request) else { return Vec::new() };
        if self.dashboard.access.check(request).is_err() {
            return Vec::new();
        }
        let data = self.data.clone();
        tokio::task::spawn_blocking(move || data.hosts_of(&namespace, &name)).await.unwrap_or_default()
    }
    /// The dashboard has no document for a group.
    async fn named_groups(&self) -> HashSet<String> {
        HashSet::new()
    }
}
