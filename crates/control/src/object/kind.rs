//! The kinds of objects that the gateway reads, as one table.
//!
//! A new kind needs a name in [`Kind`], a row in [`TABLE`], and a file with its checked type, its [`Raw`] type and its
//! line in [`objects!`](super). Everything else follows from the row.

use std::fmt;

use k8s_openapi::api::{core::v1 as core, discovery::v1 as discovery, networking::v1 as networking};
use kube::api::{ApiResource, GroupVersionKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::gateway_api::{self, EXPERIMENTAL_GROUP, GROUP, Written};
use super::policy::consumer::Consumer;
use super::policy::written;
use super::secret::{CREDENTIALS_TYPE, TLS_TYPE};
use super::trust_bundle::ClusterTrustBundleSpec;
use super::{Object, ObjectRef};
use crate::manifest::read::{
    confidential, lenient, rate_limit_policy, security_policy, strict, traffic_policy,
};
use crate::problem::Findings;

/// The kinds of objects that the gateway reads; it ignores all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `networking.k8s.io/v1` `IngressClass`.
    IngressClass,
    /// `networking.k8s.io/v1` `Ingress`.
    Ingress,
    /// `gateway.networking.k8s.io/v1` `GatewayClass`.
    GatewayClass,
    /// `gateway.networking.k8s.io/v1` `Gateway`.
    Gateway,
    /// `gateway.networking.k8s.io/v1` `ListenerSet`.
    ListenerSet,
    /// `gateway.networking.k8s.io/v1` `HTTPRoute`.
    HttpRoute,
    /// `gateway.networking.k8s.io/v1` `GRPCRoute`.
    GrpcRoute,
    /// `gateway.networking.k8s.io/v1` `TLSRoute`.
    TlsRoute,
    /// `gateway.networking.k8s.io/v1` `TCPRoute`.
    TcpRoute,
    /// `gateway.networking.k8s.io/v1` `UDPRoute`.
    UdpRoute,
    /// `gateway.networking.k8s.io/v1` `BackendTLSPolicy`.
    BackendTlsPolicy,
    /// `gateway.networking.x-k8s.io/v1alpha1` `XBackendTrafficPolicy`.
    XBackendTrafficPolicy,
    /// `gateway.networking.x-k8s.io/v1alpha1` `XBackend`.
    XBackend,
    /// `gateway.networking.k8s.io/v1` `ReferenceGrant`.
    ReferenceGrant,
    /// `sluicegate.dev/v1alpha1` `SecurityPolicy`.
    SecurityPolicy,
    /// `sluicegate.dev/v1alpha1` `Consumer`.
    Consumer,
    /// `sluicegate.dev/v1alpha1` `RateLimitPolicy`.
    RateLimitPolicy,
    /// `sluicegate.dev/v1alpha1` `TrafficPolicy`.
    TrafficPolicy,
    /// `sluicegate.dev/v1alpha1` `Api`.
    Api,
    /// `sluicegate.dev/v1alpha1` `Plan`.
    Plan,
    /// `sluicegate.dev/v1alpha1` `Subscription`.
    Subscription,
    /// `v1` `Namespace`.
    Namespace,
    /// `v1` `Service`.
    Service,
    /// `discovery.k8s.io/v1` `EndpointSlice`.
    EndpointSlice,
    /// `v1` `Secret`.
    Secret,
    /// `v1` `ConfigMap`.
    ConfigMap,
    /// `certificates.k8s.io/v1` `ClusterTrustBundle`.
    ClusterTrustBundle,
}

/// The facts of a kind.
pub(crate) struct Row {
    kind: Kind,
    /// Its name, as manifests write it.
    name: &'static str,
    /// Its name in the paths of the Kubernetes API and in permissions.
    plural: &'static str,
    /// The API groups and versions that the gateway reads, the preferred version first.
    versions: &'static [&'static str],
    scope: Scope,
    /// From a written object to a checked object. If the result is `None`, the findings say why.
    pub(crate) read: fn(&Value, &ObjectRef, &mut Findings) -> Option<Object>,
    pub(crate) change: Change,
    pub(crate) watch: Watch,
    pub(crate) absence: Absence,
    pub(crate) status: Status,
    /// Whether an error in a part of an object of a cluster leaves its other parts in service, because the status of the
    /// part tells of the error.
    pub(crate) has_parts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespace,
}

/// The parts of the configuration that a change of an object may affect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Any part.
    Routing,
    /// The upstreams of this Service.
    Service,
    /// The endpoints of the Service that the slice belongs to.
    Endpoints,
}

/// The objects that the gateway watches in a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// All objects, in the namespaces of the gateway.
    All,
    /// The objects of these types, and single objects that other objects name.
    Types(&'static [&'static str]),
}

/// The effect of a kind that the API server does not know, or does not let the gateway read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The gateway serves without these objects.
    Serves,
    /// The gateway waits for these objects if it may not read them. If the kind does not exist, there are none.
    WaitsIfForbidden,
    /// The gateway waits for these objects.
    Waits,
}

/// The status that the gateway writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    None,
    /// The addresses of the gateway.
    Addresses,
    /// Conditions, as Gateway API defines them for its objects and for policies (GEP-713).
    Conditions,
}

const GATEWAY_API: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1beta1",
    "gateway.networking.k8s.io/v1alpha2",
];
const LISTENER_SET: &[&str] = &["gateway.networking.k8s.io/v1"];
const GRPC_ROUTE: &[&str] = &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1alpha2"];
const TLS_ROUTE: &[&str] = &[
    "gateway.networking.k8s.io/v1",
    "gateway.networking.k8s.io/v1alpha3",
    "gateway.networking.k8s.io/v1alpha2",
];
const BACKEND_TLS_POLICY: &[&str] = &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1alpha3"];
const PORT_ROUTE: &[&str] = &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1alpha2"];
const EXPERIMENTAL: &[&str] = &["gateway.networking.x-k8s.io/v1alpha1"];
const CLUSTER_TRUST_BUNDLE: &[&str] =
    &["certificates.k8s.io/v1", "certificates.k8s.io/v1beta1", "certificates.k8s.io/v1alpha1"];
const NETWORKING: &[&str] = &["networking.k8s.io/v1"];
const OURS: &[&str] = &["sluicegate.dev/v1alpha1"];

/// The values of most rows.
const ROW: Row = Row {
    kind: Kind::IngressClass,
    name: "",
    plural: "",
    versions: &[],
    scope: Scope::Namespace,
    read: |_, _, _| None,
    change: Change::Routing,
    watch: Watch::All,
    absence: Absence::Serves,
    status: Status::None,
    has_parts: false,
};

/// A row for each kind, in the order of [`Kind`].
static TABLE: [Row; Kind::COUNT] = [
    Row {
        kind: Kind::IngressClass,
        name: "IngressClass",
        plural: "ingressclasses",
        versions: NETWORKING,
        scope: Scope::Cluster,
        read: lenient::<networking::IngressClass>,
        ..ROW
    },
    Row {
        kind: Kind::Ingress,
        name: "Ingress",
        plural: "ingresses",
        versions: NETWORKING,
        read: lenient::<networking::Ingress>,
        absence: Absence::Waits,
        status: Status::Addresses,
        ..ROW
    },
    Row {
        kind: Kind::GatewayClass,
        name: "GatewayClass",
        plural: "gatewayclasses",
        versions: GATEWAY_API,
        scope: Scope::Cluster,
        read: lenient::<Written<gateway_api::GatewayClassSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Gateway,
        name: "Gateway",
        plural: "gateways",
        versions: GATEWAY_API,
        read: lenient::<Written<gateway_api::GatewaySpec>>,
        status: Status::Conditions,
        has_parts: true,
        ..ROW
    },
    Row {
        kind: Kind::ListenerSet,
        name: "ListenerSet",
        plural: "listenersets",
        versions: LISTENER_SET,
        read: lenient::<Written<gateway_api::ListenerSetSpec>>,
        status: Status::Conditions,
        has_parts: true,
        ..ROW
    },
    Row {
        kind: Kind::HttpRoute,
        name: "HTTPRoute",
        plural: "httproutes",
        versions: GATEWAY_API,
        read: lenient::<Written<gateway_api::HttpRouteSpec<gateway_api::HttpMatch>>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::GrpcRoute,
        name: "GRPCRoute",
        plural: "grpcroutes",
        versions: GRPC_ROUTE,
        read: lenient::<Written<gateway_api::GrpcRouteSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::TlsRoute,
        name: "TLSRoute",
        plural: "tlsroutes",
        versions: TLS_ROUTE,
        read: lenient::<Written<gateway_api::TlsRouteSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::TcpRoute,
        name: "TCPRoute",
        plural: "tcproutes",
        versions: PORT_ROUTE,
        read: lenient::<Written<gateway_api::PortRouteSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::UdpRoute,
        name: "UDPRoute",
        plural: "udproutes",
        versions: PORT_ROUTE,
        read: lenient::<Written<gateway_api::PortRouteSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::BackendTlsPolicy,
        name: "BackendTLSPolicy",
        plural: "backendtlspolicies",
        versions: BACKEND_TLS_POLICY,
        read: lenient::<Written<gateway_api::BackendTlsPolicySpec>>,
        // Without these objects, requests would go out in clear text.
        absence: Absence::WaitsIfForbidden,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::XBackendTrafficPolicy,
        name: "XBackendTrafficPolicy",
        plural: "xbackendtrafficpolicies",
        versions: EXPERIMENTAL,
        read: lenient::<Written<gateway_api::BackendTrafficPolicySpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::XBackend,
        name: "XBackend",
        plural: "xbackends",
        versions: EXPERIMENTAL,
        read: lenient::<Written<gateway_api::XBackendSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::ReferenceGrant,
        name: "ReferenceGrant",
        plural: "referencegrants",
        versions: GATEWAY_API,
        read: lenient::<Written<gateway_api::ReferenceGrantSpec>>,
        ..ROW
    },
    Row {
        kind: Kind::SecurityPolicy,
        name: "SecurityPolicy",
        plural: "securitypolicies",
        versions: OURS,
        read: security_policy,
        // Without these objects every caller would be admitted.
        absence: Absence::WaitsIfForbidden,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Consumer,
        name: "Consumer",
        plural: "consumers",
        versions: OURS,
        read: strict::<Written<written::consumer::ConsumerSpec>>,
        absence: Absence::WaitsIfForbidden,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::RateLimitPolicy,
        name: "RateLimitPolicy",
        plural: "ratelimitpolicies",
        versions: OURS,
        read: rate_limit_policy,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::TrafficPolicy,
        name: "TrafficPolicy",
        plural: "trafficpolicies",
        versions: OURS,
        read: traffic_policy,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Api,
        name: "Api",
        plural: "apis",
        versions: OURS,
        read: strict::<Written<super::api::written::ApiSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Plan,
        name: "Plan",
        plural: "plans",
        versions: OURS,
        read: strict::<Written<super::plan::written::PlanSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Subscription,
        name: "Subscription",
        plural: "subscriptions",
        versions: OURS,
        read: strict::<Written<super::plan::written::SubscriptionSpec>>,
        status: Status::Conditions,
        ..ROW
    },
    Row {
        kind: Kind::Namespace,
        name: "Namespace",
        plural: "namespaces",
        versions: &["v1"],
        scope: Scope::Cluster,
        read: lenient::<core::Namespace>,
        ..ROW
    },
    Row {
        kind: Kind::Service,
        name: "Service",
        plural: "services",
        versions: &["v1"],
        read: lenient::<core::Service>,
        change: Change::Service,
        absence: Absence::Waits,
        ..ROW
    },
    Row {
        kind: Kind::EndpointSlice,
        name: "EndpointSlice",
        plural: "endpointslices",
        versions: &["discovery.k8s.io/v1"],
        read: lenient::<discovery::EndpointSlice>,
        change: Change::Endpoints,
        absence: Absence::Waits,
        ..ROW
    },
    Row {
        kind: Kind::Secret,
        name: "Secret",
        plural: "secrets",
        versions: &["v1"],
        read: confidential::<core::Secret>,
        watch: Watch::Types(&[TLS_TYPE, CREDENTIALS_TYPE]),
        ..ROW
    },
    Row {
        kind: Kind::ConfigMap,
        name: "ConfigMap",
        plural: "configmaps",
        versions: &["v1"],
        read: confidential::<core::ConfigMap>,
        watch: Watch::Types(&[]),
        ..ROW
    },
    Row {
        kind: Kind::ClusterTrustBundle,
        name: "ClusterTrustBundle",
        plural: "clustertrustbundles",
        versions: CLUSTER_TRUST_BUNDLE,
        scope: Scope::Cluster,
        read: lenient::<Written<ClusterTrustBundleSpec>>,
        ..ROW
    },
];

impl Kind {
    /// The number of kinds.
    pub(crate) const COUNT: usize = Self::ClusterTrustBundle as usize + 1;

    /// Every kind.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.kind)
    }

    /// Its facts.
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name, as manifests write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Whether its objects have no namespace.
    pub(crate) fn is_cluster_scoped(self) -> bool {
        self.row().scope == Scope::Cluster
    }

    /// The API groups and versions that the gateway reads, the preferred version first.
    pub(crate) fn api_versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    /// Its API group; empty for the kinds of the core.
    pub(crate) fn group(self) -> &'static str {
        self.api_versions()[0].split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is a kind of Gateway API.
    pub(crate) fn is_of_gateway_api(self) -> bool {
        [GROUP, EXPERIMENTAL_GROUP].contains(&self.group())
    }

    /// The resource of the Kubernetes API in one of its versions.
    pub(crate) fn resource(self, api_version: &str) -> ApiResource {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(group, version, self.as_str()),
            self.row().plural,
        )
    }

    /// Whether a user means this kind: its name or its plural in any case, as for kubectl.
    #[must_use]
    pub fn is_named(self, text: &str) -> bool {
        let Row { name, plural, .. } = self.row();
        text.eq_ignore_ascii_case(name) || text.eq_ignore_ascii_case(plural)
    }

    /// The kind with that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object as Kubernetes sends it, which a check turns into an [`Object`].
pub(crate) trait Raw: DeserializeOwned {
    /// The checked object; `None` if it is unusable, and the findings say why.
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object>;

    /// The object if it cannot be read as a whole: its readable parts.
    fn unreadable(_: &Value, _: &ObjectRef, _: &mut Findings) -> Option<Object> {
        None
    }
}

impl Raw for Written<written::consumer::ConsumerSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Consumer::check(self, object, findings).into())
    }

    fn unreadable(value: &Value, object: &ObjectRef, _: &mut Findings) -> Option<Object> {
        Some(Consumer::unreadable(value, object).into())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_of_the_kind_table_have_the_order_of_the_enum_variants() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.kind as usize, index, "{}", row.name);
        }
    }

    #[test]
    fn chart_grants_the_gateway_access_to_every_object_kind() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/sluicegate/templates");
        let read = |file| std::fs::read_to_string(folder.join(file)).unwrap();
        let text = read("_helpers.tpl") + &read("_rbac.tpl") + &read("rbac.yaml");
        let lists =
            text.lines().filter_map(|line| line.trim().strip_prefix("resources: [")?.strip_suffix(']'));
        let granted: Vec<&str> = lists.flat_map(|list| list.split(", ")).collect();
        for row in &TABLE {
            assert!(granted.contains(&row.plural), "{}: {granted:?}", row.plural);
        }
    }
}
