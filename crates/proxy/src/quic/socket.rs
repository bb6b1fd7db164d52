//! The sockets of one worker, as quinn uses them.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::switch::{Datagram, Switch, Way};
use crate::counters::Counters;

/// The buffer of the kernel for datagrams of one socket.
const BUFFER: usize = 2 * 1024 * 1024;

/// The sockets of one worker at one address.
pub(super) struct Socket {
    /// Usually one. A process with fewer workers than its predecessor has more.
    sockets: Vec<(UdpSocket, UdpSocketState)>,
    switch: Arc<Switch>,
    worker: usize,
    /// The worker's thread polls the socket.
    counters: Arc<Counters>,
    address: SocketAddr,
    /// Datagrams that others pass on.
    lane: Mutex<mpsc::Receiver<Datagram>>,
}

impl Socket {
    pub(super) fn new(
        sockets: Vec<std::net::UdpSocket>,
        switch: Arc<Switch>,
        (worker, counters): (usize, Arc<Counters>),
        address: SocketAddr,
    ) -> io::Result<Self> {
        let lane = switch.take_lane(worker).ok_or(io::ErrorKind::AddrInUse)?;
        let socket = |socket: std::net::UdpSocket| {
            let sized = SockRef::from(&socket);
            // The kernel may allow less (`net.core.rmem_max`), and then drops more of a burst.
            let _ = sized.set_recv_buffer_size(BUFFER);
            let _ = sized.set_send_buffer_size(BUFFER);
            let socket = UdpSocket::from_std(socket)?;
            let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
            Ok((socket, state))
        };
        let sockets: io::Result<Vec<_>> = sockets.into_iter().map(socket).collect();
        let sockets = sockets?;
        if sockets.is_empty() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(Self { sockets, switch, worker, counters, address, lane: Mutex::new(lane) })
    }

    /// Answers leave from the first socket: all have the same address.
    fn first(&self) -> &(UdpSocket, UdpSocketState) {
        &self.sockets[0]
    }

    /// Takes datagrams from the lane. Returns their number; zero if there are none.
    fn take_passed(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> usize {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        while let (Some(buf), Some(meta)) = (bufs.get_mut(taken), metas.get_mut(taken)) {
            let Poll::Ready(Some(datagram)) = lane.poll_recv(cx) else { break };
            let Datagram { from, to, ecn, bytes } = datagram;
            if bytes.is_empty() || bytes.len() > buf.len() {
                continue;
            }
            buf[..bytes.len()].copy_from_slice(&bytes);
            *meta = RecvMeta { addr: from, len: bytes.len(), stride: bytes.len(), ecn, dst_ip: to };
            taken += 1;
        }
        taken
    }

    fn count(&self, passed: bool) {
        let stats = &self.counters.workers().of(self.worker).http3;
        let tally = if passed { &stats.datagrams_passed } else { &stats.datagrams_dropped };
        tally.add(1);
    }

    /// Passes on the packets of others, and moves the rest together.
    fn sort(&self, buf: &mut [u8], meta: &mut RecvMeta) {
        let stride = meta.stride.max(1);
        let is_own = |packet: &[u8]| self.switch.way(self.worker, packet) == Way::Here;
        if buf[..meta.len].chunks(stride).all(is_own) {
            return;
        }
        let (mut at, mut kept) = (0, 0);
        while at < meta.len {
            let end = (at + stride).min(meta.len);
            let packet = &buf[at..end];
            let datagram =
                || Datagram { from: meta.addr, to: meta.dst_ip, ecn: meta.ecn, bytes: packet.to_vec() };
            let stays = match self.switch.way(self.worker, packet) {
                Way::Here => true,
                Way::Worker(worker) => {
                    self.count(self.switch.pass(worker, datagram()));
                    false
                }
                Way::Process => match self.switch.pass_back(&datagram()) {
                    Some(passed) => {
                        self.count(passed);
                        false
                    }
                    // The endpoint answers with a stateless reset (RFC 9000, 10.3).
                    None => true,
                },
            };
            if stays {
                buf.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        meta.len = kept;
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, writable: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let (socket, state) = self.first();
        socket.try_io(Interest::WRITABLE, || state.send(UdpSockRef::from(socket), transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let passed = self.take_passed(cx, bufs, metas);
        if passed > 0 {
            return Poll::Ready(Ok(passed));
        }
        for (socket, state) in &self.sockets {
            loop {
                if !self.switch.is_reading() {
                    // The lane wakes the worker when this process begins to read.
                    return Poll::Pending;
                }
                match socket.poll_recv_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => break,
                }
                let received =
                    socket.try_io(Interest::READABLE, || state.recv(UdpSockRef::from(socket), bufs, metas));
                match received {
                    Ok(received) => {
                        for (buf, meta) in bufs.iter_mut().zip(metas.iter_mut()).take(received) {
                            self.sort(buf, meta);
                        }
                        return Poll::Ready(Ok(received));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first().0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.first().1.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.first().1.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.first().1.may_fragment()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("address", &self.address)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// Waits until the socket is writable, for one connection: the socket itself wakes only one task.
struct Poller {
    socket: Arc<Socket>,
    writable: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Poller {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { socket, writable } = self.get_mut();
        let waiting = writable.get_or_insert_with(|| {
            let socket = socket.clone();
            Box::pin(async move { socket.first().0.writable().await })
        });
        let ready = ready!(waiting.as_mut().poll(cx));
        *writable = None;
        Poll::Ready(ready)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("socket", &self.socket).finish_non_exhaustive()
    }
}
