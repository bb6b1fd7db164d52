//! Upstreams: who serves a route, and at which addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use serde::{Serialize, Serializer};

use crate::encoding::bound::{CheckInterval, Checks, Failures, GraphicHost, Percent, Status, Target};
use crate::encoding::{
    Adapt as _, Address, Context, List, Maybe, Part, Pointer, Raw, Shared, Text, Time, Within, WithinAs,
};
use crate::{Certificate, ProxyProtocol};

/// The stable identity of an upstream. It outlives configurations: as long as some route names it, its
/// connections, load estimates and health stay. Ten routes to one Service share one upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct UpstreamKey {
    /// The Service's namespace.
    #[cbor(n(0), with = "Text")]
    pub namespace: Arc<str>,
    /// The Service's name.
    #[cbor(n(1), with = "Text")]
    pub service: Arc<str>,
    /// The Service port's name, or its number if it has no name; as the route writes it where there is no such port.
    #[cbor(n(2), with = "Text")]
    pub port: Arc<str>,
    /// How its endpoints are spoken with: two routes that want it differently do not share connections.
    #[n(3)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct Transport {
    /// What is spoken.
    #[n(0)]
    pub protocol: Protocol,
    /// TLS with endpoints, if there is any.
    #[cbor(n(1), with = "Maybe::<Pointer>")]
    pub tls: Option<Arc<TransportTls>>,
}

/// What is spoken with endpoints.
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
    /// Whatever clients speak over TCP.
    #[n(2)]
    Tcp,
    /// Datagrams.
    #[n(3)]
    Udp,
}

/// What distinguishes one way of speaking TLS with endpoints from another. What is in the objects that it names may
/// change: the upstream stays the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct TransportTls {
    /// Whom endpoints have to show that they are, and what they are asked for by Server Name Indication.
    #[n(0)]
    pub server_name: Box<str>,
    /// Whether they are asked for it.
    #[n(1)]
    pub sends_name: bool,
    /// Whether their certificates are verified.
    #[n(2)]
    pub verifies: bool,
    /// The Secret with the authorities, and with the certificate that they are shown: `namespace/name`.
    #[n(3)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct Upstream {
    /// How an endpoint is chosen.
    #[n(0)]
    pub balance: Balance,
    /// How much it may be given at once.
    #[n(1)]
    pub limits: UpstreamLimits,
    /// A DNS name that stands in for endpoints (`spec.externalName`), resolved by the data plane's owner.
    #[n(2)]
    pub external_name: Option<Box<str>>,
    /// How TLS is spoken with its endpoints, if it is.
    #[cbor(n(3), with = "Maybe::<Shared>")]
    pub tls: Option<Arc<UpstreamTls>>,
    /// Whether its endpoints are told whom a connection is from. Only for TCP and for TLS that is passed through: an
    /// HTTP connection carries the requests of many clients.
    #[n(4)]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Which endpoints are avoided although they take connections.
    #[cbor(n(5), with = "Maybe::<Pointer>")]
    pub health: Option<Arc<Health>>,
    /// Its endpoints, each address at most once.
    #[cbor(skip)]
    pub endpoints: Arc<[Endpoint]>,
}

/// How TLS is spoken with endpoints.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct UpstreamTls {
    /// Whom endpoints have to show that they are: a DNS name or an IP address.
    #[n(0)]
    pub server_name: Box<str>,
    /// Whether they are asked for it by Server Name Indication.
    #[n(1)]
    pub sends_name: bool,
    /// How their certificates are verified.
    #[n(2)]
    pub verification: Verification,
    /// The certificate that endpoints are shown if they ask for one.
    #[cbor(n(3), with = "Maybe::<Shared>")]
    pub identity: Option<Arc<Certificate>>,
}

impl Part for UpstreamTls {
    const KIND: u32 = 13;
    const WHAT: &'static str = "TLS of an upstream";
}

/// How certificates of endpoints are verified.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Verification {
    /// Not at all (nginx' `proxy_ssl_verify off`): the connection is encrypted, with whomever.
    #[n(0)]
    None,
    /// One of these authorities vouches for them, and has not revoked them. Without any, nobody does.
    #[n(1)]
    Authorities {
        /// Who vouches.
        #[cbor(n(0), with = "List::<Raw>")]
        roots: Vec<CertificateDer<'static>>,
        /// What was revoked.
        #[cbor(n(1), with = "List::<Raw>")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Balance {
    /// Of two endpoints taken at random, the one with the lower product of its peak-sensitive response time
    /// (exponentially weighted, 10 s) and its requests in flight.
    #[default]
    #[n(0)]
    Ewma,
    /// Each in turn.
    #[n(1)]
    RoundRobin,
    /// Of two endpoints taken at random, the one with fewer requests in flight.
    #[n(2)]
    LeastRequest,
}

/// How much an upstream may be given at once, counted over all workers. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct UpstreamLimits {
    /// Requests in flight, answered 503 above this.
    #[n(0)]
    pub max_requests: Option<u32>,
    /// Requests in flight at one endpoint; a full endpoint is passed over, and when all are full the
    /// answer is 503.
    #[n(1)]
    pub max_requests_per_endpoint: Option<u32>,
}

/// Which endpoints are avoided although they take connections, while others serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Health {
    /// Those that answer requests badly.
    #[n(0)]
    pub ejection: Option<Ejection>,
    /// Those that answer checks badly.
    #[n(1)]
    pub check: Option<HealthCheck>,
}

/// When an endpoint is avoided since it answers requests badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Ejection {
    /// After so many failures and statuses from 500 to 599 in a row, as one worker sees them; from 1 to 1000.
    #[cbor(n(0), with = "Within::<Failures>")]
    pub consecutive_errors: u32,
    /// For how long, and for as much longer each time in a row, up to ten times.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub time: Duration,
    /// Of 100 endpoints no more than so many are avoided for it, from 1 to 100.
    #[cbor(n(2), with = "Within::<Percent>")]
    pub max_percent: u8,
}

/// How endpoints are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct HealthCheck {
    /// What is asked.
    #[n(0)]
    pub kind: HealthCheckKind,
    /// Between two checks of an endpoint.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "WithinAs::<CheckInterval, Time>")]
    pub interval: Duration,
    /// How long a check may take.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub timeout: Duration,
    /// After so many good checks in a row an endpoint is trusted again, from 1 to 100.
    #[cbor(n(3), with = "Within::<Checks>")]
    pub healthy: u32,
    /// After so many bad ones in a row it is avoided, from 1 to 100.
    #[cbor(n(4), with = "Within::<Checks>")]
    pub unhealthy: u32,
}

/// What endpoints are asked by a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum HealthCheckKind {
    /// Whether they take a connection, and speak TLS where it is spoken.
    #[n(0)]
    Tcp,
    /// A GET.
    #[n(1)]
    Http {
        /// Of this path, with or without a query.
        #[cbor(n(0), with = "Within::<Target>")]
        path: Box<str>,
        /// The host; their address if nothing says so.
        #[cbor(n(1), with = "Maybe::<Within<GraphicHost>>")]
        host: Option<Box<str>>,
        /// The least good status.
        #[cbor(n(2), with = "Within::<Status>")]
        from: u16,
        /// The greatest one.
        #[cbor(n(3), with = "Within::<Status>")]
        to: u16,
    },
    /// `grpc.health.v1.Health/Check` of a service; the empty one is the server as a whole. Spoken over HTTP/2.
    #[n(2)]
    Grpc {
        /// The service.
        #[n(0)]
        service: Box<str>,
    },
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// One address that serves an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Endpoint {
    /// Where to connect.
    #[cbor(n(0), with = "Address")]
    pub address: SocketAddr,
    /// What the endpoint's owner says of it.
    #[n(1)]
    pub conditions: Conditions,
}

/// The conditions of an endpoint (`discovery.k8s.io/v1` `EndpointConditions`), with Kubernetes' defaults
/// filled in: absent `ready` is true, absent `serving` is `ready`, absent `terminating` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Conditions {
    /// It wants new requests.
    #[n(0)]
    pub ready: bool,
    /// It can answer requests.
    #[n(1)]
    pub serving: bool,
    /// It is going away.
    #[n(2)]
    pub terminating: bool,
}

impl Conditions {
    /// Ready and serving.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
    /// Going away, and still answering.
    pub const TERMINATING: Self = Self { ready: false, serving: true, terminating: true };
}
