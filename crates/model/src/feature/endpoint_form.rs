//! The form of requests to endpoints with HTTP/1 (ingress-nginx: `proxy-http-version`, `connection-proxy-header`).

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::value::HeaderValue;

/// The form of requests to endpoints with HTTP/1. A TrafficPolicy has no such field: only annotations of ingress-nginx set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct EndpointForm {
    /// Whether requests have the version HTTP/1.0, and a connection of their own. A request with a chunked body or an upgrade
    /// has HTTP/1.1, because HTTP/1.0 has neither.
    #[n(0)]
    pub is_http10: bool,
    /// The value of `Connection`, except for an upgrade. `None`: the gateway sends no such header.
    #[n(1)]
    pub connection: Option<HeaderValue>,
    /// Requests have the target and the forwarding headers that ingress-nginx sends.
    #[cbor(n(3), default, skip_if = "crate::feature::is_default")]
    pub nginx: Option<NginxForwarding>,
    /// Whether the gateway reads a body without a length as a whole, and then forwards it with its length
    /// (`proxy-request-buffering`). The gateway streams calls of gRPC, and bodies on routes that allow more than 1 MiB.
    #[cbor(n(4), default, skip_if = "crate::feature::is_default")]
    pub states_length: bool,
}

/// The target and the forwarding headers of a request, as ingress-nginx sends them:
///
/// - the target as the client wrote it, unless a rewrite changes the path;
/// - `X-Request-ID` of the client, if there is one;
/// - `X-Original-Forwarded-For`, the client's own `X-Forwarded-For`;
/// - behind a trusted proxy: one scheme, one host and one client IP in all headers, in place of the headers of the proxy;
/// - other headers of the client whose names have only letters, digits and `-`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct NginxForwarding {
    /// Whether `X-Forwarded-For` also has the addresses that a trusted proxy sends (`compute-full-forwarded-for`).
    #[n(0)]
    pub is_full: bool,
}

impl EndpointForm {
    /// Whether the endpoint closes the connection after the response.
    #[must_use]
    pub fn closes(&self) -> bool {
        let options = self.connection.as_deref().unwrap_or_default().split(',');
        self.is_http10 || options.into_iter().any(|option| option.trim().eq_ignore_ascii_case("close"))
    }
}
