//! What is written back (Gateway API: `PolicyStatus`, GEP-713).
#![allow(dead_code, reason = "the schema is made of these types; they are not read")]

use schemars::JsonSchema;

/// How the policy stands with each of its targets.
#[derive(JsonSchema)]
pub(crate) struct PolicyStatus {
    /// One entry for each target, at most 16.
    #[schemars(length(max = 16))]
    ancestors: Vec<Ancestor>,
}

/// How the policy stands with one of its targets.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Ancestor {
    /// The target.
    ancestor_ref: AncestorRef,
    /// Who says so: sluicegate.dev/ingress-controller.
    #[schemars(length(min = 1, max = 253))]
    controller_name: String,
    /// Accepted says whether the policy is in force for this target, and if not, why.
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    conditions: Vec<Condition>,
}

/// A target (Gateway API: `ParentReference`).
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AncestorRef {
    /// Its API group.
    #[schemars(length(max = 253))]
    group: Option<String>,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    kind: Option<String>,
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    name: String,
    /// The name of a port of the Service.
    #[schemars(length(min = 1, max = 253))]
    section_name: Option<String>,
    /// The number of a port.
    #[schemars(range(min = 1, max = 65535))]
    port: Option<i32>,
}

/// How the Consumer stands.
#[derive(JsonSchema)]
pub(crate) struct ConsumerStatus {
    /// Accepted says whether all its credentials can be used, and if not, why.
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
    /// What it is about, such as Accepted.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    kind: String,
    /// True, False or Unknown.
    status: ConditionStatus,
    /// The metadata.generation that it was found of.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
    /// When it last became so.
    #[schemars(extend("format" = "date-time"))]
    last_transition_time: String,
    /// Why, in a word.
    #[schemars(length(min = 1, max = 1024))]
    reason: String,
    /// Why, in a sentence.
    #[schemars(length(max = 32768))]
    message: String,
}

#[derive(JsonSchema)]
enum ConditionStatus {
    True,
    False,
    Unknown,
}
