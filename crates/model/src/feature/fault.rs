//! Fault injection: deliberate faults, which show how clients handle faults.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::span::HOUR;
use crate::value::{Number, Percent, Span};

/// Faults for tests. A request can get both: the gateway delays it, and then aborts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct FaultInjection {
    /// Delays requests. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub delay: Option<Delay>,
    /// Responds with an error, without a request to an endpoint. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub abort: Option<Abort>,
}

/// A delay of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Delay {
    /// The percentage of the requests. 1 to 100. Default: 100.
    #[serde(default = "all")]
    #[n(0)]
    pub percent: Percent,
    /// The length of the delay. 1ms to 1h.
    #[n(1)]
    pub time: Span<1, HOUR>,
}

/// An error for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Abort {
    /// The percentage of the requests. 1 to 100. Default: 100.
    #[serde(default = "all")]
    #[n(0)]
    pub percent: Percent,
    /// The status code of the response. 400 to 599.
    #[n(1)]
    pub status_code: Number<u16, 400, 599>,
}

pub(super) fn all() -> Percent {
    Percent::of(100)
}
