//! What a proxy is started with and cannot change while it runs.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use crate::telemetry::access_log::AccessLog;

/// How many connections the kernel may keep for each worker until it accepts them, if the system allows it
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// What a proxy is started with.
#[derive(Debug)]
pub struct Options {
    /// Where HTTP is served. Port 0 takes a free one.
    pub http: Vec<SocketAddr>,
    /// Where HTTPS is served.
    pub https: Vec<SocketAddr>,
    /// How many workers. Default: one for each CPU that the process may use.
    pub workers: usize,
    /// Where requests are logged, if anywhere. Default: nowhere.
    pub access_log: Option<AccessLog>,
    /// Listening sockets of a process that is being replaced, which this one goes on to accept from.
    pub inherited: Vec<TcpListener>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http: Vec::new(),
            https: Vec::new(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            access_log: None,
            inherited: Vec::new(),
        }
    }
}

/// What is spoken on the connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Https,
}

/// A socket that a worker accepts connections from.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
}

impl Listener {
    /// Listens at an address beside other workers, among which the kernel shares out connections.
    pub(crate) fn bind(address: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
        if address.is_ipv6() {
            // `[::]` is IPv6 alone, so that `0.0.0.0` can be served beside it.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        // Inherited by the connections (tcp(7)).
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Self::of(socket.into(), protocol)
    }

    /// A socket that listens already.
    pub(crate) fn of(socket: TcpListener, protocol: Protocol) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, protocol })
    }
}
