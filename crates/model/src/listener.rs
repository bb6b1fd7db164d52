//! Listeners of Gateways: for HTTP, and below HTTP, where the gateway does not parse the content of connections and datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::encoding::{Adapt as _, Address, Text};
use crate::{HostPattern, ObjectId, UpstreamKey};

/// An address that accepts connections or datagrams, with the routes for them.
///
/// The listeners that serve Ingresses are not in the model: flags set their addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Listener {
    /// The identity of the listener.
    #[n(0)]
    pub id: ListenerId,
    /// The address that the listener binds.
    #[cbor(n(1), with = "Address")]
    pub address: SocketAddr,
    /// The protocol, with the routes.
    #[n(2)]
    pub serves: Serves,
    /// The data planes that serve the listener. Only the control plane reads the field.
    #[serde(skip_serializing_if = "Planes::is_shared")]
    #[cbor(skip)]
    pub planes: Planes,
    /// Whether connections begin with the PROXY protocol.
    #[serde(skip_serializing_if = "ProxyHeader::is_by_peer")]
    #[cbor(n(3), default, skip_if = "ProxyHeader::is_by_peer")]
    pub proxy_header: ProxyHeader,
    /// The port at which clients reach a listener for HTTPS, if it is not the port of `address`: the port of a Service in front of the
    /// listener. The gateway announces HTTP/3 at this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(64)]
    pub client_port: Option<u16>,
}

/// Whether connections of a listener begin with the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum ProxyHeader {
    /// If the peer is one of [`proxy_protocol_peers`](crate::Settings::proxy_protocol_peers).
    #[default]
    #[n(0)]
    ByPeer,
    /// Always.
    #[n(1)]
    Always,
    /// Never.
    #[n(2)]
    Never,
}

impl ProxyHeader {
    /// Whether the peer decides.
    #[must_use]
    pub fn is_by_peer(&self) -> bool {
        *self == Self::ByPeer
    }
}

/// The data planes that serve a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Planes {
    /// The shared data planes, which serve all Gateways without data planes of their own.
    #[default]
    Shared,
    /// The data planes of one Gateway, by the name of their scope.
    Own(Arc<str>),
    /// Both, while the Gateway moves from one to the other.
    Both(Arc<str>),
}

impl Planes {
    /// Whether only the shared data planes serve the listener.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        *self == Self::Shared
    }

    /// The scope of the Gateway's own data planes.
    #[must_use]
    pub fn scope(&self) -> Option<&Arc<str>> {
        match self {
            Self::Shared => None,
            Self::Own(scope) | Self::Both(scope) => Some(scope),
        }
    }

    /// Whether the data planes of a scope serve the listener; `None` for the shared data planes.
    #[must_use]
    pub fn include(&self, scope: Option<&str>) -> bool {
        match (self, scope) {
            (Self::Shared | Self::Both(_), None) => true,
            (Self::Own(own) | Self::Both(own), Some(scope)) => **own == *scope,
            _ => false,
        }
    }
}

/// The identity of a listener: the object and the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct ListenerId {
    /// The object with the listener, such as `Gateway default/edge`.
    #[n(0)]
    pub object: ObjectId,
    /// The listener's name in the object.
    #[cbor(n(1), with = "Text")]
    pub name: Arc<str>,
}

/// `Gateway namespace/name, listener name`.
impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, listener {}", self.object, self.name)
    }
}

impl Serialize for ListenerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The protocol of a listener, with the routes.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(map)]
pub enum Serves {
    /// TCP connections with any content. Without a route the gateway closes them.
    #[n(0)]
    Tcp(#[n(0)] Option<Layer4Route>),
    /// TLS without termination, routed by the server name in the ClientHello (RFC 6066, 3). Each pattern occurs at most once.
    /// The gateway rejects a name without a route with the alert `unrecognized_name`.
    #[n(1)]
    Tls(#[n(0)] Vec<TlsRoute>),
    /// Datagrams. Without a route the gateway drops them.
    #[n(2)]
    Udp(#[n(0)] Option<Layer4Route>),
    /// HTTP in clear text, for the hosts of an [`EntryPoint::Gateway`] of this name.
    #[n(3)]
    Http(#[cbor(n(0), with = "Text")] Arc<str>),
    /// TLS, for the hosts of an [`EntryPoint::Gateway`] of this name: hosts for HTTP over TLS, hosts with a
    /// [`relay`](crate::TlsHost::relay), and hosts in [`passthrough`](crate::Tls::passthrough).
    #[n(4)]
    Https(#[cbor(n(0), with = "Text")] Arc<str>),
}

/// The listeners that serve a host. Each entry point has its own table of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub enum EntryPoint {
    /// All listeners that flags set, for HTTP and HTTPS: the hosts of Ingresses.
    #[default]
    #[n(0)]
    Flags,
    /// The HTTP listeners that flags set. A host here replaces the same host of [`Flags`](Self::Flags).
    #[n(1)]
    FlagsHttp,
    /// The HTTPS listeners that flags set. A host here replaces the same host of [`Flags`](Self::Flags).
    #[n(2)]
    FlagsHttps,
    /// The listeners that name this entry point ([`Serves::Http`], [`Serves::Https`]).
    #[n(3)]
    Gateway(#[cbor(n(0), with = "Text")] Arc<str>),
}

impl EntryPoint {
    /// Whether flags set all its listeners, and none belongs to a Gateway.
    #[must_use]
    pub fn is_flags(&self) -> bool {
        *self == Self::Flags
    }
}

impl fmt::Display for EntryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flags => "all",
            Self::FlagsHttp => "http",
            Self::FlagsHttps => "https",
            Self::Gateway(name) => name,
        })
    }
}

impl Serialize for EntryPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serves {
    /// The protocol's name in Gateway API (`spec.listeners[].protocol`).
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "TCP",
            Self::Tls(_) => "TLS",
            Self::Udp(_) => "UDP",
            Self::Http(_) => "HTTP",
            Self::Https(_) => "HTTPS",
        }
    }

    /// The routes below HTTP, each with its host pattern.
    pub fn routes(&self) -> impl Iterator<Item = (&HostPattern, &Layer4Route)> {
        let (one, several) = match self {
            Self::Tcp(route) | Self::Udp(route) => (route.as_ref(), &[][..]),
            Self::Tls(routes) => (None, &routes[..]),
            Self::Http(_) | Self::Https(_) => (None, &[][..]),
        };
        let several = several.iter().map(|route| (&route.host, &route.route));
        one.map(|route| (&HostPattern::Any, route)).into_iter().chain(several)
    }
}

/// A host pattern whose TLS connections pass through without termination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TlsRoute {
    /// The pattern for the server name (SNI). [`HostPattern::Any`] also matches clients without a server name.
    #[n(0)]
    pub host: HostPattern,
    /// The route for the connections.
    #[n(1)]
    pub route: Layer4Route,
    /// The HTTPS listeners with the host, in [`passthrough`](crate::Tls::passthrough).
    #[serde(skip_serializing_if = "EntryPoint::is_flags")]
    #[cbor(n(2), default, skip_if = "EntryPoint::is_flags")]
    pub entry_point: EntryPoint,
}

impl TlsRoute {
    /// A route for the connections of a host: of a listener for TLS, or of all HTTPS listeners that flags set.
    #[must_use]
    pub fn new(host: HostPattern, route: Layer4Route) -> Self {
        Self { host, route, entry_point: EntryPoint::Flags }
    }
}

/// The upstreams for connections or datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Layer4Route {
    /// The object with the route.
    #[n(0)]
    pub id: ObjectId,
    /// The upstreams, chosen at random by their weights. Without upstreams, or if all weights are 0, the gateway closes
    /// connections.
    #[n(1)]
    pub backends: Vec<WeightedUpstream>,
}

/// An upstream with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct WeightedUpstream {
    /// The upstream.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The upstream's part of the sum of all weights.
    #[n(1)]
    pub weight: u32,
}

/// A version of the PROXY protocol, by which a proxy sends the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[cbor(index_only)]
pub enum ProxyProtocol {
    /// Version 1, a line of text.
    #[n(0)]
    V1,
    /// Version 2, binary.
    #[n(1)]
    V2,
}
