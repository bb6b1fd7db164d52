//! Upstreams: their endpoints, load balancing, TLS and health.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Serialize, Serializer};

use crate::encoding::{Adapt as _, Address, Context, List, Maybe, Part, Pointer, Raw, Shared, Text};
use crate::feature::{Ejection, HealthCheck, RetryConstraint};
use crate::value::CipherSuites;
use crate::{Certificate, ProxyProtocol};

/// The stable identity of an upstream. An upstream survives changes of the configuration: while any route names the upstream,
/// its connections, load estimates and health stay. Ten routes to one Service share one upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct UpstreamKey {
    /// The Service's namespace.
    #[cbor(n(0), with = "Text")]
    pub namespace: Arc<str>,
    /// The Service's name.
    #[cbor(n(1), with = "Text")]
    pub service: Arc<str>,
    /// The Service port's name, or its number if it has no name. For a port that does not exist: the port as in the route.
    #[cbor(n(2), with = "Text")]
    pub port: Arc<str>,
    /// The transport to the endpoints. Routes with different transports do not share connections.
    #[n(3)]
    pub transport: Transport,
}

impl UpstreamKey {
    /// An upstream with plain HTTP/1.1.
    #[must_use]
    pub fn new(
        namespace: impl Into<Arc<str>>,
        service: impl Into<Arc<str>>,
        port: impl Into<Arc<str>>,
    ) -> Self {
        let transport = Transport::default();
        Self { namespace: namespace.into(), service: service.into(), port: port.into(), transport }
    }
}

/// `namespace/service:port`, with a special transport in parentheses.
impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)?;
        if self.transport == Transport::default() { Ok(()) } else { write!(f, " ({})", self.transport) }
    }
}

/// The transport to endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct Transport {
    /// The protocol.
    #[n(0)]
    pub protocol: Protocol,
    /// TLS to endpoints. `None`: plain text.
    #[cbor(n(1), with = "Maybe::<Pointer>")]
    pub tls: Option<Arc<TransportTls>>,
    /// Whether the cluster IP of the Service is the only endpoint, in place of the endpoints of the Service.
    #[cbor(n(2), default, skip_if = "crate::encoding::is_false")]
    pub is_cluster_ip: bool,
    /// Whether the gateway sends the client's address to the endpoints, by version 1 of the PROXY protocol, even if the Service
    /// does not ask for it. Only for TCP.
    #[cbor(n(3), default, skip_if = "crate::encoding::is_false")]
    pub sends_proxy: bool,
}

/// The protocol of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    #[n(0)]
    Http,
    /// HTTP/2: by ALPN over TLS, else by prior knowledge.
    #[n(1)]
    Http2,
    /// TCP with any content.
    #[n(2)]
    Tcp,
    /// Datagrams.
    #[n(3)]
    Udp,
}

/// The identity of a TLS configuration for endpoints. The content of the named objects may change: the upstream stays the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct TransportTls {
    /// The name that the certificates of endpoints must have, which is also the server name (SNI).
    #[n(0)]
    pub server_name: Box<str>,
    /// Whether the gateway sends the server name (SNI).
    #[n(1)]
    pub sends_name: bool,
    /// Whether the gateway verifies the certificates of endpoints.
    #[n(2)]
    pub verifies: bool,
    /// The Secret with the CA certificates, and with the gateway's client certificate: `namespace/name`.
    #[n(3)]
    pub secret: Option<Box<str>>,
    /// The BackendTLSPolicy with the CA certificates and names of endpoints: `namespace/name`. Then the Secret has the
    /// client certificate alone.
    #[n(4)]
    pub policy: Option<Box<str>>,
    /// The cipher suites of TLS 1.2 (ingress-nginx `proxy-ssl-ciphers`).
    #[cbor(n(5), default, skip_if = "CipherSuites::are_all")]
    pub ciphers: CipherSuites,
    /// The largest number of intermediate certificates of an endpoint (ingress-nginx `proxy-ssl-verify-depth`). `None`: no limit.
    #[n(6)]
    pub depth: Option<u8>,
}

/// `https`, with special settings.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (clear, secure) = match self.protocol {
            Protocol::Http => ("http", "https"),
            Protocol::Http2 => ("h2c", "h2"),
            Protocol::Tcp => ("tcp", "tls"),
            Protocol::Udp => ("udp", "dtls"),
        };
        let of_service = if self.is_cluster_ip { ", cluster IP" } else { "" };
        let proxy = if self.sends_proxy { ", PROXY" } else { "" };
        let Some(tls) = &self.tls else { return write!(f, "{clear}{of_service}{proxy}") };
        write!(f, "{secure} {}{of_service}{proxy}", tls.server_name)?;
        f.write_str(if tls.verifies { ", verified" } else { "" })?;
        f.write_str(if tls.sends_name { "" } else { ", no SNI" })?;
        f.write_str(if tls.ciphers.are_all() && tls.depth.is_none() { "" } else { ", restricted" })?;
        let mut objects = tls.policy.iter().chain(&tls.secret);
        objects.try_for_each(|object| write!(f, ", {object}"))
    }
}

impl Serialize for UpstreamKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A set of endpoints with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct Upstream {
    /// The load balancing algorithm.
    #[n(0)]
    pub balance: Balance,
    /// The limits on requests in flight.
    #[n(1)]
    pub limits: UpstreamLimits,
    /// A DNS name in place of endpoints (`spec.externalName`). The owner of the data plane resolves the name.
    #[n(2)]
    pub external_name: Option<Box<str>>,
    /// TLS to the endpoints. `None`: plain text.
    #[cbor(n(3), with = "Maybe::<Shared>")]
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether the gateway sends the client's address to the endpoints, by the PROXY protocol. Only for TCP and TLS
    /// passthrough: an HTTP connection carries the requests of many clients.
    #[n(4)]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The rules for unhealthy endpoints that still accept connections.
    #[cbor(n(5), with = "Maybe::<Pointer>")]
    pub health: Option<Arc<Health>>,
    /// The limit on retries, beside the limits of policies for routes. The upstreams of one Service share the limit. `None`: no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub retry_constraint: Option<RetryConstraint>,
    /// The endpoints, each address at most once.
    #[cbor(skip)]
    pub endpoints: Arc<[Endpoint]>,
}

/// TLS to endpoints.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct UpstreamTls {
    /// The name that the certificates of endpoints must have, unless there are alternative names: a DNS name or an IP
    /// address.
    #[n(0)]
    pub server_name: Box<str>,
    /// Whether the gateway sends the name as server name (SNI).
    #[n(1)]
    pub sends_name: bool,
    /// The verification of the certificates of endpoints.
    #[n(2)]
    pub verification: Verification,
    /// The client certificate for endpoints that ask for a certificate.
    #[cbor(n(3), with = "Maybe::<Shared>")]
    pub identity: Option<Arc<Certificate>>,
    /// Names in place of the server name: a certificate must have one of them. `None`: the server name.
    #[n(4)]
    pub alternative_names: Option<Vec<AlternativeName>>,
    /// The cipher suites of TLS 1.2.
    #[cbor(n(5), default, skip_if = "CipherSuites::are_all")]
    pub ciphers: CipherSuites,
    /// The largest number of intermediate certificates of an endpoint. `None`: no limit.
    #[n(6)]
    pub depth: Option<u8>,
}

/// A subject alternative name of a certificate (RFC 5280, 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum AlternativeName {
    /// A DNS name in lower case. A name that begins with `*.` matches only the same wildcard name of a certificate.
    #[n(0)]
    Dns(#[n(0)] Box<str>),
    /// A URI, such as a SPIFFE ID. A URI matches only the same bytes.
    #[n(1)]
    Uri(#[n(0)] Box<str>),
}

impl Part for UpstreamTls {
    const KIND: u32 = 13;
    const WHAT: &'static str = "TLS of an upstream";
}

/// The verification of the certificates of endpoints.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Verification {
    /// No verification (nginx' `proxy_ssl_verify off`): the connection is encrypted, but the endpoint is not authenticated.
    #[n(0)]
    None,
    /// The certificate must be valid under one of the CA certificates, and not revoked. Without CA certificates every
    /// certificate is rejected.
    #[n(1)]
    Authorities {
        /// The CA certificates to trust.
        #[cbor(n(0), with = "List::<Raw>")]
        roots: Vec<CertificateDer<'static>>,
        /// The revocation lists.
        #[cbor(n(1), with = "List::<Raw>")]
        crls: Vec<CertificateRevocationListDer<'static>>,
    },
    /// The certificate must be valid under one of the CA certificates that browsers trust.
    #[n(2)]
    WellKnown,
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("server_name", &self.server_name)
            .field("verifies", &self.verifies())
            .field("identity", &self.identity)
            .field("alternative_names", &self.alternative_names)
            .field("ciphers", &self.ciphers)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

impl UpstreamTls {
    fn verifies(&self) -> bool {
        self.verification != Verification::None
    }
}

impl Serialize for UpstreamTls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut shown = serializer.serialize_struct("UpstreamTls", 7)?;
        shown.serialize_field("server_name", &self.server_name)?;
        shown.serialize_field("sends_name", &self.sends_name)?;
        shown.serialize_field("verifies", &self.verifies())?;
        shown.serialize_field("identity", &self.identity)?;
        shown.serialize_field("alternative_names", &self.alternative_names)?;
        shown.serialize_field("ciphers", &self.ciphers)?;
        shown.serialize_field("depth", &self.depth)?;
        shown.end()
    }
}

/// The load balancing algorithm among eligible endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum Balance {
    /// Of two random endpoints, the endpoint with the lower product of its peak-sensitive response time (exponentially
    /// weighted, 10 s) and its requests in flight.
    #[default]
    #[serde(rename = "ResponseTime")]
    #[n(0)]
    Ewma,
    /// Round robin.
    #[n(1)]
    RoundRobin,
    /// Of two random endpoints, the endpoint with fewer requests in flight.
    #[n(2)]
    LeastRequest,
}

/// The limits on requests of an upstream, counted over all workers. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct UpstreamLimits {
    /// Requests in flight. Above the limit the gateway responds with 503.
    #[n(0)]
    pub max_requests: Option<u32>,
    /// Requests in flight at one endpoint. The gateway skips a full endpoint, and responds with 503 when all endpoints are
    /// full.
    #[n(1)]
    pub max_requests_per_endpoint: Option<u32>,
}

/// The rules for endpoints that accept connections, but are unhealthy. The gateway avoids them while others serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Health {
    /// Ejection: by the responses to requests.
    #[n(0)]
    pub ejection: Option<Ejection>,
    /// Health checks.
    #[n(1)]
    pub check: Option<HealthCheck>,
}

/// An endpoint: one address that serves an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Endpoint {
    /// The address and port.
    #[cbor(n(0), with = "Address")]
    pub address: SocketAddr,
    /// The conditions that Kubernetes reports.
    #[n(1)]
    pub conditions: Conditions,
}

/// The conditions of an endpoint (`discovery.k8s.io/v1` `EndpointConditions`), with the defaults of Kubernetes: absent
/// `ready` is true, absent `serving` is `ready`, absent `terminating` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Conditions {
    /// The endpoint accepts new requests.
    #[n(0)]
    pub ready: bool,
    /// The endpoint can respond to requests.
    #[n(1)]
    pub serving: bool,
    /// The endpoint terminates.
    #[n(2)]
    pub terminating: bool,
}

impl Conditions {
    /// Ready and serving.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
    /// Terminating, and still serving.
    pub const TERMINATING: Self = Self { ready: false, serving: true, terminating: true };
}
