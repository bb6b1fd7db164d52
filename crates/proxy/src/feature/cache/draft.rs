//! The stored part of a response's head, and the rules by which a response is stored.

use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{Known, Line, MAX_HEADERS, ResponseHead};
use sluicegate_model::UpstreamKey;
use sluicegate_model::feature as model;
use sluicegate_model::value::Age;
use tokio::time::Instant;

use super::directives::{RequestDirectives, ResponseDirectives, is, is_token, joined_targeted, seconds};
use super::lines::sent;
use super::validators::Validators;
use crate::date::{HttpDate, parse_http_date};

/// The memory of an entry in addition to its bytes, generously: its parts, its places in the store, the allocator's
/// overhead.
const OVERHEAD: usize = 512;

/// A response whose `Vary` names more headers than this is not cached.
const VARY_MAX: usize = 16;

/// The longest time for which a failure is cached. So one rejected request, or one bad moment of the endpoint, does not
/// block a target for others for longer.
const FAILURE_MAX: Duration = Duration::from_secs(10);

/// The cache's view of a request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The target's URI (RFC 9111, 2), and the headers that the policy names.
    pub(crate) key: Arc<[u8]>,
    /// The position of the path and the query in the key.
    pub(crate) target: Range<usize>,
    /// The upstream of the request.
    pub(crate) upstream: UpstreamKey,
    /// The header lines that policies add for the endpoint.
    pub(crate) lines: Box<[u8]>,
    pub(crate) directives: RequestDirectives,
    /// Whether the headers carry credentials (RFC 9111, 3.5).
    pub(crate) has_credentials: bool,
    pub(crate) has_cookie: bool,
    /// Whether the request has conditions on a response that the client already has.
    pub(crate) is_conditional: bool,
}

impl Asked {
    /// The key of a request that differs only in path and query.
    pub(crate) fn key_of(&self, path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let mut key = self.key[..self.target.start].to_vec();
        add_target(&mut key, path, query);
        key.extend_from_slice(&self.key[self.target.end..]);
        key
    }
}

/// Adds a part to a key. Different lists of parts make different keys.
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

/// The stored part of a response's head, and its meaning for the cache.
#[derive(Debug)]
pub(crate) struct Draft {
    key: Arc<[u8]>,
    pub(super) upstream: UpstreamKey,
    pub(super) lines: Box<[u8]>,
    /// The names in `Vary`, and the values that the endpoint received.
    pub(super) vary: Vec<Sent>,
    pub(crate) status: u16,
    /// The status line and the lines, without `Age`, `Content-Length` and the blank line.
    pub(super) head: Vec<u8>,
    pub(super) validators: Validators,
    pub(super) received: Instant,
    /// The age of the response when it arrived (RFC 9111, 4.2.3).
    pub(super) age: Duration,
    /// How long the response is fresh.
    pub(super) lifetime: Duration,
    /// How long the stale response may serve if the endpoint fails.
    pub(super) stale_if_error: Duration,
    /// How long the stale response may serve while the endpoint is asked.
    pub(super) stale_while_revalidate: Duration,
    /// `no-cache`: the response needs a successful revalidation before each use.
    pub(super) needs_validation: bool,
    /// Whether the response may serve requests with credentials.
    pub(super) is_shareable: bool,
    /// Whether the response serves no request with a `Cookie`. Either only the policy makes the response fresh, so that
    /// it may be personal, or the response is a failure, which the cookie may have caused.
    pub(super) is_anonymous: bool,
}

/// The values of a header that an endpoint received.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) name: Box<[u8]>,
    /// In the form of [`sent`].
    pub(super) values: Box<[u8]>,
}

/// When a request was sent and its response arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) asked: Instant,
    pub(crate) now: Instant,
    /// The arrival in seconds since 1970, and as a date.
    pub(crate) date: (u64, HttpDate),
}

impl Draft {
    /// `None` if the response is not to be cached (RFC 9111, 3). `request` is the request for the endpoint.
    pub(crate) fn of(
        asked: &Asked,
        request: &[u8],
        (head, buf): (&ResponseHead, &[u8]),
        rules: &model::Cache,
        times: &Times,
    ) -> Option<Self> {
        // The head must have room for lines with its age, its length, its date and its range.
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
        let default =
            rules.default_time.map(Age::get).filter(|_| is_cacheable_by_default(status) && !asked.has_cookie);
        let explicit = directives.s_maxage.or(directives.max_age).or_else(|| found.expires(times.date.0));
        let (lifetime, is_by_default) = match explicit {
            Some(lifetime) => (lifetime, false),
            None if directives.no_cache && is_understood(status) => (Duration::ZERO, false),
            None if directives.no_cache => return None,
            None => (default?, true),
        };
        let forbids = directives.must_revalidate || directives.proxy_revalidate || directives.no_cache;
        let of_policy =
            if forbids || directives.s_maxage.is_some() { Duration::ZERO } else { rules.stale_time() };
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
            head: stored_head(head, buf, &times.date.1, &directives.unshared),
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

    /// The size in bytes, without the body.
    pub(super) fn size(&self) -> usize {
        let vary: usize =
            self.vary.iter().map(|of| size_of::<Sent>() + of.name.len() + of.values.len()).sum();
        OVERHEAD + self.key.len() + self.lines.len() + self.head.capacity() + vary + self.validators.size()
    }

    pub(super) fn key(&self) -> &Arc<[u8]> {
        &self.key
    }

    /// How long the response may serve after its lifetime, for either reason.
    pub(super) fn stale_time(&self) -> Duration {
        self.stale_if_error.max(self.stale_while_revalidate)
    }

    /// Whether the endpoint has failed, or has rejected the request.
    pub(crate) fn is_failure(&self) -> bool {
        is_failure(self.status)
    }
}

/// The headers of a response that matter for the cache, in addition to `Cache-Control`.
struct Found<'b> {
    vary: Vec<&'b [u8]>,
    etag: Option<&'b [u8]>,
    last_modified: Option<&'b [u8]>,
    date: Option<u64>,
    expires: Option<&'b [u8]>,
    age: Option<Duration>,
}

impl<'b> Found<'b> {
    /// `None` if the response is not to be cached.
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
                // Two Expires headers count as an invalid Expires.
                Known::Other if is(name, "expires") => {
                    found.expires = Some(if found.expires.is_some() { b"" } else { value });
                }
                // Of several lines and members, the first counts (RFC 9111, 5.1).
                Known::Other if is(name, "age") && found.age.is_none() => found.age = Some(first_age(value)),
                _ => {}
            }
        }
        (found.vary.len() <= VARY_MAX).then_some(found)
    }

    /// The freshness lifetime by `Expires`; an invalid date counts as expired (RFC 9111, 5.3).
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

/// Whether a response with this status may be cached if it states a lifetime. All final statuses qualify, with three
/// exceptions: statuses of a range or a difference, statuses about one request or connection, and statuses that no
/// cache may store (RFC 6585).
fn is_storable(status: u16) -> bool {
    let is_of_one =
        matches!(status, 206 | 226 | 304 | 401 | 407 | 408 | 412 | 413 | 416 | 417 | 421 | 425 | 426);
    matches!(status, 200..=599) && !is_of_one && !matches!(status, 428 | 429 | 431 | 511)
}

/// Statuses with known caching rules (RFC 9110, 15.1), as `must-understand` requires (RFC 9111, 5.2.2.3).
pub(super) fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Whether an endpoint has failed, or has rejected one request. The endpoint may respond differently to other requests.
fn is_failure(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 405 | 410 | 414 | 451 | 501)
}

/// Statuses that are cached if only the policy states a lifetime.
fn is_cacheable_by_default(status: u16) -> bool {
    matches!(status, 200 | 203 | 301 | 308)
}

/// The stored part of a head.
fn stored_head(head: &ResponseHead, buf: &[u8], date: &HttpDate, unshared: &[&[u8]]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(head.len + 64);
    // Writing to a Vec does not fail.
    let _ = write!(stored, "HTTP/1.1 {} ", head.status);
    stored.extend_from_slice(head.reason.of(buf));
    stored.extend_from_slice(b"\r\n");
    let is_stored = |line: &&Line| {
        let name = line.name.of(buf);
        !line.hop_by_hop
            && line.known != Known::ContentLength
            && !is(name, "age")
            && !unshared.iter().any(|other| other.eq_ignore_ascii_case(name))
    };
    for line in head.lines.iter().filter(is_stored) {
        stored.extend_from_slice(line.span().of(buf));
    }
    if head.header(buf, Known::Date).is_none() {
        // RFC 9110, 6.6.1.
        stored.extend_from_slice(b"Date: ");
        stored.extend_from_slice(date);
        stored.extend_from_slice(b"\r\n");
    }
    stored
}
