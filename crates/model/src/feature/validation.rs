//! Validation of requests and responses of an API.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Number, Size};

/// The size of a validated body.
pub type ValidatedBytes = Size<1, { 16 << 20 }>;

/// Validation of requests and responses by the OpenAPI document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct Validation {
    /// Validation of requests: parameters, content type, JSON body and form. Disabled, Report or Enforce. Report forwards an invalid
    /// request, counts the request, and names it in the access log. Enforce responds with a problem document. Default: Disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub request: Option<ValidationMode>,
    /// Validation of responses: status, content type, headers and JSON body. Disabled, Report or Enforce. Enforce responds with 502 in place
    /// of an invalid response, and sends no part of a response before its end. Default: Disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub response: Option<ValidationMode>,
    /// The status of the response to a request that is invalid in Enforce. 400 to 499. Default: 400.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub status: Option<Number<u16, 400, 499>>,
    /// The number of bytes of the longest body that the gateway validates. Report does not validate a longer body. Enforce
    /// responds with 413 to a longer request, and with 502 in place of a longer response. 1 to 16Mi. Default: 1Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub body_limit: Option<ValidatedBytes>,
}

impl Validation {
    /// The fields of this validation, and for absent fields those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            request: self.request.or(other.request),
            response: self.response.or(other.response),
            status: self.status.or(other.status),
            body_limit: self.body_limit.or(other.body_limit),
        }
    }

    /// The mode for requests.
    #[must_use]
    pub fn request(&self) -> ValidationMode {
        self.request.unwrap_or_default()
    }

    /// The mode for responses.
    #[must_use]
    pub fn response(&self) -> ValidationMode {
        self.response.unwrap_or_default()
    }

    /// The status of the response to an invalid request.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.map_or(400, Number::get)
    }

    /// The longest validated body, in bytes.
    #[must_use]
    pub fn body_limit(&self) -> usize {
        self.body_limit.map_or(1 << 20, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX))
    }

    /// Whether nothing is validated.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.request() == ValidationMode::Disabled && self.response() == ValidationMode::Disabled
    }
}

/// What the gateway does about invalid messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum ValidationMode {
    /// Nothing is validated.
    #[default]
    #[n(0)]
    Disabled,
    /// Invalid messages are counted and forwarded.
    #[n(1)]
    Report,
    /// Invalid messages are not forwarded.
    #[n(2)]
    Enforce,
}
