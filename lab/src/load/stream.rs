//! A nonblocking connection, with or without TLS. The thread owns the buffers for data in transit.

use std::net::SocketAddr;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::tls::{Progress, Tls, TlsOptions};

/// The number of bytes for one read.
const READ: usize = 64 * 1024;

/// The buffers that all connections of a thread share while one of them is served.
#[derive(Debug)]
pub(crate) struct Scratch {
    incoming: Vec<u8>,
    /// Received data, without TLS.
    pub(crate) plain: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let room = || Vec::with_capacity(READ);
        Self { incoming: room(), plain: room(), outgoing: Vec::new() }
    }
}

pub(crate) struct Stream {
    socket: OwnedFd,
    tls: Option<Box<Tls>>,
    /// Data that the kernel has not accepted yet.
    unsent: Vec<u8>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Data, and more may be available.
    More,
    /// Data or nothing. The kernel reports more data by an event.
    Drained,
    /// The end. Earlier data is in [`Scratch::plain`].
    Ended,
}

/// The reason why a connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Socket,
    Tls,
    /// The peer sent an alert before the end (RFC 8446, 6).
    Alert,
}

impl From<Errno> for Broken {
    fn from(_: Errno) -> Self {
        Self::Socket
    }
}

impl From<rustls::Error> for Broken {
    fn from(error: rustls::Error) -> Self {
        if matches!(error, rustls::Error::AlertReceived(_)) { Self::Alert } else { Self::Tls }
    }
}

impl Stream {
    /// Begins to connect. Returns whether the connect is already complete.
    pub(crate) fn connect(address: &SocketAddr) -> Result<(Self, bool), Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        set_tcp_nodelay(&socket, true)?;
        let connected = match rustix::net::connect(&socket, address) {
            Ok(()) => true,
            Err(Errno::INPROGRESS) => false,
            Err(error) => return Err(error),
        };
        Ok((Self { socket, tls: None, unsent: Vec::new() }, connected))
    }

    /// The result of the connect.
    pub(crate) fn connected(&self) -> Result<(), Errno> {
        socket_error(&self.socket)?
    }

    pub(crate) fn begin_tls(&mut self, options: &TlsOptions, scratch: &mut Scratch) -> Result<(), Broken> {
        scratch.outgoing.clear();
        self.tls = Some(Box::new(Tls::new(options, &mut scratch.outgoing)?));
        Ok(self.transmit(&scratch.outgoing)?)
    }

    /// Reads once. The data is in [`Scratch::plain`], also if there is an error. `to_the_end`: the kernel has reported
    /// the end of the connection.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut Scratch,
        to_the_end: bool,
    ) -> Result<(Received, Option<Progress>), Broken> {
        let Scratch { incoming, plain, outgoing } = scratch;
        plain.clear();
        let Some(tls) = &mut self.tls else { return Ok((recv(&self.socket, plain, to_the_end)?, None)) };
        incoming.clear();
        let received = recv(&self.socket, incoming, to_the_end)?;
        if incoming.is_empty() {
            return Ok((received, None));
        }
        outgoing.clear();
        let progress = tls.read(incoming, plain, outgoing)?;
        if !outgoing.is_empty() {
            let Self { socket, unsent, .. } = self;
            transmit(socket, unsent, outgoing)?;
        }
        let received = if progress == Progress::Ended { Received::Ended } else { received };
        Ok((received, Some(progress)))
    }

    /// Sends the data, now or as soon as the kernel accepts it.
    pub(crate) fn send(&mut self, data: &[u8], scratch: &mut Scratch) -> Result<(), Broken> {
        let Some(tls) = &mut self.tls else { return Ok(self.transmit(data)?) };
        scratch.outgoing.clear();
        tls.write(data, &mut scratch.outgoing)?;
        Ok(self.transmit(&scratch.outgoing)?)
    }

    /// The kernel accepts data again.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.transmit(&unsent)
    }

    /// Whether a proper end differs from a cut-off connection.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the server has agreed to HTTP/2; without TLS there is no negotiation.
    pub(crate) fn is_http2(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_http2())
    }

    fn transmit(&mut self, data: &[u8]) -> Result<(), Errno> {
        transmit(&self.socket, &mut self.unsent, data)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn transmit(socket: &OwnedFd, unsent: &mut Vec<u8>, data: &[u8]) -> Result<(), Errno> {
    let mut rest = data;
    while unsent.is_empty() && !rest.is_empty() {
        match rustix::net::send(socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    unsent.extend_from_slice(rest);
    Ok(())
}

/// Reads once into the available room.
fn recv(socket: &OwnedFd, into: &mut Vec<u8>, to_the_end: bool) -> Result<Received, Errno> {
    let room = into.capacity() - into.len();
    loop {
        return match rustix::net::recv(socket, spare_capacity(into), RecvFlags::empty()) {
            Ok((_, 0)) => Ok(Received::Ended),
            Ok((_, read)) if read == room || to_the_end => Ok(Received::More),
            // According to epoll(7), a short read means that the socket has no more data.
            Ok(_) | Err(Errno::AGAIN) => Ok(Received::Drained),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error),
        };
    }
}
