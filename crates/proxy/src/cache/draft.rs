//! The stored part of a response's head, and the rules by which a response is stored.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{Known, Line, MAX_HEADERS, ResponseHead};
use sluicegate_model::UpstreamKey;
use sluicegate_model::policy::traffic as model;
use tokio::time::Instant;

use super::directives::{RequestDirectives, ResponseDirectives, is, is_token, joined_targeted, seconds};
use super::lines::sent;
use super::validators::Validators;
use crate::date::{HttpDate, parse_http_date};

/// What an entry takes beside its bytes, generously: its parts, its places in the store, what the allocator adds.
const OVERHEAD: usize = 512;

/// A response whose `Vary` names more headers than this is not kept.
const VARY_MAX: usize = 16;

/// The longest time for which a failure is stored. One request that an endpoint rejects, or one bad moment of the endpoint, does not
/// close a target to others for longer.
const FAILURE_MAX: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The target's URI (RFC 9111, 2), and the headers that the policy has named.
    pub(crate) key: Arc<[u8]>,
    /// Where the key has the path and the query.
    pub(crate) target: Range<usize>,
    /// Who is asked.
    pub(crate) upstream: UpstreamKey,
    /// What policies tell the endpoint beside what the client says.
    pub(crate) lines: Box<[u8]>,
    pub(crate) directives: RequestDirectives,
    /// Whether it says by its headers who calls (RFC 9111, 3.5).
    pub(crate) has_credentials: bool,
    pub(crate) has_cookie: bool,
    /// Whether the client has a response already.
    pub(crate) is_conditional: bool,
}

impl Asked {
    /// The key of another path and query, asked for in the same way.
    pub(crate) fn key_of(&self, path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let mut key = self.key[..self.target.start].to_vec();
        add_target(&mut key, path, query);
        key.extend_from_slice(&self.key[self.target.end..]);
        key
    }
}

/// Adds a part to a key, so that no two lists of parts make the same key.
pub(crate) fn add_part(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&part.len().to_le_bytes());
    key.extend_from_slice(part);
}

/// Adds a path and a query to a key.
pub(crate) fn add_target(key: &mut Vec<u8>, path: &[u8], query: Option<&[u8]>) {
    add_part(key, path);
    add_part(key, if query.is_some() { b"?" } else { b"" });
    add_part(key, query.unwrap_or_default());
}

/// What is kept of the head of a response, and what it says.
#[derive(Debug)]
pub(crate) struct Draft {
    key: Arc<[u8]>,
    pub(super) upstream: UpstreamKey,
    pub(super) lines: Box<[u8]>,
    /// Names that `Vary` has, and what the endpoint was sent by them.
    pub(super) vary: Vec<Sent>,
    pub(crate) status: u16,
    /// The status line and the lines, without `Age`, `Content-Length` and the blank line.
    pub(super) head: Vec<u8>,
    pub(super) validators: Validators,
    pub(super) received: Instant,
    /// How old it was then (RFC 9111, 4.2.3).
    pub(super) age: Duration,
    /// How long it is fresh.
    pub(super) lifetime: Duration,
    /// How long it may be used after that if the endpoint fails.
    pub(super) stale_if_error: Duration,
    /// How long it may be used after that while the endpoint is asked.
    pub(super) stale_while_revalidate: Duration,
    /// `no-cache`: it is used if the endpoint says that it still holds.
    pub(super) needs_validation: bool,
    /// Whether it may answer requests that say who calls.
    pub(super) is_shareable: bool,
    /// Whether it answers no request with a `Cookie`: only the policy says that it is fresh, so that nothing says that it is for
    /// all; or it is a failure, which may be one of the cookie.
    pub(super) is_anonymous: bool,
}

/// What an endpoint was sent by a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) name: Box<[u8]>,
    /// As [`sent`] has them.
    pub(super) values: Box<[u8]>,
}

/// When a response was asked for and came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) asked: Instant,
    pub(crate) now: Instant,
    /// The same as seconds since 1970, and as a date.
    pub(crate) date: (u64, HttpDate),
}

impl Draft {
    /// None if the response is not to be kept (RFC 9111, 3). `request` is what was sent to the endpoint.
    pub(crate) fn of(
        asked: &Asked,
        request: &[u8],
        (head, buf): (&ResponseHead, &[u8]),
        rules: &model::Cache,
        times: &Times,
    ) -> Option<Self> {
        // There has to be room for what is said of its age, its length, its date and its part.
        if head.lines.len() + 4 > MAX_HEADERS {
            return None;
        }
        let status = head.status;
        let targeted = joined_targeted(&head.lines, buf);
        let directives = ResponseDirectives::of(&head.lines, buf, targeted.as_deref());
        let is_failure = is_failure(status);
        let is_shareable =
            !is_failure && (directives.public || directives.must_revalidate || directives.s_maxage.is_some());
        let is_refused = directives.forbid_storing(status)
            || asked.directives.no_store
            || asked.has_credentials && !is_shareable
            || asked.has_cookie && is_failure
            || !is_storable(status)
            || head.upgrade;
        if is_refused {
            return None;
        }
        let found = Found::of(head, buf, &directives, times.date.0)?;
        let age = found.age(times);
        let default = rules.default_time.filter(|_| is_cacheable_by_default(status) && !asked.has_cookie);
        let explicit = directives.s_maxage.or(directives.max_age).or_else(|| found.expires(times.date.0));
        let (lifetime, is_by_default) = match explicit {
            Some(lifetime) => (lifetime, false),
            None if directives.no_cache && is_understood(status) => (Duration::ZERO, false),
            None if directives.no_cache => return None,
            None => (default?, true),
        };
        let forbids = directives.must_revalidate || directives.proxy_revalidate || directives.no_cache;
        let of_policy =
            if forbids || directives.s_maxage.is_some() { Duration::ZERO } else { rules.stale_if_error };
        let stale = |time: Duration| if is_failure { Duration::ZERO } else { time };
        let said = |time: Option<Duration>| time.filter(|_| !forbids).unwrap_or_default();
        let draft = Self {
            key: asked.key.clone(),
            upstream: asked.upstream.clone(),
            lines: asked.lines.clone(),
            vary: found
                .vary
                .iter()
                .map(|name| Sent { name: (*name).into(), values: sent(request, name) })
                .collect(),
            status,
            head: kept_head(head, buf, &times.date.1, &directives.unshared),
            validators: Validators {
                etag: found.etag.filter(|_| !is_failure).map(Into::into),
                last_modified: found.last_modified.filter(|_| !is_failure).map(Into::into),
                date: found.date.unwrap_or(times.date.0),
            },
            received: times.now,
            age,
            lifetime: if is_failure { lifetime.min(age + FAILURE_MAX) } else { lifetime },
            stale_if_error: stale(of_policy.max(said(directives.stale_if_error))),
            stale_while_revalidate: stale(said(directives.stale_while_revalidate)),
            needs_validation: directives.no_cache,
            is_shareable,
            is_anonymous: is_by_default || is_failure,
        };
        let is_of_use = !draft.validators.is_empty()
            || !draft.needs_validation && draft.age < draft.lifetime + draft.stale_time();
        is_of_use.then_some(draft)
    }

    /// How many bytes it takes, without the body.
    pub(super) fn size(&self) -> usize {
        let vary: usize =
            self.vary.iter().map(|of| size_of::<Sent>() + of.name.len() + of.values.len()).sum();
        OVERHEAD + self.key.len() + self.lines.len() + self.head.capacity() + vary + self.validators.size()
    }

    pub(super) fn key(&self) -> &Arc<[u8]> {
        &self.key
    }

    /// How long it may answer after its lifetime, in one way or the other.
    pub(super) fn stale_time(&self) -> Duration {
        self.stale_if_error.max(self.stale_while_revalidate)
    }

    /// Whether the endpoint has failed, or has rejected the request.
    pub(crate) fn is_failure(&self) -> bool {
        is_failure(self.status)
    }
}

/// What a response says beside `Cache-Control`.
struct Found<'b> {
    vary: Vec<&'b [u8]>,
    etag: Option<&'b [u8]>,
    last_modified: Option<&'b [u8]>,
    date: Option<u64>,
    expires: Option<&'b [u8]>,
    age: Option<Duration>,
}

impl<'b> Found<'b> {
    /// None if it is not to be kept.
    fn of(head: &ResponseHead, buf: &'b [u8], directives: &ResponseDirectives<'_>, now: u64) -> Option<Self> {
        let mut found =
            Self { vary: Vec::new(), etag: None, last_modified: None, date: None, expires: None, age: None };
        for line in &head.lines {
            let (name, value) = (line.name.of(buf), line.value.of(buf));
            match line.known {
                Known::SetCookie if !directives.unshare_field(name) => return None,
                Known::Trailer => return None,
                Known::Date => found.date = parse_http_date(value, now),
                Known::Other if is(name, "vary") => {
                    for name in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        match name {
                            b"" => {}
                            // `*`, or a malformed list: another separator may hide a name.
                            name if name == b"*" || !is_token(name) => return None,
                            name => found.vary.push(name),
                        }
                    }
                }
                Known::Other if is(name, "etag") => found.etag = Some(value),
                Known::Other if is(name, "last-modified") => found.last_modified = Some(value),
                // RFC 9213, 2.2.
                Known::Other if is(name, "expires") && directives.is_targeted => {}
                // Of two the worse one.
                Known::Other if is(name, "expires") => {
                    found.expires = Some(if found.expires.is_some() { b"" } else { value });
                }
                // Of several lines and members the first counts (RFC 9111, 5.1).
                Known::Other if is(name, "age") && found.age.is_none() => found.age = Some(first_age(value)),
                _ => {}
            }
        }
        (found.vary.len() <= VARY_MAX).then_some(found)
    }

    /// How long it is fresh by its date of expiry; one that cannot be read is over (RFC 9111, 5.3).
    fn expires(&self, now: u64) -> Option<Duration> {
        let expires = parse_http_date(self.expires?, now).unwrap_or(0);
        Some(Duration::from_secs(expires.saturating_sub(self.date.unwrap_or(now))))
    }

    /// RFC 9111, 4.2.3.
    fn age(&self, times: &Times) -> Duration {
        let apparent = self.date.map_or(0, |date| times.date.0.saturating_sub(date));
        let delay = times.now.saturating_duration_since(times.asked);
        (self.age.unwrap_or_default() + delay).max(Duration::from_secs(apparent))
    }
}

/// The first member of an `Age`, without parameters. A member that is no number of seconds is ignored (RFC 9111, 5.1).
fn first_age(value: &[u8]) -> Duration {
    let first = value.split(|byte| matches!(byte, b',' | b';')).next().unwrap_or_default();
    seconds(first.trim_ascii()).unwrap_or_default()
}

/// Whether a response with this status may be kept if it says how long: any final status, but those of a part or of a difference, those
/// that speak of the one request or connection that they answer, and those that no cache may store (RFC 6585).
fn is_storable(status: u16) -> bool {
    let is_of_one =
        matches!(status, 206 | 226 | 304 | 401 | 407 | 408 | 412 | 413 | 416 | 417 | 421 | 425 | 426);
    matches!(status, 200..=599) && !is_of_one && !matches!(status, 428 | 429 | 431 | 511)
}

/// Statuses whose rules for caches are known (RFC 9110, 15.1), as `must-understand` asks (RFC 9111, 5.2.2.3).
pub(super) fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether an endpoint has failed, or has rejected one request. The endpoint may answer other requests otherwise.
fn is_failure(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 405 | 410 | 414 | 451 | 501)
}

/// Statuses that are kept if only the policy says how long.
fn is_cacheable_by_default(status: u16) -> bool {
    matches!(status, 200 | 203 | 301 | 308)
}

/// What is kept of a head.
fn kept_head(head: &ResponseHead, buf: &[u8], date: &HttpDate, unshared: &[&[u8]]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(head.len + 64);
    // Writing to a Vec does not fail.
    let _ = write!(kept, "HTTP/1.1 {} ", head.status);
    kept.extend_from_slice(head.reason.of(buf));
    kept.extend_from_slice(b"\r\n");
    let is_kept = |line: &&Line| {
        let name = line.name.of(buf);
        !line.hop_by_hop
            && line.known != Known::ContentLength
            && !is(name, "age")
            && !unshared.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    for line in head.lines.iter().filter(is_kept) {
        kept.extend_from_slice(line.span().of(buf));
    }
    if head.header(buf, Known::Date).is_none() {
        // RFC 9110, 6.6.1.
        kept.extend_from_slice(b"Date: ");
        kept.extend_from_slice(date);
        kept.extend_from_slice(b"\r\n");
    }
    kept
}
