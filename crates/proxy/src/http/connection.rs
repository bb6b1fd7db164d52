//! A client connection: wait for a request, read its head, serve the request, repeat.

use std::cell::Cell;
use std::fmt::Display;
use std::future::{pending, poll_fn};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustls::ProtocolVersion;
use rustls_pki_types::CertificateDer;
use sluicegate_http1::{HeadLimits, HeadScan, Rejection};
use sluicegate_model::Settings;
use sluicegate_model::tls::Http3;
use sluicegate_proxy_protocol::Addresses;
use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use super::encode::write_line;
use super::exchange::{self, Persist};
use super::http2;
use super::reply::{self, Reply};
use super::wire::Wire;
use crate::buffer::BUFFER;
use crate::counters::handshake_index;
use crate::deadline::{Deadline, after};
use crate::failure::{ClientFault, TlsFault};
use crate::layer4;
use crate::listener::Arrival;
use crate::listener::Protocol;
use crate::proxy_header;
use crate::record::{RejectedHead, request_line};
use crate::request::{HeadView, is_https};
use crate::rule::Entrance;
use crate::stream::TlsStream;
use crate::stream::{Stream, linger, part};
use crate::tls;
use crate::tls::{Accepted, Rejected, Session};
use crate::worker::{LAST_IDLE, Phase, Scratch, Worker};

/// A client, for as long as an HTTP/1 connection or a request on a stream lasts.
pub(crate) struct Client {
    pub(crate) wire: Wire,
    pub(crate) origin: Rc<Origin>,
    pub(crate) deadline: Deadline,
    /// Requests served so far.
    pub(crate) served: u64,
    /// The end of the last request, or the beginning of the connection.
    pub(crate) ended: Instant,
    /// The client closed the connection, or gave up on a request.
    pub(crate) gone: bool,
}

/// The origin of requests: the properties that all requests of a connection share.
pub(crate) struct Origin {
    pub(crate) peer: IpAddr,
    /// The address that the client connected to, as far as known: the listener's address, or the address in the PROXY
    /// header.
    pub(crate) listener: SocketAddr,
    /// The local address of the connection.
    pub(crate) local: SocketAddr,
    /// The listener, by which the table finds the hosts.
    pub(crate) entrance: Entrance,
    /// For TLS: the session of the client.
    pub(crate) session: Option<Session>,
    /// Whether the connection uses TLS.
    pub(crate) is_tls: bool,
    /// The value of `Alt-Svc` (RFC 7838), by which the gateway announces HTTP/3.
    pub(crate) alt_svc: Option<Box<[u8]>>,
    /// The forwarding headers that all requests of the connection share, as header lines.
    pub(crate) forwarding: Box<[u8]>,
    /// The header lines that describe the client's certificate to endpoints.
    pub(crate) identity: Box<[u8]>,
    /// Whether the client has a certificate that is valid under the CA certificates.
    pub(crate) has_certificate: bool,
    /// The reason why the requests of the client are denied, because of its certificate.
    pub(crate) denied: Option<ClientFault>,
    /// The time at which the connection is so old that the client should make a new one.
    pub(crate) ends: Option<Instant>,
}

impl Origin {
    /// Whether the client uses HTTPS, here or according to a trusted peer.
    pub(super) fn is_https(&self, trusted: bool, head: HeadView<'_>) -> bool {
        is_https(self.session.is_some(), trusted, head)
    }
}

/// Why reading a head ended without a head.
enum NoHead {
    /// The client closed the connection, or the connection broke.
    Gone,
    /// The rest of the head has not come. The time is when the head began.
    Late(Instant),
    Refused(Rejection),
    /// The client speaks HTTP/2.
    Http2,
}

/// Serves a client connection to its end, and keeps the worker informed about its state. `arrival` is boxed, as are many futures below, so
/// that an idle connection's task is small, and cheap to move.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    mut arrival: Box<Arrival>,
    protocol: Protocol,
    phase: &Cell<Phase>,
) {
    let of_listener = worker.snapshot().table.layer4.proxy_header(&arrival.listener);
    let has_header = of_listener.unwrap_or_else(|| worker.settings().is_proxy(arrival.addresses.source.ip()));
    if has_header && !Box::pin(proxy_header::read(worker, &mut arrival)).await {
        return;
    }
    let addresses = arrival.addresses;
    let (stream, session, entrance) = match protocol {
        Protocol::Http(entrance) => (Stream::Plain(arrival.tcp), None, entrance),
        // The listener of a Gateway terminates TLS for no name any more.
        Protocol::Https(Entrance::Gateway(_))
            if worker.snapshot().table.layer4.connections.contains_key(&arrival.listener) =>
        {
            return Box::pin(layer4::serve(worker, *arrival, phase)).await;
        }
        Protocol::Https(entrance) => match Box::pin(handshake(worker, *arrival, entrance, phase)).await {
            Some((stream, session)) => (Stream::Tls(stream), Some(session), entrance),
            None => return,
        },
        Protocol::Tcp | Protocol::Udp => return Box::pin(layer4::serve(worker, *arrival, phase)).await,
    };
    let is_http2 = matches!(&stream, Stream::Tls(tls) if tls.protocol() == Some(b"h2"));
    let settings = worker.settings();
    let ends = end(&settings);
    let http3 = settings.tls.http3.map(|http3| announced(worker, http3, entrance));
    let mut origin = Origin::of_stream(&stream, session, addresses, entrance, http3);
    origin.ends = ends;
    let origin = Rc::new(origin);
    drop(settings);
    if is_http2 {
        return Box::pin(http2::serve(worker, stream, &[], origin, phase)).await;
    }
    let mut client = Client::new(Wire::Http1(stream), origin, &worker.settings());
    loop {
        if !client.readable().await {
            return;
        }
        phase.set(Phase::Busy);
        let mut scratch = worker.scratch();
        let persist = Box::pin(client.serve_requests(worker, &mut scratch)).await;
        if persist == Persist::Http2
            && let Wire::Http1(stream) = client.wire
        {
            let preread = scratch.input.filled().to_vec();
            worker.give_back(scratch);
            return Box::pin(http2::serve(worker, stream, &preread, client.origin, phase)).await;
        }
        worker.give_back(scratch);
        match persist {
            Persist::KeepAlive => {}
            Persist::Close | Persist::Http2 => match client.wire {
                Wire::Http1(stream) if stream.has_alerted() => return Box::pin(part(stream)).await,
                _ => return,
            },
            Persist::Linger => match client.wire {
                Wire::Http1(stream) => return Box::pin(linger(stream)).await,
                Wire::Http2(_) | Wire::Http3(_) => return,
            },
        }
        phase.set(Phase::Idle);
        let idle = worker.settings().timeouts.client_idle;
        let idle = if worker.closes_idle() { idle.min(LAST_IDLE) } else { idle };
        client.deadline.set(after(client.ended, idle));
    }
}

/// Performs the TLS handshake. `None` if the connection is over.
async fn handshake(
    worker: &Rc<Worker>,
    arrival: Arrival,
    entrance: Entrance,
    phase: &Cell<Phase>,
) -> Option<(Box<TlsStream>, Session)> {
    let snapshot = worker.snapshot();
    let (limit, time) = (snapshot.settings.limits.client_hello, snapshot.settings.timeouts.tls_handshake);
    let Arrival { tcp, addresses, listener } = arrival;
    // A listener that is gone serves no name.
    let names = snapshot.table.tls(entrance).cloned().unwrap_or_default();
    let accept = tls::accept(tcp, &names, limit, &worker.handshakes);
    let Rejected { fault, stream } = match timeout(time, accept).await {
        Ok(Ok(Accepted::Passthrough(tcp, hello))) => {
            // The connection may outlive many configurations.
            drop((snapshot, names));
            let arrival = Arrival { tcp, addresses, listener };
            Box::pin(layer4::pass_through(worker, arrival, entrance, hello, phase)).await;
            return None;
        }
        Ok(Ok(Accepted::Tls(stream, session))) => {
            let is_tls13 = stream.version() == Some(ProtocolVersion::TLSv1_3);
            worker.stats().handshakes[handshake_index(is_tls13, stream.is_resumed())].add(1);
            if !session.host.relays {
                return Some((stream, session));
            }
            let Session { name, .. } = session;
            drop((snapshot, names));
            let connection = (Stream::Tls(stream), name);
            Box::pin(layer4::relay(worker, connection, (addresses, listener), entrance, phase)).await;
            return None;
        }
        Ok(Ok(Accepted::Validated(stream))) => {
            drop(snapshot);
            linger(Stream::Tls(stream)).await;
            return None;
        }
        Ok(Ok(Accepted::ClearText(stream))) => {
            let mut stream = Stream::Plain(stream);
            let mut response = Vec::new();
            reply::write_clear_text(&mut response, &worker.date());
            worker.stats().tls_faults[TlsFault::ClearText.index()].add(1);
            let write = stream.write_all(&response);
            if let Ok(Ok(())) = timeout(snapshot.settings.timeouts.client_write, write).await {
                linger(stream).await;
            }
            return None;
        }
        Ok(Err(rejected)) => rejected,
        Err(_) => TlsFault::Timeout.into(),
    };
    tracing::debug!(reason = fault.reason(), "a TLS handshake failed");
    worker.stats().tls_faults[fault.index()].add(1);
    drop(snapshot);
    if let Some(stream) = stream {
        part(stream).await;
    }
    None
}

/// HTTP/3 as the gateway announces it at a listener.
pub(super) fn announced(worker: &Worker, http3: Http3, entrance: Entrance) -> Http3 {
    Http3 { port: worker.snapshot().table.client_port(entrance).or(http3.port), ..http3 }
}

impl Origin {
    fn of_stream(
        stream: &Stream,
        session: Option<Session>,
        addresses: Addresses,
        entrance: Entrance,
        http3: Option<Http3>,
    ) -> Self {
        let certificates = match stream {
            Stream::Tls(stream) => stream.peer_certificates(),
            _ => None,
        };
        let local = stream.local_addr().unwrap_or(addresses.destination);
        Self::new((addresses, local), session, certificates, entrance, http3)
    }

    /// The origin of a connection with these addresses and this local address. `certificates` are those that the client
    /// presented.
    pub(super) fn new(
        (addresses, local): (Addresses, SocketAddr),
        session: Option<Session>,
        certificates: Option<&[CertificateDer<'static>]>,
        entrance: Entrance,
        http3: Option<Http3>,
    ) -> Self {
        let (peer, listener) = (addresses.source.ip().to_canonical(), addresses.destination);
        let forwarding = forwarding_lines(peer, listener.port(), session.is_some());
        let auth = session.as_ref().and_then(|session| session.host.client_auth.as_deref());
        let identity = auth.map_or_else(tls::Identity::default, |auth| tls::identity(auth, certificates));
        let announced = http3.filter(|_| session.is_some());
        let alt_svc = announced.map(|Http3 { port, max_age, .. }| {
            let (port, seconds) = (port.unwrap_or(listener.port()), max_age.as_secs());
            // RFC 7838, 3: a client forgets all alternatives.
            let value =
                if seconds == 0 { "clear".to_owned() } else { format!("h3=\":{port}\"; ma={seconds}") };
            value.into_bytes().into()
        });
        Self {
            alt_svc,
            peer,
            listener,
            local,
            entrance,
            is_tls: session.is_some(),
            session,
            forwarding: forwarding.into(),
            identity: identity.lines.into(),
            has_certificate: identity.is_verified,
            denied: identity.denied,
            ends: None,
        }
    }

    /// The scheme of the request: `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        scheme(self.is_tls)
    }
}

/// The end of a connection that begins now: a tenth earlier or later than the limit of its age, or between.
pub(super) fn end(settings: &Settings) -> Option<Instant> {
    let age = settings.timeouts.connection_age?;
    let spread = (age / 5).mul_f64(fastrand::f64());
    Some(after(Instant::now(), (age - age / 10).saturating_add(spread)))
}

/// Waits for the end of a connection; for ever, if its age has no limit.
pub(super) async fn aged(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => pending().await,
    }
}

fn scheme(is_tls: bool) -> &'static str {
    if is_tls { "https" } else { "http" }
}

/// The forwarding headers that all requests of a connection share, as header lines.
pub(crate) fn forwarding_lines(peer: impl Display, port: u16, is_tls: bool) -> Vec<u8> {
    let (mut lines, scheme) = (Vec::with_capacity(192), scheme(is_tls).as_bytes());
    lines.extend_from_slice(b"X-Forwarded-For: ");
    let start = lines.len();
    // Writing to a Vec does not fail.
    let _ = write!(lines, "{peer}");
    let peer = start..lines.len();
    lines.extend_from_slice(b"\r\nX-Real-IP: ");
    lines.extend_from_within(peer);
    let _ = write!(lines, "\r\nX-Forwarded-Port: {port}\r\n");
    for name in [&b"X-Forwarded-Proto"[..], b"X-Forwarded-Scheme", b"X-Scheme"] {
        write_line(&mut lines, name, scheme);
    }
    lines
}

impl Client {
    pub(super) fn new(wire: Wire, origin: Rc<Origin>, settings: &Settings) -> Self {
        let now = Instant::now();
        let deadline = Deadline::new(after(now, settings.timeouts.request_head));
        Self { wire, origin, deadline, served: 0, ended: now, gone: false }
    }

    /// Whether the connection may serve another request of HTTP/1 after this one.
    pub(super) fn may_continue(&self, worker: &Worker, settings: &Settings) -> bool {
        let is_old = || self.origin.ends.is_some_and(|ends| Instant::now() >= ends);
        !worker.is_stopping()
            && settings.limits.requests_per_connection.is_none_or(|most| self.served < most)
            && !is_old()
    }

    /// Whether each request of the client has a stream: the client speaks HTTP/2 or HTTP/3.
    pub(crate) fn has_streams(&self) -> bool {
        !matches!(self.wire, Wire::Http1(_))
    }

    /// Waits for bytes, or the end of the stream. False after a timeout.
    async fn readable(&mut self) -> bool {
        poll_fn(|cx| {
            let ready = match (&mut self.wire, self.served) {
                // The runtime assumes that an accepted connection is readable until a read shows otherwise.
                (Wire::Http1(Stream::Plain(tcp)), 0) => {
                    tcp.poll_peek(cx, &mut ReadBuf::new(&mut [0])).map_ok(drop)
                }
                (Wire::Http1(stream), _) => stream.poll_readable(cx),
                (Wire::Http2(_) | Wire::Http3(_), _) => Poll::Ready(Ok(())),
            };
            if let Poll::Ready(ready) = ready {
                return Poll::Ready(ready.is_ok());
            }
            self.deadline.poll(cx).map(|()| false)
        })
        .await
    }

    /// Serves requests until none is waiting in the buffer.
    async fn serve_requests(&mut self, worker: &Rc<Worker>, scratch: &mut Scratch) -> Persist {
        loop {
            if let Err(no_head) = self.read_head(worker, scratch).await {
                return self.without_head(worker, scratch, no_head).await;
            }
            let persist = exchange::serve(worker, self, scratch).await;
            if persist != Persist::KeepAlive || scratch.input.is_empty() {
                return persist;
            }
        }
    }

    /// Reads until the buffer holds a whole head.
    async fn read_head(&mut self, worker: &Worker, scratch: &mut Scratch) -> Result<(), NoHead> {
        scratch.scan = HeadScan::default();
        let settings = worker.settings();
        let limits = HeadLimits { bytes: settings.limits.request_head, headers: settings.limits.headers };
        let Scratch { input, head, scan, .. } = scratch;
        let mut waiting = None;
        poll_fn(|cx| {
            loop {
                if !input.is_empty() {
                    if self.served == 0 && input.filled().starts_with(http2::PREFACE) {
                        return Poll::Ready(Err(NoHead::Http2));
                    }
                    match head.parse(input.filled(), scan, &limits) {
                        Ok(true) => return Poll::Ready(Ok(())),
                        Ok(false) => {}
                        Err(rejection) => return Poll::Ready(Err(NoHead::Refused(rejection))),
                    }
                    if waiting.is_none() {
                        let now = Instant::now();
                        waiting = Some(now);
                        self.deadline.set(after(now, settings.timeouts.request_head));
                    }
                    input.reserve(1, limits.bytes + BUFFER);
                }
                match input.poll_fill(cx, &mut self.wire) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(NoHead::Gone)),
                    Poll::Pending => break,
                }
            }
            self.deadline.poll(cx).map(|()| Err(waiting.map_or(NoHead::Gone, NoHead::Late)))
        })
        .await
    }

    /// Responds to a request on a stream whose head is rejected.
    pub(super) fn reject(&mut self, worker: &Worker, scratch: &Scratch, rejection: Rejection) {
        worker.stats().rejections[rejection.index()].add(1);
        let (status, reason) = (rejection.status(), rejection.reason());
        let (buf, duration) = (scratch.request.as_slice(), Duration::ZERO);
        self.record_rejected(worker, buf, (status, reason), 0, duration);
        let reply = Reply { status, has_body: true, content: None, location: None, grpc: None, lines: &[] };
        // A client that is gone needs no response.
        let _ = reply.send(&mut self.wire, &worker.date());
    }

    /// Records a head that was rejected or incomplete.
    fn record_rejected(
        &self,
        worker: &Worker,
        buf: &[u8],
        (status, reason): (u16, &'static str),
        bytes: usize,
        duration: Duration,
    ) {
        let (client, snapshot) = (self.origin.peer, worker.snapshot());
        let all_secrets = snapshot.table.secret_parameters();
        let log = &snapshot.settings.access_log;
        let [_, target, _] = request_line(buf);
        let record = RejectedHead {
            client,
            buf,
            status,
            reason,
            bytes,
            duration,
            format: log.format.as_ref(),
            // Its route is unknown, and it is no request for the default backend.
            is_logged: log.has_request(target, true),
            all_secrets,
        };
        worker.sinks.rejected_head(&record, worker.stats());
    }

    /// Responds to a head that is late or rejected.
    async fn without_head(&mut self, worker: &Worker, scratch: &mut Scratch, no_head: NoHead) -> Persist {
        let (status, reason, duration) = match no_head {
            NoHead::Gone => return Persist::Close,
            NoHead::Http2 => return Persist::Http2,
            NoHead::Late(since) => {
                worker.stats().client_faults[ClientFault::HeadTimeout.index()].add(1);
                (408, ClientFault::HeadTimeout.reason(), since.elapsed())
            }
            NoHead::Refused(rejection) => {
                worker.stats().rejections[rejection.index()].add(1);
                (rejection.status(), rejection.reason(), Duration::ZERO)
            }
        };
        scratch.response.clear();
        let answers = self.served > 0 || may_be_http(scratch.input.filled());
        if answers {
            reply::write(&mut scratch.response, (status, None), &worker.date(), &[], true, true);
        }
        let (buf, bytes) = (scratch.input.filled(), scratch.response.len());
        self.record_rejected(worker, buf, (status, reason), bytes, duration);
        if !answers {
            return Persist::Close;
        }
        let write = self.wire.write_all(&scratch.response);
        match timeout(worker.settings().timeouts.client_write, write).await {
            Ok(Ok(())) => Persist::Linger,
            _ => Persist::Close,
        }
    }
}

/// Whether the first line may be HTTP. Another protocol, such as HTTP/2 with a wrong preface (RFC 9113, 3.4), receives no
/// HTTP/1.1 response.
fn may_be_http(buf: &[u8]) -> bool {
    let [method, target, version] = request_line(buf);
    // This finds load balancers that send PROXY headers without being trusted to do so.
    method == b"PROXY" || version.is_empty() || target.starts_with(b"/") || version.contains(&b'/')
}
