//! The filter `ExternalAuth` of Gateway API: a Service that allows or denies requests.
//!
//! The `extAuth` of a SecurityPolicy has a URL and sends one kind of check. The filter names a Service, and its check is the
//! request itself (HTTP) or a message of Envoy's protocol `ext_authz` (gRPC).

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::UpstreamKey;
use crate::value::{Entries, HeaderName, RewritePath};

/// A Service that allows or denies requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct ExternalAuth {
    /// The upstream of the Service.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The protocol of the checks.
    #[n(1)]
    pub protocol: ExternalAuthProtocol,
    /// The client's headers that the Service receives, in lower case. With HTTP, the Service always receives `Authorization`
    /// too. With gRPC, an empty list means all headers.
    #[serde(skip_serializing_if = "crate::feature::is_default")]
    #[n(2)]
    pub request_headers: Entries<HeaderName, HEADERS_MAX>,
    /// The longest body in bytes that the Service receives. The gateway responds with 413 to requests with a longer body. 0:
    /// the Service receives no bodies.
    #[n(3)]
    pub body: u32,
}

/// The protocol of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub enum ExternalAuthProtocol {
    /// The Service receives the head of the request, and allows the request with 200.
    #[n(0)]
    Http {
        /// The path in front of the path of the request.
        #[n(0)]
        path: Option<RewritePath>,
        /// The headers of the Service's response that endpoints receive, in lower case. Empty: all headers.
        #[n(1)]
        response_headers: Entries<HeaderName, HEADERS_MAX>,
    },
    /// The Service implements `envoy.service.auth.v3.Authorization`.
    #[n(1)]
    Grpc,
}

/// The longest list of headers (Gateway API).
pub const HEADERS_MAX: usize = 64;

/// The timeout of a check, including the connect.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum of [`ExternalAuth::body`].
pub const BODY_MAX: u32 = 1024 * 1024;
