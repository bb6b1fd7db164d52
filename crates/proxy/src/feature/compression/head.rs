//! The choice of responses to compress, and the changes to their heads.

use memchr::memmem;
use sluicegate_http1::{Known, Line, ResponseFraming, ResponseHead};
use sluicegate_model::{Compression, ContentCoding};

/// A response that is compressed for clients that accept a coding.
pub(crate) struct Eligible {
    /// The index of the line of a strong or a weak ETag.
    etag: Option<usize>,
    /// Whether caches already know that the response depends on `Accept-Encoding`.
    varies: bool,
}

impl Eligible {
    /// Whether a response is eligible: by its status, its type, its length, and its other headers.
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
                // A response with two types has no clear type.
                Known::ContentType if media_type.replace(value).is_some() => return None,
                Known::ContentLength => length = std::str::from_utf8(value).ok()?.parse::<u64>().ok(),
                Known::Other => match line.name.of(buf) {
                    name if is(name, "vary") => {
                        eligible.varies |= lists(value, b"*") || lists(value, b"accept-encoding");
                    }
                    name if is(name, "etag") => eligible.etag = Some(index),
                    // A range of a body.
                    name if is(name, "content-range") => return None,
                    name if is_digest(name) => return None,
                    _ => {}
                },
                _ => {}
            }
        }
        let length = match head.framing {
            // The length for a GET, or for the response that the client already has.
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
            // A 304 may lack the type (RFC 9110, 15.4.5).
            None => (head.status == 304).then_some(eligible),
        }
    }

    /// Removes lines that do not apply to this client, which receives the body in this coding, if any. Returns the lines
    /// to add. `if_none_match` holds the client's values.
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
            // A client or cache with the compressed form has its weak ETag.
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
            // The content is the same, but not the bytes (RFC 9110, 8.8.1).
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

/// Whether the body of a response is complete and worth compressing. 2xx are, except 204 and 205, which have no body,
/// 206, a range, and 226, a difference. 4xx and 5xx are, because the errors of many APIs are long. The bodies of
/// redirects are rarely read. For a 304 only the head changes.
fn has_whole_body(status: u16) -> bool {
    matches!(status, 200..=299 | 304 | 400..=599) && !matches!(status, 204..=206 | 226)
}

/// Whether a header line applies only to the uncompressed bytes: their length, their ranges, and an ETag that is not weak
/// (which is rewritten, unless it is malformed).
fn is_of_the_bytes(line: &Line, buf: &[u8]) -> bool {
    match line.known {
        // The coding was `identity`.
        Known::ContentLength | Known::ContentEncoding => true,
        Known::Other => {
            let name = line.name.of(buf);
            is(name, "accept-ranges") || is(name, "etag") && !line.value.of(buf).starts_with(b"W/")
        }
        _ => false,
    }
}

/// Whether a header is a digest of the bytes of the body (RFC 9530; RFC 3230; RFC 1864).
fn is_digest(name: &[u8]) -> bool {
    ["content-digest", "repr-digest", "digest", "content-md5"].into_iter().any(|other| is(name, other))
}

fn is_identity(coding: &[u8]) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

/// Whether a media type belongs to gRPC ("gRPC over HTTP/2", Content-Type).
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
