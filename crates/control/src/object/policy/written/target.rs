//! The targets of a policy (Gateway API: `LocalPolicyTargetReferenceWithSectionName`, GEP-713).

use schemars::JsonSchema;
use serde::Deserialize;

/// An object in the policy's own namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.kind == 'Ingress' ? self.group == 'networking.k8s.io' : self.group == ''",
        "message": "write group: networking.k8s.io with kind: Ingress, and group: \"\" with kind: Service"
    },
    {
        "rule": "!has(self.sectionName) || self.kind == 'Service'",
        "message": "sectionName is the port of a Service: write it only with kind: Service"
    }
]))]
pub(crate) struct TargetRef {
    /// The API group of the target. Write networking.k8s.io for an Ingress, and "" for a Service.
    #[schemars(length(max = 253))]
    pub(crate) group: String,
    /// The kind of the target: Ingress or Service.
    pub(crate) kind: TargetKind,
    /// The name of the target.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The name or number of a port of the Service. The policy then applies only to routes that lead to this port. If
    /// the Service has no such port, a policy of another kind than SecurityPolicy has no effect on the Service. With
    /// a SecurityPolicy, routes to the Service then respond with 503, unless another SecurityPolicy for the Service
    /// or their port applies. Default: all ports.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) section_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum TargetKind {
    Ingress,
    Service,
}
