//! Access by client IP.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Entries, Network};

/// The client IPs that may call, and the client IPs that may not. The gateway responds to other clients with 403.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct IpAccess {
    /// The client IPs that may call: CIDRs or single addresses, IPv4 or IPv6, such as 10.0.0.0/8. 1 to 256 entries.
    /// Default: all client IPs.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(0)]
    pub allow: Entries<Network, 256>,
    /// The client IPs that may not call, even if allow contains them: CIDRs or single addresses. At most 256 entries.
    /// Default: none.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub deny: Entries<Network, 256, 0>,
}

impl IpAccess {
    /// Whether all addresses are allowed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}
