//! What Sluicegate answers itself.

use std::io::Write as _;

use crate::date::HttpDate;

/// Writes a whole response: a line of text that names the status. `with_body` is false for HEAD.
pub(super) fn write(out: &mut Vec<u8>, status: u16, date: &HttpDate, close: bool, with_body: bool) {
    let reason = reason(status);
    let length = 4 + reason.len() + 1;
    // Writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {status} {reason}\r\nDate: ");
    out.extend_from_slice(date);
    let _ = write!(out, "\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n");
    if status == 405 {
        out.extend_from_slice(b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
    }
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
    if with_body {
        let _ = writeln!(out, "{status} {reason}");
    }
}

/// Writes the answer to `OPTIONS *`, which asks about the server as such (RFC 9110, 9.3.7).
pub(super) fn write_options(out: &mut Vec<u8>, date: &HttpDate, close: bool) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nDate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(
        b"\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\nContent-Length: 0\r\n",
    );
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// Writes the answer to a request in plain HTTP where TLS was expected.
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

/// Writes a redirect, with the location in the target of the answer. `location` is its value.
pub(super) fn write_redirect(out: &mut Vec<u8>, location: &[u8], date: &HttpDate, close: bool) {
    out.extend_from_slice(b"HTTP/1.1 308 Permanent Redirect\r\nDate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\nLocation: ");
    out.extend_from_slice(location);
    out.extend_from_slice(b"\r\nContent-Length: 0\r\n");
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// The reason phrases of what Sluicegate answers itself (RFC 9110, 15; RFC 6585).
fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        421 => "Misdirected Request",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}
