//! The targets of a policy (Gateway API: `LocalPolicyTargetReferenceWithSectionName`, GEP-713).

use schemars::JsonSchema;
use serde::Deserialize;

/// An object in the policy's own namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.group == (self.kind == 'Service' ? '' : self.kind == 'Ingress' ? 'networking.k8s.io' : \
                 self.kind == 'Api' ? 'sluicegate.dev' : 'gateway.networking.k8s.io')",
        "message": "write group: \"\" with kind: Service, group: networking.k8s.io with kind: Ingress, group: \
                    sluicegate.dev with kind: Api, and group: gateway.networking.k8s.io with the other kinds"
    },
    {
        "rule": "!has(self.sectionName) || self.kind != 'Ingress'",
        "message": "an Ingress has no sections: remove sectionName"
    }
]))]
pub(crate) struct TargetRef {
    /// The API group of the target. Write gateway.networking.k8s.io for a Gateway, an HTTPRoute or a GRPCRoute,
    /// networking.k8s.io for an Ingress, sluicegate.dev for an Api, and "" for a Service.
    #[schemars(length(max = 253))]
    pub(crate) group: String,
    /// The kind of the target: Gateway, HTTPRoute, GRPCRoute, Api, Ingress or Service.
    pub(crate) kind: TargetKind,
    /// The name of the target.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The name of a listener of the Gateway, the name of a rule of the route, the id of an operation or the name of an
    /// operation set of the Api, or the name or number of a port of the Service. The policy then applies only to this part of the target. If the target does not have the part, a
    /// RateLimitPolicy or TrafficPolicy has no effect on the target. A SecurityPolicy then denies all requests for the
    /// target with 503. Exception: another SecurityPolicy applies, if one is attached to the target or to the part that
    /// serves the request. Default: the whole target.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) section_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum TargetKind {
    Gateway,
    #[serde(rename = "HTTPRoute")]
    HttpRoute,
    #[serde(rename = "GRPCRoute")]
    GrpcRoute,
    Ingress,
    Api,
    Service,
}
