//! Session affinity by a cookie or a header.
//!
//! The gateway has no memory of sessions: the value that the client returns names the endpoint, and the times of the session
//! if the feature has timeouts. The value is not authenticated. A client that writes a value of its own can only select
//! another endpoint of the same rule, or lengthen its own session.

use std::fmt::Write as _;

use sluicegate_http1::{Known, Line};
use sluicegate_model::UpstreamKey;
use sluicegate_model::feature;
use sluicegate_model::feature::SessionTimeout;
use sluicegate_model::feature::load_balancing::{NginxSession, SameSite, SessionMode};

use super::authentication::credential::{is_line, line_has_name};
use crate::date::http_date;
use crate::hash::StableHash;
use crate::query::pairs;
use crate::request::HeadView;

/// How far the clock of another data plane may be ahead, in milliseconds.
const CLOCK_SKEW: u64 = 60_000;

/// The last second of the year 9999, in seconds since 1970: later dates have no form in HTTP.
const LAST_DATE: u64 = 253_402_300_799;

/// The longest value of a session: longer values are no sessions.
const VALUE_MAX: usize = 128;

/// A cookie or a header for session affinity.
#[derive(Debug, PartialEq)]
pub(crate) struct Affinity {
    /// The name of the header, if it is a known name.
    known: Known,
    source: feature::Affinity,
}

/// A session, as a cookie or a header states it. Times are in milliseconds since 1970; 0: not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// The [`mark`](crate::upstream::SharedEndpoint::mark) of the endpoint, or a hash that leads to the endpoint
    /// ([`Affinity::is_hashed`]).
    pub(crate) mark: u64,
    /// The mark of the backend; 0: not stated.
    pub(crate) backend: u32,
    begun: u64,
    used: u64,
    /// Whether the client does not know the session yet.
    pub(crate) is_new: bool,
}

/// The mark of a backend of a rule, by which all data planes identify the backend. Never 0.
pub(crate) fn backend_mark(upstream: &UpstreamKey) -> u32 {
    let mut hash = StableHash::new();
    for part in [&upstream.namespace, &upstream.service, &upstream.port] {
        hash.part(part.as_bytes());
    }
    #[expect(clippy::cast_possible_truncation, reason = "a part of the hash identifies a backend of a rule")]
    let mark = hash.finish() as u32;
    mark.max(1)
}

impl Affinity {
    pub(crate) fn new(source: &feature::Affinity) -> Self {
        let known = source.header.as_ref().map_or(Known::Cookie, |name| Known::of(name.as_bytes()));
        Self { known, source: source.clone() }
    }

    /// Whether a session stays at its backend, whatever the weights of the backends are.
    pub(crate) fn is_over_weights(&self) -> bool {
        self.source.over_weights
    }

    /// Whether a session stays at its upstream, whatever the split of the rule chooses (`affinity-canary-behavior: sticky` of
    /// ingress-nginx).
    pub(crate) fn is_over_splits(&self) -> bool {
        self.source.over_weights && self.source.nginx.is_some()
    }

    /// Whether sessions state times.
    pub(crate) fn is_timed(&self) -> bool {
        self.source.absolute_timeout.is_some() || self.source.idle_timeout.is_some()
    }

    /// Whether sessions state a hash in place of an endpoint, so that a new endpoint receives its share of the sessions.
    pub(crate) fn is_hashed(&self) -> bool {
        self.source.nginx.as_ref().is_some_and(|nginx| nginx.mode == SessionMode::Balanced)
    }

    /// Whether a session stays at its endpoint if another endpoint responds because the endpoint of the session fails.
    pub(crate) fn outlives_failures(&self) -> bool {
        self.source.nginx.as_ref().is_some_and(|nginx| !nginx.changes_on_failure)
    }

    /// A session that begins with this request, if the session has a hash.
    pub(crate) fn begin(&self) -> Option<Session> {
        self.is_hashed().then(|| Session { mark: fastrand::u64(..), is_new: true, ..Session::default() })
    }

    /// The session of a request: the first valid value. `now` is in milliseconds since 1970.
    pub(crate) fn session(&self, HeadView { head, buf }: HeadView<'_>, now: u64) -> Option<Session> {
        let valid = |value: &[u8]| Session::parse(value).filter(|session| self.is_open(session, now));
        match (&self.source.header, &self.source.cookie) {
            (Some(name), _) => {
                let lines = head.lines.iter().filter(|line| is_line(line, self.known, name, buf));
                lines.map(|line| line.value.of(buf)).find_map(valid)
            }
            (None, Some(name)) => {
                let lines = head.lines.iter().filter(|line| line.known == Known::Cookie);
                let cookies = lines.flat_map(|line| pairs(line.value.of(buf), b';'));
                // A browser sends cookies of several paths under one name.
                cookies.filter(|(found, _)| *found == name.as_bytes()).find_map(|(_, value)| valid(value))
            }
            (None, None) => None,
        }
    }

    /// Whether a session has not reached a timeout.
    fn is_open(&self, session: &Session, now: u64) -> bool {
        let is_within = |since: u64, most: Option<SessionTimeout>| {
            most.is_none_or(|most| since <= now.saturating_add(CLOCK_SKEW) && now < since + millis(most))
        };
        is_within(session.begun, self.source.absolute_timeout)
            && is_within(session.used, self.source.idle_timeout)
    }

    /// The session after a response of this endpoint; `None` if the client need not receive it.
    pub(crate) fn renewed(
        &self,
        before: Option<Session>,
        mark: u64,
        upstream: &UpstreamKey,
        now: u64,
    ) -> Option<Session> {
        let backend = if self.source.over_weights { backend_mark(upstream) } else { 0 };
        let stays = |before: &Session| before.mark == mark && before.backend == backend;
        let begun = before.filter(stays).map_or(now, |before| before.begun);
        let session = Session {
            mark,
            backend,
            begun: if self.source.absolute_timeout.is_some() { begun } else { 0 },
            used: if self.source.idle_timeout.is_some() { now } else { 0 },
            is_new: false,
        };
        // A client returns the header of its latest response.
        (self.source.header.is_some() || before != Some(session)).then_some(session)
    }

    /// Writes the header line for a session.
    pub(crate) fn write(&self, session: Session, told: &Told<'_>, now: u64, out: &mut Vec<u8>) {
        let feature::Affinity { cookie, header, path, max_age, nginx, .. } = &self.source;
        let is_https = told.is_https;
        let mut line = String::new();
        if let (Some(nginx), Some(name)) = (nginx, cookie) {
            line.push_str("Set-Cookie: ");
            session.write(&mut line, name, "=");
            write_attributes(&mut line, nginx, path.as_deref().unwrap_or(told.location), told, now);
            line.push_str("\r\n");
            return out.extend_from_slice(line.as_bytes());
        }
        if let Some(name) = header {
            session.write(&mut line, name, ": ");
        } else if let Some(name) = cookie {
            line.push_str("Set-Cookie: ");
            session.write(&mut line, name, "=");
            line.push_str("; Path=");
            line.push_str(path.as_deref().unwrap_or("/"));
            line.push_str("; HttpOnly");
            if let Some(age) = max_age {
                let spent = if session.begun == 0 { 0 } else { now.saturating_sub(session.begun) };
                // Writing to a String does not fail.
                let _ = write!(line, "; Max-Age={}", age.get().as_secs().saturating_sub(spent / 1000));
            }
            // Browsers accept a cookie in a frame of another site only over HTTPS.
            line.push_str(if is_https { "; Secure; SameSite=None" } else { "; SameSite=Lax" });
        }
        line.push_str("\r\n");
        out.extend_from_slice(line.as_bytes());
    }

    /// Marks the header lines of a response that would contradict the gateway's line.
    pub(crate) fn strip(&self, lines: &mut [Line], buf: &[u8]) {
        let Some(name) = &self.source.header else { return };
        for line in lines {
            line.hop_by_hop |= line_has_name(line, self.known, name, buf);
        }
    }
}

impl Session {
    /// Parses `MARK[.bBACKEND][.tBEGUN][.uUSED]`, in hexadecimal numbers.
    fn parse(value: &[u8]) -> Option<Self> {
        if value.len() > VALUE_MAX {
            return None;
        }
        let mut parts = std::str::from_utf8(value).ok()?.split('.');
        let mut session = Self { mark: u64::from_str_radix(parts.next()?, 16).ok()?, ..Self::default() };
        for part in parts {
            let (kind, number) = part.split_at_checked(1)?;
            match kind {
                "b" => session.backend = u32::from_str_radix(number, 16).ok()?,
                "t" => session.begun = time(number)?,
                "u" => session.used = time(number)?,
                _ => return None,
            }
        }
        Some(session)
    }

    fn write(&self, line: &mut String, name: &str, between: &str) {
        let Self { mark, backend, begun, used, is_new: _ } = self;
        // Writing to a String does not fail.
        let _ = write!(line, "{name}{between}{mark:016x}");
        if *backend != 0 {
            let _ = write!(line, ".b{backend:08x}");
        }
        for (kind, time) in [('t', *begun), ('u', *used)] {
            if time != 0 {
                let _ = write!(line, ".{kind}{time:x}");
            }
        }
    }
}

/// The facts about a request that the cookie of its session depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told<'r> {
    pub(crate) is_https: bool,
    /// The path of the rule.
    pub(crate) location: &'r str,
    /// The value of `User-Agent`.
    pub(crate) user_agent: &'r [u8],
}

/// Writes the attributes of the cookie of ingress-nginx, in its order.
fn write_attributes(line: &mut String, nginx: &NginxSession, path: &str, told: &Told<'_>, now: u64) {
    let NginxSession { domain, expires, max_age, same_site, is_none_conditional, secure, .. } = nginx;
    if let Some(seconds) = expires {
        let now = i64::try_from(now / 1000).unwrap_or(i64::MAX);
        let at = u64::try_from(now.saturating_add(*seconds)).unwrap_or(0).min(LAST_DATE);
        line.push_str("; Expires=");
        line.push_str(&String::from_utf8_lossy(&http_date(at)));
    }
    if let Some(age) = max_age {
        // Writing to a String does not fail.
        let _ = write!(line, "; Max-Age={age}");
    }
    if let Some(domain) = domain {
        line.push_str("; Domain=");
        line.push_str(domain);
    }
    line.push_str("; Path=");
    line.push_str(path);
    if secure.unwrap_or(told.is_https) {
        line.push_str("; Secure");
    }
    line.push_str("; HttpOnly");
    line.push_str(match same_site {
        Some(SameSite::None) if *is_none_conditional && mistakes_none(told.user_agent) => "",
        Some(SameSite::None) => "; SameSite=None",
        Some(SameSite::Lax) => "; SameSite=Lax",
        Some(SameSite::Strict) => "; SameSite=Strict",
        None => "",
    });
}

/// Whether a browser mistakes `SameSite=None` for `SameSite=Strict`, or rejects the cookie: iOS 12, Safari of macOS 10.14, and
/// Chrome 50 to 69, as ingress-nginx distinguishes them.
fn mistakes_none(user_agent: &[u8]) -> bool {
    let agent = String::from_utf8_lossy(user_agent);
    let is_webkit = agent.contains(") AppleWebKit/");
    let is_ios = agent.contains("(iP") && agent.contains("; CPU ") && agent.contains("OS 12");
    let is_macos = agent.contains("(Macintosh;") && agent.contains("Mac OS X 10_14");
    let version = agent.split_once("Chrome/").map_or("", |(_, version)| version);
    let is_chrome =
        version.starts_with(['5', '6']) && version[1..].starts_with(|digit: char| digit.is_ascii_digit());
    is_webkit && (is_ios || is_macos) || is_chrome
}

/// A time, which leaves room for a timeout.
fn time(number: &str) -> Option<u64> {
    u64::from_str_radix(number, 16).ok().filter(|time| *time < 1 << 62)
}

fn millis(timeout: SessionTimeout) -> u64 {
    u64::try_from(timeout.get().as_millis()).unwrap_or(u64::MAX >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 0xabc;
    const BEGUN: u64 = 1_800_000_000_000;

    fn affinity(fields: serde_json::Value) -> Affinity {
        Affinity::new(&serde_json::from_value(fields).unwrap())
    }

    fn key(service: &str) -> UpstreamKey {
        UpstreamKey::new("n", service, "80")
    }

    /// The session, written and parsed again.
    fn returned(affinity: &Affinity, session: Session) -> Session {
        let mut line = Vec::new();
        affinity.write(session, &Told::default(), BEGUN, &mut line);
        let line = String::from_utf8(line).unwrap();
        let value = line.split(['=', ';']).nth(1).unwrap();
        Session::parse(value.as_bytes()).unwrap()
    }

    #[test]
    fn session_ends_after_its_absolute_timeout_whether_used_or_not() {
        let affinity = affinity(serde_json::json!({"cookie": "c", "absoluteTimeout": "10s"}));
        let session = affinity.renewed(None, MARK, &key("s"), BEGUN).unwrap();
        let session = returned(&affinity, session);
        assert_eq!(affinity.renewed(Some(session), MARK, &key("s"), BEGUN + 9000), None, "nothing is new");
        for (after, is_open) in [(0, true), (9999, true), (10_000, false), (1 << 40, false)] {
            assert_eq!(affinity.is_open(&session, BEGUN + after), is_open, "{after}");
        }
        let moved = affinity.renewed(Some(session), MARK + 1, &key("s"), BEGUN + 9000).unwrap();
        assert_eq!(moved.begun, BEGUN + 9000, "another endpoint is another session");
    }

    #[test]
    fn session_ends_after_its_idle_timeout_and_each_response_renews_it() {
        let affinity =
            affinity(serde_json::json!({"cookie": "c", "absoluteTimeout": "1m", "idleTimeout": "10s"}));
        let first = returned(&affinity, affinity.renewed(None, MARK, &key("s"), BEGUN).unwrap());
        assert!(!affinity.is_open(&first, BEGUN + 10_000));
        let second = affinity.renewed(Some(first), MARK, &key("s"), BEGUN + 9000).unwrap();
        let second = returned(&affinity, second);
        assert_eq!((second.begun, second.used), (BEGUN, BEGUN + 9000));
        assert!(affinity.is_open(&second, BEGUN + 18_999));
        assert!(!affinity.is_open(&second, BEGUN + 19_000));
    }

    #[test]
    fn value_without_times_or_from_the_future_is_no_session_if_there_are_timeouts() {
        let affinity = affinity(serde_json::json!({"cookie": "c", "absoluteTimeout": "8760h"}));
        for value in ["abc", "abc.t0", "abc.u1b000000000", "abc.tffffffffffff"] {
            let session = Session::parse(value.as_bytes()).unwrap();
            assert!(!affinity.is_open(&session, BEGUN), "{value}");
        }
        let ahead = Session { begun: BEGUN + CLOCK_SKEW, mark: MARK, ..Session::default() };
        assert!(affinity.is_open(&ahead, BEGUN), "the clocks of two data planes differ");
    }

    #[test]
    fn invalid_values_are_no_sessions() {
        let long = format!("abc{}", ".b1".repeat(60));
        let invalid =
            ["", "zz", "abc.", "abc.x1", "abc.b", "abc.b100000000", "abc.té", "abc.tffffffffffffffff", &long];
        for value in invalid {
            assert_eq!(Session::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn cookie_has_its_path_and_the_rest_of_its_lifetime() {
        let affinity = affinity(serde_json::json!({
            "cookie": "c", "maxAge": "60s", "absoluteTimeout": "60s", "idleTimeout": "60s", "path": "/shop",
        }));
        let session = affinity.renewed(None, MARK, &key("s"), BEGUN).unwrap();
        let mut line = Vec::new();
        let told = Told { is_https: true, ..Told::default() };
        affinity.write(session, &told, BEGUN + 5500, &mut line);
        let line = String::from_utf8(line).unwrap();
        assert!(line.ends_with("; Path=/shop; HttpOnly; Max-Age=55; Secure; SameSite=None\r\n"), "{line}");
    }

    #[test]
    fn backends_of_a_rule_have_marks_of_their_own() {
        assert_ne!(backend_mark(&key("a")), backend_mark(&key("b")));
        assert_eq!(backend_mark(&key("a")), 0x837a_c458, "the cookies of clients depend on this value");
    }
}
