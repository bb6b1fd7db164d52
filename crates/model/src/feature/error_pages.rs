//! Error pages: responses of a Service in place of errors (ingress-nginx: `custom-http-errors`, `default-backend`).

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service_ref::{self, ServiceRef};
use crate::UpstreamKey;
use crate::encoding::{Adapt as _, Maybe, Text};
use crate::value::{Entries, Number};

/// A status that can have an error page.
pub type PageCode = Number<u16, 300, 599>;

/// The Service with the error pages of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct ErrorPages {
    /// The Service.
    #[serde(rename = "serviceRef", deserialize_with = "service_ref::deserialize")]
    #[schemars(with = "ServiceRef")]
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The response status codes with an error page. 300 to 599. 1 to 64 entries.
    #[n(1)]
    pub codes: Entries<PageCode, 64>,
    /// Whether error pages also replace responses of endpoints. With false, they replace only responses of the gateway itself.
    /// Default: true.
    #[serde(default = "super::yes")]
    #[n(2)]
    pub replaces_endpoints: bool,
    /// Whether the Service receives the requests for an upstream without an endpoint.
    #[serde(skip_deserializing, skip_serializing_if = "super::is_default")]
    #[schemars(skip)]
    #[n(3)]
    pub serves_empty: bool,
    /// The port of the Service as the object writes it, for `X-Service-Port`. `None`: the port of the upstream.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[cbor(n(4), with = "Maybe::<Text>")]
    pub service_port: Option<Box<str>>,
}
