//! Datagrams: each client that sends datagrams has an endpoint for a while, with a separate socket.
//!
//! UDP has no end of an exchange, so silence ends it. If an endpoint's host reports that no program listens, the datagram
//! was not delivered: it goes to another endpoint.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use quinn::udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use rustix::net::{RecvFlags, recv};
use sluicegate_model::Settings;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::Instant;

use super::record::OpenRecord;
use crate::counters::DroppedDatagram;
use crate::deadline::{Deadline, after};
use crate::failure::Failure;
use crate::listener::Listener;
use crate::relay::{DRAIN_CHECK, Moved};
use crate::rule::Layer4Target;
use crate::upstream::{Admission, AvoidedEndpoints, EndpointPreference, InFlightGuard, LocalEndpoint};
use crate::worker::LAST_IDLE;
use crate::worker::Worker;

/// The largest datagram, or several datagrams of one client that the kernel has joined.
const LARGEST: usize = 65_536;
/// How many datagrams are received from the kernel at once.
const BATCH: usize = 4;
/// How many datagrams of one endpoint are passed on before others have their turn.
const BURST: usize = 64;
/// The largest datagram that is stored until an answer arrives, so that it can be sent to another endpoint.
const REPLAY: usize = 4096;

/// Receives datagrams from a listener until the task is aborted.
pub(crate) fn serve(worker: Rc<Worker>, listener: Listener) -> io::Result<impl Future<Output = ()>> {
    let place = listener.place.address;
    let socket = listener.socket.receive()?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    // Datagrams larger than a packet are fragmented, as usual.
    match place {
        SocketAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::WANT)?,
        SocketAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::WANT)?,
    }
    let listener_socket = Rc::new(ListenerSocket {
        worker,
        place,
        socket,
        state,
        flows: RefCell::default(),
        is_closed: Cell::new(false),
        closed: Notify::new(),
        buffer: RefCell::new(vec![0; LARGEST]),
    });
    Ok(async move {
        let _closing = Closing(listener_socket.clone());
        let mut bytes = vec![0; BATCH * LARGEST];
        let mut metas = [RecvMeta::default(); BATCH];
        loop {
            let received = listener_socket
                .socket
                .async_io(Interest::READABLE, || {
                    let mut slices = bytes.chunks_mut(LARGEST);
                    let slice = |_| IoSliceMut::new(slices.next().unwrap_or_default());
                    let mut slices: [_; BATCH] = std::array::from_fn(slice);
                    listener_socket.state.recv(
                        UdpSockRef::from(&listener_socket.socket),
                        &mut slices,
                        &mut metas,
                    )
                })
                .await;
            let Ok(received) =
                received.inspect_err(|error| tracing::debug!(%error, "cannot receive a datagram"))
            else {
                // The error concerns a datagram that was sent before.
                tokio::task::yield_now().await;
                continue;
            };
            for (meta, joined) in metas.iter().zip(bytes.chunks(LARGEST)).take(received) {
                let client = Client { address: meta.addr, local: meta.dst_ip };
                for datagram in joined[..meta.len].chunks(meta.stride.max(1)) {
                    listener_socket.take(client, datagram);
                }
                if meta.len == 0 {
                    listener_socket.take(client, &[]);
                }
            }
        }
    })
}

/// A listener's socket, from which answers leave.
struct ListenerSocket {
    worker: Rc<Worker>,
    /// The listener's address in the configuration.
    place: SocketAddr,
    socket: UdpSocket,
    state: UdpSocketState,
    flows: RefCell<HashMap<Client, Rc<Flow>>>,
    /// The listener is gone: its socket must close too, because it would receive datagrams that no task reads.
    is_closed: Cell<bool>,
    closed: Notify,
    /// The buffer for datagrams from endpoints.
    buffer: RefCell<Vec<u8>>,
}

/// Ends the exchanges of a removed listener. During a shutdown, exchanges have a moment to end.
struct Closing(Rc<ListenerSocket>);

impl Drop for Closing {
    fn drop(&mut self) {
        if !self.0.worker.has_closed_listeners() {
            self.0.is_closed.set(true);
            self.0.closed.notify_waiters();
        }
    }
}

/// The client's address, and the gateway's address that it sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    address: SocketAddr,
    local: Option<IpAddr>,
}

/// A client and its endpoint.
struct Flow {
    socket: UdpSocket,
    endpoint: Rc<LocalEndpoint>,
    route: Rc<Route>,
    record: RefCell<OpenRecord>,
    moved_at: Cell<Instant>,
    /// The last datagram to the endpoint, until the endpoint answers.
    unanswered: RefCell<Vec<u8>>,
    task: Cell<Option<AbortHandle>>,
}

/// The target of a client, and the endpoints that did not accept its datagrams since the last answer.
struct Route {
    target: Arc<Layer4Target>,
    slot: usize,
    tried: RefCell<AvoidedEndpoints>,
    attempts: Cell<u32>,
}

impl ListenerSocket {
    /// Passes a client's datagram on.
    fn take(self: &Rc<Self>, client: Client, datagram: &[u8]) {
        let known = self.flows.borrow().get(&client).cloned();
        let result = match known {
            // If the endpoint is gone or does not answer, another endpoint takes over, as for connections.
            Some(flow) if !flow.endpoint.is_removed() => match flow.send(datagram) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.retry_other_endpoint(client, &flow);
                    let again = self.flows.borrow().get(&client).cloned();
                    again.map_or(Err(DroppedDatagram::NotSent), |flow| {
                        flow.send(datagram).map_err(|_| DroppedDatagram::NotSent)
                    })
                }
                sent => sent.map_err(|_| DroppedDatagram::NotSent),
            },
            _ => self.lead(client, datagram),
        };
        if let Err(why) = result {
            self.worker.stats().datagrams_dropped[why as usize].add(1);
        }
    }

    /// Finds an endpoint for a client's first datagram.
    fn lead(self: &Rc<Self>, client: Client, datagram: &[u8]) -> Result<(), DroppedDatagram> {
        let snapshot = self.worker.snapshot();
        let target = snapshot.table.layer4.datagrams.get(&self.place);
        let target = target.and_then(Option::as_ref).ok_or(DroppedDatagram::NoRoute)?;
        let slot = target.pick().ok_or(DroppedDatagram::NoRoute)?;
        let (tried, attempts) = (RefCell::default(), Cell::new(0));
        let route = Route { target: target.clone(), slot, tried, attempts };
        self.open(client, Rc::new(route), datagram, &snapshot.settings)
    }

    /// Assigns an endpoint to a client.
    fn open(
        self: &Rc<Self>,
        client: Client,
        route: Rc<Route>,
        datagram: &[u8],
        settings: &Settings,
    ) -> Result<(), DroppedDatagram> {
        let worker = &self.worker;
        if worker.stats().udp_flows.get() >= settings.limits.udp_flows_per_worker as u64 {
            return Err(DroppedDatagram::TooManyFlows);
        }
        let upstream = worker.upstream(route.slot).ok_or(DroppedDatagram::NoEndpoint)?;
        let endpoint = upstream
            .pick(&route.tried.borrow(), &EndpointPreference::default(), &settings.resilience, Instant::now())
            .ok_or(DroppedDatagram::NoEndpoint)?;
        let admission = Admission::new(&upstream).map_err(|_| DroppedDatagram::NoEndpoint)?;
        let socket = connected(endpoint.shared.address()).map_err(|_| DroppedDatagram::NotSent)?;
        route.attempts.set(route.attempts.get() + 1);
        upstream.count_attempt(&endpoint);
        let places = (client.address, self.place);
        let mut record = OpenRecord::new(worker, route.target.clone(), "UDP", places, None);
        record.upstream = Some(upstream.clone());
        record.endpoint = Some(endpoint.shared.address());
        record.attempts = route.attempts.get();
        let flow = Rc::new(Flow {
            socket,
            endpoint: endpoint.clone(),
            route,
            record: RefCell::new(record),
            moved_at: Cell::new(Instant::now()),
            unanswered: RefCell::default(),
            task: Cell::new(None),
        });
        // A flow to a removed endpoint may still exist: it continues to receive answers.
        self.flows.borrow_mut().insert(client, flow.clone());
        worker.stats().udp_flows.add(1);
        let in_flight_guard = InFlightGuard::new(&upstream, endpoint);
        let guard = FlowGuard { listener_socket: self.clone(), client, flow: flow.clone() };
        let task = spawn_local(async move {
            guard.listener_socket.answer(client, &guard.flow).await;
            drop((admission, in_flight_guard));
        });
        flow.task.set(Some(task.abort_handle()));
        flow.send(datagram).map_err(|_| DroppedDatagram::NotSent)
    }

    /// No program listens at the endpoint: another endpoint receives the datagram.
    fn retry_other_endpoint(self: &Rc<Self>, client: Client, flow: &Rc<Flow>) {
        let (settings, refused) = (self.worker.settings(), Failure::ConnectRefused);
        let upstream = self.worker.upstream(flow.route.slot);
        if let Some(upstream) = &upstream {
            upstream.stats().connect_failures[refused.index()].add(1);
            upstream.note_failure(&flow.endpoint, refused);
        }
        if let Some(task) = flow.task.take() {
            task.abort();
        }
        let mut record = flow.record.borrow_mut();
        let is_current = self.flows.borrow().get(&client).is_some_and(|current| Rc::ptr_eq(current, flow));
        if !is_current {
            return record.failed(refused);
        }
        self.flows.borrow_mut().remove(&client);
        let datagram = std::mem::take(&mut *flow.unanswered.borrow_mut());
        let dropped = |why| self.worker.stats().datagrams_dropped[why as usize].add(1);
        if datagram.is_empty() || flow.route.attempts.get() >= settings.resilience.attempts {
            dropped(DroppedDatagram::NotSent);
            return record.failed(refused);
        }
        record.replaced(refused);
        if let Some(upstream) = upstream {
            upstream.stats().retries[refused.index()].add(1);
        }
        flow.route.tried.borrow_mut().add(&flow.endpoint);
        if let Err(why) = self.open(client, flow.route.clone(), &datagram, &settings) {
            dropped(why);
        }
    }

    /// Passes answers on until silence.
    async fn answer(self: &Rc<Self>, client: Client, flow: &Rc<Flow>) {
        let mut deadline = Deadline::new(Instant::now() + DRAIN_CHECK);
        while !self.is_over(flow, &mut deadline) {
            tokio::select! {
                biased;
                _ = flow.socket.ready(Interest::READABLE | Interest::ERROR) => {
                    if !self.pass_back_all(client, flow) {
                        return self.retry_other_endpoint(client, flow);
                    }
                }
                () = self.closed.notified() => {}
                () = self.worker.stop_changes() => {}
                () = poll_fn(|cx| deadline.poll(cx)) => {}
            }
        }
        flow.record.borrow_mut().done();
    }

    /// Whether the exchange was silent for too long, or can have no more datagrams. Sets the time of the next check.
    fn is_over(&self, flow: &Flow, deadline: &mut Deadline) -> bool {
        let (now, idle) = (Instant::now(), self.worker.settings().timeouts.udp_idle);
        // Clients of a process that shuts down send no more datagrams here.
        let idle = if self.worker.has_closed_listeners() { idle.min(LAST_IDLE) } else { idle };
        let due = after(flow.moved_at.get(), idle);
        let is_removed = flow.endpoint.is_removed();
        deadline.set(if is_removed { due.min(now + DRAIN_CHECK) } else { due });
        now >= due || flow.endpoint.is_drained(now) || self.is_closed.get() || self.worker.is_closing_all()
    }

    /// Passes on the received datagrams of the endpoint. False if no program listens there.
    fn pass_back_all(&self, client: Client, flow: &Flow) -> bool {
        let mut buffer = self.buffer.borrow_mut();
        for turn in 0.. {
            if turn == BURST {
                // Others have their turn. The runtime reports the rest at once.
                return true;
            }
            match recv(&flow.socket, &mut buffer[..], RecvFlags::DONTWAIT).map_err(io::Error::from) {
                Ok((length, _)) => self.pass_back(client, flow, &buffer[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::ConnectionRefused => return false,
                    // The error concerns one datagram: the next may pass.
                    _ => tracing::debug!(%error, "cannot send a datagram to an endpoint"),
                },
            }
        }
        // The runtime must learn that nothing is readable. Otherwise it reports readiness again.
        for interest in [Interest::READABLE, Interest::ERROR] {
            let _ = flow.socket.try_io(interest, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
        true
    }

    /// Sends an answer to the client, from the address that the client sent to.
    fn pass_back(&self, client: Client, flow: &Flow, answer: &[u8]) {
        flow.endpoint.answered();
        flow.unanswered.borrow_mut().clear();
        flow.route.tried.borrow_mut().clear();
        flow.route.attempts.set(1);
        let transmit = Transmit {
            destination: client.address,
            ecn: None,
            contents: answer,
            segment_size: None,
            src_ip: client.local,
        };
        match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
            Ok(()) => flow.moved(Moved { up: 0, down: answer.len() as u64 }),
            Err(error) => {
                tracing::debug!(%error, "cannot send a datagram to a client");
                self.worker.stats().datagrams_dropped[DroppedDatagram::NotSent as usize].add(1);
            }
        }
    }
}

impl Flow {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        // Not through the runtime, which assumes that a new socket is not writable.
        SockRef::from(&self.socket).send(datagram)?;
        let mut unanswered = self.unanswered.borrow_mut();
        unanswered.clear();
        if datagram.len() <= REPLAY {
            unanswered.extend_from_slice(datagram);
        }
        self.moved(Moved { up: datagram.len() as u64, down: 0 });
        Ok(())
    }

    fn moved(&self, moved: Moved) {
        self.moved_at.set(Instant::now());
        self.record.borrow_mut().add(moved);
    }
}

/// Removes a flow from its listener's list when its task ends, however the task ends.
struct FlowGuard {
    listener_socket: Rc<ListenerSocket>,
    client: Client,
    flow: Rc<Flow>,
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        self.listener_socket.worker.stats().udp_flows.sub(1);
        let mut flows = self.listener_socket.flows.borrow_mut();
        if flows.get(&self.client).is_some_and(|current| Rc::ptr_eq(current, &self.flow)) {
            flows.remove(&self.client);
        }
    }
}

/// A socket that exchanges datagrams with only one endpoint.
fn connected(endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(endpoint)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
