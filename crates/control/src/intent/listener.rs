//! The intents of Gateways: listeners, and the routes below HTTP that attach to them.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use sluicegate_model::policy::Security;
use sluicegate_model::{
    Certificate, ClientAuth, HostPattern, Layer4Route, ListenerId, Planes, ProxyHeader, UpstreamKey,
};

use super::{At, Place, Reference};
use crate::frontend::gateway::service::Placement;
use crate::object::gateway::{Gateway, ListenerProtocol};
use crate::object::listener_set::ListenerSet;
use crate::object::route::{Hostname, ParentRef};
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::problem::Problem;
use crate::status::Fault;
use crate::store::ServiceRef;

/// A Gateway.
pub(crate) struct GatewayIntent<'a> {
    pub(crate) at: At<'a>,
    pub(crate) gateway: &'a Gateway,
    /// The places of its own listeners in [`Intents`](super::Intents).
    pub(crate) listeners: Range<usize>,
    /// The reason why its parameters are invalid.
    pub(crate) parameters: Result<(), Fault>,
    /// Its data planes and its Service, if Gateways have Services.
    pub(crate) placement: Option<Placement>,
    /// The reason why its client certificate is unusable.
    pub(crate) unresolved: Option<Fault>,
}

/// A ListenerSet of a Gateway that is served.
pub(crate) struct ListenerSetIntent<'a> {
    pub(crate) at: At<'a>,
    pub(crate) set: &'a ListenerSet,
    /// The place of its Gateway in [`Intents`](super::Intents).
    pub(crate) gateway: usize,
    /// The places of its listeners in [`Intents`](super::Intents), or the reason why the Gateway does not allow the set.
    pub(crate) listeners: Result<Range<usize>, Fault>,
}

/// A listener.
pub(crate) struct Listener<'a> {
    /// The Gateway or the ListenerSet.
    pub(crate) at: At<'a>,
    /// The Gateway.
    pub(crate) gateway: &'a ObjectRef,
    pub(crate) place: Place,
    pub(crate) name: &'a Arc<str>,
    pub(crate) protocol: ListenerProtocol,
    pub(crate) hostname: &'a HostPattern,
    pub(crate) port: u16,
    /// The data planes that serve the listener.
    pub(crate) planes: Planes,
    /// The name of its entry point for HTTP; `None` for the address of its socket. Sockets of one name share their hosts.
    pub(crate) entry_point: Option<Arc<str>>,
    /// The certificates of a listener that terminates TLS.
    pub(crate) certificates: Vec<Arc<Certificate>>,
    /// The Secret for a certificate of an ACME server, with its place in `tls.certificateRefs`, if the Gateway asks for one.
    pub(crate) acme: Option<(usize, &'a ObjectRef)>,
    /// The clients that may connect to a listener for HTTPS, if the Gateway validates their certificates.
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// The reason why the listener rejects all clients or all requests: no CA certificate is valid, or a filter is invalid.
    pub(crate) closed: Option<Fault>,
    pub(crate) filters: ListenerFilters<'a>,
    /// The Secret with the client certificate of the Gateway: `namespace/name`.
    pub(crate) client_certificate: Option<Arc<str>>,
    /// The first reference of the listener that leads to nothing usable.
    pub(crate) unresolved: Option<Fault>,
    /// Whether the listener has no sockets only because the Service of its Gateway does not have its port yet.
    pub(crate) is_waiting: bool,
    pub(crate) proxy_header: ProxyHeader,
    /// The destination of all connections, of a listener that no route attaches to.
    pub(crate) leads_to: Option<Destination<'a>>,
    /// The sockets of the listener, or the reason why there are none.
    pub(crate) sockets: Result<Vec<Socket>, Problem>,
}

/// The filters of a listener for HTTP.
#[derive(Default)]
pub(crate) struct ListenerFilters<'a> {
    /// The filters; or a policy that denies all requests, if a filter is invalid.
    pub(crate) security: Option<Arc<Security>>,
    /// The Services of the filters.
    pub(crate) references: Vec<Reference<'a>>,
    /// The upstreams of the filters, without regard to BackendTLSPolicies.
    pub(crate) named: Vec<UpstreamKey>,
    /// The Services that do not exist, or lack a port.
    pub(crate) missing: Vec<ServiceRef>,
}

/// The place where connections or datagrams arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Socket {
    /// The HTTP listeners at this port, which an option of the process sets.
    Http(u16),
    /// The HTTPS listeners at this port, which an option of the process sets.
    Https(u16),
    /// A socket of a Gateway's own, and the data planes that open it.
    Own { address: SocketAddr, protocol: IpProtocol, openers: Openers },
}

/// The data planes that open a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Openers {
    /// Whether the shared data planes open it.
    pub(crate) shared: bool,
    /// The Gateway whose own data planes open it: its place in [`Intents`](super::Intents).
    pub(crate) own: Option<usize>,
}

impl Openers {
    pub(crate) const SHARED: Self = Self { shared: true, own: None };

    /// Whether a data plane opens the sockets of both.
    fn overlap(self, other: Self) -> bool {
        self.shared && other.shared || self.own.is_some() && self.own == other.own
    }
}

/// A route below HTTP.
pub(crate) struct Layer4<'a> {
    pub(crate) at: At<'a>,
    /// The creation time of the object.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// Its names, if it has names.
    pub(crate) hostnames: &'a [Hostname],
    pub(crate) parents: Vec<Parent<'a>>,
    pub(crate) backends: Backends<'a>,
}

/// A parent of a route.
pub(crate) struct Parent<'a> {
    pub(crate) place: Place,
    pub(crate) reference: &'a ParentRef,
    /// Whether the parent is a Gateway that is served here, or a ListenerSet of such a Gateway.
    pub(crate) is_ours: bool,
    /// The listeners that accept the route, by their place in [`Intents`](super::Intents), each with the names that
    /// both the listener and the route have; or the reason why none accepts it. No listener, without a reason, if the
    /// parent belongs to another controller.
    pub(crate) accepted: Result<Vec<(usize, Vec<HostPattern>)>, Refused>,
}

/// The reason why no listener accepts a route.
pub(crate) struct Refused {
    /// The reason of the condition `Accepted`.
    pub(crate) reason: &'static str,
    pub(crate) problem: Problem,
}

/// The destinations of a route.
pub(crate) struct Backends<'a> {
    /// Without regard to BackendTLSPolicies, and to the TLS settings of XBackends.
    pub(crate) plain: Destination<'a>,
    /// With TLS to the endpoints of Services with a BackendTLSPolicy and of XBackends, if a backend is one of them.
    pub(crate) secured: Option<Destination<'a>>,
    /// The XBackends that the route names, and that it may name.
    pub(crate) x_backends: Vec<ObjectRef>,
}

/// A destination of a route. Its references and problems count if the route is in service at a listener.
#[derive(Clone)]
pub(crate) struct Destination<'a> {
    pub(crate) route: Layer4Route,
    pub(crate) references: Vec<Reference<'a>>,
    pub(crate) problems: Vec<Problem>,
    /// The first backend that may not be named, or does not exist.
    pub(crate) unresolved: Option<Fault>,
}

impl<'a> Backends<'a> {
    /// The destination of connections of a listener with this protocol. In passthrough connections, the client's own TLS reaches
    /// the endpoint.
    pub(crate) fn at(&self, protocol: ListenerProtocol) -> &Destination<'a> {
        self.secured.as_ref().filter(|_| uses_backend_tls(protocol)).unwrap_or(&self.plain)
    }
}

/// Whether a BackendTLSPolicy applies to the connections of listeners with this protocol.
pub(crate) fn uses_backend_tls(protocol: ListenerProtocol) -> bool {
    !matches!(protocol, ListenerProtocol::Tls | ListenerProtocol::Udp)
}

impl Listener<'_> {
    pub(crate) fn id(&self) -> ListenerId {
        ListenerId { object: self.at.id(), name: self.name.clone() }
    }

    /// The name of the listener in a sentence.
    pub(crate) fn in_words(&self) -> String {
        format!("listener {} of {}", self.name, self.at.object)
    }

    /// The name of the listener in a sentence about another listener. The owner of a ListenerSet reads the sentence, and
    /// must not learn the names of other namespaces.
    pub(crate) fn in_words_to(&self, other: &Self) -> String {
        let is_known =
            self.at.object.namespace == other.at.object.namespace || self.at.object == other.gateway;
        match other.at.object.kind {
            Kind::ListenerSet if !is_known => "a listener of another namespace".to_owned(),
            _ => self.in_words(),
        }
    }

    /// The name of a field of the listener.
    pub(crate) fn field(&self, within: &str) -> String {
        match self.place {
            // The key is the port.
            Place::Data(_) => self.place.field(),
            place => format!("{}.{within}", place.field()),
        }
    }
}

impl Socket {
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http(port) | Self::Https(port) => port,
            Self::Own { address, .. } => address.port(),
        }
    }

    /// For a socket that flags set: whether it is for HTTPS.
    pub(crate) fn of_flags(self) -> Option<bool> {
        match self {
            Self::Http(_) => Some(false),
            Self::Https(_) => Some(true),
            Self::Own { .. } => None,
        }
    }

    /// Whether both sockets may receive the same traffic.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Own { address: one, protocol, openers },
                Self::Own { address: other, protocol: others, openers: by },
            ) => {
                let is_everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
                openers.overlap(by)
                    && protocol == others
                    && one.port() == other.port()
                    && one.is_ipv4() == other.is_ipv4()
                    && (is_everywhere || one.ip() == other.ip())
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(port) | Self::Https(port) => write!(f, ":{port}"),
            Self::Own { address, .. } => address.fmt(f),
        }
    }
}
