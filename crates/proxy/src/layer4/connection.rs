//! Connections that are passed on without HTTP: any protocol over TCP or TLS, and TLS passthrough.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::ProxyProtocol;
use sluicegate_proxy_protocol::{Addresses, write_v1, write_v2};
use tokio::time::{Instant, timeout};

use super::record::OpenRecord;
use crate::deadline::Deadline;
use crate::failure::{Failure, TlsFault};
use crate::listener::Arrival;
use crate::net::TcpStream;
use crate::relay::{End, Moved, Relay};
use crate::rule::{ConnectionTarget, Entrance, Layer4Target};
use crate::stream::{Stream, delivered, discard, part};
use crate::tls::{self, Hello};
use crate::upstream::{Admission, AvoidedEndpoints, EndpointPreference, LocalUpstream};
use crate::worker::{Phase, Worker};

/// Serves a connection of a listener below HTTP to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, mut arrival: Arrival, phase: &Cell<Phase>) {
    let snapshot = worker.snapshot();
    let (target, hello) = match snapshot.table.layer4.connections.get(&arrival.listener) {
        None | Some(ConnectionTarget::Any(None)) => return reset(&arrival.tcp),
        Some(ConnectionTarget::Any(Some(target))) => (target.clone(), None),
        Some(ConnectionTarget::ByName(_)) => {
            let settings = &snapshot.settings;
            let read_client_hello = tls::read_client_hello(&mut arrival.tcp, settings.limits.client_hello);
            let heard = timeout(settings.timeouts.tls_handshake, read_client_hello)
                .await
                .unwrap_or(Err(TlsFault::Timeout));
            let entrance = Entrance::Gateway(arrival.listener);
            let found = heard.and_then(|heard| heard.ok_or(TlsFault::NotTls)).and_then(|hello| {
                // Without an alert: the gateway does not take part in TLS here, and the suite of Gateway API expects that the
                // connection ends.
                let target = target_of(worker, entrance, &hello).ok_or(TlsFault::UnknownName)?;
                Ok((target, hello))
            });
            match found {
                Ok((target, hello)) => (target, Some(hello)),
                Err(fault) => {
                    tracing::debug!(reason = fault.reason(), "cannot pass a TLS connection through");
                    worker.stats().tls_faults[fault.index()].add(1);
                    drop(snapshot);
                    return part(Stream::Plain(arrival.tcp)).await;
                }
            }
        }
    };
    drop(snapshot);
    pass(worker, Client::new(arrival, hello), target, phase).await;
}

/// Passes on a TLS connection of an HTTPS listener without termination.
pub(crate) async fn pass_through(
    worker: &Rc<Worker>,
    arrival: Arrival,
    entrance: Entrance,
    hello: Hello,
    phase: &Cell<Phase>,
) {
    match target_of(worker, entrance, &hello) {
        Some(target) => pass(worker, Client::new(arrival, Some(hello)), target, phase).await,
        // The route was removed at this moment.
        None => {
            tls::refuse(&arrival.tcp, TlsFault::UnknownName);
            worker.stats().tls_faults[TlsFault::UnknownName.index()].add(1);
            part(Stream::Plain(arrival.tcp)).await;
        }
    }
}

/// The target of a connection that the gateway passes through without termination. The newest configuration decides: after the
/// wait for the ClientHello, an older configuration may name upstreams that are gone. Meanwhile, the first name of the listener
/// may have begun to need termination, or the last name may have ceased to.
fn target_of(worker: &Worker, entrance: Entrance, hello: &Hello) -> Option<Arc<Layer4Target>> {
    let name = hello.name.as_deref().unwrap_or_default().as_bytes();
    let snapshot = worker.snapshot();
    let table = &snapshot.table;
    let without_termination = || {
        let Entrance::Gateway(address) = entrance else { return None };
        match table.layer4.connections.get(&address)? {
            ConnectionTarget::ByName(names) => names.find(name),
            ConnectionTarget::Any(_) => None,
        }
    };
    table.passthrough(entrance, name).or_else(without_termination).cloned()
}

/// Relays the bytes of a TLS connection of an HTTPS listener after the handshake. The client requested the name.
pub(crate) async fn relay(
    worker: &Rc<Worker>,
    (stream, name): (Stream, Option<Box<str>>),
    (addresses, listener): (Addresses, SocketAddr),
    entrance: Entrance,
    phase: &Cell<Phase>,
) {
    let requested = name.as_deref().unwrap_or_default();
    match worker.snapshot().table.relay(entrance, requested.as_bytes()).cloned() {
        Some(target) => {
            let client = Client { stream, addresses, listener, protocol: "TLS", name, first: Vec::new() };
            pass(worker, client, target, phase).await;
        }
        // The route was removed during the handshake.
        None => part(stream).await,
    }
}

/// A connection of a client.
struct Client {
    stream: Stream,
    addresses: Addresses,
    listener: SocketAddr,
    protocol: &'static str,
    /// The server name that the client requested.
    name: Option<Box<str>>,
    /// The bytes that the client has sent already: its ClientHello, unless the gateway terminates TLS.
    first: Vec<u8>,
}

impl Client {
    fn new(arrival: Arrival, hello: Option<Hello>) -> Self {
        let Arrival { tcp, addresses, listener } = arrival;
        let stream = Stream::Plain(tcp);
        let (protocol, name, first) = match hello {
            None => ("TCP", None, Vec::new()),
            Some(hello) => ("TLS", hello.name, hello.records.filled().to_vec()),
        };
        Self { stream, addresses, listener, protocol, name, first }
    }
}

/// Passes a connection on, and records how it ends.
async fn pass(worker: &Rc<Worker>, client: Client, target: Arc<Layer4Target>, phase: &Cell<Phase>) {
    phase.set(Phase::Busy);
    let Client { mut stream, mut addresses, listener, protocol, name, mut first } = client;
    if addresses.destination == listener {
        // A wildcard address is not the address that the client connected to.
        addresses.destination = stream.local_addr().unwrap_or(listener);
    }
    let slot = target.pick();
    let mut record = OpenRecord::new(worker, target, protocol, (addresses.source, listener), name);
    let served = async {
        let upstream = slot.and_then(|slot| worker.upstream(slot)).ok_or(Failure::NoEndpoint)?;
        record.upstream = Some(upstream.clone());
        let _admission = Admission::new(&upstream)?;
        attempts(worker, &upstream, &mut stream, addresses, &mut first, &mut record).await
    };
    match served.await {
        Ok(ConnectionEnd::Close) => {}
        Ok(ConnectionEnd::Linger) => {
            drop(record);
            if let Some(tcp) = stream.tcp() {
                discard(tcp).await;
            }
        }
        Err(failure) => {
            record.failed(failure);
            drop(record);
            if let Some(tcp) = stream.tcp() {
                // The endpoint's bytes must arrive before the reset.
                delivered(tcp).await;
            }
            stream.break_off();
        }
    }
}

/// How a client's connection ends without a failure.
enum ConnectionEnd {
    Close,
    /// The client has received the end of the stream, and may still be sending.
    Linger,
}

/// Connects and passes bytes both ways, until an endpoint has sent a byte or has received more than a TLS client's first
/// message. Before that, another endpoint can receive the same bytes.
async fn attempts(
    worker: &Rc<Worker>,
    upstream: &Rc<LocalUpstream>,
    client: &mut Stream,
    addresses: Addresses,
    first: &mut Vec<u8>,
    record: &mut OpenRecord,
) -> Result<ConnectionEnd, Failure> {
    let settings = worker.settings();
    let idle = settings.timeouts.tunnel_idle;
    let mut deadline = Deadline::new(Instant::now() + Duration::from_secs(1));
    let mut tried = AvoidedEndpoints::default();
    let is_passthrough = !first.is_empty();
    let hello_len = first.len();
    let header: Option<Rc<[u8]>> = upstream.proxy_protocol().map(|version| {
        let mut header = Vec::with_capacity(64);
        match version {
            ProxyProtocol::V1 => write_v1(&mut header, addresses),
            ProxyProtocol::V2 => write_v2(&mut header, addresses),
        }
        header.into()
    });
    let preference = EndpointPreference::default();
    loop {
        let mut connection = upstream
            .connect_with((&worker.settings(), &preference), &mut tried, None, header.clone())
            .await?;
        let endpoint = connection.endpoint().clone();
        record.attempts += 1;
        record.endpoint = Some(endpoint.shared.address());
        upstream.count_attempt(&endpoint);
        let mut relay = Relay::new(first, &[]);
        if is_passthrough {
            relay.expect_answer();
        }
        let mut before = Moved::default();
        let end = {
            let stream = &mut connection.socket.stream;
            let progress = |moved: Moved| {
                if before.down == 0 && moved.down > 0 {
                    endpoint.answered();
                }
                record.add(Moved { up: moved.up - before.up, down: moved.down - before.down });
                before = moved;
            };
            relay.run(client, stream, &endpoint, &mut deadline, idle, progress).await
        };
        match end {
            End::Done => record.done(),
            End::EndpointClosed => {
                record.done();
                return Ok(ConnectionEnd::Linger);
            }
            End::ClientBroke => {
                record.client_broke();
                if let Some(tcp) = connection.socket.stream.tcp() {
                    // The client's bytes must arrive before the reset.
                    delivered(tcp).await;
                }
                connection.socket.stream.break_off();
            }
            End::Idle => record.failed(Failure::BodyTimeout),
            End::Drained => record.failed(Failure::Drained),
            End::EndpointBroke => {
                if relay.moved().down > 0 {
                    return Err(Failure::Truncated);
                }
                upstream.note_failure(&endpoint, Failure::Reset);
                let unsent = relay.unsent_behind(hello_len);
                let Some(unsent) = unsent.filter(|_| record.attempts < settings.resilience.attempts) else {
                    return Err(Failure::Reset);
                };
                first.truncate(hello_len);
                first.extend_from_slice(unsent);
                upstream.stats().retries[Failure::Reset.index()].add(1);
                tried.add(&endpoint);
                continue;
            }
        }
        return Ok(ConnectionEnd::Close);
    }
}

/// Makes the client see a refused connection when the connection closes.
fn reset(tcp: &TcpStream) {
    // This fails only on a socket that is already broken.
    let _ = tcp.set_zero_linger();
}
