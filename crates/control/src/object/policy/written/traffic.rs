//! `TrafficPolicy`.

use schemars::JsonSchema;
use sluicegate_model::feature::{Features, ServiceFeatures};

use super::target::TargetRef;

/// Sets how the gateway forwards requests: timeouts, retries, headers, rewrites, redirects, fixed responses, traffic
/// splits, load balancing, mirrors, caching and faults. One policy applies to a route, and the gateway merges nothing.
/// A policy for a port of the Service has precedence over a policy for the Service, which has precedence over a policy
/// for the Ingress. If several policies have the same target, the oldest policy applies. If a new policy has an invalid
/// part, the part has no effect, and the other parts apply. If a change makes a policy invalid, the last valid version
/// stays in service.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.redirect) || !has(self.directResponse)",
        "message": "redirect cannot be combined with directResponse: remove one of them"
    },
    {
        "rule": "(!has(self.circuitBreaker) && !has(self.healthCheck)) || self.targetRefs.all(target, target.kind == 'Service')",
        "message": "circuitBreaker and healthCheck are only for Services: name only Services in targetRefs"
    }
]))]
#[expect(dead_code, reason = "the schema joins the types that are read one by one")]
pub(crate) struct TrafficPolicySpec {
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With an Ingress, the policy
    /// applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the Service,
    /// or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    target_refs: Vec<TargetRef>,
    #[schemars(flatten)]
    features: Features,
    #[schemars(flatten)]
    of_services: ServiceFeatures,
}
