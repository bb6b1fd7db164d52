//! Which responses are compressed, and what that changes of their heads.

use memchr::memmem;
use sluicegate_http1::{Known, Line, ResponseFraming, ResponseHead};
use sluicegate_model::{Compression, ContentCoding};

/// A response that is compressed for clients who accept it.
pub(crate) struct Eligible {
    /// The line of a strong or a weak ETag.
    etag: Option<usize>,
    /// Whether caches know already that it depends on `Accept-Encoding`.
    varies: bool,
}

impl Eligible {
    /// Whether a response is: by its status, its type, its length, and what it says of itself.
    pub(crate) fn of(head: &ResponseHead, buf: &[u8], compression: &Compression) -> Option<Self> {
        if !has_whole_body(head.status) {
            return None;
        }
        let mut media_type = None;
        let mut length = None;
        let mut eligible = Self { etag: None, varies: false };
        for (index, line) in head.lines.iter().enumerate() {
            let value = line.value.of(buf);
            match line.known {
                Known::ContentEncoding if !is_identity(value) => return None,
                // RFC 9111, 5.2.2.6.
                Known::CacheControl if lists(value, b"no-transform") => return None,
                Known::Trailer if members(value).any(is_digest) => return None,
                // Who names two types has not said which.
                Known::ContentType if media_type.replace(value).is_some() => return None,
                Known::ContentLength => length = std::str::from_utf8(value).ok()?.parse::<u64>().ok(),
                Known::Other => match line.name.of(buf) {
                    name if is(name, "vary") => {
                        eligible.varies |= lists(value, b"*") || lists(value, b"accept-encoding");
                    }
                    name if is(name, "etag") => eligible.etag = Some(index),
                    // A part of something, or of something else.
                    name if is(name, "content-range") => return None,
                    name if is_digest(name) => return None,
                    _ => {}
                },
                _ => {}
            }
        }
        let length = match head.framing {
            // Of what a GET would have got, or of what the client has.
            ResponseFraming::None => length,
            ResponseFraming::Length(length) => Some(length),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
        };
        if length.is_some_and(|length| length == 0 || length < compression.min_length) {
            return None;
        }
        match media_type {
            Some(media_type) => {
                let is_listed = compression.types.iter().any(|range| range.takes(media_type));
                (is_listed && !is_grpc(media_type)).then_some(eligible)
            }
            // A 304 need not repeat it (RFC 9110, 15.4.5).
            None => (head.status == 304).then_some(eligible),
        }
    }

    /// Takes away what does not hold for this client, who gets the body in this coding, if in any. Gives the lines that
    /// are added. `if_none_match` are the values that the client sent.
    pub(crate) fn edit<'v>(
        &self,
        head: &mut ResponseHead,
        buf: &[u8],
        coding: Option<ContentCoding>,
        mut if_none_match: impl Iterator<Item = &'v [u8]>,
    ) -> Vec<u8> {
        let mut added = Vec::new();
        if !self.varies {
            added.extend_from_slice(b"Vary: ");
            for line in head.lines.iter_mut().filter(|line| is(line.name.of(buf), "vary")) {
                line.hop_by_hop = true;
                let value = line.value.of(buf);
                if !value.is_empty() {
                    added.extend_from_slice(value);
                    added.extend_from_slice(b", ");
                }
            }
            added.extend_from_slice(b"Accept-Encoding\r\n");
        }
        let etag = self.etag.and_then(|index| head.lines.get(index)).map(|line| line.value.of(buf));
        let strong = etag.filter(|etag| etag.starts_with(b"\""));
        if head.status == 304 {
            // The client or cache that has the compressed form knows it by its weak ETag.
            let weak = strong.map(|etag| [b"W/", etag].concat());
            if weak.is_none_or(|weak| !if_none_match.any(|line| memmem::find(line, &weak).is_some())) {
                return added;
            }
        } else if let Some(coding) = coding {
            added.extend_from_slice(b"Content-Encoding: ");
            added.extend_from_slice(coding.name().as_bytes());
            added.extend_from_slice(b"\r\n");
        } else {
            return added;
        }
        if let Some(etag) = strong {
            // It is the same content and not the same bytes (RFC 9110, 8.8.1).
            added.extend_from_slice(b"ETag: W/");
            added.extend_from_slice(etag);
            added.extend_from_slice(b"\r\n");
        }
        for line in &mut head.lines {
            line.hop_by_hop |= is_of_the_bytes(line, buf);
        }
        added
    }
}

/// Whether the body of a response is all of something that is worth it: 2xx but 204 and 205, which have none, 206, which
/// has a part, and 226, which has a difference; and 4xx and 5xx, since the errors of many an API are long. Redirects are
/// not looked at by anybody. Of a 304 only the head changes.
fn has_whole_body(status: u16) -> bool {
    matches!(status, 200..=299 | 304 | 400..=599) && !matches!(status, 204..=206 | 226)
}

/// Whether a header line holds for the uncompressed bytes only: their length, what parts of them can be had, and an ETag
/// that is not weak (which is written anew, unless it is malformed).
fn is_of_the_bytes(line: &Line, buf: &[u8]) -> bool {
    match line.known {
        // It was `identity`.
        Known::ContentLength | Known::ContentEncoding => true,
        Known::Other => {
            let name = line.name.of(buf);
            is(name, "accept-ranges") || is(name, "etag") && !line.value.of(buf).starts_with(b"W/")
        }
        _ => false,
    }
}

/// Whether a header tells what the bytes of the body add up to (RFC 9530; RFC 3230; RFC 1864).
fn is_digest(name: &[u8]) -> bool {
    ["content-digest", "repr-digest", "digest", "content-md5"].into_iter().any(|other| is(name, other))
}

fn is_identity(coding: &[u8]) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

/// Whether a media type is gRPC's ("gRPC over HTTP/2", Content-Type).
pub(crate) fn is_grpc(media_type: &[u8]) -> bool {
    media_type.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn lists(list: &[u8], member: &[u8]) -> bool {
    members(list).any(|one| one.eq_ignore_ascii_case(member))
}
