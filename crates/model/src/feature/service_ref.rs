//! A Service that a feature names.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::UpstreamKey;
use crate::value::{Hostname, Port};

/// A Service in the policy's namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceRef {
    /// The name of the Service.
    name: Hostname,
    /// The number of the Service's port. 1 to 65535.
    port: Port,
}

/// The upstream as written: without a namespace, and with the number of the port. The control plane completes it.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UpstreamKey, D::Error> {
    let ServiceRef { name, port } = ServiceRef::deserialize(deserializer)?;
    Ok(UpstreamKey::new("", &*name, port.to_string()))
}
