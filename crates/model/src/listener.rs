//! Listeners below HTTP: connections and datagrams that are passed on without being understood.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::encoding::{Adapt as _, Address, Text};
use crate::{HostPattern, RouteId, UpstreamKey};

/// An address at which connections or datagrams are taken, and who gets them.
///
/// The listeners for HTTP and HTTPS are not among these: a process is started with them.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Listener {
    /// Which listener of which object it is.
    #[n(0)]
    pub id: ListenerId,
    /// Where it listens.
    #[cbor(n(1), with = "Address")]
    pub address: SocketAddr,
    /// What it takes, and who gets it.
    #[n(2)]
    pub serves: Layer4,
}

/// Which listener of which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct ListenerId {
    /// The object that it is written in, such as `Gateway default/edge`.
    #[n(0)]
    pub object: RouteId,
    /// Its name there.
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

/// What a listener takes, and who gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(map)]
pub enum Layer4 {
    /// Connections, whatever they carry. Without a route they are closed.
    #[n(0)]
    Tcp(#[n(0)] Option<Layer4Route>),
    /// TLS, which is not ended here: by the name that the client asks for (RFC 6066, 3). Each pattern at most once.
    /// A name that no route takes is refused by the alert `unrecognized_name`.
    #[n(1)]
    Tls(#[n(0)] Vec<TlsRoute>),
    /// Datagrams. Without a route they are dropped.
    #[n(2)]
    Udp(#[n(0)] Option<Layer4Route>),
}

impl Layer4 {
    /// What it takes, as Gateway API names it (`spec.listeners[].protocol`).
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "TCP",
            Self::Tls(_) => "TLS",
            Self::Udp(_) => "UDP",
        }
    }

    /// Its routes, each with the names that it is for.
    pub fn routes(&self) -> impl Iterator<Item = (&HostPattern, &Layer4Route)> {
        let (one, several) = match self {
            Self::Tcp(route) | Self::Udp(route) => (route.as_ref(), &[][..]),
            Self::Tls(routes) => (None, &routes[..]),
        };
        let several = several.iter().map(|route| (&route.host, &route.route));
        one.map(|route| (&HostPattern::Any, route)).into_iter().chain(several)
    }
}

/// Whose TLS connections are passed on unopened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TlsRoute {
    /// What clients ask for by Server Name Indication. [`HostPattern::Any`] takes those that ask for nothing too.
    #[n(0)]
    pub host: HostPattern,
    /// Who gets them.
    #[n(1)]
    pub route: Layer4Route,
}

/// Who gets connections or datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Layer4Route {
    /// Which object it comes from.
    #[n(0)]
    pub id: RouteId,
    /// The upstreams, chosen at random by their weights. Without any, or if all weights are 0, connections are closed.
    #[n(1)]
    pub backends: Vec<WeightedUpstream>,
}

/// An upstream among several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct WeightedUpstream {
    /// Who serves.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// Its part of the sum of all weights.
    #[n(1)]
    pub weight: u32,
}

/// A version of the PROXY protocol, by which a proxy says whom it speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[cbor(index_only)]
pub enum ProxyProtocol {
    /// A line of text.
    #[n(0)]
    V1,
    /// Binary.
    #[n(1)]
    V2,
}
