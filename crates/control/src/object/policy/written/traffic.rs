//! `TrafficPolicy`.

use schemars::JsonSchema;
use sluicegate_model::feature::{Features, ServiceFeatures};

use super::target::TargetRef;

/// Sets how the gateway forwards requests: timeouts, retries, headers, rewrites, redirects, fixed responses, traffic
/// splits, load balancing, mirrors, caching and faults. A policy for a port of a Service has precedence over a policy
/// for the Service. Both have precedence over policies for an Ingress, a Gateway, a listener, a route or a rule, and
/// apply alone. On a rule of an HTTPRoute or a GRPCRoute without a policy for the Service, the policies for the rule,
/// the route, the listener and the Gateway combine. The gateway takes each part from the most specific policy that sets
/// the part. A filter of the rule has precedence over all policies. A policy with only circuitBreaker or healthCheck
/// leaves the policies of routes in place. If several policies have the same target, the oldest policy applies. If a new policy has an invalid part, the part has no effect, and the other parts apply. If a
/// change makes a policy invalid, the last valid version stays in service.
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
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With a Gateway, the policy applies
    /// to all HTTPRoutes and GRPCRoutes of the Gateway, or of the listener in sectionName. With an HTTPRoute or a
    /// GRPCRoute, the policy applies to all its rules, or to the rule with the name in sectionName. With an Ingress, the
    /// policy applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the
    /// Service, or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    target_refs: Vec<TargetRef>,
    #[schemars(flatten)]
    features: Features,
    #[schemars(flatten)]
    of_services: ServiceFeatures,
}
