//! The bandwidth of responses.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::Size;

/// A number of bytes in a second.
pub type BytesPerSecond = Size<1, { 1 << 40 }>;

/// The bandwidth of each response. Two responses to one client at once have this bandwidth each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Bandwidth {
    /// The number of bytes that the gateway sends in a second, such as 500k or 1Mi. k, M and G are powers of 1000; Ki,
    /// Mi and Gi are powers of 1024. 1 to 1024Gi.
    #[n(0)]
    pub per_second: BytesPerSecond,
    /// The number of bytes at the begin of a response that the gateway sends at any speed. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub after: Option<Size>,
}
