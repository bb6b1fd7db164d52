//! The cookies of sessions and of logins.
//!
//! A session that is too long for one cookie is in several cookies: `NAME`, `NAME.1`, `NAME.2`. The first value begins with
//! their number. Each login has a cookie of its own, so that several tabs can log in at once.

use std::borrow::Cow;

use aws_lc_rs::digest;
use sluicegate_http1::Known;
use sluicegate_model::value::CookieDomain;

use crate::name::host_name;
use crate::openid::LOGIN_SECONDS;
use crate::query::pairs;
use crate::request::{HeadView, RequestView};

/// The longest value of one cookie, in bytes. Browsers accept 4,096 bytes with the name and the attributes (RFC 6265, 6.1).
const VALUE_MAX: usize = 3800;

/// The most cookies of a session.
const COOKIES_MAX: usize = 5;

/// The most logins of a browser at once. A further login ends the oldest one.
const LOGINS_MAX: usize = 8;

/// The cookies of a policy.
#[derive(Debug)]
pub(crate) struct Cookies {
    /// The name without a prefix. Policies with another provider, client or domain have another name.
    name: Box<str>,
    domain: Option<Box<str>>,
}

/// The part of a request that decides about the attributes of its cookies.
pub(super) struct Place<'r> {
    /// The host in lower case, without the port.
    pub(super) host: String,
    pub(super) is_https: bool,
    head: HeadView<'r>,
}

impl<'r> Place<'r> {
    /// `None` if the request has no host.
    pub(super) fn of(request: &RequestView<'r>) -> Option<Self> {
        let host = host_name(request.head.authority()).to_ascii_lowercase();
        let host = String::from_utf8(host).ok().filter(|host| !host.is_empty())?;
        Some(Self { host, is_https: request.is_https(), head: request.head })
    }
}

impl Cookies {
    pub(super) fn new(issuer: &str, client: &str, domain: Option<&CookieDomain>) -> Self {
        let domain = domain.map(|domain| domain.trim_start_matches('.').to_ascii_lowercase());
        let text = format!("{issuer}\n{client}\n{}", domain.as_deref().unwrap_or_default());
        let hash = digest::digest(&digest::SHA256, text.as_bytes());
        let mark: String = hash.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("sluicegate-{mark}").into(), domain: domain.map(Into::into) }
    }

    /// The domain or the host for which the session of a request is valid.
    pub(super) fn realm<'p>(&'p self, place: &'p Place<'_>) -> &'p str {
        self.domain_of(place).unwrap_or(&place.host)
    }

    /// The domain of the cookies, if the host is in the domain. A browser rejects the domain of another host.
    fn domain_of(&self, place: &Place<'_>) -> Option<&str> {
        self.domain.as_deref().filter(|domain| {
            let sub = place.host.strip_suffix(domain);
            sub.is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
        })
    }

    /// Whether a cookie is one of these, with any prefix.
    pub(in crate::feature) fn includes(&self, name: &[u8]) -> bool {
        let name = name.strip_prefix(b"__Host-").or(name.strip_prefix(b"__Secure-")).unwrap_or(name);
        name.strip_prefix(self.name.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'.', ..]))
    }

    /// The sealed session of a request.
    pub(super) fn session<'r>(&self, place: &Place<'r>) -> Option<Cow<'r, [u8]>> {
        let name = self.prefixed(place);
        let first = place.find(&name)?;
        let (count, first) = first.split_at_checked(2)?;
        match count {
            b"1." => Some(Cow::Borrowed(first)),
            [count @ b'2'..=b'9', b'.'] => {
                let mut whole = first.to_vec();
                for number in 1..usize::from(count - b'0').min(COOKIES_MAX) {
                    whole.extend_from_slice(place.find(&format!("{name}.{number}"))?);
                }
                Some(Cow::Owned(whole))
            }
            _ => None,
        }
    }

    /// Writes the lines that set a session for this time. `false` if the session is too long for cookies.
    pub(super) fn set_session(&self, out: &mut Vec<u8>, place: &Place<'_>, sealed: &str, age: u64) -> bool {
        let count = sealed.len().div_ceil(VALUE_MAX).max(1);
        if count > COOKIES_MAX {
            return false;
        }
        let name = self.prefixed(place);
        for (number, part) in sealed.as_bytes().chunks(VALUE_MAX).enumerate() {
            let part = String::from_utf8_lossy(part);
            let (name, value) = match number {
                0 => (name.clone(), format!("{count}.{part}")),
                _ => (format!("{name}.{number}"), part.into_owned()),
            };
            self.write(out, place, &name, &value, age);
        }
        for number in count..COOKIES_MAX {
            let name = format!("{name}.{number}");
            if place.find(&name).is_some() {
                self.write(out, place, &name, "", 0);
            }
        }
        true
    }

    /// Writes the lines that remove the session and the logins of a request.
    pub(super) fn remove_all(&self, out: &mut Vec<u8>, place: &Place<'_>) {
        let prefixed = self.prefixed(place);
        for (name, _) in place.all() {
            let rest = name.strip_prefix(prefixed.as_bytes());
            if rest.is_some_and(|rest| matches!(rest, [] | [b'.', b'1'..=b'9'])) {
                self.write(out, place, &String::from_utf8_lossy(name), "", 0);
            }
        }
        for id in self.logins(place) {
            self.remove_login(out, place, &id);
        }
    }

    /// Writes the lines that set the cookie of a login, and that remove the oldest of many logins.
    pub(super) fn set_login(&self, out: &mut Vec<u8>, place: &Place<'_>, id: &str, sealed: &str) {
        let mut logins = self.logins(place);
        logins.sort_unstable();
        let surplus = (logins.len() + 1).saturating_sub(LOGINS_MAX);
        for id in logins.iter().take(surplus) {
            self.remove_login(out, place, id);
        }
        self.write_own(out, place, &self.login_name(place, id), sealed, LOGIN_SECONDS);
    }

    /// The sealed login with this ID.
    pub(super) fn login<'r>(&self, place: &Place<'r>, id: &str) -> Option<&'r [u8]> {
        place.find(&self.login_name(place, id))
    }

    /// Writes the line that removes the cookie of a login.
    pub(super) fn remove_login(&self, out: &mut Vec<u8>, place: &Place<'_>, id: &str) {
        self.write_own(out, place, &self.login_name(place, id), "", 0);
    }

    /// The IDs of the logins of a request.
    fn logins(&self, place: &Place<'_>) -> Vec<String> {
        let start = self.login_name(place, "");
        let ids = place.all().filter_map(|(name, _)| name.strip_prefix(start.as_bytes()));
        ids.take(4 * LOGINS_MAX).map(|id| String::from_utf8_lossy(id).into_owned()).collect()
    }

    /// The name of the cookie of a login. The cookie is for its host alone, to which the provider redirects the browser.
    fn login_name(&self, place: &Place<'_>, id: &str) -> String {
        let prefix = if place.is_https { "__Host-" } else { "" };
        format!("{prefix}{}.l{id}", self.name)
    }

    /// The name of the session's cookie. With the prefix, no other host can set the cookie (RFC 6265bis, 4.1.3).
    fn prefixed(&self, place: &Place<'_>) -> String {
        let prefix = match (place.is_https, self.domain_of(place)) {
            (false, _) => "",
            (true, None) => "__Host-",
            (true, Some(_)) => "__Secure-",
        };
        format!("{prefix}{}", self.name)
    }

    fn write(&self, out: &mut Vec<u8>, place: &Place<'_>, name: &str, value: &str, age: u64) {
        write_cookie(out, place, (name, value), self.domain_of(place), age);
    }

    fn write_own(&self, out: &mut Vec<u8>, place: &Place<'_>, name: &str, value: &str, age: u64) {
        write_cookie(out, place, (name, value), None, age);
    }
}

impl<'r> Place<'r> {
    /// The value of a cookie: the first one of this name.
    fn find(&self, name: &str) -> Option<&'r [u8]> {
        self.all().find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
    }

    fn all(&self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + use<'r> {
        let HeadView { head, buf } = self.head;
        let lines = head.lines.iter().filter(|line| line.known == Known::Cookie);
        lines.flat_map(move |line| pairs(line.value.of(buf), b';'))
    }
}

fn write_cookie(
    out: &mut Vec<u8>,
    place: &Place<'_>,
    (name, value): (&str, &str),
    domain: Option<&str>,
    age: u64,
) {
    let domain = domain.map_or_else(String::new, |domain| format!("; Domain={domain}"));
    let secure = if place.is_https { "; Secure" } else { "" };
    let line = format!(
        "Set-Cookie: {name}={value}; Path=/{domain}; Max-Age={age}; HttpOnly; SameSite=Lax{secure}\r\n"
    );
    out.extend_from_slice(line.as_bytes());
}
