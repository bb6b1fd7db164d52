//! Retries of failed requests.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::span::HOUR;
use crate::value::{Entries, Number, Span, Timeout};

/// Retries of failed requests. The gateway retries a request with a method that is not idempotent (RFC 9110, 9.2.2),
/// such as POST, only if the gateway has sent no part of the request, or an HTTP/2 endpoint has refused the request
/// unprocessed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct Retries {
    /// The largest number of retries after the first attempt, as in Gateway API. Replaces the global --attempts,
    /// which includes the first attempt. 0 to 100. Default: 2.
    #[n(0)]
    pub attempts: Number<u8, 0, 100>,
    /// The response status codes after which the gateway retries an idempotent request. 400 to 599. 1 to 16 entries.
    /// Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub codes: Entries<Number<u16, 400, 599>, 16>,
    /// The budget of retries, so that retries do not overload a slow Service. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub budget: Option<RetryBudget>,
    /// The time that the gateway waits before a retry, as in Gateway API. The gateway does not wait if the connection
    /// was already closed, or if the endpoint refused the request unprocessed. 1ms to 1m. Default: no wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub backoff: Option<Span<1, 60_000>>,
    /// The conditions of ingress-nginx, in place of the conditions above.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub conditions: Option<RetryConditions>,
}

/// The conditions of retries after a failure (`proxy-next-upstream` of ingress-nginx).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct RetryConditions {
    /// The connection broke before the head of a response was complete.
    #[n(0)]
    pub error: bool,
    /// The endpoint did not respond, or did not read, in time.
    #[n(1)]
    pub timeout: bool,
    /// The head of the response is invalid.
    #[n(2)]
    pub invalid_head: bool,
    /// The gateway also retries requests whose method is not idempotent.
    #[n(3)]
    pub non_idempotent: bool,
    /// The time from the head of the request in which retries begin. `None`: no limit.
    #[n(4)]
    pub within: Option<Timeout>,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: Number::of(2),
            codes: Entries::default(),
            budget: None,
            backoff: None,
            conditions: None,
        }
    }
}

/// The share of the requests of the last 10 seconds that may be retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct RetryBudget {
    /// The retries per 100 requests of the last 10 seconds. 0 to 100. Default: 20.
    #[n(0)]
    pub percent: Number<u8, 0, 100>,
    /// The retries per second that the gateway always allows, even above percent. 0 to 1000. Default: 10.
    #[n(1)]
    pub min_per_second: Number<u16, 0, 1000>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { percent: Number::of(20), min_per_second: Number::of(10) }
    }
}

/// The limit on the retries at a Service, over all routes that lead there (Gateway API, `RetryConstraint`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct RetryConstraint {
    /// The retries per 100 requests of the last `interval`.
    #[n(0)]
    pub percent: Number<u8, 0, 100>,
    /// The time for which requests and retries count.
    #[n(1)]
    pub interval: Span<1000, HOUR>,
    /// The retries in each `min_interval` that are always allowed, even above `percent`.
    #[n(2)]
    pub min_retries: Number<u32, 0, 1_000_000>,
    /// The interval of `min_retries`.
    #[n(3)]
    pub min_interval: Span<1, HOUR>,
}

/// The defaults of Gateway API, which are those of [`RetryBudget`] too.
impl Default for RetryConstraint {
    fn default() -> Self {
        RetryBudget::default().into()
    }
}

impl From<RetryBudget> for RetryConstraint {
    fn from(RetryBudget { percent, min_per_second }: RetryBudget) -> Self {
        Self {
            percent,
            interval: Span::of_millis(10_000),
            min_retries: Number::of(min_per_second.get().into()),
            min_interval: Span::of_millis(1000),
        }
    }
}
