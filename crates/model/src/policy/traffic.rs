//! The features of a route, from one object (`TrafficPolicy`).

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::ObjectId;
use crate::encoding::{Adapt as _, Part, Within};
use crate::feature::Features;

/// How the gateway serves the requests of a route, in place of the settings for all routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Traffic {
    /// The object with the features.
    #[n(0)]
    pub id: ObjectId,
    /// The features.
    #[serde(flatten)]
    #[cbor(n(1), with = "Within::<Features>")]
    pub features: Features,
}

impl Part for Traffic {
    const KIND: u32 = 17;
    const WHAT: &'static str = "policy for traffic";
}

impl Traffic {
    /// A policy that changes nothing.
    #[must_use]
    pub fn new(id: ObjectId) -> Self {
        Self { id, features: Features::default() }
    }
}
