//! What a policy is for (Gateway API: `LocalPolicyTargetReferenceWithSectionName`, GEP-713).

use schemars::JsonSchema;
use serde::Deserialize;

/// An object of the policy's own namespace.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.kind == 'Ingress' ? self.group == 'networking.k8s.io' : self.group == ''",
        "message": "write group: networking.k8s.io with kind: Ingress, and group: \"\" with kind: Service"
    },
    {
        "rule": "!has(self.sectionName) || self.kind == 'Service'",
        "message": "sectionName is the name of a port, so it is for kind: Service alone"
    }
]))]
pub(crate) struct TargetRef {
    /// The API group of the target: networking.k8s.io for an Ingress, "" for a Service.
    #[schemars(length(max = 253))]
    pub(crate) group: String,
    /// The kind of the target: Ingress or Service.
    pub(crate) kind: TargetKind,
    /// The name of the target.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
    /// The name of a port of the Service, or its number: the policy is for routes that lead to this port alone. Where the Service
    /// has no such port, a SecurityPolicy closes it: routes that no policy for the Service or their port governs are answered 503.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) section_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum TargetKind {
    Ingress,
    Service,
}
