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

/// The API group of kinds that exist only in the experimental channel.
pub(crate) const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

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
    pub(crate) parameters_ref: Option<ObjectReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewaySpec {
    pub(crate) gateway_class_name: Option<String>,
    pub(crate) listeners: Option<Vec<Listener>>,
    pub(crate) addresses: Option<Vec<Address>>,
    pub(crate) infrastructure: Option<Infrastructure>,
    pub(crate) allowed_listeners: Option<AllowedListeners>,
    pub(crate) tls: Option<GatewayTls>,
    default_scope: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct GatewayTls {
    pub(crate) backend: Option<GatewayBackendTls>,
    pub(crate) frontend: Option<FrontendTls>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrontendTls {
    pub(crate) default: Option<FrontendTlsConfig>,
    pub(crate) per_port: Option<Vec<FrontendTlsPort>>,
}

#[derive(Default, Deserialize)]
pub(crate) struct FrontendTlsConfig {
    pub(crate) validation: Option<FrontendValidation>,
}

#[derive(Deserialize)]
pub(crate) struct FrontendTlsPort {
    pub(crate) port: Option<i32>,
    pub(crate) tls: Option<FrontendTlsConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrontendValidation {
    pub(crate) ca_certificate_refs: Option<Vec<ObjectReference>>,
    pub(crate) mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayBackendTls {
    pub(crate) client_certificate_ref: Option<ObjectReference>,
}

#[derive(Deserialize)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) routability: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Infrastructure {
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) parameters_ref: Option<ObjectReference>,
}

#[derive(Deserialize)]
pub(crate) struct AllowedListeners {
    pub(crate) namespaces: Option<Namespaces>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenerSetSpec {
    pub(crate) parent_ref: Option<ObjectReference>,
    pub(crate) listeners: Option<Vec<Listener>>,
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
    pub(crate) filters: Option<ListenerFilters>,
}

#[derive(Deserialize)]
pub(crate) struct ListenerFilters {
    pub(crate) requests: Option<Vec<ListenerFilter>>,
}

/// A filter of a listener. The field of its type has the values.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenerFilter {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) external_auth: Option<ExternalAuth>,
    pub(crate) extension_ref: Option<LocalObjectReference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExternalAuth {
    pub(crate) protocol: Option<String>,
    pub(crate) backend_ref: Option<BackendRef>,
    pub(crate) grpc: Option<GrpcAuth>,
    pub(crate) http: Option<HttpAuth>,
    pub(crate) forward_body: Option<ForwardBody>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrpcAuth {
    pub(crate) allowed_headers: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpAuth {
    pub(crate) path: Option<String>,
    pub(crate) allowed_headers: Option<Vec<String>>,
    pub(crate) allowed_response_headers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ForwardBody {
    pub(crate) max_size: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListenerTls {
    pub(crate) mode: Option<String>,
    pub(crate) certificate_refs: Option<Vec<ObjectReference>>,
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
    pub(crate) selector: Option<LabelSelector>,
}

#[derive(Deserialize)]
pub(crate) struct RouteKind {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ObjectReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

/// The specification of an `HTTPRoute`, whose matches are [`HttpMatch`]es, or of a `GRPCRoute`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRouteSpec<M> {
    pub(crate) parent_refs: Option<Vec<ParentRef>>,
    use_default_gateways: Option<String>,
    pub(crate) hostnames: Option<Vec<String>>,
    pub(crate) rules: Option<Vec<HttpRule<M>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpRule<M> {
    pub(crate) name: Option<String>,
    pub(crate) matches: Option<Vec<M>>,
    pub(crate) filters: Option<Vec<HttpFilter>>,
    pub(crate) backend_refs: Option<Vec<HttpBackendRef>>,
    pub(crate) timeouts: Option<HttpTimeouts>,
    pub(crate) retry: Option<HttpRetry>,
    pub(crate) session_persistence: Option<SessionPersistence>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpMatch {
    pub(crate) path: Option<TypedValue>,
    pub(crate) headers: Option<Vec<NamedMatch>>,
    pub(crate) query_params: Option<Vec<NamedMatch>>,
    pub(crate) method: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct TypedValue {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct NamedMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) value: Option<String>,
}

/// A filter. The field of its type has the values.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpFilter {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) request_header_modifier: Option<HeaderModifier>,
    pub(crate) response_header_modifier: Option<HeaderModifier>,
    pub(crate) request_mirror: Option<RequestMirror>,
    pub(crate) request_redirect: Option<RequestRedirect>,
    pub(crate) url_rewrite: Option<UrlRewriteFilter>,
    pub(crate) cors: Option<CorsFilter>,
    pub(crate) external_auth: Option<ExternalAuth>,
    extension_ref: Option<ObjectReference>,
}

#[derive(Default, Deserialize)]
pub(crate) struct HeaderModifier {
    pub(crate) set: Option<Vec<HeaderLine>>,
    pub(crate) add: Option<Vec<HeaderLine>>,
    pub(crate) remove: Option<Vec<String>>,
}

#[derive(Deserialize)]
pub(crate) struct HeaderLine {
    pub(crate) name: Option<String>,
    pub(crate) value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestMirror {
    pub(crate) backend_ref: Option<BackendRef>,
    pub(crate) percent: Option<i32>,
    pub(crate) fraction: Option<Fraction>,
}

#[derive(Deserialize)]
pub(crate) struct Fraction {
    pub(crate) numerator: Option<i32>,
    pub(crate) denominator: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestRedirect {
    pub(crate) scheme: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathModifier>,
    pub(crate) port: Option<i32>,
    pub(crate) status_code: Option<i32>,
}

#[derive(Default, Deserialize)]
pub(crate) struct UrlRewriteFilter {
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathModifier>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathModifier {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) replace_full_path: Option<String>,
    pub(crate) replace_prefix_match: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CorsFilter {
    pub(crate) allow_origins: Option<Vec<String>>,
    pub(crate) allow_credentials: Option<bool>,
    pub(crate) allow_methods: Option<Vec<String>>,
    pub(crate) allow_headers: Option<Vec<String>>,
    pub(crate) expose_headers: Option<Vec<String>>,
    pub(crate) max_age: Option<i64>,
}

#[derive(Deserialize)]
pub(crate) struct HttpBackendRef {
    #[serde(flatten)]
    pub(crate) backend: BackendRef,
    pub(crate) filters: Option<Vec<HttpFilter>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HttpTimeouts {
    pub(crate) request: Option<String>,
    pub(crate) backend_request: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct HttpRetry {
    pub(crate) codes: Option<Vec<i32>>,
    pub(crate) attempts: Option<i32>,
    pub(crate) backoff: Option<String>,
}

/// Session persistence (GEP-1619). Gateway API 1.6 has `sessionName` and `cookieConfig`, Gateway API 1.7 `cookie` and `header`
/// instead. Releases before 1.6 also have `idleTimeout`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionPersistence {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) absolute_timeout: Option<String>,
    pub(crate) idle_timeout: Option<String>,
    pub(crate) session_name: Option<String>,
    pub(crate) cookie_config: Option<CookieConfig>,
    pub(crate) cookie: Option<SessionCookie>,
    pub(crate) header: Option<SessionHeader>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CookieConfig {
    pub(crate) lifetime_type: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionCookie {
    pub(crate) name: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) lifetime_type: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct SessionHeader {
    pub(crate) name: Option<String>,
}

/// The specification of a `GRPCRoute`, which has no timeouts and no retries.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrpcRouteSpec {
    pub(crate) parent_refs: Option<Vec<ParentRef>>,
    use_default_gateways: Option<String>,
    pub(crate) hostnames: Option<Vec<String>>,
    pub(crate) rules: Option<Vec<GrpcRule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrpcRule {
    name: Option<String>,
    pub(crate) matches: Option<Vec<GrpcMatch>>,
    pub(crate) filters: Option<Vec<HttpFilter>>,
    pub(crate) backend_refs: Option<Vec<HttpBackendRef>>,
    pub(crate) session_persistence: Option<SessionPersistence>,
}

#[derive(Default, Deserialize)]
pub(crate) struct GrpcMatch {
    pub(crate) method: Option<GrpcMethodMatch>,
    pub(crate) headers: Option<Vec<NamedMatch>>,
}

#[derive(Deserialize)]
pub(crate) struct GrpcMethodMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) method: Option<String>,
}

impl From<GrpcRouteSpec> for HttpRouteSpec<GrpcMatch> {
    fn from(spec: GrpcRouteSpec) -> Self {
        let GrpcRouteSpec { parent_refs, use_default_gateways, hostnames, rules } = spec;
        let rules = rules.map(|rules| rules.into_iter().map(Into::into).collect());
        Self { parent_refs, use_default_gateways, hostnames, rules }
    }
}

impl From<GrpcRule> for HttpRule<GrpcMatch> {
    fn from(rule: GrpcRule) -> Self {
        let GrpcRule { name, matches, filters, backend_refs, session_persistence } = rule;
        Self { name, matches, filters, backend_refs, timeouts: None, retry: None, session_persistence }
    }
}

/// The specification of a `BackendTLSPolicy`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendTlsPolicySpec {
    pub(crate) target_refs: Option<Vec<BackendTlsTarget>>,
    pub(crate) validation: Option<BackendTlsValidation>,
    options: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendTlsTarget {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) section_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendTlsValidation {
    pub(crate) ca_certificate_refs: Option<Vec<LocalObjectReference>>,
    #[serde(rename = "wellKnownCACertificates")]
    pub(crate) well_known_ca_certificates: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) subject_alt_names: Option<Vec<SubjectAltName>>,
}

/// An object in the namespace of the naming object.
#[derive(Deserialize)]
pub(crate) struct LocalObjectReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
}

impl From<LocalObjectReference> for ObjectReference {
    fn from(raw: LocalObjectReference) -> Self {
        Self { group: raw.group, kind: raw.kind, namespace: None, name: raw.name }
    }
}

impl From<LocalObjectReference> for BackendTlsTarget {
    fn from(raw: LocalObjectReference) -> Self {
        Self { group: raw.group, kind: raw.kind, name: raw.name, section_name: None }
    }
}

/// The specification of an `XBackendTrafficPolicy`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackendTrafficPolicySpec {
    pub(crate) target_refs: Option<Vec<LocalObjectReference>>,
    pub(crate) retry_constraint: Option<RetryConstraint>,
    pub(crate) session_persistence: Option<SessionPersistence>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetryConstraint {
    pub(crate) budget: Option<BudgetDetails>,
    pub(crate) min_retry_rate: Option<RequestRate>,
}

#[derive(Default, Deserialize)]
pub(crate) struct BudgetDetails {
    pub(crate) percent: Option<i64>,
    pub(crate) interval: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct RequestRate {
    pub(crate) count: Option<i64>,
    pub(crate) interval: Option<String>,
}

/// The specification of an `XBackend`, in release 1.6 or 1.7.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct XBackendSpec {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) port: Option<XBackendPort>,
    pub(crate) external_hostname: Option<ExternalHostname>,
    endpoint_selector: Option<Value>,
    session_persistence: Option<Value>,
    pub(crate) protocol: Option<String>,
    pub(crate) tls: Option<XBackendTls>,
}

#[derive(Default, Deserialize)]
pub(crate) struct XBackendPort {
    /// Of release 1.7.
    pub(crate) number: Option<i32>,
    /// Of release 1.6.
    pub(crate) port: Option<i32>,
    /// Of release 1.6.
    name: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ExternalHostname {
    pub(crate) hostname: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct XBackendTls {
    pub(crate) mode: Option<String>,
    pub(crate) client_certificate_ref: Option<ObjectReference>,
    pub(crate) validation: Option<BackendTlsValidation>,
}

#[derive(Deserialize)]
pub(crate) struct SubjectAltName {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) uri: Option<String>,
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
