//! Kubernetes objects, checked once when they are read, and stored in a form that needs no further checks.
//!
//! | module | content |
//! |---|---|
//! | [`mod@kind`] | the table of all kinds |
//! | [`ingress`] | `networking.k8s.io/v1` Ingress: rules, paths, backends |
//! | [`class`] | `networking.k8s.io/v1` IngressClass |
//! | [`gateway`] | `gateway.networking.k8s.io` GatewayClass and Gateway: listeners |
//! | [`listener_set`] | ListenerSet: further listeners of a Gateway |
//! | [`route`] | TLSRoute, TCPRoute and UDPRoute: parents, names, backends |
//! | [`http_route`], [`http_filter`] | HTTPRoute: rules, matches, filters |
//! | [`session_persistence`] | session persistence of routes and backends |
//! | [`external_auth`] | the filter `ExternalAuth`, and the filters of listeners |
//! | [`grpc_route`] | GRPCRoute: matches of services and methods |
//! | [`backend_tls`] | BackendTLSPolicy: TLS to the endpoints of Services |
//! | [`backend_traffic`] | XBackendTrafficPolicy: retries and sessions of Services |
//! | [`x_backend`] | XBackend: a host outside of the cluster |
//! | [`grant`] | ReferenceGrant: the routes that may name the Services of a namespace |
//! | [`gateway_api`] | the types of Gateway API as written |
//! | [`policy`] | SecurityPolicy, Consumer, RateLimitPolicy and TrafficPolicy |
//! | [`api`] | Api: an OpenAPI document, and the places where clients reach it |
//! | [`namespace`] | `v1` Namespace: labels, and selectors of labels |
//! | [`service`] | `v1` Service: ports, external name, annotations |
//! | [`mod@slice`] | `discovery.k8s.io/v1` EndpointSlice |
//! | [`secret`], [`certificate`] | `v1` Secret and ConfigMap: certificates, keys, CA certificates |
//! | [`trust_bundle`] | ClusterTrustBundle: CA certificates for the whole cluster |
//! | [`parameters`] | the parameters of Gateways, in a ConfigMap |
//! | [`host`], [`path`] | the host and the path of a rule, into the normal form of the model |
//! | [`backend`] | the protocol to endpoints over HTTP |
//! | [`annotation`] | `sluicegate.dev/*` annotations |
//! | [`nginx`] | annotations of ingress-nginx |

use std::fmt;
use std::sync::Arc;

use sluicegate_model::ObjectId;

pub use kind::Kind;

pub(crate) mod annotation;
pub(crate) mod api;
pub(crate) mod backend;
pub(crate) mod backend_tls;
pub(crate) mod backend_traffic;
pub(crate) mod certificate;
pub(crate) mod class;
pub(crate) mod external_auth;
pub(crate) mod gateway;
pub(crate) mod gateway_api;
pub(crate) mod grant;
mod grpc_route;
pub mod host;
mod http_filter;
pub(crate) mod http_route;
pub(crate) mod ingress;
pub(crate) mod kind;
pub(crate) mod listener_set;
pub(crate) mod manager;
pub(crate) mod namespace;
pub(crate) mod nginx;
pub(crate) mod parameters;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod session_persistence;
pub(crate) mod slice;
pub(crate) mod trust_bundle;
pub(crate) mod visibility;
pub(crate) mod x_backend;

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

/// Defines [`Object`]: for each type of checked objects its name, the type, and its kinds.
macro_rules! objects {
    ($($name:ident($type:ty): $kinds:expr,)*) => {
        /// A checked object.
        #[derive(Clone, Debug)]
        pub(crate) enum Object {
            $($name(Arc<$type>),)*
        }

        $(
            impl Checked for $type {
                const KINDS: &'static [Kind] = &$kinds;

                fn of(object: &Object) -> Option<&Self> {
                    match object {
                        Object::$name(checked) => Some(checked),
                        _ => None,
                    }
                }
            }

            impl From<$type> for Object {
                fn from(checked: $type) -> Self {
                    Self::$name(Arc::new(checked))
                }
            }
        )*

        impl PartialEq for Object {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$name(one), Self::$name(other)) => Arc::ptr_eq(one, other) || one == other,)*
                    _ => false,
                }
            }
        }
    };
}

objects! {
    IngressClass(class::IngressClass): [Kind::IngressClass],
    Ingress(ingress::Ingress): [Kind::Ingress],
    GatewayClass(gateway::GatewayClass): [Kind::GatewayClass],
    Gateway(gateway::Gateway): [Kind::Gateway],
    ListenerSet(listener_set::ListenerSet): [Kind::ListenerSet],
    HttpRoute(http_route::HttpRoute): [Kind::HttpRoute, Kind::GrpcRoute],
    Route(route::Route): [Kind::TlsRoute, Kind::TcpRoute, Kind::UdpRoute],
    BackendTlsPolicy(backend_tls::BackendTlsPolicy): [Kind::BackendTlsPolicy],
    BackendTrafficPolicy(backend_traffic::BackendTrafficPolicy): [Kind::XBackendTrafficPolicy],
    XBackend(x_backend::XBackend): [Kind::XBackend],
    ReferenceGrant(grant::ReferenceGrant): [Kind::ReferenceGrant],
    SecurityPolicy(policy::security::SecurityPolicy): [Kind::SecurityPolicy],
    Consumer(policy::consumer::Consumer): [Kind::Consumer],
    RateLimitPolicy(policy::rate_limit::RateLimitPolicy): [Kind::RateLimitPolicy],
    TrafficPolicy(policy::traffic::TrafficPolicy): [Kind::TrafficPolicy],
    Api(api::Api): [Kind::Api],
    Plan(plan::Plan): [Kind::Plan],
    Subscription(plan::Subscription): [Kind::Subscription],
    Namespace(namespace::Namespace): [Kind::Namespace],
    Service(service::Service): [Kind::Service],
    EndpointSlice(slice::EndpointSlice): [Kind::EndpointSlice],
    Secret(secret::Secret): [Kind::Secret],
    ConfigMap(secret::ConfigMap): [Kind::ConfigMap],
    ClusterTrustBundle(trust_bundle::ClusterTrustBundle): [Kind::ClusterTrustBundle],
}

/// A type of checked objects.
pub(crate) trait Checked: Sized + 'static {
    /// The kinds whose objects are of this type.
    const KINDS: &'static [Kind];

    /// The object, if it is of this type.
    fn of(object: &Object) -> Option<&Self>;
}

impl Object {
    /// Whether the object only refuses requests, because of errors. Then it is no valid version that a newer faulty
    /// version would have to leave in service.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::SecurityPolicy(policy) => policy.security.refuses.is_some(),
            Self::Consumer(consumer) => consumer.is_refused,
            Self::BackendTlsPolicy(policy) => policy.validation.is_err(),
            Self::XBackend(backend) => backend.destination.is_err(),
            _ => false,
        }
    }

    /// Whether the object denies requests because an authorization filter is invalid. The last valid version may lack the
    /// filter, so it does not stay in service.
    pub(crate) fn closes(&self) -> bool {
        let closes = |listener: &gateway::Listener| listener.filters.is_closed();
        match self {
            Self::HttpRoute(route) => route.closes,
            Self::Gateway(gateway) => gateway.listeners.iter().any(closes),
            Self::ListenerSet(set) => set.listeners.iter().any(closes),
            _ => false,
        }
    }
}
