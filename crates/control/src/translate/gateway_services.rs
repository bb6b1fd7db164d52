//! The options for the Services of Gateways.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The Services of Gateways: one for each Gateway, in front of the shared data plane. The ports of such a Service lead to
/// ports of the data plane that belong to this Gateway alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayServices {
    /// The namespace of the Services, with the pods of the data plane.
    pub namespace: Arc<str>,
    /// The name of the Lease whose holder writes the Services. Other gateways in the namespace have another Lease.
    pub lease: Arc<str>,
    /// The type of the Services.
    pub service_type: ServiceType,
    /// The labels of the pods of the data plane.
    pub selector: BTreeMap<String, String>,
    /// The ports of the data plane for the Services.
    pub ports: RangeInclusive<u16>,
    /// Annotations of the Services. `spec.infrastructure.annotations` of a Gateway has precedence.
    pub annotations: BTreeMap<String, String>,
    /// `spec.loadBalancerClass` of the Services.
    pub load_balancer_class: Option<String>,
    /// `spec.externalTrafficPolicy` of the Services.
    pub external_traffic_policy: Option<String>,
}

/// The type of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// `ClusterIP`: an address inside the cluster.
    ClusterIp,
    /// `NodePort`: a port of every node.
    NodePort,
    /// `LoadBalancer`: an address outside of the cluster.
    LoadBalancer,
}

impl ServiceType {
    /// Its name, as a Service writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}
