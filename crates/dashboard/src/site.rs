//! What the dashboard and the portal have in common: the limits of connections, and the way from a request to the response.

use std::collections::HashSet;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use sluicegate_admin::Hosts;
use sluicegate_http_server::{Bounds, Handler, Kind};
use tokio::time::timeout;

use crate::access::{self, Denied, SiteKind, TokenFile, User};
use crate::changes::{Change, ChangeError, Changes};
use crate::data::Absent;
use crate::response::{
    Body, add_cookies, changed, check_host, check_site, denied, error, file, json_response, no_role,
    with_cookies, wrong_method,
};
use crate::{assets, login, security};

/// The limits of the connections of clients. `--help` names the same numbers.
pub(crate) const BOUNDS: Bounds =
    Bounds { connections: 64, reserve: 0, head: Duration::from_secs(10), age: Duration::from_secs(300) };

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 16 * 1024;

/// The time within which a client sends the body of a request.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A response, or the response that ends a request early.
pub(crate) type Answer = Result<Response<Body>, Box<Response<Body>>>;

/// The part of a site that the other site does not have.
pub(crate) trait Site: Send + Sync + 'static {
    /// The site.
    const KIND: SiteKind;

    /// The hosts that the site accepts.
    fn hosts(&self) -> &Hosts;

    /// The users. `None`: no client can log in.
    fn users(&self) -> Option<&TokenFile>;

    /// The document about the session of a request.
    fn session(&self, request: &Request<Bytes>) -> Result<Value, Box<Response<Body>>>;

    /// A document, by its name below `/api/`.
    fn document(&self, request: &Request<Bytes>, name: &str) -> impl Future<Output = Answer> + Send;

    /// Makes a change.
    fn change(&self, request: &Request<Bytes>) -> impl Future<Output = Answer> + Send;

    /// The hosts to which the page of a request may send requests.
    fn hosts_of_page(&self, request: &Request<Bytes>) -> impl Future<Output = Vec<String>> + Send;

    /// The groups that objects name.
    fn named_groups(&self) -> impl Future<Output = HashSet<String>> + Send;
}

/// Serves a site.
pub(crate) struct Served<S>(pub(crate) S);

impl<S: Site> Handler for Served<S> {
    type Body = Body;

    async fn respond(&self, request: Request<Incoming>, _: Kind) -> Response<Body> {
        match whole(request).await {
            Ok(request) => answer(&self.0, &request).await,
            Err(response) => protected(*response, &[]),
        }
    }
}

/// The request with its body. Only POST has a body.
async fn whole(request: Request<Incoming>) -> Result<Request<Bytes>, Box<Response<Body>>> {
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
fn protected(mut response: Response<Body>, hosts: &[String]) -> Response<Body> {
    security::protect(response.headers_mut(), security::policy(hosts.iter().map(String::as_str)));
    response
}

/// The response of a site.
pub(crate) async fn answer<S: Site>(site: &S, request: &Request<Bytes>) -> Response<Body> {
    let hosts = site.hosts_of_page(request).await;
    protected(checked(site, request).await.unwrap_or_else(|response| *response), &hosts)
}

async fn checked<S: Site>(site: &S, request: &Request<Bytes>) -> Answer {
    check_host(request, site.hosts(), S::KIND)?;
    let path = request.uri().path();
    if request.method() == Method::POST && path == "/api/change" {
        check_site(request, S::KIND)?;
        return site.change(request).await;
    }
    let name = S::KIND.name();
    if request.method() != Method::GET {
        return Ok(wrong_method("GET", &format!("The {name} accepts only GET here.")));
    }
    if let Some(document) = path.strip_prefix("/api/") {
        check_site(request, S::KIND)?;
        return match document {
            "session" => session(site, request),
            "login" => log_in(site, request),
            "logout" => Ok(log_out(site, request).await),
            document => site.document(request, document).await,
        };
    }
    if let Some(users) = site.users()
        && let Some(response) = login::step(site, users, request).await
    {
        return Ok(response);
    }
    Ok(match path.strip_prefix("/app/") {
        Some(asset) => match assets::find(asset) {
            Some(asset) => file(request, asset),
            None => error(StatusCode::NOT_FOUND, &format!("The {name} has no such file.")),
        },
        // Every other path is a page of the application.
        None => file(request, assets::page(S::KIND)),
    })
}

/// The user of a request, and the ways to log in.
fn session<S: Site>(site: &S, request: &Request<Bytes>) -> Answer {
    let mut session = site.session(request)?;
    if let Some(users) = site.users() {
        let openid = users.openid().ok().flatten();
        let provider = openid.map(|openid| json!({"name": openid.name(), "url": openid.login_url()}));
        session["openid"] = provider.into();
        session["tokens"] = users.has_tokens().into();
        if let Err(Denied::NoRole(user)) = users.user_of(request) {
            session["refused"] = no_role(&user, S::KIND).into();
        }
    }
    Ok(json_response(request, session.to_string().into_bytes()))
}

/// Logs a client in by a token.
fn log_in<S: Site>(site: &S, request: &Request<Bytes>) -> Answer {
    let Some(users) = site.users() else { return Ok(with_cookies(Vec::new())) };
    let cookies = users.log_in(request).map_err(|reason| Box::new(denied(reason, S::KIND)))?;
    Ok(with_cookies(cookies))
}

/// Logs a client out. The document has the URL that ends the session at the OpenID provider too.
async fn log_out<S: Site>(site: &S, request: &Request<Bytes>) -> Response<Body> {
    let openid = site.users().and_then(|users| users.openid_of(request));
    let url = match openid {
        Some(openid) => openid.logout_url().await,
        None => None,
    };
    let cookies = access::log_out(request, S::KIND);
    let Some(url) = url else { return with_cookies(cookies) };
    let mut response = json_response(request, json!({"url": url}).to_string().into_bytes());
    add_cookies(&mut response, cookies);
    response
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
    let (words, site) = (change.in_words(), site.name());
    let (user, login) = (&*user.name, if user.is_of_provider { "OpenID Connect" } else { "token" });
    match changes.change(change, token).await {
        Ok(key) => {
            let key_name = key.as_ref().map(|key| &*key.name).unwrap_or_default();
            tracing::info!(user, login, key = key_name, "the {site} changed an object: {words}");
            Ok(changed(key))
        }
        Err(error) => {
            tracing::warn!(
                user,
                login,
                status = error.status.as_u16(),
                "the {site} changed nothing: {words}: {}",
                error.message
            );
            Err(error)
        }
    }
}
