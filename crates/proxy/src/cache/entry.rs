//! A response that is kept.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use sluicegate_http1::{Known, Line, MAX_HEADERS, RequestHead, ResponseHead};
use sluicegate_model::UpstreamKey;
use sluicegate_model::policy::traffic as model;
use tokio::time::Instant;

use super::Cache;
use super::account::Charge;
use super::directives::{RequestDirectives, ResponseDirectives, is, seconds};
use crate::date::{HttpDate, parse_http_date};
use crate::http::is_same_name;

/// What an entry takes beside its bytes, generously: its parts, its places in the store, what the allocator adds.
const OVERHEAD: usize = 512;

/// A response whose `Vary` names more headers than this is not kept.
const VARY_MAX: usize = 16;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The target's URI (RFC 9111, 2), and the headers that the policy has named.
    pub(crate) key: Arc<[u8]>,
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

/// A response that is kept. It never changes.
#[derive(Debug)]
pub(crate) struct Entry {
    draft: Draft,
    pub(crate) body: Bytes,
    charge: Charge,
    /// Whether it answered somebody since it was last looked at.
    used: AtomicBool,
}

/// What is kept of the head of a response, and what it says.
#[derive(Debug)]
pub(crate) struct Draft {
    key: Arc<[u8]>,
    upstream: UpstreamKey,
    lines: Box<[u8]>,
    /// Names that `Vary` has, and what the endpoint was sent by them.
    vary: Vec<Sent>,
    pub(crate) status: u16,
    /// The status line and the lines, without `Age`, `Content-Length` and the blank line.
    head: Vec<u8>,
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
    received: Instant,
    /// How old it was then (RFC 9111, 4.2.3).
    age: Duration,
    /// How long it is fresh.
    lifetime: Duration,
    /// How long it may be used after that if the endpoint fails.
    stale_if_error: Duration,
    /// How long it may be used after that while the endpoint is asked.
    stale_while_revalidate: Duration,
    /// `no-cache`: it is used if the endpoint says that it still holds.
    needs_validation: bool,
    /// Whether it may answer requests that say who calls.
    is_shareable: bool,
    /// Whether only the policy says that it is fresh, so that nobody has said that it is for all.
    is_by_default: bool,
}

/// What an endpoint was sent by a header.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    name: Box<[u8]>,
    /// As [`sent`] has them.
    values: Box<[u8]>,
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
        // There has to be room for what is said of its age, its length and its date.
        if head.lines.len() + 3 > MAX_HEADERS {
            return None;
        }
        let directives = ResponseDirectives::of(&head.lines, buf);
        let is_shareable = directives.public || directives.must_revalidate || directives.s_maxage.is_some();
        let is_refused = directives.no_store
            || directives.private
            || asked.directives.no_store
            || asked.has_credentials && !is_shareable
            || !is_cacheable(head.status)
            || head.upgrade;
        if is_refused {
            return None;
        }
        let found = Found::of(head, buf)?;
        let explicit = directives.s_maxage.or(directives.max_age).or_else(|| found.expires(times.date.0));
        let default =
            rules.default_time.filter(|_| is_cacheable_by_default(head.status) && !asked.has_cookie);
        let lifetime = match explicit {
            Some(lifetime) => lifetime,
            None if directives.no_cache => Duration::ZERO,
            None => default?,
        };
        let forbids = directives.must_revalidate || directives.proxy_revalidate || directives.no_cache;
        let of_policy =
            if forbids || directives.s_maxage.is_some() { Duration::ZERO } else { rules.stale_if_error };
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
            status: head.status,
            head: kept_head(head, buf, &times.date.1),
            etag: found.etag.map(Into::into),
            last_modified: found.last_modified.map(Into::into),
            received: times.now,
            age: found.age(times),
            lifetime,
            stale_if_error: of_policy.max(said(directives.stale_if_error)),
            stale_while_revalidate: said(directives.stale_while_revalidate),
            needs_validation: directives.no_cache,
            is_shareable,
            is_by_default: explicit.is_none() && !directives.no_cache,
        };
        let is_of_use = draft.has_validator()
            || !draft.needs_validation && draft.age < draft.lifetime + draft.stale_if_error;
        is_of_use.then_some(draft)
    }

    /// How many bytes it takes, without the body.
    pub(super) fn size(&self) -> usize {
        let vary: usize =
            self.vary.iter().map(|of| size_of::<Sent>() + of.name.len() + of.values.len()).sum();
        let validators =
            [&self.etag, &self.last_modified].into_iter().flatten().map(|text| text.len()).sum::<usize>();
        OVERHEAD + self.key.len() + self.lines.len() + self.head.capacity() + vary + validators
    }

    pub(super) fn key(&self) -> &Arc<[u8]> {
        &self.key
    }

    fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

impl Entry {
    pub(super) fn new(draft: Draft, body: Bytes, charge: Charge) -> Self {
        Self { draft, body, charge, used: AtomicBool::new(false) }
    }

    /// The same with another head. None if there is no room for it.
    pub(crate) fn renewed(&self, draft: Draft, cache: &Cache) -> Option<Self> {
        let charge = cache.charge(draft.size() + self.body.len())?;
        Some(Self::new(draft, self.body.clone(), charge))
    }

    pub(super) fn draft(&self) -> &Draft {
        &self.draft
    }

    pub(super) fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn take_touch(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether this is what the endpoint would be asked for. `request` is what it would be sent.
    pub(super) fn answers(&self, asked: &Asked, request: &[u8]) -> bool {
        let Draft { upstream, lines, vary, is_shareable, is_by_default, .. } = &self.draft;
        *upstream == asked.upstream
            && *lines == asked.lines
            && (*is_shareable || !asked.has_credentials)
            && !(*is_by_default && asked.has_cookie)
            && vary.iter().all(|of| has_sent(request, &of.name, &of.values))
    }

    /// Whether another one answers whatever this would.
    pub(super) fn is_replaced_by(&self, other: &Self) -> bool {
        let (old, new) = (&self.draft, &other.draft);
        old.upstream == new.upstream && old.lines == new.lines && old.vary == new.vary
    }

    /// Whether its head came later.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.draft.received > other.draft.received
    }

    /// Whether it is the answer without asking.
    pub(super) fn is_fresh(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, min_fresh, .. } = asked.directives;
        let age = self.age(now);
        !no_cache
            && !self.draft.needs_validation
            && max_age.is_none_or(|most| age <= most && !most.is_zero())
            && age + min_fresh.unwrap_or_default() < self.draft.lifetime
    }

    /// Whether it is the answer without asking, for whoever does not want more than others.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        !self.draft.needs_validation && self.age(now) < self.draft.lifetime
    }

    /// How old it is (RFC 9111, 4.2.3).
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.draft.age + now.saturating_duration_since(self.draft.received)
    }

    /// How long it will be fresh, in seconds; below 0 if it is not.
    pub(crate) fn ttl(&self, now: Instant) -> i64 {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        seconds(self.draft.lifetime) - seconds(self.age(now))
    }

    /// Whether it may be used since the endpoint has failed (RFC 5861, 4).
    pub(crate) fn may_stand_in(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, .. } = asked.directives;
        // Who asks for it anew wants to see the failure, unless somebody has said otherwise (RFC 9111, 5.2.1.4).
        let is_welcome = !(no_cache || max_age.is_some()) || !self.draft.stale_if_error.is_zero();
        is_welcome
            && !self.draft.needs_validation
            && self.age(now) < self.draft.lifetime + self.draft.stale_if_error
    }

    /// Whether a 304 with this entity tag is of another response (RFC 9111, 4.3.4).
    pub(crate) fn is_other_than(&self, etag: Option<&[u8]>) -> bool {
        // Servers that compress as they go weaken the tag of what they send, and not that of a 304.
        etag.zip(self.draft.etag.as_deref()).is_some_and(|(new, own)| opaque(new) != opaque(own))
    }

    /// Whether it may be used while the endpoint is being asked (RFC 5861, 3).
    pub(super) fn may_bridge(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, min_fresh, .. } = asked.directives;
        !no_cache
            && !self.draft.needs_validation
            && max_age.is_none()
            && min_fresh.is_none()
            && self.age(now) < self.draft.lifetime + self.draft.stale_while_revalidate
    }

    /// Whether a client that said this has it already (RFC 9111, 4.3.2).
    pub(crate) fn is_known_to(&self, head: &RequestHead, buf: &[u8]) -> bool {
        if self.draft.status != 200 {
            return false;
        }
        let mut tags = head.lines.iter().filter(|line| is(line.name.of(buf), "if-none-match")).peekable();
        if tags.peek().is_some() {
            let etag = self.draft.etag.as_deref();
            return tags.any(|line| lists_tag(line.value.of(buf), etag));
        }
        let (Some(since), Some(modified)) =
            (head.find(buf, "if-modified-since"), self.draft.last_modified.as_deref())
        else {
            return false;
        };
        let is_no_later = || Some(parse_http_date(modified)? <= parse_http_date(since)?);
        since == modified || is_no_later().unwrap_or(false)
    }

    /// Writes its head, with `Age`; what a client gets that has it already, if this is one.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, is_known: bool, now: Instant) {
        if is_known {
            out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
            for line in lines(&self.draft.head).filter(|line| is_of_304(name_of(line))) {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
            }
        } else {
            out.extend_from_slice(&self.draft.head);
            if self.draft.status != 204 {
                // Writing to a Vec does not fail.
                let _ = write!(out, "Content-Length: {}\r\n", self.body.len());
            }
        }
        let _ = write!(out, "Age: {}\r\n\r\n", self.age(now).as_secs());
    }

    /// Makes of a written request one that asks whether this still holds, in place of what the client asked. False if this has
    /// nothing to ask by.
    pub(crate) fn ask_whether_it_holds(&self, request: &mut Vec<u8>) -> bool {
        if !self.draft.has_validator() {
            return false;
        }
        let mut asking = Vec::with_capacity(request.len() + 128);
        let first = memmem::find(request, b"\r\n").map_or(request.len(), |at| at + 2);
        asking.extend_from_slice(&request[..first]);
        for line in lines(request).filter(|line| !is_condition(name_of(line))) {
            asking.extend_from_slice(line);
            asking.extend_from_slice(b"\r\n");
        }
        for (name, value) in
            [("If-None-Match", &self.draft.etag), ("If-Modified-Since", &self.draft.last_modified)]
        {
            if let Some(value) = value {
                for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                    asking.extend_from_slice(part);
                }
            }
        }
        asking.extend_from_slice(b"\r\n");
        *request = asking;
        true
    }

    /// Its head with what a 304 says anew (RFC 9111, 3.2).
    pub(crate) fn renewed_head(&self, head: &ResponseHead, buf: &[u8]) -> Vec<u8> {
        let own = &self.draft.head;
        let first = memmem::find(own, b"\r\n").map_or(own.len(), |at| at + 2);
        let mut renewed = own[..first].to_vec();
        let news = || head.lines.iter().filter(|line| !line.hop_by_hop && is_renewable(line, buf));
        for line in lines(own) {
            let name = name_of(line);
            // The old date would make it as old as before.
            if !is(name, "date") && !news().any(|new| new.name.of(buf).eq_ignore_ascii_case(name)) {
                renewed.extend_from_slice(line);
                renewed.extend_from_slice(b"\r\n");
            }
        }
        for line in news() {
            renewed.extend_from_slice(line.span().of(buf));
        }
        renewed
    }
}

/// What a response says beside `Cache-Control`.
struct Found<'b> {
    vary: Vec<&'b [u8]>,
    etag: Option<&'b [u8]>,
    last_modified: Option<&'b [u8]>,
    date: Option<u64>,
    expires: Option<&'b [u8]>,
    age: Duration,
}

impl<'b> Found<'b> {
    /// None if it is not to be kept.
    fn of(head: &ResponseHead, buf: &'b [u8]) -> Option<Self> {
        let mut found = Self {
            vary: Vec::new(),
            etag: None,
            last_modified: None,
            date: None,
            expires: None,
            age: Duration::ZERO,
        };
        for line in &head.lines {
            let (name, value) = (line.name.of(buf), line.value.of(buf));
            match line.known {
                Known::SetCookie | Known::Trailer => return None,
                Known::Date => found.date = parse_http_date(value),
                Known::Other if is(name, "vary") => {
                    for name in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                        match name {
                            b"*" => return None,
                            b"" => {}
                            name => found.vary.push(name),
                        }
                    }
                }
                Known::Other if is(name, "content-range") => return None,
                Known::Other if is(name, "etag") => found.etag = Some(value),
                Known::Other if is(name, "last-modified") => found.last_modified = Some(value),
                // Of two the worse one.
                Known::Other if is(name, "expires") => {
                    found.expires = Some(if found.expires.is_some() { b"" } else { value });
                }
                Known::Other if is(name, "age") => {
                    found.age = found.age.max(seconds(value).unwrap_or_default());
                }
                _ => {}
            }
        }
        (found.vary.len() <= VARY_MAX).then_some(found)
    }

    /// How long it is fresh by its date of expiry; one that cannot be read is over (RFC 9111, 5.3).
    fn expires(&self, now: u64) -> Option<Duration> {
        let expires = parse_http_date(self.expires?).unwrap_or(0);
        Some(Duration::from_secs(expires.saturating_sub(self.date.unwrap_or(now))))
    }

    /// RFC 9111, 4.2.3.
    fn age(&self, times: &Times) -> Duration {
        let apparent = self.date.map_or(0, |date| times.date.0.saturating_sub(date));
        let delay = times.now.saturating_duration_since(times.asked);
        (self.age + delay).max(Duration::from_secs(apparent))
    }
}

/// Statuses that are kept if a response says how long.
fn is_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300..=303 | 307 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses that are kept if only the policy says how long.
fn is_cacheable_by_default(status: u16) -> bool {
    matches!(status, 200 | 203 | 301 | 308)
}

/// What is kept of a head.
fn kept_head(head: &ResponseHead, buf: &[u8], date: &HttpDate) -> Vec<u8> {
    let mut kept = Vec::with_capacity(head.len + 64);
    // Writing to a Vec does not fail.
    let _ = write!(kept, "HTTP/1.1 {} ", head.status);
    kept.extend_from_slice(head.reason.of(buf));
    kept.extend_from_slice(b"\r\n");
    let is_kept = |line: &&Line| {
        !line.hop_by_hop && line.known != Known::ContentLength && !is(line.name.of(buf), "age")
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

/// Whether a line of a 304 takes the place of what is kept. Not what tells of the bytes of the body.
fn is_renewable(line: &Line, buf: &[u8]) -> bool {
    let name = line.name.of(buf);
    !matches!(line.known, Known::ContentLength | Known::ContentEncoding | Known::ContentType)
        && !is(name, "content-range")
}

/// Whether a 304 has this line of what is kept: all but what tells of the bytes of the body (RFC 9110, 15.4.5), since scripts need
/// what is said of origins.
fn is_of_304(name: &[u8]) -> bool {
    const OF_BODY: [&str; 9] = [
        "accept-ranges",
        "content-digest",
        "content-encoding",
        "content-language",
        "content-md5",
        "content-range",
        "content-type",
        "digest",
        "repr-digest",
    ];
    !OF_BODY.into_iter().any(|other| is(name, other))
}

/// Whether a header makes a request conditional, by what a cache knows.
pub(crate) fn is_condition(name: &[u8]) -> bool {
    ["if-none-match", "if-modified-since"].into_iter().any(|other| is_same_name(name, other.as_bytes()))
}

/// An entity tag without what says that it is weak.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether a list of entity tags has this one, weakly compared (RFC 9110, 8.8.3.2).
fn lists_tag(list: &[u8], etag: Option<&[u8]>) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let Some(etag) = etag.map(opaque).filter(|etag| etag.starts_with(b"\"")) else { return false };
    let mut rest = list.trim_ascii();
    loop {
        let tag = opaque(rest);
        let Some(end) = tag.get(1..).and_then(|behind| memchr::memchr(b'"', behind)).map(|end| end + 2)
        else {
            return false;
        };
        if tag.starts_with(b"\"") && tag[..end] == *etag {
            return true;
        }
        rest = tag[end..].trim_ascii_start();
        rest = match rest.strip_prefix(b",") {
            Some(rest) => rest.trim_ascii_start(),
            None => return false,
        };
    }
}

/// The header lines of a head that was written here, without their ends.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = memmem::find(head, b"\r\n").map_or(&[][..], |at| &head[at + 2..]);
    std::iter::from_fn(move || {
        let end = memmem::find(rest, b"\r\n")?;
        let line = &rest[..end];
        rest = &rest[end + 2..];
        (!line.is_empty()).then_some(line)
    })
}

fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// What a request has in the headers of this name, each behind what no value has: the end of a line, another one if the name is
/// spelt with `_`, which is the same to some endpoints.
fn values<'r>(request: &'r [u8], name: &'r [u8]) -> impl Iterator<Item = (&'static [u8], &'r [u8])> {
    lines(request).filter_map(move |line| {
        let (found, value) = (name_of(line), line.get(name.len() + 1..)?);
        let mark: &[u8] = if found.eq_ignore_ascii_case(name) { b"\n" } else { b"\r" };
        is_same_name(found, name).then(|| (mark, value.trim_ascii()))
    })
}

/// The same, in one. Two lines are not one with a comma, since not every endpoint takes them for the same.
pub(crate) fn sent(request: &[u8], name: &[u8]) -> Box<[u8]> {
    let mut sent = Vec::new();
    for (mark, value) in values(request, name) {
        sent.extend_from_slice(mark);
        sent.extend_from_slice(value);
    }
    sent.into()
}

/// Whether a request has the same in the headers of this name.
fn has_sent(request: &[u8], name: &[u8], mut sent: &[u8]) -> bool {
    for (mark, value) in values(request, name) {
        let Some(rest) = sent.strip_prefix(mark).and_then(|sent| sent.strip_prefix(value)) else {
            return false;
        };
        sent = rest;
    }
    sent.is_empty()
}
