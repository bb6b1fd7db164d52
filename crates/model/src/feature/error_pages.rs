//! Error pages: responses of a Service in place of errors (ingress-nginx: `custom-http-errors`, `default-backend`).

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::UpstreamKey;
use crate::encoding::{Adapt as _, Maybe, Text};
use crate::value::{Entries, Number};

/// A status that can have an error page.
pub type PageCode = Number<u16, 300, 599>;

/// The Service with the error pages of a route. A TrafficPolicy has no such field: only annotations of ingress-nginx set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct ErrorPages {
    /// The Service.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The status codes whose responses the Service replaces.
    #[n(1)]
    pub codes: Entries<PageCode, 64>,
    /// Whether the Service also replaces responses of endpoints. Otherwise it only replaces the responses of the gateway itself.
    #[n(2)]
    pub replaces_endpoints: bool,
    /// Whether the Service receives the requests for an upstream without an endpoint.
    #[n(3)]
    pub serves_empty: bool,
    /// The port of the Service as the object writes it, for `X-Service-Port`. `None`: the port of the upstream.
    #[cbor(n(4), with = "Maybe::<Text>")]
    pub service_port: Option<Box<str>>,
}
