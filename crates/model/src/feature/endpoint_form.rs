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
    /// Whether the endpoint receives the `X-Request-ID` of a client that is not trusted. The gateway writes the header only if the
    /// client sends none.
    #[cbor(n(2), default, skip_if = "crate::feature::is_default")]
    pub keeps_request_id: bool,
}

impl EndpointForm {
    /// Whether the endpoint closes the connection after the response.
    #[must_use]
    pub fn closes(&self) -> bool {
        let options = self.connection.as_deref().unwrap_or_default().split(',');
        self.is_http10 || options.into_iter().any(|option| option.trim().eq_ignore_ascii_case("close"))
    }
}
