//! Policies: authentication, authorization, rate limits, traffic.
//!
//! A route holds the policies that are attached to it. The control plane has already chosen and checked the policies. An
//! invalid part of a policy remains as a rejection, so that a fault closes a route instead of opening it.
//!
//! | module | what |
//! |---|---|
//! | [`security`] | the parts of a `SecurityPolicy`; authentication |
//! | [`consumer`] | known callers |
//! | [`rate_limit`] | rate limits and concurrency limits |
//! | [`subscription`] | subscriptions to APIs, plans |
//! | [`traffic`] | timeouts, retries, header edits, weights and the like |

pub mod consumer;
pub mod rate_limit;
pub mod security;
pub mod subscription;
pub mod traffic;

pub use consumer::{Consumer, KeyHash};
pub use rate_limit::{RateLimits, Redis, RedisTls, Shared};
pub use security::Security;
pub use subscription::{Plan, Subscription, SubscriptionState, Subscriptions};
pub use traffic::Traffic;

/// A value from an object.
pub trait Written {
    /// The object.
    fn id(&self) -> &crate::ObjectId;
}

impl Written for Security {
    fn id(&self) -> &crate::ObjectId {
        &self.id
    }
}

impl Written for RateLimits {
    fn id(&self) -> &crate::ObjectId {
        &self.id
    }
}

impl Written for Subscriptions {
    fn id(&self) -> &crate::ObjectId {
        &self.id
    }
}

impl Written for Traffic {
    fn id(&self) -> &crate::ObjectId {
        &self.id
    }
}
