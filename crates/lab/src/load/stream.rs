//! A nonblocking connection, with or without TLS. Buffers for what is under way belong to the thread.

use std::net::SocketAddr;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::tls::{Progress, Tls, TlsOptions};

/// How much is read at once.
const READ: usize = 64 * 1024;

/// What all connections of a thread share while one of them is served.
#[derive(Debug)]
pub(crate) struct Scratch {
    incoming: Vec<u8>,
    /// What was received, without TLS.
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
    /// What the kernel did not take yet.
    unsent: Vec<u8>,
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Something, and there may be more to be read.
    More,
    /// Something or nothing, and the kernel will tell when there is more.
    Drained,
    /// Nothing more will come. What came before lies in [`Scratch::plain`].
    Ended,
}

/// Why a connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Socket,
    Tls,
    /// The peer has said why it ends it (RFC 8446, 6).
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
    /// Begins to connect. Gives whether that is done already.
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

    /// What became of connecting.
    pub(crate) fn connected(&self) -> Result<(), Errno> {
        socket_error(&self.socket)?
    }

    pub(crate) fn begin_tls(&mut self, options: &TlsOptions, scratch: &mut Scratch) -> Result<(), Broken> {
        scratch.outgoing.clear();
        self.tls = Some(Box::new(Tls::new(options, &mut scratch.outgoing)?));
        Ok(self.transmit(&scratch.outgoing)?)
    }

    /// Reads once. What came lies in [`Scratch::plain`], also if there is an error. `to_the_end`: the kernel has said that
    /// the end of the connection is there to be read.
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

    /// Sends this, now or as soon as the kernel takes it.
    pub(crate) fn send(&mut self, data: &[u8], scratch: &mut Scratch) -> Result<(), Broken> {
        let Some(tls) = &mut self.tls else { return Ok(self.transmit(data)?) };
        scratch.outgoing.clear();
        tls.write(data, &mut scratch.outgoing)?;
        Ok(self.transmit(&scratch.outgoing)?)
    }

    /// The kernel takes data again.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        self.transmit(&unsent)
    }

    /// Whether a proper end is told from one that was cut off.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the server has agreed to speak HTTP/2; without TLS it is not asked.
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

/// Reads once into the room that there is.
fn recv(socket: &OwnedFd, into: &mut Vec<u8>, to_the_end: bool) -> Result<Received, Errno> {
    let room = into.capacity() - into.len();
    loop {
        return match rustix::net::recv(socket, spare_capacity(into), RecvFlags::empty()) {
            Ok((_, 0)) => Ok(Received::Ended),
            Ok((_, read)) if read == room || to_the_end => Ok(Received::More),
            // As epoll(7) has it: a short read says that there was no more.
            Ok(_) | Err(Errno::AGAIN) => Ok(Received::Drained),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error),
        };
    }
}
