//! Login of browsers by OpenID Connect: the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).
//!
//! The gateway stores no session: an encrypted cookie holds the tokens of the browser. So every data plane with the same
//! keys knows every session. `http/login.rs` serves the paths of the flow; this module decides. `openid` asks the provider.
//!
//! | module | purpose |
//! |---|---|
//! | `tokens` | the sessions that follow from tokens |
//! | `session` | the session of a browser |
//! | `refresh` | refreshes, one at a time for each session |
//! | `cookies` | cookies |

mod cookies;
mod refresh;
mod session;
mod tokens;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_http1::Method;
use sluicegate_model::feature::Oidc;

use super::jwt::{TokenMemory, Verified, claim_headers, claim_lines};
use crate::failure::Denial;
use crate::openid::{
    Answer, Attempt, LoginFault, Metadata, Parameters, PublishedPlaces, Registration, RelyingParty, Seal, now,
};
use crate::request::{HeadView, RequestView};
use cookies::{Cookies, Place};
use refresh::{Refreshed, Refreshes};

pub(crate) use session::Session;
use session::Standing;

/// The most refreshes for one request: a cookie may be older than the last refreshes of its session.
const REFRESHES_MAX: usize = 3;

/// The login of a policy, compiled.
pub(crate) struct Login {
    /// Unique in this process.
    number: u64,
    source: Arc<Oidc>,
    party: RelyingParty,
    cookies: Cookies,
    sessions: Seal,
    attempts: Seal,
    /// Claims that become headers, with the names of these headers.
    headers: Vec<(Box<str>, Box<str>)>,
    refreshes: Refreshes,
}

/// A path of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The provider redirected the browser back.
    Callback,
    Logout,
}

/// The session of a request.
pub(crate) enum Found {
    Valid(Rc<Verified>),
    /// The session must be refreshed first.
    Due(Rc<Verified>, Arc<Session>),
    None,
}

/// The result of a refresh.
pub(crate) enum Renewal {
    /// A new session, which the browser must store.
    Renewed(Arc<Session>),
    /// The present session stays valid.
    Unchanged,
    /// The provider does not accept the session any more.
    Ended,
    /// The session needs a refresh, and the provider is unavailable.
    Unavailable,
}

impl Login {
    /// # Errors
    /// A value of a Secret or a URL that cannot be used, as a sentence.
    pub(super) fn new(source: &Arc<Oidc>, number: u64, places: &PublishedPlaces) -> Result<Self, String> {
        let keys = source.cookie_secret_ref.value()?;
        let secret = source.client_secret_ref.as_ref().map(|secret| secret.value().cloned()).transpose()?;
        let secrets = || keys.get().iter().map(|key| &**key.get());
        let seal = |purpose| Seal::new(secrets(), purpose).ok_or("the keys of the cookies cannot be used");
        let (issuer, client) = (source.issuer.as_str(), source.client_id.as_str());
        let registration = Registration {
            issuer: source.issuer.clone(),
            endpoints: source.endpoints.clone(),
            authorities: source.ca_certificate_ref.clone(),
            client_id: source.client_id.clone(),
            client_secret: secret,
            client_authentication: source.client_authentication,
            scopes: source.scopes.clone(),
            parameters: source.login_parameters.clone(),
            clock_skew: source.clock_skew.get(),
            timeout: source.timeout,
        };
        Ok(Self {
            number,
            party: RelyingParty::new(registration, places)?,
            cookies: Cookies::new(issuer, client, source.cookie_domain.as_ref()),
            sessions: seal("session")?,
            attempts: seal("login")?,
            headers: claim_headers(&source.claim_to_headers),
            refreshes: Refreshes::default(),
            source: source.clone(),
        })
    }

    /// The names of the headers that only the gateway sets.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &str> {
        self.source.headers().map(|header| header.as_str())
    }

    /// Whether endpoints receive the access token in `Authorization`.
    pub(super) fn sets_authorization(&self) -> bool {
        self.source.forward_access_token
    }

    /// Whether a cookie is a cookie of the login, which endpoints do not receive.
    pub(super) fn owns_cookie(&self, name: &[u8]) -> bool {
        self.cookies.includes(name)
    }

    /// The paths of the flow.
    pub(in crate::feature) fn paths(&self) -> [&str; 2] {
        [&self.source.redirect_path, &self.source.logout_path]
    }

    /// The step of the flow that a request takes.
    pub(crate) fn step(&self, request: &RequestView<'_>) -> Option<Step> {
        match request.path {
            path if *path == *self.source.redirect_path.as_bytes() => Some(Step::Callback),
            path if *path == *self.source.logout_path.as_bytes() => Some(Step::Logout),
            _ => None,
        }
    }

    /// The session of a request, at this time in seconds since 1970.
    pub(super) fn find(&self, request: &RequestView<'_>, now: i64, memory: &mut TokenMemory) -> Found {
        let Some(place) = Place::of(request) else { return Found::None };
        let Some(sealed) = self.cookies.session(&place) else { return Found::None };
        let (of, realm) = ((self.number, 0), self.cookies.realm(&place));
        let verified = match memory.find(of, &sealed) {
            Some(known) => known,
            None => {
                let opened = self.sessions.open(&self.context(realm), &sealed);
                let session = opened.and_then(|text| Session::parse(&text, realm));
                let Some(verified) = session.and_then(|session| self.verified(Arc::new(session))) else {
                    return Found::None;
                };
                memory.remember(of, &sealed, &verified);
                verified
            }
        };
        // The session of one host is not valid on another host, although the worker remembers it.
        let Some(session) = verified.session.clone().filter(|session| *session.realm == *realm) else {
            return Found::None;
        };
        match session.standing(now, self.lifetime()) {
            Standing::Valid => Found::Valid(verified),
            Standing::Due | Standing::Stale => Found::Due(verified, session),
            Standing::Over => Found::None,
        }
    }

    /// The identity of a session.
    pub(crate) fn verified(&self, session: Arc<Session>) -> Option<Rc<Verified>> {
        let claims = session.claims()?;
        let mut lines = claim_lines(&claims, &self.headers);
        if let Some(token) = session.access_token.as_ref().filter(|_| self.sets_authorization()) {
            lines.extend_from_slice(format!("Authorization: Bearer {token}\r\n").as_bytes());
        }
        if let Some(header) = &self.source.id_token_header {
            lines.extend_from_slice(format!("{header}: {}\r\n", session.id_token).as_bytes());
        }
        Some(Rc::new(Verified::new(claims, lines, i64::MAX, Some(session))))
    }

    /// The configuration of the provider.
    pub(crate) async fn provider(&self) -> Result<Arc<Metadata>, Denial> {
        self.party.metadata().await.ok_or(Denial::ProviderUnavailable)
    }

    /// Begins a login: adds the cookie and the redirect to the provider to the response.
    pub(crate) fn begin(
        &self,
        request: &RequestView<'_>,
        metadata: &Metadata,
        lines: &mut Vec<u8>,
    ) -> Option<()> {
        let place = Place::of(request)?;
        let attempt = Attempt::new(target(request))?;
        let sealed = self.attempts.seal(&self.context(&place.host), &attempt.to_text())?;
        self.cookies.set_login(lines, &place, attempt.id(), &sealed);
        let redirect_uri = self.url(request, &self.source.redirect_path);
        write_location(lines, &self.party.login_url(metadata, &attempt, &redirect_uri));
        Some(())
    }

    /// Reads the answer of the provider, and removes the cookie of the login. Returns the host or the domain of the session too.
    pub(crate) fn answer(
        &self,
        request: &RequestView<'_>,
        lines: &mut Vec<u8>,
    ) -> Result<(Answer, Box<str>), Denial> {
        let place = Place::of(request).ok_or(Denial::LoginState)?;
        if request.head.head.method != Method::Get {
            return Err(Denial::LoginState);
        }
        let parameters = Parameters::of(request.head.query().unwrap_or_default());
        let id = parameters.state.as_deref().and_then(Attempt::id_of).ok_or(Denial::LoginState)?;
        let sealed = self.cookies.login(&place, id).ok_or(Denial::LoginState)?;
        self.cookies.remove_login(lines, &place, id);
        let opened = self.attempts.open(&self.context(&place.host), sealed);
        let attempt = opened.and_then(|text| Attempt::parse(&text)).ok_or(Denial::LoginState)?;
        let answered = attempt.answered(parameters, self.url(request, &self.source.redirect_path));
        if let Err(LoginFault::Denied(error)) = &answered {
            tracing::debug!(issuer = &*self.source.issuer, error, "the OpenID provider denied a login");
        }
        Ok((answered?, self.cookies.realm(&place).into()))
    }

    /// Adds the cookies of a new session to the response.
    pub(crate) fn store(
        &self,
        request: &RequestView<'_>,
        session: &Session,
        lines: &mut Vec<u8>,
    ) -> Result<(), Denial> {
        let place = Place::of(request).ok_or(Denial::LoginState)?;
        let sealed = self.sessions.seal(&self.context(&session.realm), &session.to_text());
        let age = session.last_second(self.lifetime()).saturating_sub(now());
        let age = u64::try_from(age).unwrap_or(0);
        let is_stored = sealed.is_some_and(|sealed| self.cookies.set_session(lines, &place, &sealed, age));
        if is_stored { Ok(()) } else { Err(Denial::SessionTooLong) }
    }

    /// Ends the session of a request: removes its cookies, and returns the URL to go to. `None` if there is no host.
    pub(crate) fn end(
        &self,
        request: &RequestView<'_>,
        metadata: Option<&Metadata>,
        memory: &mut TokenMemory,
        lines: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        let place = Place::of(request)?;
        let session = match self.find(request, now(), memory) {
            Found::Valid(verified) | Found::Due(verified, _) => verified.session.clone(),
            Found::None => None,
        };
        self.cookies.remove_all(lines, &place);
        let back = self.url(request, &self.source.post_logout_path);
        let id_token = session.as_ref().map(|session| &*session.id_token);
        let url = metadata.and_then(|metadata| self.party.logout_url(metadata, id_token, &back));
        Some(url.unwrap_or(back))
    }

    /// Refreshes a session. Requests with the same session share one refresh.
    pub(crate) async fn refresh(self: &Arc<Self>, session: &Arc<Session>) -> Renewal {
        let mut refreshed = self.refreshes.of(self, session).await;
        // The cookie is older than the last refresh, whose session is stale too.
        for _ in 0..REFRESHES_MAX {
            let Refreshed::Renewed(renewed) = &refreshed else { break };
            let is_stale = renewed.standing(now(), self.lifetime()) == Standing::Stale;
            if !is_stale || renewed.issued == now() {
                break;
            }
            let renewed = renewed.clone();
            refreshed = self.refreshes.of(self, &renewed).await;
        }
        match refreshed {
            Refreshed::Renewed(renewed) => Renewal::Renewed(renewed),
            Refreshed::Rejected => Renewal::Ended,
            Refreshed::Unavailable => match session.standing(now(), self.lifetime()) {
                Standing::Valid | Standing::Due => Renewal::Unchanged,
                Standing::Stale | Standing::Over => Renewal::Unavailable,
            },
        }
    }

    fn lifetime(&self) -> i64 {
        i64::try_from(self.source.session_lifetime.get().as_secs()).unwrap_or(i64::MAX)
    }

    /// The authenticated context of a cookie: the provider, the client, and the host or domain.
    fn context(&self, realm: &str) -> Vec<u8> {
        format!("{}\n{}\n{realm}", self.source.issuer, self.source.client_id).into_bytes()
    }

    /// The URL of a path on the host of a request.
    fn url(&self, request: &RequestView<'_>, path: &str) -> Vec<u8> {
        let mut url = Vec::new();
        request.write_origin(&mut url);
        url.extend_from_slice(path.as_bytes());
        url
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("issuer", &self.source.issuer).finish_non_exhaustive()
    }
}

/// Whether a browser navigates with this request, so that its user can log in. A script cannot follow the redirect to the
/// provider.
pub(super) fn is_navigation(HeadView { head, buf }: HeadView<'_>) -> bool {
    let mode = head.find(buf, "sec-fetch-mode");
    let accept = head.find(buf, "accept").unwrap_or_default();
    matches!(head.method, Method::Get | Method::Head)
        && mode.is_none_or(|mode| mode.trim_ascii().eq_ignore_ascii_case(b"navigate"))
        && head.find(buf, "x-requested-with").is_none()
        && accept.split(|byte| *byte == b',').any(|range| {
            let media_type = range.split(|byte| *byte == b';').next().unwrap_or_default();
            media_type.trim_ascii().eq_ignore_ascii_case(b"text/html")
        })
}

/// Writes a Location header line. A response with cookies must not be stored.
pub(crate) fn write_location(lines: &mut Vec<u8>, url: &[u8]) {
    for part in [b"Location: ", url, b"\r\nCache-Control: no-store\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// The path and the query of a request, to which the browser returns.
fn target(request: &RequestView<'_>) -> Vec<u8> {
    let mut target = request.path.to_vec();
    if let Some(query) = request.head.query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}
