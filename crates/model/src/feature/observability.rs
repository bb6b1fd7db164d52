//! The records of requests.

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::value::Template;

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

/// The spans of the requests of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Spans {
    /// Whether the gateway ignores the trace of the caller (ingress-nginx `opentelemetry-trust-incoming-span: "false"`). The
    /// gateway then samples the request as one without a trace, and endpoints never receive the trace of the caller.
    #[n(0)]
    pub ignores_callers: bool,
    /// The name of the spans (ingress-nginx `opentelemetry-operation-name`). Default: the method and the path of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub name: Option<Template>,
}
