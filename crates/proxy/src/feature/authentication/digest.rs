//! Digest authentication (RFC 7616) with MD5 and SHA-256, and the quality of protection `auth`.
//!
//! A nonce is the time of its creation with a signature, so that the gateway stores no nonce. The key of the signature
//! follows from the hashes of the users: all data planes accept the nonces of each other, also after a restart. Within the
//! life of a nonce, a captured header can be sent again, but only for the same method and target.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use aws_lc_rs::{constant_time, digest, hmac};
use md5::{Digest as _, Md5};
use sluicegate_model::feature::Digest;
use sluicegate_model::value::secret::DigestUsers;

use super::credential::Place;
use super::{Authentication, Method};
use crate::failure::Denial;

/// The life of a nonce, as `auth_digest_timeout` of nginx' module for Digest authentication.
const NONCE_LIFE: Duration = Duration::from_secs(60);

/// How far the clock of another data plane may be ahead.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// The number of bytes of a signature in a nonce.
const SIGNATURE: usize = 16;

/// The most parameters of a header.
const PARAMETERS_MAX: usize = 32;

/// User names with the hashes of their passwords, compiled.
#[derive(Debug)]
pub(crate) struct DigestPasswords {
    users: HashMap<Box<str>, Hashes>,
    realm: Box<str>,
    key: hmac::Key,
    /// The algorithms of which users have hashes, the strongest first.
    algorithms: Vec<Algorithm>,
    /// The header that carries the response.
    pub(crate) place: Place,
    pub(crate) forwards: bool,
}

/// The hashes of a user, in lower-case hexadecimal.
#[derive(Debug, Default)]
struct Hashes {
    md5: Option<Box<str>>,
    sha256: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Md5,
}

impl DigestPasswords {
    pub(in crate::feature) fn new(source: &Digest, users: &DigestUsers) -> Self {
        let mut known: HashMap<Box<str>, Hashes> = HashMap::new();
        let mut secret = digest::Context::new(&digest::SHA256);
        for part in ["sluicegate digest nonce", &source.realm]
            .into_iter()
            .chain(users.iter().flat_map(|(user, hash)| [&**user, &**hash]))
        {
            secret.update(&(part.len() as u64).to_be_bytes());
            secret.update(part.as_bytes());
        }
        for (user, hash) in users {
            let hashes = known.entry(user.clone()).or_default();
            match Algorithm::of_hash(hash) {
                Algorithm::Md5 => hashes.md5.get_or_insert_with(|| hash.clone()),
                Algorithm::Sha256 => hashes.sha256.get_or_insert_with(|| hash.clone()),
            };
        }
        let has = |algorithm: &Algorithm| known.values().any(|hashes| hashes.of(*algorithm).is_some());
        let algorithms = [Algorithm::Sha256, Algorithm::Md5].into_iter().filter(has).collect();
        Self {
            users: known,
            realm: (*source.realm).into(),
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.finish().as_ref()),
            algorithms,
            place: Place::new(&Digest::place()),
            forwards: source.forward,
        }
    }

    /// The user of a response to a challenge: the text behind `Digest `.
    pub(crate) fn verify(
        &self,
        text: &[u8],
        (method, target): (&[u8], &[u8]),
        now: SystemTime,
    ) -> Result<&str, Denial> {
        let parameters = Parameters::parse(text).ok_or(Denial::Password)?;
        let given = |name: &str| parameters.get(name).ok_or(Denial::Password);
        let (nonce, nc, cnonce) = (given("nonce")?, given("nc")?, given("cnonce")?);
        let algorithm = match parameters.get("algorithm") {
            None => Algorithm::Md5,
            Some(name) => Algorithm::named(name).ok_or(Denial::Password)?,
        };
        let is_hex = |byte: &u8| byte.is_ascii_hexdigit();
        let is_expected = given("qop")?.eq_ignore_ascii_case("auth")
            && given("realm")? == &*self.realm
            && given("uri")?.as_bytes() == target
            && nc.len() == 8
            && nc.as_bytes().iter().all(is_hex);
        if !is_expected {
            return Err(Denial::Password);
        }
        let known = self.users.get_key_value(given("username")?);
        let hash = known.and_then(|(_, hashes)| hashes.of(algorithm));
        // An unknown user takes as long as a known user.
        let ha1 = hash.unwrap_or("0");
        let ha2 = algorithm.hash(&[method, b":", target]);
        let parts = [ha1, nonce, nc, cnonce, "auth", &ha2];
        let expected = algorithm.hash(&[parts.join(":").as_bytes()]);
        let response = given("response")?.to_ascii_lowercase();
        let is_right =
            constant_time::verify_slices_are_equal(expected.as_bytes(), response.as_bytes()).is_ok();
        match (known, hash) {
            // The password is right, so that the client need not ask its user again.
            (Some((user, _)), Some(_)) if is_right => match self.is_fresh(nonce, now) {
                true => Ok(user),
                false => Err(Denial::StaleNonce),
            },
            _ => Err(Denial::Password),
        }
    }

    /// A new nonce: the time, and its signature.
    fn nonce(&self, now: SystemTime) -> String {
        let time = millis(now).to_be_bytes();
        let signature = hmac::sign(&self.key, &time);
        let mut nonce = String::with_capacity(2 * (8 + SIGNATURE));
        write_hex(&mut nonce, &time);
        write_hex(&mut nonce, &signature.as_ref()[..SIGNATURE]);
        nonce
    }

    fn is_fresh(&self, nonce: &str, now: SystemTime) -> bool {
        let time = nonce.get(..16).and_then(|time| u64::from_str_radix(time, 16).ok());
        let Some(time) = time else { return false };
        let made = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(time));
        let Some(made) = made else { return false };
        let expected = self.nonce(made);
        constant_time::verify_slices_are_equal(expected.as_bytes(), nonce.as_bytes()).is_ok()
            && made <= now + CLOCK_SKEW
            && now.duration_since(made).unwrap_or_default() <= NONCE_LIFE
    }

    /// Writes the challenges (RFC 7616, 3.3), the strongest first. `is_stale`: the response was right, and its nonce too old.
    fn write_challenges(&self, is_stale: bool, now: SystemTime, lines: &mut Vec<u8>) {
        for algorithm in &self.algorithms {
            let stale = if is_stale { ", stale=true" } else { "" };
            let line = format!(
                "WWW-Authenticate: Digest realm=\"{}\", qop=\"auth\", algorithm={}, nonce=\"{}\"{stale}\r\n",
                self.realm,
                algorithm.name(),
                self.nonce(now),
            );
            lines.extend_from_slice(line.as_bytes());
        }
    }
}

impl Authentication {
    /// Writes the challenges of Digest authentication.
    pub(super) fn write_digest_challenges(&self, denial: Denial, lines: &mut Vec<u8>) {
        for method in &self.methods {
            if let Method::Digest(passwords) = method {
                passwords.write_challenges(denial == Denial::StaleNonce, SystemTime::now(), lines);
            }
        }
    }
}

impl Hashes {
    fn of(&self, algorithm: Algorithm) -> Option<&str> {
        match algorithm {
            Algorithm::Md5 => self.md5.as_deref(),
            Algorithm::Sha256 => self.sha256.as_deref(),
        }
    }
}

impl Algorithm {
    /// The algorithm of a hash in hexadecimal.
    fn of_hash(hash: &str) -> Self {
        if hash.len() == 64 { Self::Sha256 } else { Self::Md5 }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Sha256, Self::Md5].into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Md5 => "MD5",
        }
    }

    /// The hash of these parts in lower-case hexadecimal.
    fn hash(self, parts: &[&[u8]]) -> String {
        let mut hex = String::with_capacity(64);
        match self {
            Self::Sha256 => {
                let mut context = digest::Context::new(&digest::SHA256);
                parts.iter().for_each(|part| context.update(part));
                write_hex(&mut hex, context.finish().as_ref());
            }
            Self::Md5 => {
                let mut context = Md5::new();
                parts.iter().for_each(|part| context.update(part));
                write_hex(&mut hex, &context.finalize());
            }
        }
        hex
    }
}

/// The parameters of a header (RFC 9110, 11.4).
struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// `None` if the text is malformed, or has a parameter twice.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = std::str::from_utf8(text).ok()?.trim();
        let mut parameters: Vec<(String, String)> = Vec::new();
        while !rest.is_empty() {
            let (name, behind) = rest.split_once('=')?;
            let name = name.trim().to_ascii_lowercase();
            let (value, behind) = match behind.trim_start().strip_prefix('"') {
                Some(quoted) => unquote(quoted)?,
                None => {
                    let end = behind.find(',').unwrap_or(behind.len());
                    (behind[..end].trim().to_owned(), &behind[end..])
                }
            };
            let is_new = parameters.iter().all(|(known, _)| *known != name);
            if !is_new || name.is_empty() || parameters.len() >= PARAMETERS_MAX {
                return None;
            }
            parameters.push((name, value));
            rest = behind.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(behind) => behind.trim_start(),
                None if rest.is_empty() => rest,
                None => return None,
            };
        }
        Some(Self(parameters))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The content of a quoted string behind its first quote, and the text behind its last quote.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            char => value.push(char),
        }
    }
    None
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn write_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(out, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_model::value::Realm;
    use sluicegate_model::value::secret::FromSecret;

    use super::*;

    const TARGET: &[u8] = b"/dir/index.html";

    fn passwords(realm: &str, users: DigestUsers) -> DigestPasswords {
        let users_of = FromSecret::Unusable("the test passes the users".into());
        DigestPasswords::new(&Digest { users: users_of, realm: Realm::of(realm), forward: false }, &users)
    }

    /// The users of RFC 7616, 3.9.1.
    fn mufasa() -> DigestPasswords {
        let hash = |algorithm: Algorithm| algorithm.hash(&[b"Mufasa:http-auth@example.org:Circle of Life"]);
        let users = [Algorithm::Md5, Algorithm::Sha256].map(|of| ("Mufasa".into(), hash(of).into()));
        passwords("http-auth@example.org", users.into())
    }

    /// The response of a client, with these parameters in place of the right parameters.
    fn response(
        to: &DigestPasswords,
        algorithm: Algorithm,
        now: SystemTime,
        changes: &[(&str, &str)],
    ) -> String {
        let nonce = to.nonce(now);
        let ha1 = to.users.get("Mufasa").and_then(|hashes| hashes.of(algorithm)).unwrap();
        let ha2 = algorithm.hash(&[b"GET:", TARGET]);
        let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        let right = algorithm.hash(&[[ha1, &nonce, "00000001", cnonce, "auth", &ha2].join(":").as_bytes()]);
        let mut parameters = vec![
            ("username", "Mufasa"),
            ("realm", "http-auth@example.org"),
            ("uri", "/dir/index.html"),
            ("algorithm", algorithm.name()),
            ("nonce", &nonce),
            ("nc", "00000001"),
            ("cnonce", cnonce),
            ("qop", "auth"),
            ("response", &right),
        ];
        for (name, value) in changes {
            parameters.retain(|(known, _)| known != name);
            parameters.push((name, value));
        }
        let parameters: Vec<String> = parameters
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| match *name {
                "algorithm" | "nc" | "qop" => format!("{name}={value}"),
                _ => format!("{name}=\"{value}\""),
            })
            .collect();
        parameters.join(", ")
    }

    #[test]
    fn hashes_are_those_of_the_example_of_the_rfc() {
        // RFC 7616, 3.9.1.
        for (algorithm, expected) in [
            (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (Algorithm::Sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let ha1 = algorithm.hash(&[b"Mufasa:http-auth@example.org:Circle of Life"]);
            let ha2 = algorithm.hash(&[b"GET:/dir/index.html"]);
            let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
            let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
            let text = [&*ha1, nonce, "00000001", cnonce, "auth", &ha2].join(":");
            assert_eq!(algorithm.hash(&[text.as_bytes()]), expected);
        }
    }

    #[test]
    fn right_response_names_its_user_and_every_changed_part_is_rejected() {
        let (mufasa, now) = (mufasa(), SystemTime::now());
        let verify = |text: &str| mufasa.verify(text.as_bytes(), (b"GET", TARGET), now);
        for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
            let right = response(&mufasa, algorithm, now, &[]);
            assert_eq!(verify(&right), Ok("Mufasa"), "{right}");
            assert_eq!(mufasa.verify(right.as_bytes(), (b"POST", TARGET), now), Err(Denial::Password));
            assert_eq!(mufasa.verify(right.as_bytes(), (b"GET", b"/admin"), now), Err(Denial::Password));
            for change in [
                ("username", "Scar"),
                ("realm", "other"),
                ("uri", "/admin"),
                ("nonce", "00"),
                ("nc", "00000002"),
                ("nc", "1"),
                ("cnonce", "x"),
                ("qop", "auth-int"),
                ("qop", ""),
                ("response", "0"),
                ("response", ""),
                ("algorithm", "MD5-sess"),
            ] {
                let wrong = response(&mufasa, algorithm, now, &[change]);
                assert_eq!(verify(&wrong), Err(Denial::Password), "{wrong}");
            }
        }
        let implied = response(&mufasa, Algorithm::Md5, now, &[("algorithm", "")]);
        assert_eq!(verify(&implied), Ok("Mufasa"), "MD5 is the default (RFC 7616, 3.4)");
        let twice = format!("{implied}, username=\"Mufasa\"");
        assert_eq!(verify(&twice), Err(Denial::Password));
    }

    #[test]
    fn nonce_is_valid_for_a_minute_in_all_processes_with_the_same_users() {
        let (mufasa, other, now) = (mufasa(), mufasa(), SystemTime::now());
        let right = response(&mufasa, Algorithm::Sha256, now, &[]);
        let verify = |by: &DigestPasswords, after: u64| {
            by.verify(right.as_bytes(), (b"GET", TARGET), now + Duration::from_secs(after)).map(str::to_owned)
        };
        assert_eq!(verify(&other, 59), Ok("Mufasa".to_owned()));
        assert_eq!(verify(&mufasa, 61), Err(Denial::StaleNonce));
        // The client cannot make a nonce by itself, neither of now nor of the future.
        let ahead = response(&mufasa, Algorithm::Sha256, now + Duration::from_secs(3600), &[]);
        assert_eq!(mufasa.verify(ahead.as_bytes(), (b"GET", TARGET), now), Err(Denial::StaleNonce));
        let nonce = mufasa.nonce(now);
        for forged in [nonce.replace(&nonce[..2], "ff"), nonce[..nonce.len() - 1].to_owned(), String::new()] {
            assert!(!mufasa.is_fresh(&forged, now), "{forged}");
        }
        let mut lines = Vec::new();
        mufasa.write_challenges(true, now, &mut lines);
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains("algorithm=SHA-256") && lines.contains("algorithm=MD5"), "{lines}");
        assert!(lines.contains(", stale=true\r\n"), "{lines}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_response(text in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(mufasa().verify(&text, (b"GET", TARGET), SystemTime::now()).is_err());
        }
    }
}
