//! Limits of bodies.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::Size;

/// Size limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct BodyLimits {
    /// The largest request body, in bytes, such as 1Mi. k, M and G are powers of 1000; Ki, Mi and Gi are powers of
    /// 1024. The gateway responds with 413 to longer bodies. 0: no limit. Default: the global --max-request-body (0).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub request_body: Option<Size>,
    /// The largest response body, in bytes as the endpoint sends it, such as 100Mi. If the response head declares a
    /// longer body, the gateway responds with 502. If the head declares no length, the gateway aborts the response at
    /// the limit. 0: no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub response_body: Option<Size>,
    /// The size up to which the gateway keeps request bodies for another attempt (`client-body-buffer-size` of ingress-nginx), if
    /// that is more than the global --replay-buffer.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(41)]
    pub replay: Option<Size>,
    /// The largest head of a response, in bytes (`proxy-buffer-size` of ingress-nginx). The gateway responds with 502 to longer
    /// heads.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub response_head: Option<Size<1, { 1 << 30 }>>,
}

impl BodyLimits {
    /// The largest response body in bytes, if there is a limit.
    #[must_use]
    pub fn largest_response(&self) -> Option<u64> {
        self.response_body.map(Size::get).filter(|most| *most > 0)
    }
}
