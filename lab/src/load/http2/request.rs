//! The request as an HTTP/2 frame, written once; only its stream and its id change.

use anyhow::ensure;

use super::super::request::{BODY, ID_HEADER, Id, Method, Request};
use super::super::target::Target;
use super::frame::{self, END_HEADERS, END_STREAM, Kind};
use super::hpack;

/// An empty gRPC message, not compressed.
const EMPTY_MESSAGE: &[u8; 5] = &[0; 5];

/// Header fields of an HTTP/1 connection, which no HTTP/2 message has (RFC 9113, 8.2.2).
const OF_CONNECTIONS: [&str; 3] = ["connection", "keep-alive", "proxy-connection"];

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Plain(Method),
    /// A gRPC call with an empty message.
    Call,
}

/// A request with these additional header fields. Host replaces the URL's host. The request does not use the dynamic
/// HPACK table, so the same bytes are valid on every connection.
pub(crate) fn new(ask: Ask, target: &Target, headers: &[(String, String)]) -> anyhow::Result<Request> {
    let (method, body): (_, &'static [u8]) = match ask {
        Ask::Plain(Method::Get) => ("GET", b""),
        Ask::Plain(Method::Post) => ("POST", BODY),
        Ask::Call => ("POST", EMPTY_MESSAGE),
    };
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    let host = headers.iter().rfind(|(name, _)| is_host(name)).map_or(&target.authority, |(_, value)| value);
    let mut list = Vec::new();
    hpack::write_line(":method", method, &mut list);
    hpack::write_line(":scheme", if target.is_tls { "https" } else { "http" }, &mut list);
    hpack::write_line(":authority", host, &mut list);
    hpack::write_line(":path", &target.path, &mut list);
    for (name, value) in headers.iter().filter(|(name, _)| !is_host(name)) {
        let name = name.to_ascii_lowercase();
        ensure!(!OF_CONNECTIONS.contains(&name.as_str()), "-H {name}: there is no such header in HTTP/2");
        ensure!(name != "te" || value == "trailers", "-H te: in HTTP/2 it can only be \"trailers\"");
        hpack::write_line(&name, value, &mut list);
    }
    match ask {
        Ask::Plain(Method::Get) => {}
        Ask::Plain(Method::Post) => hpack::write_line("content-length", &body.len().to_string(), &mut list),
        Ask::Call => {
            hpack::write_line("content-type", "application/grpc", &mut list);
            hpack::write_line("te", "trailers", &mut list);
        }
    }
    let id = Id::new(0, 0);
    hpack::write_line(ID_HEADER, &String::from_utf8_lossy(id.as_bytes()), &mut list);
    ensure!(list.len() <= frame::MAX, "-H: all header lines together have more than {} bytes", frame::MAX);
    let mut bytes = Vec::new();
    let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    frame::write(Kind::Headers, flags, 0, &list, &mut bytes);
    let place = bytes.len() - id.as_bytes().len();
    Ok(Request::from_parts(bytes, place, body))
}
