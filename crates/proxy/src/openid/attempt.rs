//! A login in progress, as its cookie holds it, and the answer of the provider.

use std::fmt;

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::client::printable;
use super::{LoginFault, now};
use crate::query::{decoded, pairs};

/// The time for a login, in seconds.
pub const LOGIN_SECONDS: u64 = 600;

/// The longest path and query to return to, in bytes. Browsers return to `/` from a longer one.
const TARGET_MAX: usize = 2000;

/// The longest parameter of an answer, in bytes.
const PARAMETER_MAX: usize = 4096;

/// A login in progress.
#[derive(Serialize, Deserialize)]
pub struct Attempt {
    /// The ID of the login, which begins with its time, and a secret.
    #[serde(rename = "s")]
    pub(super) state: Box<str>,
    #[serde(rename = "n")]
    pub(super) nonce: Box<str>,
    /// The code verifier (RFC 7636, 4.1).
    #[serde(rename = "v")]
    pub(super) verifier: Box<str>,
    /// The path and the query to return to.
    #[serde(rename = "u")]
    target: Box<str>,
    /// The time of the beginning, in seconds since 1970.
    #[serde(rename = "t")]
    begun: i64,
}

/// The answer of the provider to a login.
pub struct Answer {
    pub(super) attempt: Attempt,
    pub(super) code: String,
    /// The issuer of the answer (RFC 9207), if it is stated.
    pub(super) issuer: Option<String>,
    pub(super) redirect_uri: Vec<u8>,
}

/// The parameters of an answer. A parameter that is there twice is absent (RFC 6749, 3.1).
#[derive(Default, PartialEq, Eq)]
pub struct Parameters {
    pub(crate) state: Option<String>,
    code: Option<String>,
    issuer: Option<String>,
    /// The error code (RFC 6749, 4.1.2.1).
    error: Option<String>,
}

impl Attempt {
    /// A login that returns to this path. `None` if there is no randomness.
    #[must_use]
    pub fn new(target: Vec<u8>) -> Option<Self> {
        let (begun, mark) = (now(), random::<4>()?);
        let mark = u32::from_be_bytes(mark);
        let target = String::from_utf8(target).ok().filter(|target| target.len() <= TARGET_MAX);
        let text = |bytes: [u8; 32]| URL_SAFE_NO_PAD.encode(bytes);
        Some(Self {
            state: format!("{:08x}{mark:08x}.{}", begun & 0xffff_ffff, text(random()?)).into(),
            nonce: text(random()?).into(),
            verifier: text(random()?).into(),
            target: target.unwrap_or_else(|| "/".to_owned()).into(),
            begun,
        })
    }

    /// Reads the text of a login.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The text of the login, for an encrypted cookie.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        // The fields are text and a number.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The ID of the login.
    pub(crate) fn id(&self) -> &str {
        Self::id_of(&self.state).unwrap_or_default()
    }

    /// The ID in a state: 16 hexadecimal digits.
    pub(crate) fn id_of(state: &str) -> Option<&str> {
        let (id, _) = state.split_once('.')?;
        (id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
    }

    /// Whether the login has this state.
    fn is_of(&self, state: &str) -> bool {
        constant_time::verify_slices_are_equal(self.state.as_bytes(), state.as_bytes()).is_ok()
    }

    fn is_over(&self, now: i64) -> bool {
        now >= self.begun.saturating_add_unsigned(LOGIN_SECONDS)
    }

    /// Checks the answer of the provider to this login, for which the browser was redirected to `redirect_uri`.
    ///
    /// # Errors
    /// The answer is of another login, comes too late, or is a denial.
    pub fn answered(self, parameters: Parameters, redirect_uri: Vec<u8>) -> Result<Answer, LoginFault> {
        let Parameters { state, code, issuer, error } = parameters;
        if !state.is_some_and(|state| self.is_of(&state)) || self.is_over(now()) {
            return Err(LoginFault::State);
        }
        if let Some(error) = error {
            return Err(LoginFault::Denied(error));
        }
        let code = code.ok_or(LoginFault::State)?;
        Ok(Answer { attempt: self, code, issuer, redirect_uri })
    }

    /// The code challenge of the method S256 (RFC 7636, 4.2).
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, self.verifier.as_bytes()))
    }
}

impl Answer {
    /// The path and the query to return to. A URL must begin with the origin of the answer, so that it never leads to another
    /// host.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.attempt.target
    }
}

impl Parameters {
    /// The parameters in the query of a URL.
    #[must_use]
    pub fn of(query: &[u8]) -> Self {
        let one = |name: &[u8]| {
            let mut values = pairs(query, b'&').filter(|(found, _)| *decoded(found) == *name);
            let value = values.next().map(|(_, value)| decoded(value).into_owned());
            let value = value.filter(|value| !value.is_empty() && value.len() <= PARAMETER_MAX)?;
            String::from_utf8(value).ok().filter(|_| values.next().is_none())
        };
        Self {
            state: one(b"state"),
            code: one(b"code"),
            issuer: one(b"iss"),
            error: one(b"error").map(|error| printable(&error)),
        }
    }
}

/// A code is secret.
impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parameters").field("error", &self.error).finish_non_exhaustive()
    }
}

/// A login is secret.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// A code is secret.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

fn random<const LENGTH: usize>() -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_challenge_matches_the_example_of_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into();
        let attempt = Attempt { verifier, ..Attempt::new(b"/".to_vec()).expect("an attempt") };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn attempt_has_its_own_secrets_and_ends_after_ten_minutes() {
        let (one, other) = (Attempt::new(b"/a?b=c".to_vec()), Attempt::new(b"/".to_vec()));
        let (one, other) = (one.expect("an attempt"), other.expect("an attempt"));
        assert!(one.is_of(&one.state) && !one.is_of(&other.state));
        assert!(one.nonce != other.nonce && one.verifier != other.verifier && one.id() != other.id());
        assert!(!one.is_over(one.begun + 599) && one.is_over(one.begun + 600));
        let again = Attempt::parse(&one.to_text()).expect("an attempt");
        assert_eq!((&*again.target, again.id()), ("/a?b=c", one.id()));
        let long = Attempt::new(vec![b'/'; TARGET_MAX + 1]).expect("an attempt");
        assert_eq!(&*long.target, "/");
        for state in ["", "abc", "0123456789abcdef", "0123456789abcde/.x", "0123456789abcdeff.x"] {
            assert_eq!(Attempt::id_of(state), None, "{state}");
        }
    }

    #[test]
    fn repeated_or_endless_parameters_of_an_answer_are_absent() {
        let all = Parameters::of(b"code=a%20b&state=s&iss=https%3A%2F%2Fa&error=x%0ay");
        assert_eq!(all.code.as_deref(), Some("a b"));
        assert_eq!(all.issuer.as_deref(), Some("https://a"));
        assert_eq!(all.error.as_deref(), Some("xy"));
        let long = format!("code={}", "x".repeat(PARAMETER_MAX + 1));
        for query in ["code=a&code=b", "code=a&%63ode=b", "code", "code=", &long, "code=%ff"] {
            assert_eq!(Parameters::of(query.as_bytes()), Parameters::default(), "{query}");
        }
    }
}
