//! Responses, and the checks of requests that all sites have in common.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE,
    ETAG, HOST, HeaderMap, HeaderValue, IF_NONE_MATCH, ORIGIN, RETRY_AFTER, SET_COOKIE, VARY,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::json;
use sluicegate_admin::{HostFault, Hosts, Pages};

use crate::access::{Denied, SiteKind, bearer};
use crate::assets::{self, Asset};
use crate::changes::NewKey;

pub(crate) const JSON: &str = "application/json";
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The header that a request for a change must have. Pages of other sites cannot send it without permission (CORS).
const CHANGE_HEADER: &str = "x-sluicegate-change";

/// Shorter bodies are not compressed.
const GZIP_MIN: usize = 1024;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Checks the host of a request.
pub(crate) fn check_host<B>(
    request: &Request<B>,
    hosts: &Hosts,
    site: SiteKind,
) -> Result<(), Box<Response<Body>>> {
    match hosts.check(request) {
        Ok(()) => Ok(()),
        Err(HostFault::Invalid) => {
            let message = "A request needs exactly one valid Host header (RFC 9112, 3.2).";
            let mut response = error(StatusCode::BAD_REQUEST, message);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            Err(response.into())
        }
        Err(HostFault::Foreign(host)) => {
            let name = site.name();
            let message = format!(
                "The {name} does not accept the host {host:?}, so that pages of other sites cannot read it through a browser. \
                 Use localhost or an IP address, or start the gateway with --{name}-host NAME."
            );
            Err(error(StatusCode::FORBIDDEN, &message).into())
        }
    }
}

/// Checks the site of a request for a document. Browsers state which site sends a request. Other sites have no business here.
pub(crate) fn check_site<B>(request: &Request<B>, site: SiteKind) -> Result<(), Box<Response<Body>>> {
    let sender = request.headers().get("sec-fetch-site");
    if sender.is_none_or(|sender| ["same-origin", "none"].iter().any(|own| sender == own)) {
        return Ok(());
    }
    let message = format!("The {} does not respond to requests of other sites.", site.name());
    Err(error(StatusCode::FORBIDDEN, &message).into())
}

/// Checks that a page of this site, or a program with a token, requests a change: a page of another site must not request a change
/// with the session of a user.
pub(crate) fn check_change<B>(request: &Request<B>) -> Result<(), Box<Response<Body>>> {
    let headers = request.headers();
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(';').next().is_some_and(|of| of.trim().eq_ignore_ascii_case(JSON)));
    if !is_json {
        let message = "A change needs a body with Content-Type: application/json.";
        return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).into());
    }
    let is_own = match headers.get(ORIGIN) {
        Some(origin) => is_own_origin(origin, headers.get(HOST)),
        // A program sends no Origin. A browser sends the cookie, but no token.
        None => bearer(request).is_some(),
    };
    if !is_own || !headers.contains_key(CHANGE_HEADER) {
        let message = "A change needs the header X-Sluicegate-Change, and the Origin of this site or an Authorization header.";
        return Err(error(StatusCode::FORBIDDEN, message).into());
    }
    Ok(())
}

/// Whether an origin has the host and the port of the request.
fn is_own_origin(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let (Some(origin), Some(host)) = (origin, host.and_then(|host| host.to_str().ok())) else {
        return false;
    };
    let is_http = origin.scheme_str().is_some_and(|scheme| scheme == "http" || scheme == "https");
    is_http && origin.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
}

/// A method that the site does not accept.
pub(crate) fn wrong_method(allowed: &'static str, message: &str) -> Response<Body> {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// The response to a change.
pub(crate) fn changed(key: Option<NewKey>) -> Response<Body> {
    match key {
        // The only place where a key is shown.
        Some(NewKey { name, key }) => {
            let document = json!({"key": {"name": name, "value": key}});
            response_of(StatusCode::OK, JSON, document.to_string().into())
        }
        None => response_of(StatusCode::OK, JSON, Bytes::from_static(b"{}")),
    }
}

/// A page of the admin interface of this process. If the interface does not have the page, the document says so.
pub(crate) async fn of_admin(pages: &Pages, name: &str, query: &str) -> Response<Body> {
    let asked = Request::builder()
        .method(Method::GET)
        .uri(format!("/{name}?{query}"))
        .header(HOST, "localhost")
        .body(());
    let Ok(asked) = asked else {
        return error(StatusCode::BAD_REQUEST, "The query has characters that are not allowed in a URL.");
    };
    let response = pages.respond_in_time(asked).await;
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

/// A file of the application. Browsers ask each time whether their copy is current.
pub(crate) fn file<B>(request: &Request<B>, asset: &Asset) -> Response<Body> {
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
        (false, false) => asset.bytes.clone(),
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

pub(crate) fn json_response<B>(request: &Request<B>, document: Vec<u8>) -> Response<Body> {
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

/// A response with these values of `Set-Cookie`, and without content.
pub(crate) fn with_cookies(cookies: Vec<String>) -> Response<Body> {
    let mut response = response_of(StatusCode::NO_CONTENT, JSON, Bytes::new());
    response.headers_mut().remove(CONTENT_TYPE);
    add_cookies(&mut response, cookies);
    response
}

/// Adds values of `Set-Cookie`.
pub(crate) fn add_cookies(response: &mut Response<Body>, cookies: Vec<String>) {
    for cookie in cookies.into_iter().filter_map(|cookie| HeaderValue::try_from(cookie).ok()) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
}

pub(crate) fn denied(reason: Denied, site: SiteKind) -> Response<Body> {
    let name = site.name();
    match reason {
        Denied::Unauthenticated => {
            error(StatusCode::UNAUTHORIZED, &format!("Log in with your token of the {name}."))
        }
        Denied::WrongToken => error(StatusCode::UNAUTHORIZED, "The token is wrong."),
        Denied::TooMany(wait) => too_many(wait, "There were too many wrong tokens."),
        Denied::NoRole(user) => error(StatusCode::FORBIDDEN, &no_role(&user, site)),
        Denied::NoToken => error(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!(
                "The gateway cannot read the tokens of the {name} (--{name}-token-file). The log has the reason."
            ),
        ),
    }
}

/// The message for a user of an OpenID provider without a role.
pub(crate) fn no_role(user: &str, site: SiteKind) -> String {
    let name = site.name();
    format!(
        "The user {user} has no role in the {name}. Ask the operator of the {name} for a role, or log out and use another account."
    )
}

/// The response to requests that come too fast.
pub(crate) fn too_many(wait: Duration, reason: &str) -> Response<Body> {
    let seconds = wait.as_secs() + 1;
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, &format!("{reason} Try again in {seconds} s."));
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

pub(crate) fn error(status: StatusCode, message: &str) -> Response<Body> {
    response_of(status, JSON, json!({"error": message}).to_string().into())
}

pub(crate) fn response_of(status: StatusCode, media_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
