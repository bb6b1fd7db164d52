//! The login by a token, and sessions.
//!
//! A session is a cookie with its end and the name of the user, signed with a key that follows from the user's token. So every
//! replica with the same file accepts the session, and a new token ends all sessions of the user. The cookie is not accessible to
//! scripts, and browsers send it only with requests from the site itself.

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

use crate::users;
pub use crate::users::{Name, Role, TokenError, User};

/// The duration of a session.
const SESSION: Duration = Duration::from_secs(12 * 3600);

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
    /// The name of the cookie. Browsers send cookies to all ports of a host.
    fn cookie(self) -> &'static str {
        match self {
            Self::Dashboard => "sluicegate_session",
            Self::Portal => "sluicegate_portal_session",
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

    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Portal => "portal",
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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The users; `None` while the file is unusable.
    users: Option<Arc<[Entry]>>,
    read: Instant,
    /// The failed logins that count now, and the time of the last change of this number.
    failed: (u32, Instant),
}

/// A user with what follows from the token.
#[derive(Debug)]
struct Entry {
    user: Arc<User>,
    hash: [u8; 32],
    signing: hmac::Key,
}

/// The reason why a request may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The request has no token and no valid session.
    Unauthenticated,
    /// The token is wrong.
    WrongToken,
    /// There were too many wrong tokens. The time until the next login.
    TooMany(Duration),
    /// The token file is unusable.
    NoToken,
}

impl TokenFile {
    /// Reads a token file.
    ///
    /// # Errors
    ///
    /// If the file has no usable token.
    pub fn open(path: &Path, site: SiteKind) -> Result<Self, TokenError> {
        let (users, now) = (read(path, site)?, Instant::now());
        let state = State { users: Some(users), read: now, failed: (0, now) };
        Ok(Self { path: path.to_owned(), site, state: Mutex::new(state) })
    }

    /// Reads the file again, if it may have changed.
    fn refresh(&self, state: &mut State, now: Instant) {
        if now.duration_since(state.read) < READ_AGAIN {
            return;
        }
        state.read = now;
        match read(&self.path, self.site) {
            Ok(users) => state.users = Some(users),
            Err(error) => {
                if state.users.take().is_some() {
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
        let users = state.users.clone().ok_or(Denied::NoToken)?;
        let (failed, since) = state.failed;
        let elapsed = now.saturating_duration_since(since);
        let (tries, every) = self.site.tries();
        let allowed_again = u32::try_from(elapsed.as_millis() / every.as_millis()).unwrap_or(u32::MAX);
        let failed = failed.saturating_sub(allowed_again);
        if failed >= tries {
            return Err(Denied::TooMany(every.saturating_sub(elapsed)));
        }
        let hash = digest(&SHA256, token);
        if let Some(entry) = users.iter().find(|entry| entry.is_of(hash.as_ref())) {
            return Ok((entry.user.clone(), entry.session(end)));
        }
        let since = if allowed_again > 0 || failed == 0 { now } else { since };
        state.failed = (failed + 1, since);
        Err(Denied::WrongToken)
    }

    fn users(&self, now: Instant) -> Result<Arc<[Entry]>, Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state, now);
        state.users.clone().ok_or(Denied::NoToken)
    }

    /// The user of a request: by a token in `Authorization`, or else by the session.
    pub(crate) fn user_of<B>(&self, request: &Request<B>) -> Result<Arc<User>, Denied> {
        let now = Instant::now();
        if let Some(token) = bearer(request) {
            return Ok(self.check_token(token, now, 0)?.0);
        }
        let users = self.users(now)?;
        let session = session(request, self.site).ok_or(Denied::Unauthenticated)?;
        user_of_session(&users, session, seconds_since_1970()).ok_or(Denied::Unauthenticated)
    }

    /// Logs a client in: the value of `Set-Cookie`.
    pub(crate) fn log_in<B>(&self, request: &Request<B>) -> Result<String, Denied> {
        let token = bearer(request).ok_or(Denied::Unauthenticated)?;
        let end = seconds_since_1970() + SESSION.as_secs();
        let (_, session) = self.check_token(token, Instant::now(), end)?;
        Ok(cookie(request, self.site, &session, SESSION))
    }
}

fn read(path: &Path, site: SiteKind) -> Result<Arc<[Entry]>, TokenError> {
    let users = users::read(path)?.into_iter();
    Ok(users.map(|(user, token)| Entry::new(user, &token, site)).collect())
}

impl Entry {
    fn new(user: User, token: &[u8], site: SiteKind) -> Self {
        let name = format!("sluicegate {} session\n", site.name());
        let secret = digest(&SHA256, &[name.as_bytes(), token].concat());
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self { user: user.into(), hash, signing: hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()) }
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
    /// Whether clients must log in.
    pub(crate) fn requires_login(&self) -> bool {
        matches!(self, Self::Token(_))
    }

    /// The user of a request: by its session, or by `Authorization: Bearer TOKEN`. Without a login, each client is a viewer without
    /// a name.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<Arc<User>, Denied> {
        match self {
            Self::Open => Ok(Arc::default()),
            Self::Token(file) => file.user_of(request),
        }
    }

    /// Logs a client in: the value of `Set-Cookie`.
    pub(crate) fn log_in<B>(&self, request: &Request<B>) -> Result<Option<String>, Denied> {
        match self {
            Self::Open => Ok(None),
            Self::Token(file) => file.log_in(request).map(Some),
        }
    }
}

/// Logs a client out: the value of `Set-Cookie`.
pub(crate) fn log_out<B>(request: &Request<B>, site: SiteKind) -> String {
    cookie(request, site, "", Duration::ZERO)
}

fn cookie<B>(request: &Request<B>, site: SiteKind, value: &str, age: Duration) -> String {
    let is_https = request.headers().get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if is_https { "; Secure" } else { "" };
    format!("{}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", site.cookie(), age.as_secs())
}

/// The token in `Authorization`.
pub(crate) fn bearer<B>(request: &Request<B>) -> Option<&[u8]> {
    let value = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn session<B>(request: &Request<B>, site: SiteKind) -> Option<&str> {
    let lines = request.headers().get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == site.cookie()).map(|(_, value)| value)
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
        let cookie = access.log_in(&login).expect("a login").expect("a cookie");
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
        assert!(matches!(file.users(Instant::now() + READ_AGAIN), Err(Denied::NoToken)));
        write(folder.path().join("token"), "another token 123").expect("a file");
        assert!(file.users(Instant::now() + 2 * READ_AGAIN).is_ok());
    }
}
