//! The listeners that are served, and their sockets.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use sluicegate_model::ListenerId;

use super::OurGateway;
use crate::object::ObjectRef;
use crate::object::gateway::{Listener, ListenerProtocol};
use crate::object::service::IpProtocol;
use crate::problem::Problem;
use crate::translate::TranslateOptions;

/// The listeners of our Gateways; the listeners of the oldest Gateway come first.
pub(super) struct Sites<'a> {
    pub(super) all: Vec<Site<'a>>,
    /// The listeners of each Gateway, as a range in `all`.
    pub(super) of_gateway: HashMap<&'a ObjectRef, Range<usize>>,
    /// The listeners at each socket, by their places in `all`: one listener, or several for TLS.
    pub(super) sockets: BTreeMap<Socket, Vec<usize>>,
}

/// A listener of a Gateway.
pub(super) struct Site<'a> {
    pub(super) gateway: OurGateway<'a>,
    pub(super) listener: &'a Listener,
    /// Whether at least one socket serves it.
    pub(super) is_served: bool,
}

/// The place where connections or datagrams arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Socket {
    /// The HTTPS listeners at this port, which an option of the process sets.
    Https(u16),
    /// A socket of a Gateway's own.
    Own { address: SocketAddr, protocol: IpProtocol },
}

impl Site<'_> {
    pub(super) fn id(&self) -> ListenerId {
        ListenerId { object: self.gateway.at.id(), name: self.listener.name.clone() }
    }

    /// The name of the listener in a sentence.
    pub(super) fn in_words(&self) -> String {
        format!("listener {} of {}", self.listener.name, self.gateway.at.object)
    }

    /// The field by which another listener has precedence at a socket, and the reason.
    fn loses_to(&self, winner: &Site<'_>) -> (String, String) {
        let listener = self.listener;
        let are_tls = [winner.listener, listener].iter().all(|one| one.protocol == ListenerProtocol::Tls);
        let (within, what) = match are_tls && winner.listener.hostname == listener.hostname {
            true => ("hostname", format!("{} at port", listener.hostname)),
            false => ("port", "port".to_owned()),
        };
        let fault = format!("{what} {} is already taken by {}", listener.port, winner.in_words());
        (self.field(within), fault)
    }

    fn field(&self, within: &str) -> String {
        format!("spec.listeners[{}].{within}", self.listener.index)
    }
}

impl<'a> Sites<'a> {
    pub(super) fn new(
        gateways: &[OurGateway<'a>],
        options: &TranslateOptions,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut sites = Self { all: Vec::new(), of_gateway: HashMap::new(), sockets: BTreeMap::new() };
        for gateway in gateways {
            let first = sites.all.len();
            let addresses = addresses(gateway, options);
            for listener in &gateway.gateway.listeners {
                sites.add(
                    Site { gateway: *gateway, listener, is_served: false },
                    &addresses,
                    options,
                    problems,
                );
            }
            sites.of_gateway.insert(gateway.at.object, first..sites.all.len());
        }
        sites
    }

    fn add(
        &mut self,
        mut site: Site<'a>,
        addresses: &[IpAddr],
        options: &TranslateOptions,
        problems: &mut Vec<Problem>,
    ) {
        let at = site.gateway.at;
        let Some(route) = site.listener.protocol.route() else {
            let message = format!("{} is not supported; the listener is not served", site.listener.protocol);
            problems.push(at.note(&site.field("protocol"), message));
            self.all.push(site);
            return;
        };
        match sockets(site.listener, addresses, options) {
            Err(fault) => problems.push(at.warning(&site.field("port"), fault)),
            Ok(sockets) => {
                let index = self.all.len();
                for socket in sockets {
                    if let Some(winner) = self.conflict(&site, socket) {
                        let (field, fault) = site.loses_to(winner);
                        let message = format!("{fault}; no {route} of this listener is served at {socket}");
                        problems.push(at.warning(&field, message));
                        continue;
                    }
                    self.sockets.entry(socket).or_default().push(index);
                    site.is_served = true;
                }
            }
        }
        self.all.push(site);
    }

    /// The listener that has precedence over another listener at a socket.
    fn conflict(&self, site: &Site<'_>, socket: Socket) -> Option<&Site<'a>> {
        let holders = self.sockets.iter().filter(|(other, _)| other.overlaps(socket));
        let mut holders =
            holders.flat_map(|(other, holders)| holders.iter().map(move |holder| (other, holder)));
        holders.find_map(|(other, holder)| {
            let holder = &self.all[*holder];
            let are_tls = [holder, site].iter().all(|one| one.listener.protocol == ListenerProtocol::Tls);
            let share = are_tls && *other == socket && holder.listener.hostname != site.listener.hostname;
            (!share).then_some(holder)
        })
    }
}

impl Socket {
    /// Whether both sockets may receive the same traffic.
    fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Own { address: one, protocol }, Self::Own { address: other, protocol: others }) => {
                let is_everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
                protocol == others
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
            Self::Https(port) => write!(f, ":{port}"),
            Self::Own { address, .. } => address.fmt(f),
        }
    }
}

/// The addresses of a Gateway. An address is redundant beside the wildcard address of its family.
fn addresses(gateway: &OurGateway<'_>, options: &TranslateOptions) -> Vec<IpAddr> {
    let written = gateway.gateway.addresses.as_ref().unwrap_or(&options.gateway_addresses);
    let mut addresses = written.clone();
    addresses.retain(|address| {
        let covers = |other: &IpAddr| other.is_unspecified() && other.is_ipv4() == address.is_ipv4();
        address.is_unspecified() || !written.iter().any(covers)
    });
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The sockets of a listener, or the reason why it has none.
fn sockets(
    listener: &Listener,
    addresses: &[IpAddr],
    options: &TranslateOptions,
) -> Result<Vec<Socket>, String> {
    let port = listener.port;
    let protocol = match listener.protocol {
        ListenerProtocol::Udp => IpProtocol::Udp,
        _ => IpProtocol::Tcp,
    };
    if protocol == IpProtocol::Tcp {
        let is_https = options.https_ports.contains(&port);
        let used = match () {
            () if options.http_ports.contains(&port) => Some("HTTP (--listen)"),
            () if options.admin_port == Some(port) => Some("the admin interface (--admin)"),
            () if is_https && listener.protocol == ListenerProtocol::Tcp => Some("HTTPS (--listen-https)"),
            () => None,
        };
        if let Some(used) = used {
            return Err(format!(
                "{port} is a port of {used}; the listener is not served. Choose another port"
            ));
        }
        if is_https {
            return Ok(vec![Socket::Https(port)]);
        }
    }
    let own = |address: &IpAddr| Socket::Own { address: SocketAddr::new(*address, port), protocol };
    Ok(addresses.iter().map(own).collect())
}
