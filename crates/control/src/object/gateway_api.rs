//! Objects of Gateway API (`gateway.networking.k8s.io`) as written, in any version that the gateway reads.
//!
//! These are types of our own for three reasons. The `gateway-api` crate has `TCPRoute` and `UDPRoute` in version
//! `v1alpha2` alone. It brings `kube` and `schemars` with it. It reports a missing field or an unknown value as an
//! error of serde, which discards the whole object and cannot suggest a correction. Unused fields are here too, so that
//! they are not reported as unknown.
#![allow(dead_code, reason = "fields are named so that they are known, whether they are used or not")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

/// The API group of all these objects.
pub(crate) const GROUP: &str = "gateway.networking.k8s.io";

/// Kinds of [`GROUP`] that the gateway ignores until it serves them.
pub(crate) const NOT_SERVED: [&str; 4] = ["HTTPRoute", "GRPCRoute", "ListenerSet", "BackendTLSPolicy"];

/// An object with this specification.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Written<S> {
    api_version: Option<Value>,
    kind: Option<Value>,
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Option<S>,
    status: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayClassSpec {
    pub(crate) controller_name: Option<String>,
    description: Option<String>,
    parameters_ref: Option<ObjectReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewaySpec {
    pub(crate) gateway_class_name: Option<String>,
    pub(crate) listeners: Option<Vec<Listener>>,
    pub(crate) addresses: Option<Vec<Address>>,
    infrastructure: Option<Infrastructure>,
    allowed_listeners: Option<AllowedListeners>,
    tls: Option<Value>,
    default_scope: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Infrastructure {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    parameters_ref: Option<ObjectReference>,
}

#[derive(Deserialize)]
pub(crate) struct AllowedListeners {
    namespaces: Option<Namespaces>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listener {
    pub(crate) name: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) port: Option<i32>,
    pub(crate) protocol: Option<String>,
    pub(crate) tls: Option<ListenerTls>,
    pub(crate) allowed_routes: Option<AllowedRoutes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenerTls {
    pub(crate) mode: Option<String>,
    certificate_refs: Option<Vec<ObjectReference>>,
    options: Option<BTreeMap<String, String>>,
    /// In versions before 1.4 of the experimental channel.
    frontend_validation: Option<Value>,
}

#[derive(Deserialize)]
pub(crate) struct AllowedRoutes {
    pub(crate) namespaces: Option<Namespaces>,
    pub(crate) kinds: Option<Vec<RouteKind>>,
}

#[derive(Deserialize)]
pub(crate) struct Namespaces {
    pub(crate) from: Option<String>,
    selector: Option<LabelSelector>,
}

#[derive(Deserialize)]
pub(crate) struct RouteKind {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ObjectReference {
    group: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// The specification of a `TLSRoute`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TlsRouteSpec {
    pub(crate) parent_refs: Option<Vec<ParentRef>>,
    use_default_gateways: Option<String>,
    pub(crate) hostnames: Option<Vec<String>>,
    pub(crate) rules: Option<Vec<Rule>>,
}

/// The specification of a `TCPRoute` or a `UDPRoute`, which have no names.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortRouteSpec {
    pub(crate) parent_refs: Option<Vec<ParentRef>>,
    use_default_gateways: Option<String>,
    pub(crate) rules: Option<Vec<Rule>>,
}

impl From<PortRouteSpec> for TlsRouteSpec {
    fn from(spec: PortRouteSpec) -> Self {
        let PortRouteSpec { parent_refs, use_default_gateways, rules } = spec;
        Self { parent_refs, use_default_gateways, hostnames: None, rules }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParentRef {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) section_name: Option<String>,
    pub(crate) port: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    name: Option<String>,
    pub(crate) backend_refs: Option<Vec<BackendRef>>,
}

#[derive(Deserialize)]
pub(crate) struct BackendRef {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) port: Option<i32>,
    pub(crate) weight: Option<i32>,
}

#[derive(Default, Deserialize)]
pub(crate) struct ReferenceGrantSpec {
    pub(crate) from: Option<Vec<GrantFrom>>,
    pub(crate) to: Option<Vec<GrantTo>>,
}

#[derive(Deserialize)]
pub(crate) struct GrantFrom {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct GrantTo {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
}
