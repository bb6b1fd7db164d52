//! The steps of a login by OpenID Connect, which a browser takes as pages: the redirect to the provider, and the way back.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use sluicegate_proxy::openid::{LOGIN_SECONDS, LoginFault};

use crate::access::{CookieKind, Denied, SiteKind, TokenFile, cookie, end_of_session, set_cookie};
use crate::assets;
use crate::openid::{CALLBACK, LOGIN, LoggedIn, NoLogin, OpenId};
use crate::response::{Body, add_cookies, no_role, response_of};
use crate::site::Site;

const HTML: &str = "text/html; charset=utf-8";

/// The response to a step of a login. `None`: the request is no step, or the file has no login by OpenID Connect.
pub(crate) async fn step<S: Site>(
    site: &S,
    users: &TokenFile,
    request: &Request<Bytes>,
) -> Option<Response<Body>> {
    let path = request.uri().path();
    if path != LOGIN && path != CALLBACK {
        return None;
    }
    let openid = match users.openid() {
        Ok(openid) => openid?,
        Err(_) => {
            let message = "The gateway cannot read the file of the login. The log has the reason.";
            return Some(failed(S::KIND, StatusCode::SERVICE_UNAVAILABLE, message));
        }
    };
    if let Err(Denied::TooMany(wait)) = users.check_logins() {
        let seconds = wait.as_secs() + 1;
        let message = format!("Too many logins failed. Try again in {seconds} s.");
        let mut response = failed(S::KIND, StatusCode::TOO_MANY_REQUESTS, &message);
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
        return Some(response);
    }
    Some(match path {
        LOGIN => begin(S::KIND, &openid, request).await,
        _ => end(site, users, &openid, request).await,
    })
}

/// Redirects the browser to the provider.
async fn begin(site: SiteKind, openid: &OpenId, request: &Request<Bytes>) -> Response<Body> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !openid.is_at(host) {
        // The browser would not send the cookie of the login to the host to which the provider redirects.
        let message = format!(
            "A login begins at {}, not at the host {host:?}. If you are there, the route to the {} does not preserve the header Host.",
            openid.login_url(),
            site.name()
        );
        return failed(site, StatusCode::BAD_REQUEST, &message);
    }
    let Some(metadata) = openid.provider().await else { return unavailable(site, openid) };
    let query = request.uri().query().unwrap_or_default();
    let target = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "to");
    let target = target.map_or(Cow::Borrowed("/"), |(_, target)| target);
    let begun = openid.begin(&metadata, path_of(&target));
    let Some((url, sealed)) = begun else {
        return failed(site, StatusCode::SERVICE_UNAVAILABLE, "The gateway has no randomness for a login.");
    };
    let mut response = response_of(StatusCode::FOUND, HTML, Bytes::new());
    let kind = (site, CookieKind::Login);
    add_cookies(&mut response, set_cookie(request, kind, openid.is_https(), (&sealed, LOGIN_SECONDS)));
    if let Ok(url) = HeaderValue::try_from(url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}

/// Reads the answer of the provider, and sets the cookie of the session.
async fn end<S: Site>(
    site: &S,
    users: &TokenFile,
    openid: &OpenId,
    request: &Request<Bytes>,
) -> Response<Body> {
    let kind = (S::KIND, CookieKind::Login);
    let mut response = match logged_in(site, users, openid, request).await {
        Ok((logged_in, target)) => {
            // The session has SameSite=Strict. A redirect would continue the navigation of the provider's site, and browsers would not
            // send the cookie with the next request.
            let link = (&*format!("{}{target}", openid.origin()), "Continue");
            let page = assets::message(S::KIND, ("You are logged in", "The page opens."), link, true);
            let mut response = response_of(StatusCode::OK, HTML, page.into());
            add_cookies(&mut response, users.session_cookies(request, &logged_in, openid.is_https()));
            response
        }
        Err(response) => *response,
    };
    add_cookies(&mut response, set_cookie(request, kind, openid.is_https(), ("", 0)));
    response
}

/// The user of the answer, and the path to return to.
async fn logged_in<S: Site>(
    site: &S,
    users: &TokenFile,
    openid: &OpenId,
    request: &Request<Bytes>,
) -> Result<(LoggedIn, String), Box<Response<Body>>> {
    let failed = |status, message: &str| Box::new(failed(S::KIND, status, message));
    let of_fault = |fault: LoginFault| match fault {
        LoginFault::State => {
            let message = "The login took more than ten minutes, began in another browser, or another login began later. Log in again.";
            failed(StatusCode::BAD_REQUEST, message)
        }
        LoginFault::Denied(code) => {
            let message = format!("The provider {} denied the login: {code}.", openid.name());
            failed(StatusCode::FORBIDDEN, &message)
        }
        LoginFault::Code => {
            let message =
                format!("The provider {} rejected the code of the login. Log in again.", openid.name());
            failed(StatusCode::FORBIDDEN, &message)
        }
        LoginFault::Token => {
            let message = format!(
                "The gateway rejected the answer of the provider {}. The log of the gateway has the reason.",
                openid.name()
            );
            failed(StatusCode::FORBIDDEN, &message)
        }
        LoginFault::Unavailable => Box::new(unavailable(S::KIND, openid)),
    };
    let sealed = cookie(request, S::KIND, CookieKind::Login);
    let answer = openid.answer(sealed, request.uri().query().unwrap_or_default()).map_err(of_fault)?;
    let named = site.named_groups().await;
    let completed = openid.complete(&answer, end_of_session(), |group| named.contains(group)).await;
    let logged_in = completed.map_err(|reason| match reason {
        NoLogin::Fault(fault) => {
            if matches!(fault, LoginFault::Code | LoginFault::Token) {
                users.count_failed_login();
            }
            of_fault(fault)
        }
        NoLogin::Nameless => {
            let message = "The ID token has no usable name of the user (openIdConnect.userClaim). Tell the operator of the gateway.";
            failed(StatusCode::FORBIDDEN, message)
        }
        NoLogin::NoRole(user) => {
            tracing::warn!(user, "a user of the OpenID provider has no role in the {}: the login is denied", S::KIND.name());
            failed(StatusCode::FORBIDDEN, &no_role(&user, S::KIND))
        }
        NoLogin::Busy => {
            failed(StatusCode::SERVICE_UNAVAILABLE, "Too many users log in at once. Log in again in some seconds.")
        }
    })?;
    let (user, site) = (&*logged_in.user.name, S::KIND.name());
    if logged_in.dropped > 0 {
        let dropped = logged_in.dropped;
        tracing::warn!(
            user,
            dropped,
            "the user has more groups than a cookie can hold: groups that no rule and no object names are dropped first"
        );
    }
    tracing::info!(user, "a user of the OpenID provider logged in to the {site}");
    Ok((logged_in, answer.target().to_owned()))
}

fn unavailable(site: SiteKind, openid: &OpenId) -> Response<Body> {
    let message = format!(
        "The provider {} is unavailable, so no user can log in there now. Try again later. Sessions and users with a token continue.",
        openid.name()
    );
    failed(site, StatusCode::SERVICE_UNAVAILABLE, &message)
}

/// A page about a failed login.
fn failed(site: SiteKind, status: StatusCode, message: &str) -> Response<Body> {
    // The first page of the portal needs no login.
    let href = if site == SiteKind::Portal { "/login" } else { "/" };
    let page = assets::message(site, ("The login failed", message), (href, "Back to the login"), false);
    response_of(status, HTML, page.into())
}

/// The path to return to: a path of this site in visible ASCII, or else the first page.
fn path_of(target: &str) -> &str {
    let is_path = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    let is_page = !target.starts_with("/oauth2/") && !target.starts_with("/api/") && target != "/login";
    if is_path && is_page { target } else { "/" }
}
