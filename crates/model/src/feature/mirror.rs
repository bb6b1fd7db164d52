//! Mirrors: Services that receive copies of requests.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::service_ref::{self, ServiceRef};
use crate::UpstreamKey;
use crate::value::Percent;

/// The Service that receives copies of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Mirror {
    /// The Service.
    #[serde(rename = "serviceRef", deserialize_with = "service_ref::deserialize")]
    #[schemars(with = "ServiceRef")]
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The percentage of requests that the gateway copies, chosen at random. 1 to 100. Default: 100.
    #[serde(default = "super::fault::all")]
    #[n(1)]
    pub percent: Percent,
}
