//! `Plan` and `Subscription` as users write them.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::feature::{Concurrency, Limit, Quota};
use sluicegate_model::value::Entries;

use crate::object::policy::written::rate_limit::Shared;
use crate::object::visibility::CatalogueSpec;

/// The terms on which Consumers call APIs: rate limits, concurrency limits and quotas. Each Subscription by the plan counts by
/// itself.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.shared) || has(self.limits) || has(self.quotas)",
    "message": "shared needs limits or quotas: each data plane counts concurrency by itself"
}]))]
pub(crate) struct PlanSpec {
    /// The title of the plan, as text. Default: the name of the object.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) title: Option<String>,
    /// A description of the plan, as text. Default: none.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) description: Option<String>,
    /// The rate limits of each Subscription, each with a unique name. 1 to 16 entries. A request must pass every limit. Default:
    /// none.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) limits: Option<Entries<Limit, 16>>,
    /// The concurrency limits of each Subscription, each with a unique name. 1 to 16 entries. Each data plane counts by itself.
    /// Default: none.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) concurrency: Option<Entries<Concurrency, 16>>,
    /// The quotas of each Subscription, each with a unique name. 1 to 16 entries. Default: none.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) quotas: Option<Entries<Quota, 16>>,
    /// Whether a new Subscription is active at once (Automatic), or when its approval is Approved (Manual). Default: Automatic.
    pub(crate) approval: Option<ApprovalMode>,
    /// Whether responses report the limits and quotas in the headers RateLimit-Policy and RateLimit. Default: true.
    pub(crate) headers: Option<bool>,
    /// Whether responses also report the limit or quota with the fewest remaining requests in the headers X-RateLimit-Limit,
    /// X-RateLimit-Remaining and X-RateLimit-Reset (seconds). Default: false.
    pub(crate) x_headers: Option<bool>,
    /// The server through which all data planes count limits and quotas together. Default: each data plane counts limits by
    /// itself, and data planes count quotas together through the control plane.
    pub(crate) shared: Option<Shared>,
    /// The entry of the plan in the developer portal, where users ask for Subscriptions by the plan. Default: no visitor of the
    /// portal sees the plan.
    pub(crate) catalogue: Option<CatalogueSpec>,
}

/// How Subscriptions by a plan become active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum ApprovalMode {
    #[default]
    Automatic,
    Manual,
}

/// The right of a Consumer to call APIs by a Plan. If several Subscriptions of a Consumer include an operation, a Subscription with
/// operationSets applies before others, and then the oldest.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscriptionSpec {
    /// The Consumer.
    pub(crate) consumer_ref: ConsumerRef,
    /// The Plan, in the namespace of the Subscription.
    pub(crate) plan_ref: PlanRef,
    /// The Apis, in the namespace of the Subscription. 1 to 64 entries.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) apis: Vec<SubscribedApi>,
    /// The decision of the owner of the API. A plan with approval: Manual needs Approved. Default: no decision.
    pub(crate) approval: Option<Approval>,
    /// Whether the Consumer may not call for now. Default: false.
    pub(crate) suspended: Option<bool>,
}

/// A Consumer.
#[derive(Default, Deserialize, JsonSchema)]
pub(crate) struct ConsumerRef {
    /// The name of the Consumer.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The namespace of the Consumer. Default: the namespace of the Subscription.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) namespace: Option<String>,
}

/// A Plan.
#[derive(Default, Deserialize, JsonSchema)]
pub(crate) struct PlanRef {
    /// The name of the Plan.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
}

/// An Api, or a part of it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscribedApi {
    /// The name of the Api.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The names of operation sets of the Api. The Subscription includes the operations of all these sets. 1 to 64 entries.
    /// Default: all operations.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)))]
    pub(crate) operation_sets: Option<Vec<String>>,
}

/// The decision about a Subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Approval {
    Approved,
    Rejected,
}
