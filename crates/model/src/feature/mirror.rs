//! Mirrors: Services that receive copies of requests.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::service_ref::{self, ServiceRef};
use crate::UpstreamKey;
use crate::value::{Entries, HeaderValue, Percent, Template};

/// The maximum number of mirrors of a route: the number of filters of a rule of Gateway API. A TrafficPolicy has one mirror.
pub const MIRRORS_MAX: usize = 16;

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
    /// The form of the copies. `None`: the requests as endpoints receive them.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub form: Option<Box<MirrorForm>>,
}

/// The form of copies for a URL (`nginx.ingress.kubernetes.io/mirror-target`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct MirrorForm {
    /// The path and the query, with variables of nginx.
    #[n(0)]
    pub target: Template,
    /// The value of `Host`.
    #[n(1)]
    pub host: HeaderValue,
    /// Whether the copies have no body.
    #[n(2)]
    pub drops_body: bool,
}

/// The mirror of a TrafficPolicy.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Entries<Mirror, MIRRORS_MAX>, D::Error> {
    let mirror = Option::<Mirror>::deserialize(deserializer)?;
    Ok(Entries::new(Vec::from_iter(mirror)).unwrap_or_default())
}

/// A single mirror as in a TrafficPolicy, or a list.
pub(super) fn serialize<S: Serializer>(
    mirrors: &Entries<Mirror, MIRRORS_MAX>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match &**mirrors {
        [mirror] => mirror.serialize(serializer),
        mirrors => mirrors.serialize(serializer),
    }
}
