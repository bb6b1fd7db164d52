//! The attributes of a span: OpenTelemetry's stable conventions for HTTP servers (Semantic Conventions 1.23 and later),
//! and gateway-specific attributes as `sluicegate.*`. The query is never included: it may hold secrets, and has little
//! use for others.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use sluicegate_http1::{Known, Method, Version};
use sluicegate_model::{ObjectId, UpstreamKey};

use super::super::RequestRecord;
use super::context::Trace;
use crate::protobuf::{bytes, fixed32, fixed64, integer, integer_attribute, parts, text_attribute, utf8};
use crate::request::WireVersion;
use crate::template::Place;

/// The length limits of the path and of other attributes, in bytes: people read spans, and the size of a span must be
/// bounded.
const PATH_MAX: usize = 1024;
const TEXT_MAX: usize = 256;
/// The `tracestate` is included completely (W3C Trace Context, 3.3.1.5) or not at all.
const STATE_MAX: usize = 512;

/// `Span.attributes` (opentelemetry/proto/trace/v1/trace.proto).
const ATTRIBUTES: u32 = 9;

/// A request that has ended.
pub(super) struct Span<'s> {
    pub(super) trace: &'s Trace,
    /// `tracestate`, if a caller began the trace.
    pub(super) state: Option<&'s [u8]>,
    pub(super) start: SystemTime,
    pub(super) duration: Duration,
    pub(super) method: Method,
    pub(super) method_name: &'s [u8],
    pub(super) is_https: bool,
    pub(super) host: &'s [u8],
    pub(super) path: &'s [u8],
    /// The name that the rule sets.
    pub(super) name: Option<Vec<u8>>,
    /// The path pattern of the route.
    pub(super) pattern: Option<&'s str>,
    pub(super) version: &'static str,
    pub(super) user_agent: Option<&'s [u8]>,
    pub(super) client: IpAddr,
    pub(super) peer: IpAddr,
    /// The status that the client received; 0 if none.
    pub(super) status: u16,
    /// Whether the response ended properly.
    pub(super) is_complete: bool,
    pub(super) reason: Option<&'static str>,
    pub(super) route: Option<&'s ObjectId>,
    pub(super) upstream: Option<&'s UpstreamKey>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) endpoint_duration: Option<Duration>,
    pub(super) attempts: u32,
    pub(super) consumer: Option<&'s ObjectId>,
    pub(super) policy: Option<&'s ObjectId>,
}

impl<'s> Span<'s> {
    pub(super) fn of(record: &RequestRecord<'s>, trace: &'s Trace) -> Self {
        let RequestRecord { head, client, .. } = record;
        Self {
            trace,
            state: head.header(Known::Tracestate).filter(|_| trace.parent.is_some()),
            start: record.started(),
            duration: record.duration,
            method: head.head.method,
            method_name: head.method_name(),
            is_https: client.is_https(*head),
            host: head.authority(),
            path: head.head.path.of(head.buf),
            name: record.span_name.as_ref().map(|(name, view)| {
                let mut rendered = Vec::new();
                // A name beyond the limit is cut.
                let _ = view.render(name, Place::Body, &mut rendered);
                rendered.truncate(PATH_MAX);
                rendered
            }),
            pattern: record.route.as_ref().and_then(|route| route.pattern),
            version: match (client.wire, head.head.version) {
                (WireVersion::Http3, _) => "3",
                (WireVersion::Http2, _) => "2",
                (WireVersion::Http1, Version::Http10) => "1.0",
                (WireVersion::Http1, Version::Http11) => "1.1",
            },
            user_agent: head.header(Known::UserAgent),
            client: client.ip(),
            peer: client.peer,
            status: record.status,
            is_complete: record.is_complete,
            reason: record.reason,
            route: record.route.as_ref().map(|route| route.id),
            upstream: record.upstream,
            endpoint: record.endpoint,
            endpoint_duration: record.endpoint_duration,
            attempts: record.attempts,
            consumer: record.consumer.map(|(id, _)| id),
            policy: record.policy,
        }
    }

    /// Writes the span as the message `Span`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        const SERVER: u64 = 2;
        const ERROR: u64 = 2;
        let Trace { trace, parent, span, flags } = *self.trace;
        bytes(out, 1, &trace.to_be_bytes());
        bytes(out, 2, &span.to_be_bytes());
        if let Some(state) = self.state.filter(|state| state.len() <= STATE_MAX) {
            bytes(out, 3, utf8(state).as_bytes());
        }
        if let Some(parent) = parent {
            bytes(out, 4, &parent.to_be_bytes());
        }
        let method = if self.method == Method::Other { "HTTP" } else { self.method_text() };
        match (&self.name, self.pattern) {
            (Some(name), _) => bytes(out, 5, utf8(name).as_bytes()),
            (None, Some(pattern)) => parts(out, 5, &[method, " ", cut(pattern, PATH_MAX)]),
            (None, None) => bytes(out, 5, method.as_bytes()),
        }
        integer(out, 6, SERVER);
        let start = self.start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        fixed64(out, 7, nanos(start));
        fixed64(out, 8, nanos(start + self.duration));
        self.write_http(out);
        self.write_gateway(out);
        // Errors of the gateway or of an endpoint. A response that ends early after its head is an error too, for any
        // cause.
        if self.status >= 500 || !self.is_complete && self.status > 0 {
            out.extend_from_slice(&[15 << 3 | 2, 2, 3 << 3, ERROR as u8]);
        }
        // The parent is always remote, and the flags say so (SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE,
        // SPAN_FLAGS_CONTEXT_IS_REMOTE).
        let remote = if parent.is_some() { 0x300 } else { 0x100 };
        fixed32(out, 16, u32::from(flags) | remote);
    }

    fn write_http(&self, out: &mut Vec<u8>) {
        put(out, "http.request.method", self.method_text().as_bytes());
        if self.method == Method::Other {
            put(out, "http.request.method_original", self.method_name);
        }
        put(out, "url.scheme", if self.is_https { b"https" } else { b"http" });
        text_attribute(out, ATTRIBUTES, "url.path", &self.path[..self.path.len().min(PATH_MAX)]);
        if let Some(pattern) = self.pattern {
            text_attribute(out, ATTRIBUTES, "http.route", cut(pattern, PATH_MAX).as_bytes());
        }
        let (host, port) = host_and_port(self.host);
        if !host.is_empty() {
            put(out, "server.address", host);
        }
        if let Some(port) = port {
            integer_attribute(out, ATTRIBUTES, "server.port", port.into());
        }
        show(out, "client.address", self.client);
        show(out, "network.peer.address", self.peer);
        put(out, "network.protocol.version", self.version.as_bytes());
        if let Some(agent) = self.user_agent {
            put(out, "user_agent.original", agent);
        }
        if self.status > 0 {
            integer_attribute(out, ATTRIBUTES, "http.response.status_code", self.status.into());
        }
        match self.reason {
            Some(reason) => put(out, "error.type", reason.as_bytes()),
            None if self.status >= 500 => show(out, "error.type", self.status),
            None if !self.is_complete => put(out, "error.type", b"aborted"),
            None => {}
        }
    }

    fn write_gateway(&self, out: &mut Vec<u8>) {
        if let Some(route) = self.route {
            show(out, "sluicegate.route", route);
        }
        if let Some(upstream) = self.upstream {
            show(out, "sluicegate.upstream", upstream);
            integer_attribute(out, ATTRIBUTES, "sluicegate.attempts", self.attempts.into());
        }
        if let Some(endpoint) = self.endpoint {
            show(out, "sluicegate.endpoint", endpoint);
        }
        if let Some(duration) = self.endpoint_duration {
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            integer_attribute(out, ATTRIBUTES, "sluicegate.endpoint_duration_us", micros);
        }
        if let Some(ObjectId { namespace, name, .. }) = self.consumer {
            show(out, "sluicegate.consumer", format_args!("{namespace}/{name}"));
        }
        if let Some(policy) = self.policy {
            show(out, "sluicegate.policy", policy);
        }
    }

    /// The method's name if it is a well-known name: other names are unlimited in number.
    fn method_text(&self) -> &'static str {
        self.method.name().unwrap_or("_OTHER")
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An attribute, cut to the length limit.
fn put(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    text_attribute(out, ATTRIBUTES, key, &value[..value.len().min(TEXT_MAX)]);
}

/// An attribute with the text of its `Display`.
fn show(out: &mut Vec<u8>, key: &str, value: impl Display) {
    let mut text = Text::default();
    // Text beyond the limit is cut.
    let _ = write!(text, "{value}");
    put(out, key, text.as_bytes());
}

/// A text buffer on the stack.
struct Text {
    bytes: [u8; TEXT_MAX],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; TEXT_MAX], length: 0 }
    }
}

impl Text {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl std::io::Write for Text {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        let written = (&mut self.bytes[self.length..]).write(from)?;
        self.length += written;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The first `most` bytes of a text, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The host that a client requests, and its port.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let host = crate::name::host_name(authority);
    let rest = &authority[host.len()..];
    let rest = rest.strip_prefix(b".").unwrap_or(rest);
    let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    let port = rest.strip_prefix(b":").and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
    (host, port)
}
