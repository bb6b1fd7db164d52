//! The status that the gateway writes (Gateway API: `PolicyStatus`, GEP-713).
#![allow(dead_code, reason = "the schema is made of these types; they are not read")]

use schemars::JsonSchema;

/// The state of the policy for each object in ancestors.
#[derive(JsonSchema)]
pub(crate) struct PolicyStatus {
    /// One entry for each Gateway or listener in targetRefs, for each Gateway of a route in targetRefs, and for each
    /// Ingress, Service or port. At most 16 entries.
    #[schemars(length(max = 16))]
    ancestors: Vec<Ancestor>,
}

/// The state of the policy for an object.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Ancestor {
    /// The Gateway or the target.
    ancestor_ref: AncestorRef,
    /// The controller that wrote the entry: sluicegate.dev/gateway-controller, or sluicegate.dev/ingress-controller for
    /// an Ingress or a Service.
    #[schemars(length(min = 1, max = 253))]
    controller_name: String,
    /// The condition Accepted: whether the policy applies there, and otherwise the reason. Several targets may have the
    /// same Gateway: then the condition describes the target with the worst state.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Vec<Condition>,
}

/// A Gateway or a target (Gateway API: `ParentReference`).
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AncestorRef {
    /// The API group of the object.
    #[schemars(length(max = 253))]
    group: Option<String>,
    /// The kind of the object.
    #[schemars(length(min = 1, max = 63))]
    kind: Option<String>,
    /// The namespace of the object.
    #[schemars(length(min = 1, max = 63))]
    namespace: Option<String>,
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    name: String,
    /// The name of a listener of the Gateway, the name of a rule of the route, or the name or number of a port of the
    /// Service.
    #[schemars(length(min = 1, max = 253))]
    section_name: Option<String>,
    /// The number of a port.
    #[schemars(range(min = 1, max = 65535))]
    port: Option<i32>,
}

/// The state of the Api.
#[derive(JsonSchema)]
pub(crate) struct ApiStatus {
    /// The condition Accepted: whether all operations of the document are served, and otherwise the reason.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Option<Vec<Condition>>,
}

/// The state of the Consumer.
#[derive(JsonSchema)]
pub(crate) struct ConsumerStatus {
    /// The condition Accepted: whether all credentials can be used, and otherwise the reason.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Option<Vec<Condition>>,
}

/// The state of the Plan.
#[derive(JsonSchema)]
pub(crate) struct PlanStatus {
    /// The condition Accepted: whether the plan can be used, and otherwise the reason.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Option<Vec<Condition>>,
}

/// The state of the Subscription.
#[derive(JsonSchema)]
pub(crate) struct SubscriptionStatus {
    /// The condition Accepted: whether the Consumer may call, and otherwise the reason. The reason Pending: the
    /// Subscription waits for approval.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Option<Vec<Condition>>,
}

/// A condition (`metav1.Condition`).
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Condition {
    /// The type of the condition, such as Accepted.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    kind: String,
    /// The status of the condition: True, False or Unknown.
    status: ConditionStatus,
    /// The metadata.generation of the object that the condition describes.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// The time of the last change of status.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
    /// The reason as one word.
    #[schemars(length(min = 1, max = 1024))]
    reason: String,
    /// The reason as a sentence.
    #[schemars(length(max = 32768))]
    message: String,
}

#[derive(JsonSchema)]
enum ConditionStatus {
    True,
    False,
    Unknown,
}
