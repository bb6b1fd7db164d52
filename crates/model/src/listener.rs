//! Listeners below HTTP: connections and datagrams that are passed on without being understood.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{HostPattern, RouteId, UpstreamKey};

/// An address at which connections or datagrams are taken, and who gets them.
///
/// The listeners for HTTP and HTTPS are not among these: a process is started with them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listener {
    /// Which listener of which object it is.
    pub id: ListenerId,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it takes, and who gets it.
    pub serves: Layer4,
}

/// Which listener of which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    /// The object that it is written in, such as `Gateway default/edge`.
    pub object: RouteId,
    /// Its name there.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer4 {
    /// Connections, whatever they carry. Without a route they are closed.
    Tcp(Option<Layer4Route>),
    /// TLS, which is not ended here: by the name that the client asks for (RFC 6066, 3). Each pattern at most once.
    /// A name that no route takes is refused by the alert `unrecognized_name`.
    Tls(Vec<TlsRoute>),
    /// Datagrams. Without a route they are dropped.
    Udp(Option<Layer4Route>),
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsRoute {
    /// What clients ask for by Server Name Indication. [`HostPattern::Any`] takes those that ask for nothing too.
    pub host: HostPattern,
    /// Who gets them.
    pub route: Layer4Route,
}

/// Who gets connections or datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer4Route {
    /// Which object it comes from.
    pub id: RouteId,
    /// The upstreams, chosen at random by their weights. Without any, or if all weights are 0, connections are closed.
    pub backends: Vec<WeightedUpstream>,
}

/// An upstream among several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WeightedUpstream {
    /// Who serves.
    pub upstream: UpstreamKey,
    /// Its part of the sum of all weights.
    pub weight: u32,
}

/// A version of the PROXY protocol, by which a proxy says whom it speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}
