//! The login by a token, and sessions.
//!
//! A session is a cookie with its end, signed with a key that follows from the token. So every replica with the same token
//! accepts the session, and a new token ends all sessions. The cookie is not accessible to scripts, and browsers send it only
//! with requests from the dashboard itself.

use std::fs;
use std::io;
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

/// The name of the cookie.
const COOKIE_NAME: &str = "sluicegate_session";

/// The duration of a session.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// The shortest token, in bytes.
pub const TOKEN_MIN: usize = 16;

/// The longest token, in bytes.
const TOKEN_MAX: usize = 4096;

/// The age at which the file is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The number of failed logins at once, and the time after which one more is allowed.
const TRIES: u32 = 10;
const TRY_EVERY: Duration = Duration::from_secs(6);

/// The clients that may read the dashboard.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every client that reaches the address.
    Open,
    /// Clients with the token.
    Token(Arc<TokenFile>),
}

/// A file with the token.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The key that follows from the token; `None` while the file is unusable.
    key: Option<Key>,
    read: Instant,
    /// The failed logins that count now, and the time of the last change of this number.
    failed: (u32, Instant),
}

/// What follows from a token.
#[derive(Clone, Debug)]
struct Key {
    hash: [u8; 32],
    signing: hmac::Key,
}

/// The reason why a token file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The token is too short or too long.
    #[error(
        "the token in {} has {length} bytes; write from {TOKEN_MIN} to {TOKEN_MAX} bytes, such as the output of: \
         openssl rand -hex 32", path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// The number of bytes.
        length: usize,
    },
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
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        let (key, now) = (Key::read(path)?, Instant::now());
        let state = State { key: Some(key), read: now, failed: (0, now) };
        Ok(Self { path: path.to_owned(), state: Mutex::new(state) })
    }

    /// Reads the file again, if it may have changed.
    fn refresh(&self, state: &mut State, now: Instant) {
        if now.duration_since(state.read) < READ_AGAIN {
            return;
        }
        state.read = now;
        match Key::read(&self.path) {
            Ok(key) => state.key = Some(key),
            Err(error) => {
                if state.key.take().is_some() {
                    tracing::error!(
                        "{error}; until the file is readable again, the dashboard responds with 503"
                    );
                }
            }
        }
    }

    /// Checks a token.
    fn check_token(&self, token: &[u8], now: Instant) -> Result<Key, Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state, now);
        let key = state.key.clone().ok_or(Denied::NoToken)?;
        let (failed, since) = state.failed;
        let elapsed = now.saturating_duration_since(since);
        let allowed_again = u32::try_from(elapsed.as_secs() / TRY_EVERY.as_secs()).unwrap_or(u32::MAX);
        let failed = failed.saturating_sub(allowed_again);
        if failed >= TRIES {
            return Err(Denied::TooMany(TRY_EVERY.saturating_sub(elapsed)));
        }
        if key.is_of(token) {
            return Ok(key);
        }
        let since = if allowed_again > 0 || failed == 0 { now } else { since };
        state.failed = (failed + 1, since);
        Err(Denied::WrongToken)
    }

    fn key(&self, now: Instant) -> Result<Key, Denied> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut state, now);
        state.key.clone().ok_or(Denied::NoToken)
    }
}

impl Key {
    fn read(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read(path).map_err(|error| TokenError::Read { path: path.to_owned(), error })?;
        let token = text.trim_ascii();
        if !(TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) {
            return Err(TokenError::Length { path: path.to_owned(), length: token.len() });
        }
        Ok(Self::of(token))
    }

    fn of(token: &[u8]) -> Self {
        let secret = digest(&SHA256, &[b"sluicegate dashboard session\n", token].concat());
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self { hash, signing: hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()) }
    }

    /// Whether this is the token. The time does not depend on the place of the first difference.
    fn is_of(&self, token: &[u8]) -> bool {
        verify_slices_are_equal(digest(&SHA256, token).as_ref(), &self.hash).is_ok()
    }

    /// The text of a session that ends at this time, in seconds since 1970.
    fn session(&self, end: u64) -> String {
        let tag = hmac::sign(&self.signing, &end.to_be_bytes());
        format!("{end}.{}", BASE64.encode(tag.as_ref()))
    }

    fn accepts(&self, session: &str, now: u64) -> bool {
        let Some((end, tag)) = session.split_once('.') else { return false };
        let (Ok(end), Ok(tag)) = (end.parse::<u64>(), BASE64.decode(tag)) else { return false };
        hmac::verify(&self.signing, &end.to_be_bytes(), &tag).is_ok() && now < end
    }
}

impl Access {
    /// Whether clients must log in.
    pub(crate) fn requires_login(&self) -> bool {
        matches!(self, Self::Token(_))
    }

    /// Checks whether a request may read: by its session, or by `Authorization: Bearer TOKEN`.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Denied> {
        let Self::Token(file) = self else { return Ok(()) };
        let now = Instant::now();
        if let Some(token) = bearer(request) {
            return file.check_token(token, now).map(drop);
        }
        let key = file.key(now)?;
        let unix = seconds_since_1970();
        match session(request).is_some_and(|session| key.accepts(session, unix)) {
            true => Ok(()),
            false => Err(Denied::Unauthenticated),
        }
    }

    /// Logs a client in: the value of `Set-Cookie`.
    pub(crate) fn log_in<B>(&self, request: &Request<B>) -> Result<Option<String>, Denied> {
        let Self::Token(file) = self else { return Ok(None) };
        let token = bearer(request).ok_or(Denied::Unauthenticated)?;
        let key = file.check_token(token, Instant::now())?;
        let session = key.session(seconds_since_1970() + SESSION.as_secs());
        Ok(Some(cookie(request, &session, SESSION)))
    }

    /// Logs a client out: the value of `Set-Cookie`.
    pub(crate) fn log_out<B>(request: &Request<B>) -> String {
        cookie(request, "", Duration::ZERO)
    }
}

fn cookie<B>(request: &Request<B>, value: &str, age: Duration) -> String {
    let is_https = request.headers().get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if is_https { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", age.as_secs())
}

fn bearer<B>(request: &Request<B>) -> Option<&[u8]> {
    let value = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn session<B>(request: &Request<B>) -> Option<&str> {
    let lines = request.headers().get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value)
}

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn file(token: &str) -> (tempfile::TempDir, Result<TokenFile, TokenError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        write(&path, format!("{token}\n")).expect("a file");
        let opened = TokenFile::open(&path);
        (folder, opened)
    }

    fn access(token: &str) -> (tempfile::TempDir, Access) {
        let (folder, file) = file(token);
        (folder, Access::Token(Arc::new(file.expect("a token"))))
    }

    fn request(name: &str, value: &str) -> Request<()> {
        Request::builder().header(name, value).body(()).expect("a request")
    }

    #[test]
    fn short_token_is_rejected() {
        assert!(matches!(file("0123456789abcde").1, Err(TokenError::Length { length: 15, .. })));
        assert!(matches!(TokenFile::open(Path::new("/nowhere")), Err(TokenError::Read { .. })));
    }

    #[test]
    fn session_is_accepted_until_its_end_and_only_with_its_token() {
        let (key, other) = (Key::of(TOKEN.as_bytes()), Key::of(b"another token 123"));
        let session = key.session(100);
        assert!(key.accepts(&session, 99));
        assert!(!key.accepts(&session, 100), "it has ended");
        assert!(!other.accepts(&session, 99));
        let forged = session.replace("100.", "900.");
        for forged in [&*forged, "", ".", "100.", "100.AAAA", "x.y"] {
            assert!(!key.accepts(forged, 99), "{forged}");
        }
    }

    #[test]
    fn login_returns_a_cookie_that_scripts_and_other_sites_cannot_use() {
        let (_folder, access) = access(TOKEN);
        let login = request("authorization", &format!("Bearer {TOKEN}"));
        let cookie = access.log_in(&login).expect("a login").expect("a cookie");
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap_or_default();
        assert_eq!(access.check(&request("cookie", &format!("a=b; {pair}"))), Ok(()));
        assert_eq!(access.check(&request("cookie", "sluicegate_session=1.x")), Err(Denied::Unauthenticated));
        assert_eq!(access.check(&login), Ok(()));
    }

    #[test]
    fn login_is_denied_after_too_many_wrong_tokens() {
        let (_folder, file) = file(TOKEN);
        let (file, now) = (file.expect("a token"), Instant::now());
        for _ in 0..TRIES {
            assert_eq!(file.check_token(b"wrong", now).map(drop), Err(Denied::WrongToken));
        }
        assert!(matches!(file.check_token(TOKEN.as_bytes(), now).map(drop), Err(Denied::TooMany(_))));
        assert!(file.check_token(TOKEN.as_bytes(), now + TRY_EVERY).is_ok(), "one more try");
    }

    #[test]
    fn unreadable_token_file_closes_the_dashboard() {
        let (folder, file) = file(TOKEN);
        let file = file.expect("a token");
        fs::remove_file(folder.path().join("token")).expect("a removed file");
        assert!(matches!(file.key(Instant::now() + READ_AGAIN), Err(Denied::NoToken)));
        write(folder.path().join("token"), "another token 123").expect("a file");
        let later = Instant::now() + 3 * READ_AGAIN;
        assert!(file.check_token(b"another token 123", later).is_ok());
    }
}
