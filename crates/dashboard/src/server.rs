//! Serves the connections of the dashboard.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use sluicegate_admin::Pages;
use sluicegate_http_server::{Bounds, Counters, Handler, Kind, Plain, Server};
use tokio::net::TcpListener;
use tokio::time::{interval, timeout};

use crate::access::{self, Role, SiteKind, User};
use crate::assets;
use crate::changes::{Change, ChangeError, Changes};
use crate::data::{Absent, Data};
use crate::response::{
    Body, changed, check_change, check_host, check_site, denied, error, file, json_response, of_admin,
    with_cookie, wrong_method,
};
use crate::{Dashboard, security};

/// The limits of the connections of clients. `--help` names the same numbers.
pub(crate) const BOUNDS: Bounds =
    Bounds { connections: 64, reserve: 0, head: Duration::from_secs(10), age: Duration::from_secs(300) };

/// The time between two looks for memory that no request uses.
const FORGET: Duration = Duration::from_secs(15);

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 16 * 1024;

/// The time within which a client sends the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The documents that are pages of the admin interface.
const OF_ADMIN: [&str; 2] = ["analytics", "audit"];

const SITE: SiteKind = SiteKind::Dashboard;

impl Dashboard {
    /// Serves until the future is dropped, which closes every connection.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let site = Site::new(self);
        let data = site.data.clone();
        let forgetting = async move {
            let mut ticks = interval(FORGET);
            loop {
                ticks.tick().await;
                data.forget();
            }
        };
        let counters = Arc::<Counters>::default();
        let server =
            Server { name: "the dashboard", bounds: BOUNDS, counters, transport: Plain, handler: site };
        tokio::select! {
            served = server.serve(listener) => served,
            () = forgetting => Ok(()),
        }
    }
}

/// The responses of a dashboard.
struct Site {
    dashboard: Dashboard,
    data: Arc<Data>,
    /// The pages of the admin interface, of which `/analytics` and `/audit` are parts of the dashboard.
    admin: Arc<Pages>,
}

impl Handler for Site {
    type Body = Body;

    async fn respond(&self, request: Request<Incoming>, _: Kind) -> Response<Body> {
        match whole(request).await {
            Ok(request) => self.answer(&request).await,
            Err(response) => protected(*response, &[]),
        }
    }
}

/// The request with its body. Only POST has a body.
pub(crate) async fn whole(request: Request<Incoming>) -> Result<Request<Bytes>, Box<Response<Body>>> {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        return Ok(Request::from_parts(parts, Bytes::new()));
    }
    match timeout(BODY_TIME, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, body.to_bytes())),
        Ok(Err(_)) => {
            let message =
                format!("The body of the request is incomplete, or has more than {BODY_MAX} bytes.");
            Err(error(StatusCode::PAYLOAD_TOO_LARGE, &message).into())
        }
        Err(_) => {
            Err(error(StatusCode::REQUEST_TIMEOUT, "The body of the request did not come in time.").into())
        }
    }
}

/// A response with the headers that protect a page, which may send requests to these hosts.
pub(crate) fn protected(mut response: Response<Body>, hosts: &[String]) -> Response<Body> {
    security::protect(response.headers_mut(), security::policy(hosts.iter().map(String::as_str)));
    response
}

impl Site {
    fn new(dashboard: Dashboard) -> Self {
        let admin = Pages::new(dashboard.admin.clone()).into();
        Self { data: Data::new(dashboard.clone()), admin, dashboard }
    }

    async fn answer(&self, request: &Request<Bytes>) -> Response<Body> {
        let hosts = self.hosts_of_page(request).await;
        protected(self.checked(request).await.unwrap_or_else(|response| *response), &hosts)
    }

    async fn checked(&self, request: &Request<Bytes>) -> Result<Response<Body>, Box<Response<Body>>> {
        check_host(request, &self.dashboard.hosts, SITE)?;
        let path = request.uri().path();
        if request.method() == Method::POST && path == "/api/change" {
            check_site(request, SITE)?;
            return self.change(request).await;
        }
        if request.method() != Method::GET {
            return Ok(wrong_method("GET", "The dashboard accepts only GET here."));
        }
        Ok(match (path.strip_prefix("/api/"), path.strip_prefix("/app/")) {
            (Some(document), _) => {
                check_site(request, SITE)?;
                self.document(request, document).await?
            }
            (None, Some(name)) => match assets::find(name) {
                Some(asset) => file(request, asset),
                None => error(StatusCode::NOT_FOUND, "The dashboard has no such file."),
            },
            // Every other path is a page of the application.
            (None, None) => file(request, assets::page()),
        })
    }

    /// The user of a request.
    fn user(&self, request: &Request<Bytes>) -> Result<Arc<User>, Box<Response<Body>>> {
        self.dashboard.access.check(request).map_err(|reason| denied(reason, SITE).into())
    }

    /// A JSON document, or a part of the login.
    async fn document(
        &self,
        request: &Request<Bytes>,
        name: &str,
    ) -> Result<Response<Body>, Box<Response<Body>>> {
        let access = &self.dashboard.access;
        match name {
            "session" => return Ok(self.session(request)),
            "login" => {
                let cookie = access.log_in(request).map_err(|reason| Box::new(denied(reason, SITE)))?;
                return Ok(with_cookie(cookie));
            }
            "logout" => return Ok(with_cookie(Some(access::log_out(request, SITE)))),
            _ => {}
        }
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

    /// The user, and what the user may do.
    fn session(&self, request: &Request<Bytes>) -> Response<Body> {
        let access = &self.dashboard.access;
        let user = access.check(request).ok();
        let changes = self.dashboard.changes.as_ref();
        let role = user.as_ref().map(|user| user.role);
        let session = json!({
            "login": user.is_none(),
            "protected": access.requires_login(),
            "user": user.as_ref().map(|user| &user.name).filter(|name| !name.is_empty()),
            "role": role.map(Role::as_str),
            "changes": changes.is_some() && role == Some(Role::Operator),
            "needs_kubernetes_token": changes.is_some_and(|changes| changes.needs_token()),
        });
        json_response(request, session.to_string().into_bytes())
    }

    /// Makes a change.
    async fn change(&self, request: &Request<Bytes>) -> Result<Response<Body>, Box<Response<Body>>> {
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
}

/// The namespace and the name of the API, if the request is for the page of an API.
pub(crate) fn api_of_page<B>(request: &Request<B>) -> Option<(String, String)> {
    let (namespace, name) = request.uri().path().strip_prefix("/apis/")?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// The response with a document.
pub(crate) fn document_response<B>(
    request: &Request<B>,
    document: Result<Vec<u8>, Absent>,
) -> Response<Body> {
    match document {
        Ok(document) => json_response(request, document),
        Err(Absent::Path) => error(StatusCode::NOT_FOUND, "There is no such document."),
        Err(Absent::Object(message)) => error(StatusCode::NOT_FOUND, &message),
        Err(Absent::Query(message)) => error(StatusCode::BAD_REQUEST, &message),
    }
}

/// Makes a change, and logs the user with the change. The log has no key.
pub(crate) async fn make(
    changes: &dyn Changes,
    site: SiteKind,
    user: &User,
    change: Change,
    token: Option<String>,
) -> Result<Response<Body>, ChangeError> {
    let (words, user, site) = (change.in_words(), &*user.name, site.name());
    match changes.change(change, token).await {
        Ok(key) => {
            let key_name = key.as_ref().map(|key| &*key.name).unwrap_or_default();
            tracing::info!(user, key = key_name, "the {site} changed an object: {words}");
            Ok(changed(key))
        }
        Err(error) => {
            tracing::warn!(
                user,
                status = error.status.as_u16(),
                "the {site} changed nothing: {words}: {}",
                error.message
            );
            Err(error)
        }
    }
}
