//! The features of a route, from one object (`TrafficPolicy`).

use std::iter;

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
    /// The less specific policies with features in this policy, the most specific first. [`id`](Self::id) is the most specific
    /// object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(2), default, skip_if = "Vec::is_empty")]
    pub inherits: Vec<ObjectId>,
}

impl Part for Traffic {
    const KIND: u32 = 17;
    const WHAT: &'static str = "policy for traffic";
}

impl Traffic {
    /// A policy that changes nothing.
    #[must_use]
    pub fn new(id: ObjectId) -> Self {
        Self { id, features: Features::default(), inherits: Vec::new() }
    }

    /// The objects with the features, the most specific first.
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        iter::once(&self.id).chain(&self.inherits)
    }
}
