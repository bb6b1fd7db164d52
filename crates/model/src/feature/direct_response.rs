//! Responses that the gateway generates without an endpoint.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::value::{MediaType, Number};

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct DirectResponse {
    /// The status code of the response. 200 to 599; with a body, not 204, 205 or 304.
    #[n(0)]
    pub status_code: Number<u16, 200, 599>,
    /// The media type of the body. Default: text/plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub content_type: Option<MediaType>,
    /// The body of the response. At most 16384 bytes. Default: empty.
    #[serde(default)]
    #[schemars(length(max = 16384))]
    #[n(2)]
    pub body: Box<str>,
}

impl DirectResponse {
    /// The longest body, in bytes.
    pub const BODY_MAX: usize = 16 * 1024;
}

impl Check for DirectResponse {
    fn check(&self, at: &mut Faults<'_>) {
        let length = self.body.len();
        if length > Self::BODY_MAX {
            at.error("body", format!("has {length} bytes, but may have at most {}", Self::BODY_MAX));
        }
        if matches!(self.status_code.get(), 204 | 205 | 304) && length > 0 {
            at.error("statusCode", format!("{} allows no body: remove body", self.status_code));
        }
    }
}
