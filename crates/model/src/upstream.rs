//! Upstreams: who serves a route, and at which addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Serialize, Serializer};

use crate::{Certificate, ProxyProtocol};

/// The stable identity of an upstream. It outlives configurations: as long as some route names it, its
/// connections, load estimates and health stay. Ten routes to one Service share one upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamKey {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub service: Arc<str>,
    /// The Service port's name, or its number if it has no name; as the route writes it where there is no such port.
    pub port: Arc<str>,
    /// How its endpoints are spoken with: two routes that want it differently do not share connections.
    pub transport: Transport,
}

impl UpstreamKey {
    /// An upstream that is spoken with in plain HTTP/1.1.
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

/// `namespace/service:port`, and what is special about the transport in parentheses.
impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)?;
        if self.transport == Transport::default() { Ok(()) } else { write!(f, " ({})", self.transport) }
    }
}

/// How endpoints are spoken with.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transport {
    /// What is spoken.
    pub protocol: Protocol,
    /// TLS with endpoints, if there is any.
    pub tls: Option<Arc<TransportTls>>,
}

/// What is spoken with endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// HTTP/2: by ALPN over TLS, else by prior knowledge.
    Http2,
    /// Whatever clients speak over TCP.
    Tcp,
    /// Datagrams.
    Udp,
}

/// What distinguishes one way of speaking TLS with endpoints from another. What is in the objects that it names may
/// change: the upstream stays the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportTls {
    /// Whom endpoints have to show that they are, and what they are asked for by Server Name Indication.
    pub server_name: Box<str>,
    /// Whether they are asked for it.
    pub sends_name: bool,
    /// Whether their certificates are verified.
    pub verifies: bool,
    /// The Secret with the authorities, and with the certificate that they are shown: `namespace/name`.
    pub secret: Option<Box<str>>,
}

/// `https`, and what is special about it.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (clear, secure) = match self.protocol {
            Protocol::Http => ("http", "https"),
            Protocol::Http2 => ("h2c", "h2"),
            Protocol::Tcp => ("tcp", "tls"),
            Protocol::Udp => ("udp", "dtls"),
        };
        let Some(tls) = &self.tls else { return f.write_str(clear) };
        write!(f, "{secure} {}", tls.server_name)?;
        f.write_str(if tls.verifies { ", verified" } else { "" })?;
        f.write_str(if tls.sends_name { "" } else { ", no SNI" })?;
        tls.secret.as_ref().map_or(Ok(()), |secret| write!(f, ", {secret}"))
    }
}

impl Serialize for UpstreamKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who serves a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Upstream {
    /// How an endpoint is chosen.
    pub balance: Balance,
    /// How much it may be given at once.
    pub limits: UpstreamLimits,
    /// A DNS name that stands in for endpoints (`spec.externalName`), resolved by the data plane's owner.
    pub external_name: Option<Box<str>>,
    /// How TLS is spoken with its endpoints, if it is.
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether its endpoints are told whom a connection is from. Only for TCP and for TLS that is passed through: an
    /// HTTP connection carries the requests of many clients.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Which endpoints are avoided although they take connections.
    pub health: Option<Arc<Health>>,
    /// Its endpoints, each address at most once.
    pub endpoints: Arc<[Endpoint]>,
}

/// How TLS is spoken with endpoints.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Whom endpoints have to show that they are: a DNS name or an IP address.
    pub server_name: Box<str>,
    /// Whether they are asked for it by Server Name Indication.
    pub sends_name: bool,
    /// How their certificates are verified.
    pub verification: Verification,
    /// The certificate that endpoints are shown if they ask for one.
    pub identity: Option<Arc<Certificate>>,
}

/// How certificates of endpoints are verified.
#[derive(Clone, PartialEq, Eq)]
pub enum Verification {
    /// Not at all (nginx' `proxy_ssl_verify off`): the connection is encrypted, with whomever.
    None,
    /// One of these authorities vouches for them, and has not revoked them. Without any, nobody does.
    Authorities {
        /// Who vouches.
        roots: Vec<CertificateDer<'static>>,
        /// What was revoked.
        crls: Vec<CertificateRevocationListDer<'static>>,
    },
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("server_name", &self.server_name)
            .field("verifies", &self.verifies())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl UpstreamTls {
    fn verifies(&self) -> bool {
        matches!(self.verification, Verification::Authorities { .. })
    }
}

impl Serialize for UpstreamTls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut shown = serializer.serialize_struct("UpstreamTls", 4)?;
        shown.serialize_field("server_name", &self.server_name)?;
        shown.serialize_field("sends_name", &self.sends_name)?;
        shown.serialize_field("verifies", &self.verifies())?;
        shown.serialize_field("identity", &self.identity)?;
        shown.end()
    }
}

/// How an endpoint is chosen among those that are eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Of two endpoints taken at random, the one with the lower product of its peak-sensitive response time
    /// (exponentially weighted, 10 s) and its requests in flight.
    #[default]
    Ewma,
    /// Each in turn.
    RoundRobin,
    /// Of two endpoints taken at random, the one with fewer requests in flight.
    LeastRequest,
}

/// How much an upstream may be given at once, counted over all workers. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpstreamLimits {
    /// Requests in flight, answered 503 above this.
    pub max_requests: Option<u32>,
    /// Requests in flight at one endpoint; a full endpoint is passed over, and when all are full the
    /// answer is 503.
    pub max_requests_per_endpoint: Option<u32>,
}

/// Which endpoints are avoided although they take connections, while others serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Those that answer requests badly.
    pub ejection: Option<Ejection>,
    /// Those that answer checks badly.
    pub check: Option<HealthCheck>,
}

/// When an endpoint is avoided since it answers requests badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ejection {
    /// After so many failures and statuses from 500 to 599 in a row, as one worker sees them; from 1 to 1000.
    pub consecutive_errors: u32,
    /// For how long, and for as much longer each time in a row, up to ten times.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
    /// Of 100 endpoints no more than so many are avoided for it, from 1 to 100.
    pub max_percent: u8,
}

/// How endpoints are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// What is asked.
    pub kind: HealthCheckKind,
    /// Between two checks of an endpoint.
    #[serde(serialize_with = "seconds")]
    pub interval: Duration,
    /// How long a check may take.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// After so many good checks in a row an endpoint is trusted again, from 1 to 100.
    pub healthy: u32,
    /// After so many bad ones in a row it is avoided, from 1 to 100.
    pub unhealthy: u32,
}

/// What endpoints are asked by a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum HealthCheckKind {
    /// Whether they take a connection, and speak TLS where it is spoken.
    Tcp,
    /// A GET.
    Http {
        /// Of this path, with or without a query.
        path: Box<str>,
        /// The host; their address if nothing says so.
        host: Option<Box<str>>,
        /// The least good status.
        from: u16,
        /// The greatest one.
        to: u16,
    },
    /// `grpc.health.v1.Health/Check` of a service; the empty one is the server as a whole. Spoken over HTTP/2.
    Grpc {
        /// The service.
        service: Box<str>,
    },
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// One address that serves an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Endpoint {
    /// Where to connect.
    pub address: SocketAddr,
    /// What the endpoint's owner says of it.
    pub conditions: Conditions,
}

/// The conditions of an endpoint (`discovery.k8s.io/v1` `EndpointConditions`), with Kubernetes' defaults
/// filled in: absent `ready` is true, absent `serving` is `ready`, absent `terminating` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Conditions {
    /// It wants new requests.
    pub ready: bool,
    /// It can answer requests.
    pub serving: bool,
    /// It is going away.
    pub terminating: bool,
}

impl Conditions {
    /// Ready and serving.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
    /// Going away, and still answering.
    pub const TERMINATING: Self = Self { ready: false, serving: true, terminating: true };
}
