//! Listening sockets: the sockets of the command line, and the sockets that configurations add and remove.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sluicegate_model::{self as model, Serves};
use sluicegate_proxy_protocol::Addresses;
use socket2::{Domain, Socket, Type};

use crate::net::{ListeningSocket, TcpStream};
use crate::options::{Options, StartError};
use crate::quic::{self, Process};
use crate::rule::Entrance;

/// How many connections the kernel may queue for each worker until the worker accepts them, if the system allows it
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http(Entrance),
    Https(Entrance),
    /// TCP connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// The protocol of a Gateway's listener.
    fn of(listener: &model::Listener) -> Self {
        let entrance = Entrance::Gateway(listener.address);
        match listener.serves {
            Serves::Tcp(_) => Self::Tcp,
            Serves::Udp(_) => Self::Udp,
            Serves::Http(_) => Self::Http(entrance),
            // A listener for TLS keeps its socket if a first name is terminated, or the last is not terminated any more.
            Serves::Tls(_) | Serves::Https(_) => Self::Https(entrance),
        }
    }
}

/// The configured address of a listener, and whether it receives datagrams: TCP and UDP have separate ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) is_udp: bool,
}

/// The state of a listener of a Gateway.
#[derive(Clone, Debug)]
pub struct ListenerState {
    /// The name, such as `Gateway default/edge, listener db`.
    pub listener: String,
    /// `HTTP`, `HTTPS`, `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// The configured address.
    pub address: SocketAddr,
    /// The actual address, or why the listener does not listen.
    pub bound: Result<SocketAddr, String>,
}

/// A socket of one worker.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: ListeningSocket,
    pub(crate) place: Place,
    pub(crate) protocol: Protocol,
}

/// The listener of one worker for HTTP/3 at one address.
#[derive(Debug)]
pub(crate) struct QuicListener {
    pub(crate) place: Place,
    /// The HTTPS listener with the same port, and its address in the configuration.
    pub(crate) entrance: Entrance,
    pub(crate) listener: SocketAddr,
    pub(crate) quic: quic::Place,
}

/// An accepted connection.
pub(crate) struct Arrival {
    pub(crate) tcp: TcpStream,
    /// The addresses that the client sees, as far as known.
    pub(crate) addresses: Addresses,
    /// The listener's address in the configuration.
    pub(crate) listener: SocketAddr,
}

impl Arrival {
    pub(crate) fn new(tcp: TcpStream, peer: SocketAddr, listener: SocketAddr) -> Self {
        Self { tcp, addresses: Addresses { source: peer, destination: listener }, listener }
    }
}

/// The sockets of all listeners; one socket for every worker.
#[derive(Debug)]
pub(crate) struct Sockets {
    workers: usize,
    /// The sockets of the command line.
    fixed: Vec<Bound>,
    /// The sockets of the configuration.
    configured: HashMap<Place, Result<Bound, String>>,
    /// The sockets for HTTP/3: one for each HTTPS listener, at the UDP port with the same number.
    quic: HashMap<Place, Result<Bound, String>>,
    /// The processes before and after this one, for HTTP/3.
    process: Arc<Process>,
    /// The sockets of a process that is being replaced, until a listener claims them.
    inherited: Vec<Socket>,
    is_closed: bool,
}

/// The sockets at one address.
#[derive(Debug)]
struct Bound {
    address: SocketAddr,
    protocol: Protocol,
    /// Handles for passing the sockets of all workers to another process.
    sockets: Vec<Socket>,
}

/// The changes that make workers follow a configuration.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// The new sockets of each worker.
    pub(crate) opened: Vec<Vec<Listener>>,
    /// The new sockets of each worker for HTTP/3.
    pub(crate) opened_quic: Vec<Vec<QuicListener>>,
    pub(crate) closed: Vec<Place>,
}

impl Sockets {
    /// Listens at the addresses of the command line. Also returns the sockets of each worker.
    pub(crate) fn start(options: &Options, workers: usize) -> Result<(Self, Vec<Vec<Listener>>), StartError> {
        let inherited = options.inherited.iter().map(|socket| Ok(socket.try_clone()?.into()));
        let inherited: io::Result<Vec<Socket>> = inherited.collect();
        let mut inherited = inherited.map_err(StartError::Inherit)?;
        let mut sockets = Self {
            workers,
            fixed: Vec::new(),
            configured: HashMap::new(),
            quic: HashMap::new(),
            process: Process::start(&mut inherited).map_err(StartError::Inherit)?,
            inherited,
            is_closed: false,
        };
        let mut of_workers: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        let http = options.http.iter().map(|address| (*address, Protocol::Http(Entrance::FlagHttp)));
        let https = options.https.iter().map(|address| (*address, Protocol::Https(Entrance::FlagHttps)));
        for (address, protocol) in http.chain(https) {
            if address.port() != 0 && sockets.fixed.iter().any(|bound| bound.address == address) {
                return Err(StartError::Twice(address));
            }
            let (bound, listeners) = sockets
                .bind(Place { address, is_udp: false }, protocol)
                .map_err(|error| StartError::Listen { address, error })?;
            sockets.fixed.push(bound);
            of_workers.iter_mut().zip(listeners).for_each(|(all, of_worker)| all.extend(of_worker));
        }
        Ok((sockets, of_workers))
    }

    /// The addresses of the command line.
    pub(crate) fn fixed(&self) -> Vec<SocketAddr> {
        self.fixed.iter().map(|bound| bound.address).collect()
    }

    /// Opens the new listeners of a configuration, and closes listeners that are not in the configuration. If a listener
    /// cannot be opened, the log and [`states`](Self::states) say so, and the next call tries again.
    /// `has_http3` says whether the HTTPS listeners also serve HTTP/3.
    pub(crate) fn follow(&mut self, wanted: &[model::Listener], has_http3: bool) -> Moves {
        let mut moves = Moves {
            opened: (0..self.workers).map(|_| Vec::new()).collect(),
            opened_quic: (0..self.workers).map(|_| Vec::new()).collect(),
            closed: Vec::new(),
        };
        if self.is_closed {
            return moves;
        }
        let place = |listener: &model::Listener| Place {
            address: listener.address,
            is_udp: matches!(listener.serves, Serves::Udp(_)),
        };
        self.configured.retain(|known, bound| {
            let stays = wanted.iter().any(|listener| {
                let is_same = bound.as_ref().map_or(true, |bound| bound.protocol == Protocol::of(listener));
                place(listener) == *known && is_same
            });
            if !stays && bound.is_ok() {
                tracing::info!(address = %known.address, udp = known.is_udp, "no longer listening");
                moves.closed.push(*known);
            }
            stays
        });
        for listener in wanted {
            let place = place(listener);
            let before = self.configured.remove(&place);
            if let Some(Ok(bound)) = before {
                self.configured.insert(place, Ok(bound));
                continue;
            }
            let protocol = Protocol::of(listener);
            let bound = match self.conflict(place) {
                Some(with) => Err(format!("{with} is served for HTTP or HTTPS")),
                None if matches!(self.quic.get(&place), Some(Ok(_))) => {
                    Err(format!("{} is served for HTTP/3", place.address))
                }
                None => self.bind(place, protocol).map_err(|error| error.to_string()),
            };
            let bound = bound.map(|(bound, listeners)| {
                let opened = moves.opened.iter_mut().zip(listeners);
                opened.for_each(|(all, of_worker)| all.extend(of_worker));
                let protocol = listener.serves.protocol();
                tracing::info!(address = %bound.address, protocol, listener = %listener.id, "listening");
                bound
            });
            if let Err(error) = &bound
                && !matches!(&before, Some(Err(known)) if known == error)
            {
                let (address, listener) = (place.address, &listener.id);
                tracing::error!(%address, %listener, "cannot listen: {error}; its routes are not served; trying again every 5 s");
            }
            self.configured.insert(place, bound);
        }
        self.follow_quic(wanted, has_http3, &mut moves);
        // Unclaimed sockets belonged to routes that are gone.
        self.inherited.clear();
        moves
    }

    /// Opens and closes the sockets for HTTP/3.
    fn follow_quic(&mut self, wanted: &[model::Listener], has_http3: bool, moves: &mut Moves) {
        let mut places = Vec::new();
        for bound in &self.fixed {
            if let Protocol::Https(entrance) = bound.protocol {
                places.push((bound.address, entrance, bound.address));
            }
        }
        for listener in wanted.iter().filter(|listener| matches!(listener.serves, Serves::Https(_))) {
            let place = Place { address: listener.address, is_udp: false };
            if let Some(Ok(bound)) = self.configured.get(&place) {
                places.push((bound.address, Entrance::Gateway(listener.address), listener.address));
            }
        }
        places.retain(|_| has_http3);
        if places.is_empty() {
            self.process.decline();
        }
        self.quic.retain(|known, bound| {
            let stays = places.iter().any(|(address, ..)| *address == known.address);
            if !stays && bound.is_ok() {
                tracing::info!(address = %known.address, "no longer listening for HTTP/3");
                moves.closed.push(*known);
            }
            stays
        });
        for (address, entrance, listener) in places {
            let place = Place { address, is_udp: true };
            let before = self.quic.get(&place);
            if matches!(before, Some(Ok(_))) {
                continue;
            }
            let bound = match self.configured.get(&place) {
                Some(_) => Err("a listener for UDP has this port".to_owned()),
                None => self.bind(place, Protocol::Udp).map_err(|error| error.to_string()),
            };
            match &bound {
                Ok(_) => tracing::info!(%address, protocol = "HTTP/3", "listening"),
                Err(error) if matches!(self.quic.get(&place), Some(Err(known)) if known == error) => {}
                Err(error) => {
                    tracing::error!(%address, "cannot listen for HTTP/3: {error}; clients use HTTP/2; trying again every 5 s");
                }
            }
            let bound = bound.map(|(bound, listeners)| {
                let switch = self.process.switch(address, self.workers);
                for (all, listeners) in moves.opened_quic.iter_mut().zip(listeners) {
                    let sockets =
                        listeners.into_iter().filter_map(|listener| listener.socket.detach().ok()).collect();
                    let quic = quic::Place { sockets, switch: switch.clone() };
                    all.push(QuicListener { place, entrance, listener, quic });
                }
                bound
            });
            self.quic.insert(place, bound);
        }
    }

    /// Whether a configured listener does not listen.
    pub(crate) fn has_failures(&self) -> bool {
        self.configured.values().chain(self.quic.values()).any(Result::is_err)
    }

    /// The addresses of a configuration's listeners, or why they do not listen.
    pub(crate) fn states(&self, wanted: &[model::Listener]) -> Vec<ListenerState> {
        let state = |listener: &model::Listener| {
            let is_udp = matches!(listener.serves, Serves::Udp(_));
            let bound = self.configured.get(&Place { address: listener.address, is_udp });
            ListenerState {
                listener: listener.id.to_string(),
                protocol: listener.serves.protocol(),
                address: listener.address,
                bound: match bound {
                    Some(Ok(bound)) => Ok(bound.address),
                    Some(Err(error)) => Err(error.clone()),
                    None => Err("closed".to_owned()),
                },
            }
        };
        wanted.iter().map(state).collect()
    }

    /// Every socket, for a process that takes over.
    pub(crate) fn all(&self) -> io::Result<Vec<OwnedFd>> {
        let configured = self.configured.values().chain(self.quic.values());
        let configured = configured.filter_map(|bound| bound.as_ref().ok());
        let sockets = self.fixed.iter().chain(configured).flat_map(|bound| &bound.sockets);
        let sockets = sockets.map(|socket| Ok(socket.try_clone()?.into()));
        sockets.chain(self.process.offer().transpose()).collect()
    }

    /// Closes all sockets: a socket that stays open would receive connections that no worker serves.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.process.stop_reading();
        self.fixed.clear();
        self.configured.clear();
        self.quic.clear();
        self.inherited.clear();
    }

    /// The listener of the command line that uses the same address.
    fn conflict(&self, Place { address, is_udp }: Place) -> Option<SocketAddr> {
        let overlaps = |other: &SocketAddr| {
            let is_any = address.ip().is_unspecified() || other.ip().is_unspecified();
            other.port() == address.port()
                && other.is_ipv4() == address.is_ipv4()
                && (is_any || other.ip() == address.ip())
        };
        self.fixed.iter().map(|bound| bound.address).find(|other| !is_udp && overlaps(other))
    }

    /// A socket for every worker: inherited sockets first, then new sockets.
    fn bind(&mut self, place: Place, protocol: Protocol) -> io::Result<(Bound, Vec<Vec<Listener>>)> {
        let mut of_workers: Vec<Vec<Listener>> = (0..self.workers).map(|_| Vec::new()).collect();
        let mut bound = Bound { address: place.address, protocol, sockets: Vec::new() };
        // Every inherited socket has its own queue, which a worker must serve.
        let mut inherited = Vec::new();
        for socket in std::mem::take(&mut self.inherited) {
            if is_at(&socket, place)? {
                inherited.push(socket);
            } else {
                self.inherited.push(socket);
            }
        }
        for (index, socket) in inherited.into_iter().enumerate() {
            socket.set_nonblocking(true)?;
            bound.sockets.push(socket.try_clone()?);
            let socket = ListeningSocket::new(socket);
            of_workers[index % self.workers].push(Listener { socket, place, protocol });
        }
        for listeners in &mut of_workers {
            if listeners.is_empty() {
                let socket = open(Place { address: bound.address, ..place })?;
                bound.address = address_of(&socket)?;
                bound.sockets.push(socket.try_clone()?);
                listeners.push(Listener { socket: ListeningSocket::new(socket), place, protocol });
            }
        }
        // The place has the configured address, not the port that the kernel chose.
        let fixed =
            matches!(protocol, Protocol::Http(Entrance::FlagHttp) | Protocol::Https(Entrance::FlagHttps));
        let place = if fixed { Place { address: bound.address, ..place } } else { place };
        of_workers.iter_mut().flatten().for_each(|listener| listener.place = place);
        Ok((bound, of_workers))
    }
}

/// Listens at an address together with other workers. The kernel distributes connections and datagrams among them.
fn open(Place { address, is_udp }: Place) -> io::Result<Socket> {
    let (kind, protocol) = match is_udp {
        true => (Type::DGRAM, socket2::Protocol::UDP),
        false => (Type::STREAM, socket2::Protocol::TCP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // `[::]` means only IPv6, so that `0.0.0.0` can be served too.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if is_udp {
        socket.bind(&address.into())?;
        return Ok(socket);
    }
    socket.set_reuse_address(true)?;
    // Inherited by the connections (tcp(7)).
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn is_at(socket: &Socket, Place { address, is_udp }: Place) -> io::Result<bool> {
    let kind = if is_udp { Type::DGRAM } else { Type::STREAM };
    Ok(address_of(socket)? == address && socket.r#type()? == kind)
}

fn address_of(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}
