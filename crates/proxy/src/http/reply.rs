//! The gateway's own responses.

use std::io::{self, Write as _};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::encode::{append_lines, write_line};
use super::wire::Wire;
use crate::date::HttpDate;

/// The default content type of a body.
const TEXT: &[u8] = b"text/plain";

/// A body in place of a line of text with the status.
#[derive(Clone, Copy)]
pub(super) struct Content<'r> {
    pub(super) body: &'r [u8],
    pub(super) media_type: Option<&'r [u8]>,
}

/// The methods of `Allow`.
const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Writes a whole response: the given body, or a line of text with the status, unless the status allows no body. `lines`
/// are header lines that policies add. `with_body` is false for HEAD.
pub(super) fn write(
    out: &mut Vec<u8>,
    (status, content): (u16, Option<Content<'_>>),
    date: &HttpDate,
    lines: &[u8],
    close: bool,
    with_body: bool,
) {
    let reason = reason(status);
    let line;
    let (body, media_type) = match content {
        // A response to HEAD has the media type of the body that it lacks.
        Some(content) => (content.body, content.media_type.or((!content.body.is_empty()).then_some(TEXT))),
        None => {
            line = format!("{status} {reason}\n");
            (line.as_bytes(), Some(TEXT))
        }
    };
    // Writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {status} {reason}\r\nDate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
    let has_body = !matches!(status, 204 | 304);
    if has_body {
        if let Some(media_type) = media_type {
            write_line(out, b"Content-Type", media_type);
        }
        let _ = write!(out, "Content-Length: {}\r\n", body.len());
    }
    out.extend_from_slice(lines);
    let is_allow = |line: &[u8]| line.get(..6).is_some_and(|name| name.eq_ignore_ascii_case(b"allow:"));
    if status == 405 && !lines.split(|byte| *byte == b'\n').any(is_allow) {
        let _ = write!(out, "Allow: {ALLOWED}\r\n");
    }
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    if with_body && has_body {
        out.extend_from_slice(body);
    }
}

/// A response on a stream of HTTP/2 or HTTP/3.
pub(super) struct Reply<'r> {
    pub(super) status: u16,
    pub(super) has_body: bool,
    /// The body, in place of a line with the status.
    pub(super) content: Option<Content<'r>>,
    /// The target of a redirect.
    pub(super) location: Option<&'r [u8]>,
    /// The client expects gRPC.
    pub(super) grpc: Option<Grpc>,
    /// Header lines that policies add.
    pub(super) lines: &'r [u8],
}

/// The known facts about a failed gRPC call.
#[derive(Clone, Copy)]
pub(super) struct Grpc {
    /// Whether the client's deadline is over.
    pub(super) is_late: bool,
    /// Whether the rule names a valid backend.
    pub(super) has_backend: bool,
}

impl Reply<'_> {
    /// Sends the whole response. Returns the size of its body.
    pub(super) fn send(&self, stream: &mut Wire, date: &HttpDate) -> io::Result<usize> {
        let Self { status, has_body, content, location, grpc, lines } = *self;
        if let Some(call) = grpc.filter(|_| has_body) {
            let mut failure = grpc_failure(status, call, date);
            append_lines(failure.headers_mut(), &without_call_headers(lines));
            stream.respond(failure, true)?;
            return Ok(0);
        }
        let body = match content {
            Some(content) => content.body.to_vec(),
            None if status >= 400 => format!("{status} {}\n", reason(status)).into_bytes(),
            None => Vec::new(),
        };
        let mut response = Response::builder().status(status);
        if let Some(location) = location {
            response = response.header(header::LOCATION, location);
        }
        let media_type = content.and_then(|content| content.media_type);
        if let Some(media_type) = media_type.or((!body.is_empty()).then_some(TEXT)) {
            response = response.header(header::CONTENT_TYPE, media_type);
        }
        if content.is_none() && matches!(status, 200 | 405) {
            response = response.header(header::ALLOW, ALLOWED);
        }
        if !matches!(status, 204 | 304) {
            response = response.header(header::CONTENT_LENGTH, body.len());
        }
        let response = response.header(header::DATE, &date[..]);
        let mut response = response.body(()).map_err(io::Error::other)?;
        append_lines(response.headers_mut(), lines);
        let has_body = has_body && !body.is_empty();
        stream.respond(response, !has_body)?;
        if !has_body {
            return Ok(0);
        }
        let length = body.len();
        stream.give(Bytes::from(body))?;
        Ok(length)
    }
}

/// Header lines that leave the status of a call and the form of its body alone: an authorization service may have sent its
/// own.
fn without_call_headers(lines: &[u8]) -> Vec<u8> {
    let is_kept = |line: &&[u8]| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().to_ascii_lowercase();
        !name.starts_with(b"grpc-")
            && !matches!(&*name, b"content-type" | b"content-length" | b"content-encoding")
    };
    lines.split_inclusive(|byte| *byte == b'\n').filter(is_kept).flatten().copied().collect()
}

/// A failure in the form of gRPC: a response with only trailers (gRPC over HTTP/2, "Responses"). Its code is the code
/// that clients would derive from the status ("HTTP to gRPC Status Code Mapping"). For a call without a valid backend the
/// code is UNAVAILABLE (Gateway API, `GRPCRouteRule.backendRefs`).
fn grpc_failure(status: u16, call: Grpc, date: &HttpDate) -> Response<()> {
    let code = match status {
        _ if call.is_late => 4,
        _ if !call.has_backend => 14,
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        408 | 429 | 502 | 503 | 504 => 14,
        _ => 2,
    };
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    headers.insert("grpc-message", HeaderValue::from_static(reason(status)));
    if let Ok(date) = HeaderValue::from_bytes(date) {
        headers.insert(header::DATE, date);
    }
    response
}

/// Writes the response to `OPTIONS *`, which asks about the server itself (RFC 9110, 9.3.7).
pub(super) fn write_options(out: &mut Vec<u8>, date: &HttpDate, close: bool) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nDate: ");
    out.extend_from_slice(date);
    // Writing to a Vec does not fail.
    let _ = write!(out, "\r\nAllow: {ALLOWED}\r\nContent-Length: 0\r\n");
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// Writes the response to a plain HTTP request where TLS was expected.
pub(super) fn write_clear_text(out: &mut Vec<u8>, date: &HttpDate) {
    const TEXT: &str = "400 Bad Request: this port speaks HTTPS, and the request came in plain HTTP\n";
    out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\nDate: ");
    out.extend_from_slice(date);
    let length = TEXT.len();
    // Writing to a Vec does not fail.
    let _ = write!(
        out,
        "\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{TEXT}"
    );
}

/// Writes a redirect with a status and a location. `lines` are header lines that policies add.
pub(super) fn write_redirect(
    out: &mut Vec<u8>,
    (status, location): (u16, &[u8]),
    date: &HttpDate,
    lines: &[u8],
    close: bool,
) {
    // Writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {status} {}\r\nDate: ", reason(status));
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\nLocation: ");
    out.extend_from_slice(location);
    out.extend_from_slice(b"\r\nContent-Length: 0\r\n");
    out.extend_from_slice(lines);
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// The reason phrases of the gateway's own responses (RFC 9110, 15; RFC 6585).
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        204 => "No Content",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        421 => "Misdirected Request",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        status => {
            StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error")
        }
    }
}
