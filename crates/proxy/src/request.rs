//! Borrowed views of a request.

use std::net::IpAddr;

use http::uri::Authority;
use sluicegate_http1::{Known, RequestHead};

/// The head of a request, and the buffer that holds it.
#[derive(Clone, Copy)]
pub(crate) struct HeadView<'r> {
    pub(crate) head: &'r RequestHead,
    pub(crate) buf: &'r [u8],
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientView {
    pub(crate) peer: IpAddr,
    /// The client IP. The error is the address of a trusted peer that does not send the client IP.
    pub(crate) address: Result<IpAddr, IpAddr>,
    /// Whether the client's connection to this gateway uses TLS.
    pub(crate) is_tls: bool,
    /// Whether the peer's forwarding headers are trusted.
    pub(crate) is_trusted: bool,
    pub(crate) wire: WireVersion,
    /// Whether the client has a certificate that the policy for client certificates of its host or listener accepts.
    pub(crate) has_certificate: bool,
}

/// The version of HTTP of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireVersion {
    /// The head of the request says whether its version is 1.0 or 1.1.
    Http1,
    Http2,
    Http3,
}

/// A request, as features see it.
#[derive(Clone, Copy)]
pub(crate) struct RequestView<'r> {
    pub(crate) head: HeadView<'r>,
    pub(crate) client: ClientView,
    /// The path in normal form.
    pub(crate) path: &'r [u8],
}

impl<'r> HeadView<'r> {
    /// The value of a known header.
    pub(crate) fn header(self, known: Known) -> Option<&'r [u8]> {
        self.head.header(self.buf, known)
    }

    /// The requested host, with its port if it has one; empty if there is none.
    pub(crate) fn authority(self) -> &'r [u8] {
        self.head.authority.map_or(&[], |authority| authority.of(self.buf))
    }

    /// The host that the client asked a proxy for: the first one of `X-Forwarded-Host`, if it is valid.
    pub(crate) fn public_host(self) -> Option<&'r [u8]> {
        let hosts = self.header(Known::XForwardedHost)?;
        let first = hosts.split(|byte| *byte == b',').next()?.trim_ascii();
        std::str::from_utf8(first).ok()?.parse::<Authority>().ok()?;
        Some(first)
    }

    pub(crate) fn query(self) -> Option<&'r [u8]> {
        self.head.query.map(|query| query.of(self.buf))
    }

    pub(crate) fn method_name(self) -> &'r [u8] {
        self.head.method_name.of(self.buf)
    }

    pub(crate) fn target(self) -> &'r [u8] {
        self.head.target.of(self.buf)
    }
}

impl ClientView {
    /// The client IP, or the address of a trusted peer that does not send the client IP.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.unwrap_or_else(|last| last)
    }

    /// Whether the client uses HTTPS, here or according to a trusted peer.
    pub(crate) fn is_https(&self, head: HeadView<'_>) -> bool {
        is_https(self.is_tls, self.is_trusted, head)
    }
}

impl RequestView<'_> {
    /// Writes the scheme and the host, as the client states them.
    pub(crate) fn write_origin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme());
        out.extend_from_slice(b"://");
        out.extend_from_slice(self.head.authority());
    }

    /// The scheme of the client's request.
    pub(crate) fn scheme(&self) -> &'static [u8] {
        if self.is_https() { b"https" } else { b"http" }
    }

    /// Whether the client uses HTTPS, here or according to a trusted peer.
    pub(crate) fn is_https(&self) -> bool {
        self.client.is_https(self.head)
    }
}

/// The port at which ingress-nginx receives a connection: its pod has the same ports as its Service.
pub(crate) fn nginx_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// Whether a client uses HTTPS, here or according to a trusted peer.
pub(crate) fn is_https(is_tls: bool, is_trusted: bool, head: HeadView<'_>) -> bool {
    is_tls || is_trusted && came_over_https(head)
}

/// Whether a peer reports that it received the request over HTTPS.
fn came_over_https(head: HeadView<'_>) -> bool {
    let said = head.header(Known::XForwardedProto).or_else(|| head.header(Known::XForwardedScheme));
    said.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
}
