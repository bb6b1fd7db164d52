//! A cached response.

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sluicegate_http1::{Known, Line, RequestHead, ResponseHead};
use tokio::time::Instant;

use super::Cache;
use super::account::Charge;
use super::directives::{RequestDirectives, is};
use super::draft::{Asked, Draft};
use super::lines::{first_line, has_sent, lines, name_of, value_of, without_conditions};
use super::range::Part;
use super::validators::opaque;

/// A cached response, immutable.
#[derive(Debug)]
pub(crate) struct Entry {
    draft: Draft,
    pub(crate) body: Bytes,
    charge: Charge,
    /// Whether the response has served a request since the last check.
    used: AtomicBool,
}

/// The form in which a client receives a cached response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    /// The client has the response already: 304.
    Known,
    /// This range of the body: 206.
    Part(Range<usize>),
    /// The body ends before the requested range: 416.
    NoPart,
}

impl Entry {
    pub(super) fn new(draft: Draft, body: Bytes, charge: Charge) -> Self {
        Self { draft, body, charge, used: AtomicBool::new(false) }
    }

    /// The same response with another head. `None` if there is no room.
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

    /// Whether the response serves this request. `request` is the request for the endpoint.
    pub(super) fn answers(&self, asked: &Asked, request: &[u8]) -> bool {
        let Draft { upstream, lines, vary, is_shareable, is_anonymous, .. } = &self.draft;
        *upstream == asked.upstream
            && *lines == asked.lines
            && (*is_shareable || !asked.has_credentials)
            && !(*is_anonymous && asked.has_cookie)
            && vary.iter().all(|of| has_sent(request, &of.name, &of.values))
    }

    /// Whether `other` serves all requests that this response would serve.
    pub(super) fn is_replaced_by(&self, other: &Self) -> bool {
        let (old, new) = (&self.draft, &other.draft);
        old.upstream == new.upstream && old.lines == new.lines && old.vary == new.vary
    }

    /// Whether `other` is a failure, and this response can still serve: fresh, or stale within its rules.
    pub(super) fn outlasts(&self, other: &Self, now: Instant) -> bool {
        let own = &self.draft;
        let usable = own.lifetime + own.stale_time();
        other.draft.is_failure() && !own.is_failure() && !own.needs_validation && self.age(now) < usable
    }

    /// Whether the head of this response arrived later.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.draft.received > other.draft.received
    }

    /// Whether the response serves the request without revalidation.
    pub(super) fn is_fresh(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, min_fresh, .. } = asked.directives;
        let age = self.age(now);
        !no_cache
            && !self.draft.needs_validation
            && max_age.is_none_or(|most| age <= most && !most.is_zero())
            && age + min_fresh.unwrap_or_default() < self.draft.lifetime
    }

    /// Whether the response serves requests without special demands without revalidation.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        !self.draft.needs_validation && self.age(now) < self.draft.lifetime
    }

    /// The age of the response (RFC 9111, 4.2.3).
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.draft.age + now.saturating_duration_since(self.draft.received)
    }

    /// The remaining freshness, in seconds; below 0 if the response is stale.
    pub(crate) fn ttl(&self, now: Instant) -> i64 {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        seconds(self.draft.lifetime) - seconds(self.age(now))
    }

    /// Whether the response may serve because the endpoint has failed (RFC 5861, 4). A response that may serve while the
    /// endpoint is asked may also serve after that.
    pub(crate) fn may_serve_if_error(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, .. } = asked.directives;
        // A client that reloads wants to see the failure, unless a directive says otherwise (RFC 9111, 5.2.1.4).
        let is_reload = no_cache || max_age.is_some();
        let is_welcome = !is_reload || !self.draft.stale_if_error.is_zero();
        let time = if is_reload { self.draft.stale_if_error } else { self.draft.stale_time() };
        is_welcome && !self.draft.needs_validation && self.age(now) < self.draft.lifetime + time
    }

    /// Whether a 304 with this entity tag belongs to another response (RFC 9111, 4.3.4).
    pub(crate) fn is_other_than(&self, etag: Option<&[u8]>) -> bool {
        // Servers that compress on the fly weaken the tag of a 200, but not of a 304.
        etag.zip(self.draft.validators.etag.as_deref()).is_some_and(|(new, own)| opaque(new) != opaque(own))
    }

    /// Whether the stale response may serve while the endpoint is asked (RFC 5861, 3).
    pub(super) fn may_serve_while_revalidating(&self, asked: &Asked, now: Instant) -> bool {
        let RequestDirectives { no_cache, max_age, min_fresh, .. } = asked.directives;
        !no_cache
            && !self.draft.needs_validation
            && max_age.is_none()
            && min_fresh.is_none()
            && self.age(now) < self.draft.lifetime + self.draft.stale_while_revalidate
    }

    /// The form in which a client receives the response, by the conditions of its request.
    pub(crate) fn shape(&self, head: &RequestHead, buf: &[u8], part: Option<Part>) -> Shape {
        if self.draft.status != 200 {
            return Shape::Whole;
        }
        if self.draft.validators.are_known_to(head, buf) {
            return Shape::Known;
        }
        match part.filter(|_| self.draft.validators.allow_part(head, buf)) {
            None => Shape::Whole,
            Some(part) => part.within(self.body.len()).map_or(Shape::NoPart, Shape::Part),
        }
    }

    /// Whether the response supports ranges.
    pub(crate) fn has_parts(&self) -> bool {
        self.draft.status == 200
    }

    /// Writes the head, with `Age`.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, shape: &Shape, now: Instant) {
        let length = self.body.len();
        let is_written: fn(&[u8]) -> bool = match shape {
            Shape::Whole => |_| true,
            Shape::Part(_) => |name| !is(name, "content-range"),
            Shape::Known => is_of_304,
            Shape::NoPart => |name| is_of_304(name) && !is_of_whole(name),
        };
        match shape {
            Shape::Whole => out.extend_from_slice(&self.draft.head[..first_line(&self.draft.head)]),
            Shape::Known => out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n"),
            Shape::Part(_) => out.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n"),
            Shape::NoPart => out.extend_from_slice(b"HTTP/1.1 416 Range Not Satisfiable\r\n"),
        }
        for line in lines(&self.draft.head).filter(|line| is_written(name_of(line))) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        // Writing to a Vec does not fail.
        let _ = match shape {
            Shape::Whole if self.draft.status == 204 => Ok(()),
            Shape::Whole => write!(out, "Content-Length: {length}\r\n"),
            Shape::Known => Ok(()),
            Shape::Part(Range { start, end }) => {
                let (last, bytes) = (end - 1, end - start);
                write!(out, "Content-Range: bytes {start}-{last}/{length}\r\nContent-Length: {bytes}\r\n")
            }
            Shape::NoPart => write!(out, "Content-Range: bytes */{length}\r\nContent-Length: 0\r\n"),
        };
        let _ = write!(out, "Age: {}\r\n\r\n", self.age(now).as_secs());
    }

    /// The part of the body that follows this form's head.
    pub(crate) fn body_in(&self, shape: &Shape) -> &[u8] {
        match shape {
            Shape::Whole => &self.body,
            Shape::Part(range) => &self.body[range.clone()],
            Shape::Known | Shape::NoPart => &[],
        }
    }

    /// Turns a request for the endpoint into a revalidation of this response, in place of the client's conditions. False
    /// if the response has no validators.
    pub(crate) fn ask_whether_it_holds(&self, request: &mut Vec<u8>) -> bool {
        let validators = &self.draft.validators;
        if validators.is_empty() {
            return false;
        }
        let mut asking = without_conditions(request);
        // Removes the blank line.
        asking.truncate(asking.len() - 2);
        for (name, value) in
            [("If-None-Match", &validators.etag), ("If-Modified-Since", &validators.last_modified)]
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

    /// The head with the updates of a 304 (RFC 9111, 3.2).
    pub(crate) fn renewed_head(&self, head: &ResponseHead, buf: &[u8]) -> Vec<u8> {
        let own = &self.draft.head;
        let mut renewed = own[..first_line(own)].to_vec();
        let news = || head.lines.iter().filter(|line| !line.hop_by_hop && is_renewable(line, buf));
        for line in lines(own) {
            let name = name_of(line);
            // The old date would keep the response as old as before.
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

    /// Compares the cached response with the response to a HEAD of the same target (RFC 9111, 4.3.5). A response without
    /// validators renews nothing, even without a contradiction.
    pub(crate) fn compared_with(&self, head: &ResponseHead, buf: &[u8]) -> Compared {
        let said = |name| head.find(buf, name);
        let own = |name| lines(&self.draft.head).find(|line| is(name_of(line), name)).map(value_of);
        // The response to the HEAD is about another representation.
        if said("content-encoding") != own("content-encoding") || said("content-type") != own("content-type")
        {
            return Compared::Unknown;
        }
        let validators = &self.draft.validators;
        let pairs = [
            (said("etag"), validators.etag.as_deref()),
            (said("last-modified"), validators.last_modified.as_deref()),
        ];
        let length = said("content-length").and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
        let is_of_other_length = length.is_some_and(|length: usize| length != self.body.len());
        let differs = |(said, own): &(Option<&[u8]>, Option<&[u8]>)| said.is_some() && said != own;
        if is_of_other_length || pairs.iter().any(differs) {
            return Compared::Other;
        }
        match pairs.iter().any(|(said, _)| said.is_some_and(|said| !said.starts_with(b"W/"))) {
            true => Compared::Same,
            false => Compared::Unknown,
        }
    }

    /// Whether the head has a line with this name.
    pub(crate) fn has_line(&self, name: &[u8]) -> bool {
        lines(&self.draft.head).any(|line| name_of(line).eq_ignore_ascii_case(name))
    }
}

/// Whether the response to a HEAD matches the cached response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    Other,
    Unknown,
}

/// Whether a line of a 304 replaces the stored line: all lines except those that describe the bytes of the body, which
/// the 304 does not contain.
fn is_renewable(line: &Line, buf: &[u8]) -> bool {
    !matches!(line.known, Known::ContentLength | Known::ContentEncoding) && !is_of_bytes(line.name.of(buf))
}

/// Whether a header describes the bytes of one body.
pub(crate) fn is_of_bytes(name: &[u8]) -> bool {
    const OF_BYTES: [&str; 5] = ["content-digest", "content-md5", "content-range", "digest", "repr-digest"];
    OF_BYTES.into_iter().any(|other| is(name, other))
}

/// Whether a line describes the whole response, so that a 416 must not have it: caches would store the 416 by it.
fn is_of_whole(name: &[u8]) -> bool {
    const OF_WHOLE: [&str; 6] =
        ["cache-control", "cdn-cache-control", "etag", "expires", "last-modified", "pragma"];
    OF_WHOLE.into_iter().any(|other| is(name, other))
}

/// Whether a 304 contains this stored line: all lines except those that describe the bytes of the body (RFC 9110,
/// 15.4.5), because scripts need the CORS headers.
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
