//! The heads of requests on streams of HTTP/2 and HTTP/3.
//!
//! The gateway writes the head as HTTP/1.1 and parses it again, so that one parser rejects ambiguous heads of every version.

use http::request::Parts;
use http::{HeaderValue, Method, header};
use sluicegate_http1::{HeadLimits, HeadScan, Rejection, RequestFraming, is_token};
use sluicegate_model::Settings;

use super::protocols::may_be_asked;
use super::wire::{has_space_around, write_line};
use crate::worker::Scratch;

/// Writes the head as HTTP/1.1, and parses it.
///
/// `protocol` is the protocol of an extended CONNECT. `is_early` says whether the request arrived before the end of the
/// handshake.
pub(super) fn read(
    parts: &Parts,
    protocol: Option<&str>,
    scratch: &mut Scratch,
    settings: &Settings,
    (is_bodiless, is_early): (bool, bool),
) -> Result<(), Rejection> {
    scratch.request.clear();
    write_head(parts, protocol, &mut scratch.request)?;
    if is_early {
        // RFC 8470, 5.1: before the blank line.
        scratch.request.truncate(scratch.request.len() - 2);
        scratch.request.extend_from_slice(b"early-data: 1\r\n\r\n");
    }
    scratch.input.append(&scratch.request);
    scratch.scan = HeadScan::default();
    let limits = HeadLimits { bytes: settings.limits.request_head, headers: settings.limits.headers };
    if !scratch.head.parse(scratch.input.filled(), &mut scratch.scan, &limits)? {
        return Err(Rejection::HeadTooLarge);
    }
    let head = &mut scratch.head;
    if protocol.is_some() {
        // The stream continues as a tunnel (RFC 8441, 5), which has no length. An endpoint that receives a length would
        // read the next request on its connection, of any client, as the body of this request.
        if head.framing != RequestFraming::None {
            return Err(Rejection::LengthOfTunnel);
        }
    } else if head.framing == RequestFraming::None && !is_bodiless {
        head.framing = RequestFraming::Chunked;
    }
    Ok(())
}

fn write_head(parts: &Parts, protocol: Option<&str>, out: &mut Vec<u8>) -> Result<(), Rejection> {
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match (&parts.method, parts.uri.path_and_query()) {
        (&Method::CONNECT, _) if protocol.is_none() => authority.unwrap_or_default(),
        (_, Some(path)) => path.as_str().as_bytes(),
        (_, None) => b"/",
    };
    // The gateway forwards WebSocket over HTTP/2 and HTTP/3 as WebSocket over HTTP/1.1 (RFC 8441, 5.1).
    let method = if protocol.is_some() { "GET" } else { parts.method.as_str() };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // RFC 9113, 8.3.1 and RFC 9114, 4.3.1: the gateway does not know the meaning of other schemes. If a request has only a Host, h2 does not
    // pass the scheme on.
    let is_http = |scheme: &str| ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if !parts.uri.scheme_str().is_none_or(is_http) {
        return Err(Rejection::InvalidScheme);
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Rejection::DuplicateHost);
    }
    host.map_or(Ok(()), check_value)?;
    let host = host.map(HeaderValue::as_bytes);
    match (authority, host) {
        // RFC 9113, 8.3.1 and RFC 9114, 4.3.1: if a request has both, they must be equal.
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(Rejection::HostMismatch);
        }
        (Some(named), _) | (None, Some(named)) => write_line(out, "host", named),
        (None, None) => return Err(Rejection::MissingHost),
    }
    if let Some(protocol) = protocol {
        // Unlike other pseudo-headers, `:protocol` arrives unchecked.
        let named = protocol.as_bytes();
        // Without the protocol, the request would become an ordinary request.
        if !is_token(named) || !may_be_asked(named) {
            return Err(Rejection::UnknownTunnel);
        }
        write_line(out, "connection", b"upgrade");
        write_line(out, "upgrade", named);
        write_line(out, "sec-websocket-key", websocket_key().as_bytes());
    }
    // RFC 9113, 8.2.3 and RFC 9114, 4.2.1: each cookie may have its own field.
    let mut cookies = parts.headers.get_all(header::COOKIE).iter().peekable();
    if cookies.peek().is_some() {
        out.extend_from_slice(b"cookie: ");
        for (nth, cookie) in cookies.enumerate() {
            check_value(cookie)?;
            out.extend_from_slice(if nth > 0 { b"; " } else { b"" });
            out.extend_from_slice(cookie.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in &parts.headers {
        if name != header::COOKIE && name != header::HOST {
            check_value(value)?;
            write_line(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn check_value(value: &HeaderValue) -> Result<(), Rejection> {
    if has_space_around(value) { Err(Rejection::SpaceAroundValue) } else { Ok(()) }
}

/// The key of an HTTP/1.1 WebSocket client (RFC 6455, 4.1): 16 random bytes.
fn websocket_key() -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes())
}
