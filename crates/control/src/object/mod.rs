//! Kubernetes objects, checked once when they are read, and stored in a form that needs no further checks.
//!
//! | module | content |
//! |---|---|
//! | [`ingress`] | `networking.k8s.io/v1` Ingress: rules, paths, backends |
//! | [`class`] | `networking.k8s.io/v1` IngressClass |
//! | [`gateway`] | `gateway.networking.k8s.io` GatewayClass and Gateway: listeners |
//! | [`route`] | TLSRoute, TCPRoute and UDPRoute: parents, names, backends |
//! | [`grant`] | ReferenceGrant: the routes that may name the Services of a namespace |
//! | [`gateway_api`] | the types of Gateway API as written |
//! | [`policy`] | SecurityPolicy, Consumer, RateLimitPolicy and TrafficPolicy |
//! | [`service`] | `v1` Service: ports, external name, annotations |
//! | [`mod@slice`] | `discovery.k8s.io/v1` EndpointSlice |
//! | [`secret`], [`certificate`] | `v1` Secret and ConfigMap: certificates, keys, CA certificates |
//! | [`host`], [`path`] | the host and the path of a rule, into the normal form of the model |
//! | [`backend`] | the protocol to endpoints over HTTP |
//! | [`annotation`] | `sluicegate.dev/*` annotations |

use std::fmt;
use std::sync::Arc;

use sluicegate_model::ObjectId;

pub(crate) mod annotation;
pub(crate) mod backend;
pub(crate) mod certificate;
pub(crate) mod class;
pub(crate) mod gateway;
pub(crate) mod gateway_api;
pub(crate) mod grant;
pub(crate) mod host;
pub(crate) mod ingress;
pub(crate) mod path;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod slice;

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
    /// `gateway.networking.k8s.io/v1` `TLSRoute`.
    TlsRoute,
    /// `gateway.networking.k8s.io/v1` `TCPRoute`.
    TcpRoute,
    /// `gateway.networking.k8s.io/v1` `UDPRoute`.
    UdpRoute,
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
    /// `v1` `Service`.
    Service,
    /// `discovery.k8s.io/v1` `EndpointSlice`.
    EndpointSlice,
    /// `v1` `Secret`.
    Secret,
    /// `v1` `ConfigMap`.
    ConfigMap,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub(crate) const ALL: [Self; 16] = [
        Self::IngressClass,
        Self::Ingress,
        Self::GatewayClass,
        Self::Gateway,
        Self::TlsRoute,
        Self::TcpRoute,
        Self::UdpRoute,
        Self::ReferenceGrant,
        Self::SecurityPolicy,
        Self::Consumer,
        Self::RateLimitPolicy,
        Self::TrafficPolicy,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::ConfigMap,
    ];

    /// Its name, as manifests write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IngressClass => "IngressClass",
            Self::Ingress => "Ingress",
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::SecurityPolicy => "SecurityPolicy",
            Self::Consumer => "Consumer",
            Self::RateLimitPolicy => "RateLimitPolicy",
            Self::TrafficPolicy => "TrafficPolicy",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// Whether its objects have no namespace.
    pub(crate) const fn is_cluster_scoped(self) -> bool {
        matches!(self, Self::IngressClass | Self::GatewayClass)
    }

    /// The API groups and versions that the gateway reads, the preferred version first.
    pub(crate) const fn api_versions(self) -> &'static [&'static str] {
        match self {
            Self::IngressClass | Self::Ingress => &["networking.k8s.io/v1"],
            Self::GatewayClass | Self::Gateway => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1beta1",
                "gateway.networking.k8s.io/v1alpha2",
            ],
            Self::TlsRoute => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1alpha3",
                "gateway.networking.k8s.io/v1alpha2",
            ],
            Self::TcpRoute | Self::UdpRoute => {
                &["gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1alpha2"]
            }
            Self::ReferenceGrant => &[
                "gateway.networking.k8s.io/v1",
                "gateway.networking.k8s.io/v1beta1",
                "gateway.networking.k8s.io/v1alpha2",
            ],
            Self::SecurityPolicy | Self::Consumer | Self::RateLimitPolicy | Self::TrafficPolicy => {
                &["sluicegate.dev/v1alpha1"]
            }
            Self::EndpointSlice => &["discovery.k8s.io/v1"],
            Self::Service | Self::Secret | Self::ConfigMap => &["v1"],
        }
    }

    /// The kind with that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for kinds that have none.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectRef {
    /// The identifier of the object in the model.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId { kind: self.kind.as_str(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// `Kind namespace/name`, or `Kind name` for kinds without a namespace.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// A checked object.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    IngressClass(Arc<class::IngressClass>),
    Ingress(Arc<ingress::Ingress>),
    GatewayClass(Arc<gateway::GatewayClass>),
    Gateway(Arc<gateway::Gateway>),
    /// A `TLSRoute`, a `TCPRoute` or a `UDPRoute`.
    Route(Arc<route::Route>),
    ReferenceGrant(Arc<grant::ReferenceGrant>),
    SecurityPolicy(Arc<policy::security::SecurityPolicy>),
    Consumer(Arc<policy::consumer::Consumer>),
    RateLimitPolicy(Arc<policy::rate_limit::RateLimitPolicy>),
    TrafficPolicy(Arc<policy::traffic::TrafficPolicy>),
    Service(Arc<service::Service>),
    EndpointSlice(Arc<slice::EndpointSlice>),
    Secret(Arc<secret::Secret>),
    ConfigMap(Arc<secret::ConfigMap>),
}

impl Object {
    /// Whether the object only refuses requests, because of errors. Then it is no valid version that a newer faulty
    /// version would have to leave in service.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::SecurityPolicy(policy) => policy.security.refuses.is_some(),
            Self::Consumer(consumer) => consumer.is_refused,
            _ => false,
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
            Arc::ptr_eq(one, other) || one == other
        }
        match (self, other) {
            (Self::IngressClass(one), Self::IngressClass(other)) => same(one, other),
            (Self::Ingress(one), Self::Ingress(other)) => same(one, other),
            (Self::GatewayClass(one), Self::GatewayClass(other)) => same(one, other),
            (Self::Gateway(one), Self::Gateway(other)) => same(one, other),
            (Self::Route(one), Self::Route(other)) => same(one, other),
            (Self::ReferenceGrant(one), Self::ReferenceGrant(other)) => same(one, other),
            (Self::SecurityPolicy(one), Self::SecurityPolicy(other)) => same(one, other),
            (Self::Consumer(one), Self::Consumer(other)) => same(one, other),
            (Self::RateLimitPolicy(one), Self::RateLimitPolicy(other)) => same(one, other),
            (Self::TrafficPolicy(one), Self::TrafficPolicy(other)) => same(one, other),
            (Self::Service(one), Self::Service(other)) => same(one, other),
            (Self::EndpointSlice(one), Self::EndpointSlice(other)) => same(one, other),
            (Self::Secret(one), Self::Secret(other)) => same(one, other),
            (Self::ConfigMap(one), Self::ConfigMap(other)) => same(one, other),
            _ => false,
        }
    }
}
