//! Serves the connections of the dashboard.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE,
    ETAG, HOST, HeaderMap, HeaderValue, IF_NONE_MATCH, RETRY_AFTER, SET_COOKIE, VARY,
};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use sluicegate_admin::{HostFault, Pages};
use sluicegate_http_server::{Bounds, Counters, Handler, Kind, Plain, Server};
use tokio::net::TcpListener;
use tokio::time::interval;

use crate::access::{Access, Denied};
use crate::assets::{self, Asset};
use crate::data::{Absent, Data};
use crate::{Dashboard, security};

/// The limits of the connections of clients. `--help` names the same numbers.
const BOUNDS: Bounds =
    Bounds { connections: 64, reserve: 0, head: Duration::from_secs(10), age: Duration::from_secs(300) };

/// The time between two looks for memory that no request uses.
const FORGET: Duration = Duration::from_secs(15);

/// Shorter bodies are not compressed.
const GZIP_MIN: usize = 1024;

type Body = UnsyncBoxBody<Bytes, Infallible>;

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
        self.answer(&request).await
    }
}

impl Site {
    fn new(dashboard: Dashboard) -> Self {
        let admin = Pages::new(dashboard.admin.clone()).into();
        Self { data: Data::new(dashboard.clone()), admin, dashboard }
    }

    async fn answer<B: Sync>(&self, request: &Request<B>) -> Response<Body> {
        let hosts = self.hosts_of_page(request).await;
        let mut response = self.checked(request).await;
        security::protect(response.headers_mut(), security::policy(hosts.iter().map(String::as_str)));
        response
    }

    async fn checked<B: Sync>(&self, request: &Request<B>) -> Response<Body> {
        match self.dashboard.hosts.check(request) {
            Ok(()) => {}
            Err(HostFault::Invalid) => {
                let mut response = error(
                    StatusCode::BAD_REQUEST,
                    "A request needs exactly one valid Host header (RFC 9112, 3.2).",
                );
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                return response;
            }
            Err(HostFault::Foreign(host)) => {
                return error(
                    StatusCode::FORBIDDEN,
                    &format!(
                        "The dashboard does not accept the host {host:?}, so that pages of other sites cannot read it \
                         through a browser. Use localhost or an IP address, or start the gateway with \
                         --dashboard-host NAME."
                    ),
                );
            }
        }
        if request.method() != Method::GET {
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "The dashboard accepts only GET.");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        let path = request.uri().path();
        match (path.strip_prefix("/api/"), path.strip_prefix("/app/")) {
            (Some(document), _) => self.document(request, document).await,
            (None, Some(name)) => match assets::find(name) {
                Some(asset) => file(request, asset),
                None => error(StatusCode::NOT_FOUND, "The dashboard has no such file."),
            },
            // Every other path is a page of the application.
            (None, None) => file(request, assets::page()),
        }
    }

    /// A JSON document, or a part of the login.
    async fn document<B: Sync>(&self, request: &Request<B>, name: &str) -> Response<Body> {
        // Browsers state which site sends a request. Other sites have no business here.
        let site = request.headers().get("sec-fetch-site");
        if site.is_some_and(|site| !["same-origin", "none"].iter().any(|own| site == own)) {
            return error(
                StatusCode::FORBIDDEN,
                "The dashboard does not respond to requests of other sites.",
            );
        }
        let access = &self.dashboard.access;
        match name {
            "session" => {
                let is_open = access.check(request).is_ok();
                let session = json!({"login": !is_open, "protected": access.requires_login()});
                return json_response(request, session.to_string().into_bytes());
            }
            "login" => {
                return match access.log_in(request) {
                    Ok(cookie) => with_cookie(cookie),
                    Err(reason) => denied(reason),
                };
            }
            "logout" => return with_cookie(Some(Access::log_out(request))),
            _ => {}
        }
        if let Err(reason) = access.check(request) {
            return denied(reason);
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        if OF_ADMIN.contains(&name) {
            return self.of_admin(name, &query).await;
        }
        let (data, name) = (self.data.clone(), name.to_owned());
        match tokio::task::spawn_blocking(move || data.document(&name, &query)).await {
            Ok(Ok(document)) => json_response(request, document),
            Ok(Err(Absent::Path)) => error(StatusCode::NOT_FOUND, "The dashboard has no such document."),
            Ok(Err(Absent::Object(message))) => error(StatusCode::NOT_FOUND, &message),
            Ok(Err(Absent::Query(message))) => error(StatusCode::BAD_REQUEST, &message),
            Err(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "The document failed. The log has the reason.")
            }
        }
    }

    /// A page of the admin interface of this process. If the interface does not have the page, the document says so.
    async fn of_admin(&self, name: &str, query: &str) -> Response<Body> {
        let asked = Request::builder().uri(format!("/{name}?{query}")).header(HOST, "localhost").body(());
        let Ok(asked) = asked else {
            return error(StatusCode::BAD_REQUEST, "The query has characters that are not allowed in a URL.");
        };
        let response = self.admin.respond_in_time(asked).await;
        if response.status() == StatusCode::NOT_FOUND {
            return response_of(StatusCode::OK, JSON, br#"{"off":true}"#.as_slice().into());
        }
        let (parts, content) = response.into_parts();
        let mut response = Response::new(content.boxed_unsync());
        *response.status_mut() = parts.status;
        let media_type = parts.headers.get(CONTENT_TYPE).cloned();
        let media_type = media_type.unwrap_or(HeaderValue::from_static(JSON));
        if media_type.as_bytes().starts_with(b"text/csv") {
            let name = HeaderValue::try_from(format!("attachment; filename=\"{name}.csv\""));
            response.headers_mut().extend(name.ok().map(|name| (CONTENT_DISPOSITION, name)));
        }
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response
    }

    /// The hosts to which a page may send requests: the page of an API tries its operations. Without a login there are none,
    /// because the names of hosts are data.
    async fn hosts_of_page<B: Sync>(&self, request: &Request<B>) -> Vec<String> {
        let path = request.uri().path();
        let Some((namespace, name)) = path.strip_prefix("/apis/").and_then(|rest| rest.split_once('/'))
        else {
            return Vec::new();
        };
        if self.dashboard.access.check(request).is_err() {
            return Vec::new();
        }
        let (data, namespace, name) = (self.data.clone(), namespace.to_owned(), name.to_owned());
        tokio::task::spawn_blocking(move || data.hosts_of(&namespace, &name)).await.unwrap_or_default()
    }
}

/// The documents that are pages of the admin interface.
const OF_ADMIN: [&str; 2] = ["analytics", "audit"];

const JSON: &str = "application/json";
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A file of the application. Browsers ask each time whether their copy is current.
fn file<B>(request: &Request<B>, asset: &Asset) -> Response<Body> {
    let is_packed = accepts_gzip(request.headers());
    let tag = if is_packed { asset.tag.replace('"', "") + "-gz" } else { asset.tag.replace('"', "") };
    let tag = format!("\"{tag}\"");
    let is_known = request.headers().get_all(IF_NONE_MATCH).iter().any(|known| {
        known
            .to_str()
            .is_ok_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag))
    });
    let bytes = match (is_known, is_packed) {
        (true, _) => Bytes::new(),
        (false, true) => asset.gzip.clone(),
        (false, false) => Bytes::from_static(asset.bytes),
    };
    let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = response_of(status, asset.media_type, bytes);
    let headers = response.headers_mut();
    if is_packed && !is_known {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

fn json_response<B>(request: &Request<B>, document: Vec<u8>) -> Response<Body> {
    if document.len() < GZIP_MIN || !accepts_gzip(request.headers()) {
        return response_of(StatusCode::OK, JSON, document.into());
    }
    let mut response = response_of(StatusCode::OK, JSON, assets::gzip(&document));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    let mut codings = accepted.flat_map(|line| line.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim().eq_ignore_ascii_case("gzip")
            && !weight.replace(' ', "").starts_with("q=0.0")
            && weight.trim() != "q=0"
    })
}

fn with_cookie(cookie: Option<String>) -> Response<Body> {
    let mut response = response_of(StatusCode::NO_CONTENT, JSON, Bytes::new());
    response.headers_mut().remove(CONTENT_TYPE);
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn denied(reason: Denied) -> Response<Body> {
    match reason {
        Denied::Unauthenticated => error(StatusCode::UNAUTHORIZED, "Log in with the token of the dashboard."),
        Denied::WrongToken => error(StatusCode::UNAUTHORIZED, "The token is wrong."),
        Denied::TooMany(wait) => {
            let seconds = wait.as_secs() + 1;
            let message = format!("There were too many wrong tokens. Try again in {seconds} s.");
            let mut response = error(StatusCode::TOO_MANY_REQUESTS, &message);
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
            response
        }
        Denied::NoToken => error(
            StatusCode::SERVICE_UNAVAILABLE,
            "The gateway cannot read the token of the dashboard (--dashboard-token-file). The log has the reason.",
        ),
    }
}

fn error(status: StatusCode, message: &str) -> Response<Body> {
    response_of(status, JSON, json!({"error": message}).to_string().into())
}

fn response_of(status: StatusCode, media_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
