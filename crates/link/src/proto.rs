//! The messages of `proto/sluicegate/link/v1/link.proto`, which says what each is for.
//!
//! Written by hand instead of generated: it needs no compiler of protobuf where Sluicegate is built. A test holds them
//! against the file.

use std::fmt;

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

mod traffic;

pub(crate) use traffic::*;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FromProxy {
    #[prost(oneof = "FromProxySay", tags = "1, 2, 3")]
    pub(crate) say: Option<FromProxySay>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub(crate) node: String,
    #[prost(string, tag = "2")]
    pub(crate) build: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) epoch: Bytes,
    #[prost(uint64, tag = "4")]
    pub(crate) version: u64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) state: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Inventory {
    #[prost(message, repeated, tag = "1")]
    pub(crate) held: Vec<Held>,
    #[prost(bool, tag = "2")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Held {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) digest: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Served {
    #[prost(uint64, tag = "1")]
    pub(crate) version: u64,
    #[prost(uint32, tag = "2")]
    pub(crate) refused: u32,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct FromControl {
    #[prost(oneof = "FromControlSay", tags = "1, 2, 3")]
    pub(crate) say: Option<FromControlSay>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Welcome {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) epoch: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) build: String,
    #[prost(bool, tag = "3")]
    pub(crate) wants_inventory: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Batch {
    #[prost(uint64, tag = "1")]
    pub(crate) version: u64,
    #[prost(bool, tag = "2")]
    pub(crate) more: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) changed: Vec<Resource>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) gone: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Resource {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Name {
    #[prost(uint32, tag = "1")]
    pub(crate) kind: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) name: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Heartbeat {
    #[prost(uint64, tag = "1")]
    pub(crate) version: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HostPattern {
    #[prost(enumeration = "HostPatternKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PathPattern {
    #[prost(enumeration = "PathPatternKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ObjectId {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VirtualHost {
    #[prost(message, optional, tag = "1")]
    pub(crate) host: Option<HostPattern>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) routes: Vec<Route>,
    #[prost(message, optional, tag = "3")]
    pub(crate) fallback: Option<Route>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Route {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) path: Option<PathPattern>,
    #[prost(message, optional, tag = "3")]
    pub(crate) upstream: Option<UpstreamKey>,
    #[prost(bool, tag = "4")]
    pub(crate) https_only: bool,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) client_auth: Bytes,
    #[prost(message, optional, tag = "6")]
    pub(crate) compression: Option<Codings>,
    #[prost(message, optional, tag = "7")]
    pub(crate) guarded: Option<GuardedPath>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GuardedPath {
    #[prost(message, optional, tag = "1")]
    pub(crate) path: Option<PathPattern>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) policies: Vec<Name>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Codings {
    #[prost(enumeration = "ContentCoding", repeated, tag = "1")]
    pub(crate) codings: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Address {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ip: Bytes,
    #[prost(uint32, tag = "2")]
    pub(crate) port: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) scope: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListenerName {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
    #[prost(bool, tag = "2")]
    pub(crate) datagrams: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Listener {
    #[prost(message, optional, tag = "1")]
    pub(crate) object: Option<ObjectId>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) address: Option<Address>,
    #[prost(enumeration = "ListenerProtocol", tag = "4")]
    pub(crate) protocol: i32,
    #[prost(message, optional, tag = "5")]
    pub(crate) route: Option<Layer4Route>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) tls: Vec<TlsRoute>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TlsRoute {
    #[prost(message, optional, tag = "1")]
    pub(crate) host: Option<HostPattern>,
    #[prost(message, optional, tag = "2")]
    pub(crate) route: Option<Layer4Route>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Layer4Route {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) backends: Vec<WeightedUpstream>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WeightedUpstream {
    #[prost(message, optional, tag = "1")]
    pub(crate) upstream: Option<UpstreamKey>,
    #[prost(uint32, tag = "2")]
    pub(crate) weight: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpstreamKey {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) service: String,
    #[prost(string, tag = "3")]
    pub(crate) port: String,
    #[prost(enumeration = "UpstreamKeyProtocol", tag = "4")]
    pub(crate) protocol: i32,
    #[prost(message, optional, tag = "5")]
    pub(crate) tls: Option<TransportTls>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TransportTls {
    #[prost(string, tag = "1")]
    pub(crate) server_name: String,
    #[prost(bool, tag = "2")]
    pub(crate) sends_name: bool,
    #[prost(bool, tag = "3")]
    pub(crate) verifies: bool,
    #[prost(string, optional, tag = "4")]
    pub(crate) secret: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Upstream {
    #[prost(enumeration = "UpstreamBalance", tag = "1")]
    pub(crate) balance: i32,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) max_requests: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub(crate) max_requests_per_endpoint: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub(crate) external_name: Option<String>,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) tls: Bytes,
    #[prost(uint32, tag = "6")]
    pub(crate) proxy_protocol: u32,
    #[prost(message, optional, tag = "7")]
    pub(crate) ejection: Option<Ejection>,
    #[prost(message, optional, tag = "8")]
    pub(crate) check: Option<HealthCheck>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ejection {
    #[prost(uint32, tag = "1")]
    pub(crate) consecutive_errors: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) time: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) max_percent: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheck {
    #[prost(enumeration = "HealthCheckKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
    #[prost(string, optional, tag = "3")]
    pub(crate) host: Option<String>,
    #[prost(uint32, tag = "4")]
    pub(crate) from: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) to: u32,
    #[prost(string, tag = "6")]
    pub(crate) service: String,
    #[prost(uint64, tag = "7")]
    pub(crate) interval: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) timeout: u64,
    #[prost(uint32, tag = "9")]
    pub(crate) healthy: u32,
    #[prost(uint32, tag = "10")]
    pub(crate) unhealthy: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Endpoints {
    #[prost(message, repeated, tag = "1")]
    pub(crate) endpoints: Vec<Endpoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) address: Option<Address>,
    #[prost(bool, tag = "2")]
    pub(crate) ready: bool,
    #[prost(bool, tag = "3")]
    pub(crate) serving: bool,
    #[prost(bool, tag = "4")]
    pub(crate) terminating: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Certificate {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) chain: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) key: Bytes,
    #[prost(enumeration = "CertificateKeyFormat", tag = "4")]
    pub(crate) key_format: i32,
    #[prost(enumeration = "CertificateKeyKind", tag = "5")]
    pub(crate) key_kind: i32,
    #[prost(message, repeated, tag = "6")]
    pub(crate) names: Vec<HostPattern>,
    #[prost(message, optional, tag = "7")]
    pub(crate) not_before: Option<Time>,
    #[prost(message, optional, tag = "8")]
    pub(crate) not_after: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Time {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(uint32, tag = "2")]
    pub(crate) nanos: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Certificates {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) names: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TlsHost {
    #[prost(message, optional, tag = "1")]
    pub(crate) host: Option<HostPattern>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) certificates: Vec<Bytes>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) client_auth: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClientAuth {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) roots: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(crate) crls: Vec<Bytes>,
    #[prost(enumeration = "ClientAuthMode", tag = "4")]
    pub(crate) mode: i32,
    #[prost(bool, tag = "5")]
    pub(crate) forward: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpstreamTls {
    #[prost(string, tag = "1")]
    pub(crate) server_name: String,
    #[prost(bool, tag = "2")]
    pub(crate) sends_name: bool,
    #[prost(message, optional, tag = "3")]
    pub(crate) authorities: Option<Authorities>,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) identity: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authorities {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) roots: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) crls: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct TicketSecrets {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) secrets: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Security {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(string, optional, tag = "2")]
    pub(crate) refuses: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access: Option<Access>,
    #[prost(message, optional, tag = "4")]
    pub(crate) cors: Option<Cors>,
    #[prost(message, optional, tag = "5")]
    pub(crate) authentication: Option<Authentication>,
    #[prost(message, optional, tag = "6")]
    pub(crate) authorization: Option<Authorization>,
    #[prost(bool, tag = "7")]
    pub(crate) forward_overrides: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Access {
    #[prost(string, repeated, tag = "1")]
    pub(crate) allow: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) deny: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cors {
    #[prost(message, repeated, tag = "1")]
    pub(crate) origins: Vec<OriginPattern>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) methods: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) headers: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) expose: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) credentials: bool,
    #[prost(uint64, tag = "6")]
    pub(crate) max_age: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OriginPattern {
    #[prost(enumeration = "OriginPatternKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) origin: String,
    #[prost(string, tag = "3")]
    pub(crate) scheme: String,
    #[prost(string, tag = "4")]
    pub(crate) suffix: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authentication {
    #[prost(bool, tag = "1")]
    pub(crate) requires_all: bool,
    #[prost(message, repeated, tag = "2")]
    pub(crate) methods: Vec<Method>,
    #[prost(bool, tag = "3")]
    pub(crate) all_namespaces: bool,
    #[prost(string, repeated, tag = "4")]
    pub(crate) namespaces: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Method {
    #[prost(oneof = "MethodBy", tags = "1, 2, 3, 4, 5")]
    pub(crate) by: Option<MethodBy>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Jwt {
    #[prost(message, repeated, tag = "1")]
    pub(crate) providers: Vec<JwtProvider>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) from: Vec<Credential>,
    #[prost(bool, tag = "3")]
    pub(crate) forward: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct JwtProvider {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) issuer: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) audiences: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) algorithms: Vec<String>,
    #[prost(message, optional, tag = "5")]
    pub(crate) keys: Option<JwtKeys>,
    #[prost(uint64, tag = "6")]
    pub(crate) clock_skew: u64,
    #[prost(bool, tag = "7")]
    pub(crate) allows_eternal: bool,
    #[prost(message, repeated, tag = "8")]
    pub(crate) required: Vec<ClaimValues>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) headers: Vec<ClaimHeader>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct JwtKeys {
    #[prost(enumeration = "JwtKeysKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) keys: Bytes,
    #[prost(string, tag = "3")]
    pub(crate) reason: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) remote: Option<RemoteKeys>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RemoteKeys {
    #[prost(string, tag = "1")]
    pub(crate) url: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) authorities: Vec<Bytes>,
    #[prost(uint64, tag = "3")]
    pub(crate) refresh: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) timeout: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimHeader {
    #[prost(string, tag = "1")]
    pub(crate) claim: String,
    #[prost(string, tag = "2")]
    pub(crate) header: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Credential {
    #[prost(enumeration = "CredentialKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) prefix: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ApiKey {
    #[prost(message, repeated, tag = "1")]
    pub(crate) from: Vec<Credential>,
    #[prost(bool, tag = "2")]
    pub(crate) forward: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Basic {
    #[prost(string, tag = "1")]
    pub(crate) realm: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) users: Vec<User>,
    #[prost(bool, tag = "3")]
    pub(crate) forward: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct User {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) hash: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct External {
    #[prost(string, tag = "1")]
    pub(crate) url: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) authorities: Vec<Bytes>,
    #[prost(string, tag = "3")]
    pub(crate) method: String,
    #[prost(uint64, tag = "4")]
    pub(crate) timeout: u64,
    #[prost(bool, tag = "5")]
    pub(crate) all_request_headers: bool,
    #[prost(string, repeated, tag = "6")]
    pub(crate) request_headers: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) response_headers: Vec<String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) sign_in: Option<SignIn>,
    #[prost(message, optional, tag = "9")]
    pub(crate) cache: Option<ExternalCache>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SignIn {
    #[prost(string, tag = "1")]
    pub(crate) url: String,
    #[prost(string, tag = "2")]
    pub(crate) parameter: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExternalCache {
    #[prost(message, repeated, tag = "1")]
    pub(crate) key: Vec<KeyPart>,
    #[prost(uint64, tag = "2")]
    pub(crate) admitted: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) refused: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyPart {
    #[prost(enumeration = "KeyPartKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<Credential>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnusableMethod {
    #[prost(string, tag = "1")]
    pub(crate) method: String,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authorization {
    #[prost(message, repeated, tag = "1")]
    pub(crate) rules: Vec<AuthorizationRule>,
    #[prost(bool, tag = "2")]
    pub(crate) allows_others: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthorizationRule {
    #[prost(bool, tag = "1")]
    pub(crate) allows: bool,
    #[prost(message, repeated, tag = "2")]
    pub(crate) consumers: Vec<ConsumerName>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) groups: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) claims: Vec<ClaimValues>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) methods: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) paths: Vec<PathPattern>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) addresses: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConsumerName {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimValues {
    #[prost(string, tag = "1")]
    pub(crate) claim: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimits {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) limits: Vec<Limit>,
    #[prost(bool, tag = "3")]
    pub(crate) headers: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) shared: Option<SharedLimits>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) concurrency: Vec<Concurrency>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Concurrency {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) requests: u32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) key: Vec<LimitKey>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) groups: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) dry_run: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SharedLimits {
    #[prost(enumeration = "SharedLimitsKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) redis: Option<Redis>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Redis {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) username: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) password: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub(crate) tls: Option<RedisTls>,
    #[prost(uint32, tag = "5")]
    pub(crate) database: u32,
    #[prost(string, tag = "6")]
    pub(crate) prefix: String,
    #[prost(uint64, tag = "7")]
    pub(crate) interval: u64,
    #[prost(uint64, tag = "8")]
    pub(crate) timeout: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RedisTls {
    #[prost(string, tag = "1")]
    pub(crate) server_name: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) authorities: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limit {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) requests: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) per: u64,
    #[prost(enumeration = "LimitWindow", tag = "4")]
    pub(crate) window: i32,
    #[prost(uint32, tag = "5")]
    pub(crate) burst: u32,
    #[prost(message, repeated, tag = "6")]
    pub(crate) key: Vec<LimitKey>,
    #[prost(string, repeated, tag = "7")]
    pub(crate) groups: Vec<String>,
    #[prost(bool, tag = "8")]
    pub(crate) dry_run: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LimitKey {
    #[prost(enumeration = "LimitKeyKind", tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) ipv6_prefix: u32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Consumer {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ObjectId>,
    #[prost(string, tag = "2")]
    pub(crate) username: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) groups: Vec<String>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(crate) keys: Vec<Bytes>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) tokens: Vec<TokenSubject>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) users: Vec<String>,
    #[prost(bool, tag = "7")]
    pub(crate) refused: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TokenSubject {
    #[prost(string, optional, tag = "1")]
    pub(crate) issuer: Option<String>,
    #[prost(enumeration = "TokenSubjectClaim", tag = "2")]
    pub(crate) claim: i32,
    #[prost(string, tag = "3")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Settings {
    #[prost(message, optional, tag = "1")]
    pub(crate) timeouts: Option<Timeouts>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limits: Option<Limits>,
    #[prost(message, optional, tag = "3")]
    pub(crate) resilience: Option<Resilience>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) trusted_peers: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) proxy_protocol_peers: Vec<String>,
    #[prost(bool, tag = "6")]
    pub(crate) underscores_in_headers: bool,
    #[prost(message, optional, tag = "7")]
    pub(crate) tls: Option<TlsSettings>,
    #[prost(message, optional, tag = "8")]
    pub(crate) compression: Option<Compression>,
    #[prost(message, optional, tag = "9")]
    pub(crate) tracing: Option<Tracing>,
    #[prost(bool, tag = "10")]
    pub(crate) allow_encoded_dot_segments: bool,
    #[prost(bool, tag = "11")]
    pub(crate) allow_non_ascii_targets: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Timeouts {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) tls_handshake: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) proxy_protocol: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) request_head: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) request_body: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) client_idle: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) client_write: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) connect: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) response_head: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) upstream_idle: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) pool_idle: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) tunnel_idle: Option<u64>,
    #[prost(uint64, optional, tag = "12")]
    pub(crate) udp_idle: Option<u64>,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) drain: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub(crate) request_body_grace: Option<u64>,
    #[prost(uint64, optional, tag = "15")]
    pub(crate) request_body_total: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limits {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) client_hello: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) request_head: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) response_head: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) headers: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) request_body: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) requests_per_connection: Option<u64>,
    #[prost(uint32, optional, tag = "7")]
    pub(crate) http2_streams: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub(crate) http2_stream_window: Option<u32>,
    #[prost(uint32, optional, tag = "9")]
    pub(crate) http2_connection_window: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) connections_per_worker: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) udp_flows_per_worker: Option<u64>,
    #[prost(uint64, optional, tag = "12")]
    pub(crate) pool_per_endpoint: Option<u64>,
    #[prost(uint64, optional, tag = "13")]
    pub(crate) replay: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub(crate) compressions_per_worker: Option<u64>,
    #[prost(uint64, optional, tag = "15")]
    pub(crate) request_body_rate: Option<u64>,
    #[prost(uint64, optional, tag = "16")]
    pub(crate) stalled_uploads_per_endpoint: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resilience {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) attempts: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) connect_hedge: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) endpoint_wait: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) unacknowledged: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) slow_start: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub(crate) panic_threshold_percent: Option<u32>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) probe_interval: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) probe_interval_max: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TlsSettings {
    #[prost(enumeration = "TlsSettingsVersion", optional, tag = "1")]
    pub(crate) min_version: Option<i32>,
    #[prost(enumeration = "TlsSettingsUnknownNames", optional, tag = "2")]
    pub(crate) unknown_names: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hsts: Option<Hsts>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) redirect_port: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hsts {
    #[prost(uint64, tag = "1")]
    pub(crate) max_age: u64,
    #[prost(bool, tag = "2")]
    pub(crate) include_subdomains: bool,
    #[prost(bool, tag = "3")]
    pub(crate) preload: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tracing {
    #[prost(string, tag = "1")]
    pub(crate) collector: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) authorities: Vec<Bytes>,
    #[prost(double, optional, tag = "3")]
    pub(crate) sample_percent: Option<f64>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) followed_per_second: Option<u32>,
    #[prost(string, tag = "5")]
    pub(crate) service_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compression {
    #[prost(message, optional, tag = "1")]
    pub(crate) codings: Option<Codings>,
    #[prost(message, optional, tag = "2")]
    pub(crate) types: Option<MediaRanges>,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) min_length: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) gzip: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    pub(crate) brotli: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    pub(crate) zstd: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MediaRanges {
    #[prost(string, repeated, tag = "1")]
    pub(crate) ranges: Vec<String>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum FromProxySay {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Inventory(Inventory),
    #[prost(message, tag = "3")]
    Served(Served),
}

#[derive(Clone, PartialEq, Oneof)]
#[prost(skip_debug)]
pub(crate) enum FromControlSay {
    #[prost(message, tag = "1")]
    Welcome(Welcome),
    #[prost(message, tag = "2")]
    Batch(Batch),
    #[prost(message, tag = "3")]
    Heartbeat(Heartbeat),
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum MethodBy {
    #[prost(message, tag = "1")]
    Jwt(Jwt),
    #[prost(message, tag = "2")]
    ApiKey(ApiKey),
    #[prost(message, tag = "3")]
    Basic(Basic),
    #[prost(message, tag = "4")]
    Unusable(UnusableMethod),
    #[prost(message, tag = "5")]
    External(External),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum HostPatternKind {
    None = 0,
    Exact = 1,
    Wildcard = 2,
    Suffix = 3,
    Any = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum PathPatternKind {
    None = 0,
    Exact = 1,
    Prefix = 2,
    Starts = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum ContentCoding {
    None = 0,
    Gzip = 1,
    Brotli = 2,
    Zstd = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum ListenerProtocol {
    None = 0,
    Tcp = 1,
    Tls = 2,
    Udp = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum UpstreamKeyProtocol {
    None = 0,
    Http = 1,
    Http2 = 2,
    Tcp = 3,
    Udp = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum HealthCheckKind {
    None = 0,
    Tcp = 1,
    Http = 2,
    Grpc = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum UpstreamBalance {
    None = 0,
    Ewma = 1,
    RoundRobin = 2,
    LeastRequest = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum CertificateKeyKind {
    None = 0,
    Ecdsa = 1,
    Ed25519 = 2,
    Rsa = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum CertificateKeyFormat {
    None = 0,
    Pkcs8 = 1,
    Pkcs1 = 2,
    Sec1 = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum ClientAuthMode {
    None = 0,
    Required = 1,
    Optional = 2,
    OptionalNoCa = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum OriginPatternKind {
    None = 0,
    Any = 1,
    Exact = 2,
    Below = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum JwtKeysKind {
    None = 0,
    Given = 1,
    Shared = 2,
    Unusable = 3,
    Remote = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum KeyPartKind {
    None = 0,
    Value = 1,
    Method = 2,
    Host = 3,
    Path = 4,
    Address = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum CredentialKind {
    None = 0,
    Header = 1,
    Query = 2,
    Cookie = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum SharedLimitsKind {
    None = 0,
    Redis = 1,
    Unusable = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum LimitWindow {
    None = 0,
    TokenBucket = 1,
    Sliding = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum LimitKeyKind {
    None = 0,
    Address = 1,
    Header = 2,
    Claim = 3,
    Consumer = 4,
    Route = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum TokenSubjectClaim {
    None = 0,
    Subject = 1,
    ClientId = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum TlsSettingsVersion {
    None = 0,
    Tls12 = 1,
    Tls13 = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum TlsSettingsUnknownNames {
    None = 0,
    Default = 1,
    Refuse = 2,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch (confidential)")
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate (confidential)")
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Consumer (confidential)")
    }
}

impl fmt::Debug for FromControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromControl (confidential)")
    }
}

impl fmt::Debug for FromControlSay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromControlSay (confidential)")
    }
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwtKeys (confidential)")
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redis (confidential)")
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resource (confidential)")
    }
}

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecrets (confidential)")
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User (confidential)")
    }
}
