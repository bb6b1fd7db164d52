//! Conditions of requests (RFC 9110, 13), and the validators of cached responses.

use sluicegate_http1::{Known, RequestHead};

use super::directives::is;
use crate::date::parse_http_date;
use crate::name::is_same_name;

/// The validators of a cached response.
#[derive(Debug)]
pub(super) struct Validators {
    pub(super) etag: Option<Box<[u8]>>,
    pub(super) last_modified: Option<Box<[u8]>>,
    /// The response's `Date`, or the time of its arrival, in seconds since 1970.
    pub(super) date: u64,
}

impl Validators {
    pub(super) fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    pub(super) fn size(&self) -> usize {
        [&self.etag, &self.last_modified].into_iter().flatten().map(|text| text.len()).sum()
    }

    /// Whether the conditions of a request show that its client already has the response (RFC 9111, 4.3.2).
    pub(super) fn are_known_to(&self, head: &RequestHead, buf: &[u8]) -> bool {
        let mut tags = head.lines.iter().filter(|line| is(line.name.of(buf), "if-none-match")).peekable();
        if tags.peek().is_some() {
            let etag = self.etag.as_deref();
            return tags.any(|line| lists_tag(line.value.of(buf), etag));
        }
        let Some(since) = head.find(buf, "if-modified-since") else { return false };
        if self.last_modified.as_deref() == Some(since) {
            return true;
        }
        let modified = match self.last_modified.as_deref() {
            Some(modified) => parse_http_date(modified, self.date),
            None => Some(self.date),
        };
        let is_no_later = || Some(modified? <= parse_http_date(since, self.date)?);
        is_no_later().unwrap_or(false)
    }

    /// Whether a range of the response belongs to the client's stored part, by `If-Range` (RFC 9110, 13.1.5).
    pub(super) fn allow_part(&self, head: &RequestHead, buf: &[u8]) -> bool {
        let mut lines = head
            .lines
            .iter()
            .filter(|line| line.known == Known::Other && is(line.name.of(buf), "if-range"))
            .map(|line| line.value.of(buf));
        let Some(value) = lines.next() else { return true };
        let is_only_one = lines.next().is_none();
        // A weak tag does not identify bytes. Neither does a date so recent that the response may have changed since
        // (8.8.2.2).
        let is_this = match &self.last_modified {
            _ if value.starts_with(b"\"") => self.etag.as_deref() == Some(value),
            Some(modified) => {
                let is_strong = |modified: u64| modified + 60 <= self.date;
                **modified == *value && parse_http_date(modified, self.date).is_some_and(is_strong)
            }
            None => false,
        };
        is_only_one && is_this
    }
}

/// Whether a header makes a request conditional, in a way that a cache can check.
pub(crate) fn is_condition(name: &[u8]) -> bool {
    ["if-none-match", "if-modified-since"].into_iter().any(|other| is_same_name(name, other.as_bytes()))
}

/// An entity tag without its mark of weakness.
pub(super) fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether a list contains this entity tag, by weak comparison (RFC 9110, 8.8.3.2).
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
