//! The access to a site: the site checks tokens, logins at an OpenID provider, and sessions.
//!
//! A session is a cookie. The session of a user with a token has its end and the name of the user, signed with a key that follows
//! from the token. So every replica with the same file accepts the session, and a new token ends all sessions of the user. `openid`
//! has the sessions of other users. The cookie is not accessible to scripts, and browsers send it only with requests from the site
//! itself.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hyper::Request;
use hyper::header::{AUTHORIZATION, COOKIE};
use sluicegate_proxy::openid::PublishedPlaces;

use crate::openid::{LoggedIn, OpenId, Rights};
use crate::users;
pub use crate::users::{Fault, Name, Role, TokenError, User};

/// The duration of a session.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// The start of a session after a login at an OpenID provider. Other sessions begin with a digit.
const OF_PROVIDER: &str = "openid.";

/// The prefix of cookies over HTTPS: no other host can set them (RFC 6265bis, 4.1.3).
const HOST_PREFIX: &str = "__Host-";

/// The age at which the file is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The site that a token file protects. A session of one site is invalid at the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// The dashboard.
    Dashboard,
    /// The developer portal.
    Portal,
}

impl SiteKind {
    /// The name of a cookie without a prefix. Browsers send cookies to all ports of a host.
    fn cookie(self, kind: CookieKind) -> &'static str {
        match (self, kind) {
            (Self::Dashboard, CookieKind::Session) => "sluicegate_session",
            (Self::Dashboard, CookieKind::Login) => "sluicegate_login",
            (Self::Portal, CookieKind::Session) => "sluicegate_portal_session",
            (Self::Portal, CookieKind::Login) => "sluicegate_portal_login",
        }
    }

    /// The number of failed logins at once, and the time after which one more is allowed. Many people use a portal, and one of them
    /// must not lock the others out for long.
    fn tries(self) -> (u32, Duration) {
        match self {
            Self::Dashboard => (10, Duration::from_secs(6)),
            Self::Portal => (100, Duration::from_millis(600)),
        }
    }

    /// The name in the title of a page.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Dashboard => "Sluicegate",
            Self::Portal => "Developer portal",
        }
    }

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Portal => "portal",
        }
    }
}

/// The kind of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieKind {
    Session,
    /// A login in progress at an OpenID provider.
    Login,
}

impl CookieKind {
    /// The value of `SameSite`. The provider, another site, redirects browsers back to a login.
    fn same_site(self) -> &'static str {
        match self {
            Self::Session => "Strict",
            Self::Login => "Lax",
        }
    }
}

/// The clients that may read the dashboard.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every client that reaches the address.
    Open,
    /// Users with a token.
    Token(Arc<TokenFile>),
}

/// A file with tokens.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    site: SiteKind,
    /// What the OpenID provider publishes. The documents outlive a change of the file.
    places: PublishedPlaces,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The contents; `None` while the file is unusable.
    content: Option<Arc<Content>>,
    /// The hash of the text.
    hash: [u8; 32],
    read: Instant,
    wrong_tokens: Tries,
    failed_logins: Tries,
}

/// The contents of a file.
#[derive(Debug)]
struct Content {
    users: Vec<Entry>,
    openid: Option<Arc<OpenId>>,
}

/// The failed tries that count now, and the time of the last change of this number.
#[derive(Clone, Copy, Debug)]
struct Tries {
    failed: u32,
    since: Instant,
}

/// A user with what follows from the token.
#[derive(Debug)]
struct Entry {
    user: Arc<User>,
    hash: [u8; 32],
    signing: hmac::Key,
}

/// The reason why a request may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The request has no token and no valid session.
    Unauthenticated,
    /// The token is wrong.
    WrongToken,
    /// There were too many wrong tokens. The time until the next login.
    TooMany(Duration),
    /// The token file is unusable.
    NoToken,
    /// No rule gives this user of the OpenID provider a role.
    NoRole(String),
}

impl Tries {
    /// Whether one more try is allowed.
    ///
    /// # Errors
    ///
    /// The time until the next try.
    fn check(&mut self, (most, every): (u32, Duration), now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.since);
        let allowed_again = u32::try_from(elapsed.as_millis() / every.as_millis()).unwrap_or(u32::MAX);
        let failed = self.failed.saturating_sub(allowed_again);
        if failed >= most {
            return Err(every.saturating_sub(elapsed));
        }
        if allowed_again > 0 || failed == 0 {
            *self = Self { failed, since: now };
        }
        Ok(())
    }
}

impl TokenFile {
    /// Reads a token file.
    ///
    /// # Errors
    ///
    /// If the file has no usable token.
    pub fn open(path: &Path, site: SiteKind) -> Result<Self, TokenError> {
        let (places, now) = (PublishedPlaces::default(), Instant::now());
        let text = users::text_of(path)?;
        let content = Content::read((path, &text), site, &places)?;
        let none = Tries { failed: 0, since: now };
        let state = State {
            content: Some(content.into()),
            hash: hash_of(&text),
            read: now,
            wrong_tokens: none,
            failed_logins: none,
        };
        Ok(Self { path: path.to_owned(), site, places, state: Mutex::new(state) })
    }

    /// Reads the file again, if it may have changed.
    fn refresh(&self, state: &mut State, now: Instant) {
        if now.duration_since(state.read) < READ_AGAIN {
            return;
        }
        state.read = now;
        let read = users::text_of(&self.path).and_then(|text| {
            let hash = hash_of(&text);
            match &state.content {
                Some(content) if hash == state.hash => Ok((content.clone(), hash)),
                _ => Ok((Content::read((&self.path, &text), self.site, &self.places)?.into(), hash)),
            }
        });
        match read {
            Ok((content, hash)) => (state.content, state.hash) = (Some(content), hash),
            Err(error) => {
                if state.content.take().is_some() {
                    tracing::error!(
                        "{error}; until the file is readable again, the {} responds with 503",
                        self.site.name()
                    );
                }
            }
        }
    }

    /// The user with a token, and the session at this time.
    fn check_token(&self, token: &[u8], now: Instant, end: u64) -> Result<(Arc<User>, String), Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state, now);
        let content = state.content.clone().ok_or(Denied::NoToken)?;
        state.wrong_tokens.check(self.site.tries(), now).map_err(Denied::TooMany)?;
        let hash = digest(&SHA256, token);
        if let Some(entry) = content.users.iter().find(|entry| entry.is_of(hash.as_ref())) {
            return Ok((entry.user.clone(), entry.session(end)));
        }
        state.wrong_tokens.failed += 1;
        Err(Denied::WrongToken)
    }

    fn content(&self, now: Instant) -> Result<Arc<Content>, Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state, now);
        state.content.clone().ok_or(Denied::NoToken)
    }

    /// The login by OpenID Connect, if the file has one.
    pub(crate) fn openid(&self) -> Result<Option<Arc<OpenId>>, Denied> {
        Ok(self.content(Instant::now())?.openid.clone())
    }

    /// Whether the file has users with tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.content(Instant::now()).is_ok_and(|content| !content.users.is_empty())
    }

    /// Whether one more login at the OpenID provider may fail.
    pub(crate) fn check_logins(&self) -> Result<(), Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed_logins.check(self.site.tries(), Instant::now()).map_err(Denied::TooMany)
    }

    /// Counts a failed login at the OpenID provider.
    pub(crate) fn count_failed_login(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed_logins.failed = state.failed_logins.failed.saturating_add(1);
    }

    /// The user of a request: by a token in `Authorization`, or else by the session.
    pub(crate) fn user_of<B>(&self, request: &Request<B>) -> Result<Arc<User>, Denied> {
        let now = Instant::now();
        if let Some(token) = bearer(request) {
            return Ok(self.check_token(token, now, 0)?.0);
        }
        let content = self.content(now)?;
        let session = cookie(request, self.site, CookieKind::Session).ok_or(Denied::Unauthenticated)?;
        content.user_of_session(session, seconds_since_1970())
    }

    /// The login by OpenID Connect that a request has a session of.
    pub(crate) fn openid_of<B>(&self, request: &Request<B>) -> Option<Arc<OpenId>> {
        let session = cookie(request, self.site, CookieKind::Session)?;
        let openid = self.content(Instant::now()).ok()?.openid.clone()?;
        openid.rights(session.strip_prefix(OF_PROVIDER)?, seconds_since_1970())?;
        Some(openid)
    }

    /// Logs a client in by a token: the values of `Set-Cookie`.
    pub(crate) fn log_in<B>(&self, request: &Request<B>) -> Result<Vec<String>, Denied> {
        let token = bearer(request).ok_or(Denied::Unauthenticated)?;
        let (_, session) = self.check_token(token, Instant::now(), end_of_session())?;
        let kind = (self.site, CookieKind::Session);
        Ok(set_cookie(request, kind, is_https(request), (&session, SESSION.as_secs())))
    }

    /// The values of `Set-Cookie` for a user of an OpenID provider.
    pub(crate) fn session_cookies<B>(
        &self,
        request: &Request<B>,
        logged_in: &LoggedIn,
        is_https: bool,
    ) -> Vec<String> {
        let session = format!("{OF_PROVIDER}{}", logged_in.session);
        let kind = (self.site, CookieKind::Session);
        set_cookie(request, kind, is_https, (&session, SESSION.as_secs()))
    }
}

impl Content {
    fn read(
        (path, text): (&Path, &[u8]),
        site: SiteKind,
        places: &PublishedPlaces,
    ) -> Result<Self, TokenError> {
        let file = users::read(path, text)?;
        let users = file.users.into_iter().map(|(user, token)| Entry::new(user, &token, site)).collect();
        let openid = file.openid.map(|section| OpenId::new(section, site, places)).transpose();
        let openid = openid.map_err(|fault| TokenError::in_text(path, text, fault))?;
        Ok(Self { users, openid: openid.map(Arc::new) })
    }

    /// The user with this session.
    fn user_of_session(&self, session: &str, now: u64) -> Result<Arc<User>, Denied> {
        let Some(sealed) = session.strip_prefix(OF_PROVIDER) else {
            return user_of_session(&self.users, session, now).ok_or(Denied::Unauthenticated);
        };
        let rights = self.openid.as_ref().and_then(|openid| openid.rights(sealed, now));
        match rights.ok_or(Denied::Unauthenticated)? {
            Rights::Of(user) => Ok(user),
            Rights::NoRole(name) => Err(Denied::NoRole(name)),
        }
    }
}

fn hash_of(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text).as_ref());
    hash
}

/// The end of a session that begins now, in seconds since 1970.
pub(crate) fn end_of_session() -> u64 {
    seconds_since_1970() + SESSION.as_secs()
}

impl Entry {
    fn new(user: User, token: &[u8], site: SiteKind) -> Self {
        let name = format!("sluicegate {} session\n", site.name());
        let secret = digest(&SHA256, &[name.as_bytes(), token].concat());
        Self {
            user: user.into(),
            hash: hash_of(token),
            signing: hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()),
        }
    }

    /// Whether this is the hash of the token. The time does not depend on the place of the first difference.
    fn is_of(&self, hash: &[u8]) -> bool {
        verify_slices_are_equal(hash, &self.hash).is_ok()
    }

    /// The text of a session that ends at this time, in seconds since 1970.
    fn session(&self, end: u64) -> String {
        let signed = format!("{end}.{}", BASE64.encode(&self.user.name));
        let tag = hmac::sign(&self.signing, signed.as_bytes());
        format!("{signed}.{}", BASE64.encode(tag.as_ref()))
    }
}

/// The user with this session.
fn user_of_session(users: &[Entry], session: &str, now: u64) -> Option<Arc<User>> {
    let (signed, tag) = session.rsplit_once('.')?;
    let (end, name) = signed.split_once('.')?;
    let (end, name, tag) = (end.parse::<u64>().ok()?, BASE64.decode(name).ok()?, BASE64.decode(tag).ok()?);
    let entry = users.iter().find(|entry| entry.user.name.as_bytes() == name)?;
    let is_signed = hmac::verify(&entry.signing, signed.as_bytes(), &tag).is_ok();
    (is_signed && now < end).then(|| entry.user.clone())
}

impl Access {
    /// The user of a request: by its session, or by `Authorization: Bearer TOKEN`. Without a login, each client is a viewer without
    /// a name.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Arc<User>, Denied> {
        match self {
            Self::Open => Ok(Arc::default()),
            Self::Token(file) => file.user_of(request),
        }
    }

    /// The users, unless each client may read.
    pub(crate) fn users(&self) -> Option<&TokenFile> {
        match self {
            Self::Open => None,
            Self::Token(file) => Some(file),
        }
    }
}

/// Logs a client out: the values of `Set-Cookie`.
pub(crate) fn log_out<B>(request: &Request<B>, site: SiteKind) -> Vec<String> {
    set_cookie(request, (site, CookieKind::Session), is_https(request), ("", 0))
}

/// Whether the client uses HTTPS, as a proxy states.
fn is_https<B>(request: &Request<B>) -> bool {
    request.headers().get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

/// The values of `Set-Cookie` that set a cookie for a time in seconds. A cookie of the same kind from another scheme is removed.
pub(crate) fn set_cookie<B>(
    request: &Request<B>,
    (site, kind): (SiteKind, CookieKind),
    is_https: bool,
    (value, age): (&str, u64),
) -> Vec<String> {
    let (plain, same_site) = (site.cookie(kind), kind.same_site());
    let own = |is_https: bool, value: &str, age: u64| {
        let (prefix, secure) = if is_https { (HOST_PREFIX, "; Secure") } else { ("", "") };
        format!("{prefix}{plain}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite={same_site}{secure}")
    };
    let mut lines = vec![own(is_https, value, age)];
    if pairs(request).any(|(name, _)| {
        name.strip_prefix(HOST_PREFIX).unwrap_or(name) == plain && name.starts_with(HOST_PREFIX) != is_https
    }) {
        lines.push(own(!is_https, "", 0));
    }
    lines
}

/// The token in `Authorization`.
pub(crate) fn bearer<B>(request: &Request<B>) -> Option<&[u8]> {
    let value = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The value of a cookie. Over HTTPS, other hosts could set a cookie without the prefix.
pub(crate) fn cookie<B>(request: &Request<B>, site: SiteKind, kind: CookieKind) -> Option<&str> {
    let plain = site.cookie(kind);
    let of_host = pairs(request).find(|(name, _)| name.strip_prefix(HOST_PREFIX) == Some(plain));
    let found = of_host.or_else(|| pairs(request).find(|(name, _)| *name == plain && !is_https(request)));
    found.map(|(_, value)| value)
}

/// The cookies of a request.
fn pairs<B>(request: &Request<B>) -> impl Iterator<Item = (&str, &str)> {
    let lines = request.headers().get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_file, write};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const USERS: &str =
        "users:\n- {name: ada, token: 0123456789abcdef}\n- {name: bob, token: fedcba9876543210}\n";

    fn file(text: &str) -> (tempfile::TempDir, TokenFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        write(&path, text).expect("a file");
        let opened = TokenFile::open(&path, SiteKind::Dashboard).expect("a token");
        (folder, opened)
    }

    fn request(name: &str, value: &str) -> Request<()> {
        Request::builder().header(name, value).body(()).expect("a request")
    }

    fn entry(name: &str, token: &str, site: SiteKind) -> Entry {
        Entry::new(User { name: name.to_owned(), ..User::default() }, token.as_bytes(), site)
    }

    #[test]
    fn session_is_accepted_until_its_end_and_only_with_its_token() {
        let users = [
            entry("ada", TOKEN, SiteKind::Dashboard),
            entry("bob", "another token 123", SiteKind::Dashboard),
        ];
        let session = users[0].session(100);
        let user = |users: &[Entry], session: &str, now| {
            user_of_session(users, session, now).map(|user| user.name.clone())
        };
        assert_eq!(user(&users, &session, 99).as_deref(), Some("ada"));
        assert_eq!(user(&users, &session, 100), None, "it has ended");
        assert_eq!(user(&[entry("ada", "a new token 1234", SiteKind::Dashboard)], &session, 99), None);
        assert_eq!(user(&[entry("ada", TOKEN, SiteKind::Portal)], &session, 99), None, "another site");
        let of_bob = session.replace(&BASE64.encode("ada"), &BASE64.encode("bob"));
        let later = session.replace("100.", "900.");
        for forged in [&*later, &of_bob, "", ".", "..", "100..", "100.AAAA", "x.y.z"] {
            assert_eq!(user(&users, forged, 99), None, "{forged}");
        }
    }

    #[test]
    fn login_returns_a_cookie_that_scripts_and_other_sites_cannot_use() {
        let (_folder, file) = file(USERS);
        let access = Access::Token(Arc::new(file));
        let login = request("authorization", "Bearer fedcba9876543210");
        let cookie = access.users().expect("users").log_in(&login).expect("a login").remove(0);
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap_or_default();
        let user = |request: &Request<()>| access.check(request).map(|user| user.name.clone());
        assert_eq!(user(&request("cookie", &format!("a=b; {pair}"))).as_deref(), Ok("bob"));
        assert_eq!(user(&request("cookie", "sluicegate_session=1.x.y")), Err(Denied::Unauthenticated));
        assert_eq!(user(&login).as_deref(), Ok("bob"));
    }

    #[test]
    fn login_is_denied_after_too_many_wrong_tokens() {
        let (_folder, file) = file(TOKEN);
        let (now, (tries, every)) = (Instant::now(), SiteKind::Dashboard.tries());
        for _ in 0..tries {
            assert_eq!(file.check_token(b"wrong", now, 0).map(drop), Err(Denied::WrongToken));
        }
        assert!(matches!(file.check_token(TOKEN.as_bytes(), now, 0).map(drop), Err(Denied::TooMany(_))));
        assert!(file.check_token(TOKEN.as_bytes(), now + every, 0).is_ok(), "one more try");
    }

    #[test]
    fn unreadable_token_file_closes_the_dashboard() {
        let (folder, file) = file(TOKEN);
        remove_file(folder.path().join("token")).expect("a removed file");
        assert!(matches!(file.content(Instant::now() + READ_AGAIN), Err(Denied::NoToken)));
        write(folder.path().join("token"), "another token 123").expect("a file");
        assert!(file.content(Instant::now() + 2 * READ_AGAIN).is_ok());
    }
}
