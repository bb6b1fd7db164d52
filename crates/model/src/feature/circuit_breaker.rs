//! Circuit breakers: limits of requests in flight, and the ejection of endpoints.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Number, Percent, Timeout};

/// Limits of the requests in flight at a Service, counted over all workers of a data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreaker {
    /// The largest number of requests in flight at the Service, counted for each data plane. Further requests receive
    /// 503. 1 to 1000000. Default: the annotation of the Service, or no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<InFlight>,
    /// The largest number of requests in flight at one endpoint. The gateway skips a full endpoint, and responds with
    /// 503 if all endpoints are full. 1 to 1000000. Default: the annotation of the Service, or no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests_per_endpoint: Option<InFlight>,
    /// Ejects endpoints that return errors, while other endpoints are healthy. Default: no ejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejection: Option<Ejection>,
}

/// A limit of requests in flight.
pub type InFlight = Number<u32, 1, 1_000_000>;

/// The ejection of endpoints that return errors. If all endpoints are ejected, the gateway uses all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct Ejection {
    /// The number of consecutive failures and 5xx responses after which the gateway ejects an endpoint. Each worker
    /// counts separately. 1 to 1000. Default: 5.
    #[n(0)]
    pub consecutive_errors: Number<u16, 1, 1000>,
    /// The duration of the first ejection. The second ejection in a row lasts twice this time, the third three times,
    /// and so on, up to ten times. 1ms to 24h. Default: 30s.
    #[n(1)]
    pub time: Timeout,
    /// The largest percentage of the endpoints that may be ejected at once. 1 to 100. Default: 50.
    #[n(2)]
    pub max_percent: Percent,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            consecutive_errors: Number::of(5),
            time: Timeout::of_millis(30_000),
            max_percent: Percent::of(50),
        }
    }
}
