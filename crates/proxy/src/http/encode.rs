//! Forwarded heads: lines that stay are copied in runs, without looking at each line.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use sluicegate_http1::{
    Known, Line, RequestFraming, RequestHead, ResponseFraming, ResponseHead, Version, canonical_length,
};

use sluicegate_model::feature::EndpointForm;
use sluicegate_model::feature::endpoint_form::NginxForwarding;
use sluicegate_model::tls::Hsts;

use super::connection::Origin;
use crate::date::HttpDate;
use crate::feature::template_headers::TemplateHeaderEdit;
use crate::name::is_same_name;
use crate::request::{HeadView, nginx_port};
use crate::stream::header_fields;

/// The changes to the request for the endpoint.
pub(crate) struct RequestPlan<'p> {
    /// The path in normal form.
    pub(crate) path: &'p [u8],
    /// The query, without its `?`.
    pub(crate) query: Option<&'p [u8]>,
    /// The host for the endpoint, if it differs from the client's host.
    pub(crate) host: Option<&'p str>,
    /// Header lines that policies add.
    pub(crate) lines: &'p [u8],
    /// Headers that replace those of the gateway.
    pub(crate) headers: Option<&'p TemplateHeaderEdit>,
    /// Set if the peer's forwarding headers are trusted: the client IP.
    pub(crate) trusted: Option<IpAddr>,
    /// Whether headers with an underscore in their name are forwarded.
    pub(crate) underscores: bool,
    /// For `X-Request-ID`, if the client's own ID is missing or not trusted.
    pub(crate) request_id: u128,
    /// The protocols of the request's Upgrade header.
    pub(crate) upgrade: Option<&'p [u8]>,
    /// The form of the request.
    pub(crate) form: Option<&'p EndpointForm>,
}

/// Writes the request's head for the endpoint. Returns the number of headers that were dropped because of their names.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &RequestHead,
    origin: &Origin,
    plan: &RequestPlan<'_>,
) -> u64 {
    out.extend_from_slice(head.method_name.of(buf));
    out.push(b' ');
    out.extend_from_slice(plan.path);
    if let Some(query) = plan.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    let form = plan.form.filter(|_| plan.upgrade.is_none());
    let is_http10 = head.framing != RequestFraming::Chunked && form.is_some_and(|form| form.is_http10);
    out.extend_from_slice(if is_http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    let local;
    let authority = match head.authority {
        Some(authority) => authority.of(buf),
        // An HTTP/1.0 request may lack a host, an HTTP/1.1 request may not (RFC 9112, 3.2).
        None => {
            local = origin.local.to_string();
            local.as_bytes()
        }
    };
    let nginx = plan.form.and_then(|form| form.nginx);
    let public = HeadView { head, buf }.public_host().filter(|_| plan.trusted.is_some() && nginx.is_some());
    let public = public.unwrap_or(authority);
    write_line(out, b"Host", plan.host.map_or(public, str::as_bytes));
    let mut dropped = 0;
    copy_lines(out, buf, &head.lines, |line| {
        let stays = match line.known {
            Known::Host | Known::Expect | Known::XForwardedFor => false,
            // The forwarded framing decides about this header.
            Known::ContentLength => matches!(head.framing, RequestFraming::Length(_)),
            Known::Other => {
                let name = line.name.of(buf);
                let may_pass = plan.trusted.is_some() || nginx.is_some();
                let harmless = may_forward_header(name, may_pass, plan.underscores)
                    && (nginx.is_none() || is_name_for_nginx(name));
                dropped += u64::from(!harmless);
                harmless
            }
            known => keeps_forwarding(known, plan.trusted.is_some(), nginx),
        };
        stays && !line.hop_by_hop
    });
    let start = out.len();
    write_forwarding(out, (buf, head), origin, (plan.trusted, nginx), public);
    if !(keeps_forwarding(Known::XRequestId, plan.trusted.is_some(), nginx)
        && has(&head.lines, Known::XRequestId))
    {
        write_line(out, b"X-Request-ID", &request_id(plan.request_id));
    }
    if let Some(headers) = plan.headers {
        headers.drop_replaced(out, start);
    }
    out.extend_from_slice(&origin.identity);
    out.extend_from_slice(plan.lines);
    if head.framing == RequestFraming::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if let Some(form) = form {
        write_connection(out, form);
    }
    if let Some(protocols) = plan.upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
        write_line(out, b"Upgrade", protocols);
    }
    out.extend_from_slice(b"\r\n");
    dropped
}

/// Writes the `Connection` header of a request.
fn write_connection(out: &mut Vec<u8>, form: &EndpointForm) {
    match &form.connection {
        Some(options) => write_line(out, b"Connection", options.as_bytes()),
        None if form.closes() => out.extend_from_slice(b"Connection: close\r\n"),
        None => {}
    }
}

/// Whether the endpoint receives a header of the client that has a name of its own, apart from hop-by-hop headers.
pub(super) fn keeps_forwarding(known: Known, trusted: bool, nginx: Option<NginxForwarding>) -> bool {
    match nginx {
        None => trusted || !is_forwarding(known),
        // The gateway writes the other headers itself.
        Some(_) => {
            let passes = matches!(known, Known::Forwarded | Known::XForwardedPrefix | Known::XRequestId);
            passes || !is_forwarding(known)
        }
    }
}

/// Writes the forwarding headers, except for those of the client that stay. `trusted` is the client IP, if the peer is trusted;
/// `host` is the host that the client asked for.
pub(super) fn write_forwarding(
    out: &mut Vec<u8>,
    (buf, head): (&[u8], &RequestHead),
    origin: &Origin,
    (trusted, nginx): (Option<IpAddr>, Option<NginxForwarding>),
    host: &[u8],
) {
    match (trusted, nginx) {
        (None, None) => out.extend_from_slice(&origin.forwarding),
        (Some(original), None) => write_trusted_forwarding(out, buf, head, origin, original),
        (trusted, Some(nginx)) => write_nginx_forwarding(out, (buf, head), origin, trusted, nginx),
    }
    if !(trusted.is_some() && nginx.is_none() && has(&head.lines, Known::XForwardedHost)) {
        write_line(out, b"X-Forwarded-Host", host);
    }
    if nginx.is_some() && has(&head.lines, Known::XForwardedFor) {
        write_forwarded_for(out, "X-Original-Forwarded-For", buf, head);
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a header with the addresses of the client's `X-Forwarded-For`, without the end of the line.
fn write_forwarded_for(out: &mut Vec<u8>, name: &str, buf: &[u8], head: &RequestHead) {
    out.extend_from_slice(name.as_bytes());
    let mut between: &[u8] = b": ";
    for line in head.lines.iter().filter(|line| line.known == Known::XForwardedFor) {
        out.extend_from_slice(between);
        out.extend_from_slice(line.value.of(buf));
        between = b", ";
    }
}

/// Whether nginx does not ignore a header of this name (`ignore_invalid_headers`).
fn is_name_for_nginx(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Writes the forwarding headers of a request as ingress-nginx does: with one client IP, one scheme and one port. The headers of
/// the client count only if `trusted`, the client IP according to a trusted proxy, is known.
fn write_nginx_forwarding(
    out: &mut Vec<u8>,
    (buf, head): (&[u8], &RequestHead),
    origin: &Origin,
    trusted: Option<IpAddr>,
    NginxForwarding { is_full }: NginxForwarding,
) {
    let (peer, told) = (origin.peer, |known| head.header(buf, known).filter(|_| trusted.is_some()));
    let original = trusted.unwrap_or(peer);
    if is_full && trusted.is_some() && has(&head.lines, Known::XForwardedFor) {
        write_forwarded_for(out, "X-Forwarded-For", buf, head);
        let _ = write!(out, ", {peer}\r\n");
    } else {
        write_display(out, "X-Forwarded-For", if is_full { peer } else { original });
    }
    write_display(out, "X-Real-IP", original);
    match told(Known::XForwardedPort) {
        Some(port) => write_line(out, b"X-Forwarded-Port", port),
        None => write_display(out, "X-Forwarded-Port", nginx_port(origin.is_tls)),
    }
    let scheme = told(Known::XForwardedProto).unwrap_or_else(|| origin.scheme().as_bytes());
    for name in [&b"X-Forwarded-Proto"[..], b"X-Forwarded-Scheme", b"X-Scheme"] {
        write_line(out, name, scheme);
    }
}

/// Completes the forwarding headers of a trusted proxy.
fn write_trusted_forwarding(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &RequestHead,
    origin: &Origin,
    original: IpAddr,
) {
    let peer = origin.peer;
    write_forwarded_for(out, "X-Forwarded-For", buf, head);
    let between = if has(&head.lines, Known::XForwardedFor) { ", " } else { ": " };
    // Writing to a Vec does not fail.
    let _ = write!(out, "{between}{peer}\r\n");
    if !has(&head.lines, Known::XRealIp) {
        write_display(out, "X-Real-IP", original);
    }
    if !has(&head.lines, Known::XForwardedPort) {
        write_display(out, "X-Forwarded-Port", origin.listener.port());
    }
    for (known, name) in [
        (Known::XForwardedProto, "X-Forwarded-Proto"),
        (Known::XForwardedScheme, "X-Forwarded-Scheme"),
        (Known::XScheme, "X-Scheme"),
    ] {
        if !has(&head.lines, known) {
            write_display(out, name, origin.scheme());
        }
    }
}

/// The client IP according to trusted proxies: the last entry of `X-Forwarded-For` that is not itself trusted. If there is
/// none, the error is the address of the peer that should have sent it.
pub(crate) fn original_peer(
    buf: &[u8],
    head: &RequestHead,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Result<IpAddr, IpAddr> {
    let entries = head
        .lines
        .iter()
        .rev()
        .filter(|line| line.known == Known::XForwardedFor)
        .flat_map(|line| line.value.of(buf).rsplit(|byte| *byte == b','));
    let mut original = peer;
    for entry in entries {
        let entry = entry.trim_ascii();
        // List elements may be empty (RFC 9110, 5.6.1.2).
        if entry.is_empty() {
            continue;
        }
        let address = std::str::from_utf8(entry).ok().and_then(address).ok_or(original)?;
        let address = IpAddr::to_canonical(&address);
        original = address;
        if !is_trusted(address) {
            break;
        }
    }
    Ok(original)
}

/// An address. Some load balancers append the port.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(with_port).or_else(bracketed)
}

/// The changes to the response for the client.
pub(super) struct ResponsePlan<'p> {
    /// The HTTP version of the client.
    pub(super) version: Version,
    /// Whether the connection closes after the response.
    pub(super) close: bool,
    /// For `Strict-Transport-Security`.
    pub(super) hsts: Option<Hsts>,
    /// The value of `Alt-Svc`.
    pub(super) alt_svc: Option<&'p [u8]>,
    /// Whether the client receives the body in the chunked coding.
    pub(super) chunked: bool,
    /// Header lines that compression adds.
    pub(super) lines: &'p [u8],
    /// Header lines that policies add.
    pub(super) policy_lines: &'p [u8],
}

/// Writes the response's head for the client.
pub(super) fn write_response(
    out: &mut Vec<u8>,
    buf: &[u8],
    head: &ResponseHead,
    date: impl FnOnce() -> HttpDate,
    plan: &ResponsePlan<'_>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_status(out, head.status);
    out.push(b' ');
    out.extend_from_slice(head.reason.of(buf));
    out.extend_from_slice(b"\r\n");
    copy_lines(out, buf, &head.lines, |line| !line.hop_by_hop);
    if head.status >= 200 && !has(&head.lines, Known::Date) {
        write_line(out, b"Date", &date());
    }
    if let Some(hsts) = plan.hsts
        && !has(&head.lines, Known::StrictTransportSecurity)
    {
        // Writing to a Vec does not fail.
        let _ = write!(out, "Strict-Transport-Security: {hsts}\r\n");
    }
    if let Some(alt_svc) = plan.alt_svc {
        write_line(out, b"Alt-Svc", alt_svc);
    }
    out.extend_from_slice(plan.lines);
    out.extend_from_slice(plan.policy_lines);
    if plan.chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if head.status == 101 {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
        if let Some(protocols) = head.protocols {
            write_line(out, b"Upgrade", protocols.of(buf));
        }
    } else if plan.close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if plan.version == Version::Http10 && head.status >= 200 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The head of a response for a client of HTTP/2 or HTTP/3. A 101 becomes a 200 (RFC 8441, 5; RFC 9220, 3).
pub(super) fn stream_response(
    buf: &[u8],
    head: &ResponseHead,
    date: impl FnOnce() -> HttpDate,
    plan: &ResponsePlan<'_>,
) -> Response<()> {
    let mut response = Response::new(());
    let status = if head.status == 101 { 200 } else { head.status };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let fields = response.headers_mut();
    fields.reserve(head.lines.len() + 2);
    for line in head.lines.iter().filter(|line| !line.hop_by_hop) {
        let name = HeaderName::from_bytes(line.name.of(buf));
        let value = line.value.of(buf);
        let is_length = line.known == Known::ContentLength;
        let value = HeaderValue::from_bytes(if is_length { canonical_length(value) } else { value });
        // A line that is no valid field of HTTP/2 or HTTP/3 cannot be forwarded.
        if let (Ok(name), Ok(value)) = (name, value)
            && !(head.status == 101 && name == header::SEC_WEBSOCKET_ACCEPT)
        {
            fields.append(name, value);
        }
    }
    if status >= 200
        && !has(&head.lines, Known::Date)
        && let Ok(date) = HeaderValue::from_bytes(&date())
    {
        fields.insert(header::DATE, date);
    }
    if let Some(hsts) = plan.hsts
        && !has(&head.lines, Known::StrictTransportSecurity)
        && let Ok(hsts) = HeaderValue::try_from(hsts.to_string())
    {
        fields.insert(header::STRICT_TRANSPORT_SECURITY, hsts);
    }
    if let Some(alt_svc) = plan.alt_svc.and_then(|value| HeaderValue::from_bytes(value).ok()) {
        fields.append(header::ALT_SVC, alt_svc);
    }
    for lines in [plan.lines, plan.policy_lines] {
        if !lines.is_empty() {
            append_lines(fields, lines);
        }
    }
    response
}

/// Adds header lines to the fields of a response.
pub(super) fn append_lines(fields: &mut HeaderMap, lines: &[u8]) {
    for (name, value) in &header_fields(lines) {
        fields.append(name, value.clone());
    }
}

/// Whether the client receives the body in the chunked coding: if its length is unknown and the client supports chunks.
pub(super) fn needs_chunks(head: &ResponseHead, client: Version) -> bool {
    let unknown_length = matches!(head.framing, ResponseFraming::Chunked | ResponseFraming::UntilClose);
    unknown_length && client == Version::Http11
}

pub(super) fn is_forwarding(known: Known) -> bool {
    matches!(
        known,
        Known::Forwarded
            | Known::XForwardedFor
            | Known::XForwardedHost
            | Known::XForwardedPort
            | Known::XForwardedPrefix
            | Known::XForwardedProto
            | Known::XForwardedScheme
            | Known::XOriginalForwardedFor
            | Known::XRealIp
            | Known::XRequestId
            | Known::XScheme
    )
}

/// Whether the gateway forwards a header that it has no name for. It drops `Proxy`, which CGI passes to programs as
/// `HTTP_PROXY` (CVE-2016-5385), and `X-Forwarded-*` from untrusted peers. It drops headers for the consumer, and for the
/// client's certificate, which trusted proxies forward from untrusted clients. It drops names that CGI and similar
/// interfaces (RFC 3875, 4.1.18) confuse with a header that the gateway sets, such as `X_Forwarded_For`.
pub(super) fn may_forward_header(name: &[u8], trusted: bool, underscores: bool) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| is_same_name(start, with));
    // If underscores are allowed, they are allowed in names that the gateway does not know.
    let is_double = || {
        let folded: Vec<u8> = name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
        Known::of(&folded) != Known::Other
    };
    let is_reserved = match name.first().map(u8::to_ascii_lowercase) {
        Some(b'x') => begins(b"x-consumer-") || !trusted && begins(b"x-forwarded-"),
        Some(b's') => begins(b"ssl-client-"),
        _ => false,
    };
    !is_reserved
        && (!name.contains(&b'_') || underscores && !is_double())
        && !name.eq_ignore_ascii_case(b"proxy")
}

pub(super) fn has(lines: &[Line], known: Known) -> bool {
    lines.iter().any(|line| line.known == known)
}

/// The length of the end of a line.
const CRLF: u32 = 2;

/// Copies the lines that stay, in runs. Rewrites a Content-Length with leading zeros, and a value with spaces at its end.
pub(super) fn copy_lines(
    out: &mut Vec<u8>,
    buf: &[u8],
    lines: &[Line],
    mut stays: impl FnMut(&Line) -> bool,
) {
    let mut run: Option<(usize, usize)> = None;
    for line in lines {
        let stays = stays(line);
        let renewed = match line.known {
            Known::ContentLength if stays => renewed_length(line.value.of(buf)),
            // The value ends without the spaces around it (RFC 9110, 5.5).
            _ if stays && line.value.end + CRLF < line.end => Some(line.value.of(buf)),
            _ => None,
        };
        if stays && renewed.is_none() {
            let start = run.map_or(line.name.start as usize, |(start, _)| start);
            run = Some((start, line.end as usize));
        } else if let Some((start, end)) = run.take() {
            out.extend_from_slice(&buf[start..end]);
        }
        if let Some(value) = renewed {
            write_line(out, line.name.of(buf), value);
        }
    }
    if let Some((start, end)) = run {
        out.extend_from_slice(&buf[start..end]);
    }
}

/// The canonical form of a Content-Length; `None` if the value is canonical.
fn renewed_length(value: &[u8]) -> Option<&[u8]> {
    Some(canonical_length(value)).filter(|canonical| canonical.len() < value.len())
}

pub(super) fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// An ID of a request in 32 hexadecimal digits. The general formatting takes ten times as many instructions.
fn request_id(id: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id.to_be_bytes()) {
        pair.copy_from_slice(&[HEXADECIMAL[usize::from(byte >> 4)], HEXADECIMAL[usize::from(byte & 15)]]);
    }
    digits
}

pub(super) fn write_display(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a Vec does not fail.
    let _ = write!(out, "{name}: {value}\r\n");
}

fn write_status(out: &mut Vec<u8>, status: u16) {
    let digit = |value: u16| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status)]);
}
