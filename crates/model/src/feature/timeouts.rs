//! Timeouts of a route.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::Timeout;

/// Timeouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct RouteTimeouts {
    /// The timeout from the head of a request to the end of its response, over all attempts. Before the response begins,
    /// the gateway then responds with 504. After that, the gateway cuts the response off. Does not limit upgraded
    /// connections. 1ms to 24h. Default: no timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub request: Option<Timeout>,
    /// The timeout of one attempt, from the first byte that the gateway sends to the end of the response. Before the
    /// response begins, the gateway then retries at another endpoint, or responds with 504 if a retry is not possible.
    /// After that, the gateway cuts the response off. 1ms to 24h. Default: no timeout per attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub backend_request: Option<Timeout>,
    /// The timeout of one connect to one endpoint. 1ms to 24h. Default: the global --connect-timeout (5s).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub connect: Option<Timeout>,
    /// The timeout from the end of a request to the head of its response. The gateway then responds with 504. 1ms to
    /// 24h. Default: the global --response-timeout (60s).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub response: Option<Timeout>,
    /// The timeout between two reads of a response body, and between two writes of a request body to an endpoint. 1ms
    /// to 24h. Default: the global --upstream-idle-timeout (60s).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub idle: Option<Timeout>,
    /// The timeout between two reads of a request body. The gateway then responds with 408. 1ms to 24h. Default: the
    /// global --request-body-timeout (60s).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub request_body: Option<Timeout>,
    /// The idle timeout of an upgraded connection, such as a WebSocket. 1ms to 24h. Default: the global
    /// --tunnel-idle-timeout (1h).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub tunnel: Option<Timeout>,
}
