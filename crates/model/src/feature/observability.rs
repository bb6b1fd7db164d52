//! The records of requests.

use minicbor::{Decode, Encode};
use serde::Serialize;

/// The records that the gateway does not make of the requests of a rule. Metrics count all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Unrecorded {
    /// Whether the access log leaves out the requests (ingress-nginx `enable-access-log: "false"`).
    #[n(0)]
    pub access_log: bool,
    /// Whether the requests have no spans, and endpoints receive no trace context (ingress-nginx `enable-opentelemetry: "false"`).
    #[n(1)]
    pub traces: bool,
}
