//! The subscriptions to an API, and their plans (`Plan`, `Subscription`).

use minicbor::{Decode, Encode};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::ObjectId;
use crate::encoding::{Adapt as _, Bound, List, Part, Within};
use crate::feature::Quota;
use crate::policy::RateLimits;
use crate::policy::rate_limit::Exempt;

/// The subscriptions to operations of an API.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Subscriptions {
    /// The object with the API.
    #[n(0)]
    pub id: ObjectId,
    /// Whether a caller needs a subscription.
    #[n(1)]
    pub required: bool,
    /// The plans of the subscriptions.
    #[n(2)]
    pub plans: Vec<Plan>,
    /// The subscriptions, at most one for each consumer.
    #[n(3)]
    pub subscriptions: Vec<Subscription>,
}

/// The dump of a rule has the number of subscriptions, of which there may be thousands for each rule of an API.
impl Serialize for Subscriptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Subscriptions", 3)?;
        fields.serialize_field("required", &self.required)?;
        fields.serialize_field("plans", &self.plans)?;
        fields.serialize_field("subscriptions", &self.subscriptions.len())?;
        fields.end()
    }
}

impl Part for Subscriptions {
    const KIND: u32 = 18;
    const WHAT: &'static str = "subscriptions";
}

/// Each subscription has a plan.
impl Bound for Subscriptions {
    type Value = Self;
    const FIELD: &'static str = "the plan of a subscription";

    fn allows(subscriptions: &Self) -> bool {
        let plans = subscriptions.plans.len();
        subscriptions.subscriptions.iter().all(|of| usize::try_from(of.plan).is_ok_and(|plan| plan < plans))
    }
}

/// The terms of subscriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Plan {
    /// The rate limits and concurrency limits of each subscription. Their object is the plan.
    #[cbor(n(0), with = "Within::<RateLimits>")]
    pub limits: RateLimits,
    /// The quotas of each subscription.
    #[cbor(n(1), with = "List::<Within<Quota>>")]
    pub quotas: Vec<Quota>,
    /// Whether responses have the headers `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    #[n(2)]
    pub x_headers: bool,
}

impl Plan {
    /// A plan without limits.
    #[must_use]
    pub fn empty(id: ObjectId) -> Self {
        let limits = RateLimits {
            id,
            limits: Vec::new(),
            concurrency: Vec::new(),
            headers: false,
            shared: None,
            exempt: Exempt::default(),
        };
        Self { limits, quotas: Vec::new(), x_headers: false }
    }
}

/// The right of a consumer to call operations of an API by a plan.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Subscription {
    /// The object with the subscription.
    #[n(0)]
    pub id: ObjectId,
    /// The consumer.
    #[n(1)]
    pub consumer: ObjectId,
    /// The place of the plan in [`Subscriptions::plans`].
    #[n(2)]
    pub plan: u32,
    /// Whether the consumer may call.
    #[n(3)]
    pub state: SubscriptionState,
}

/// Whether a consumer may call by its subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum SubscriptionState {
    /// The consumer may call.
    #[n(0)]
    Active,
    /// The subscription is not approved yet.
    #[n(1)]
    Pending,
    /// The owner of the API has suspended or rejected the subscription.
    #[n(2)]
    Suspended,
    /// The subscription cannot be honoured as written.
    #[n(3)]
    Invalid,
}
