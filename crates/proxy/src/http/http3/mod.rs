//! An HTTP/3 connection of a client (RFC 9114): each stream is a request, served like any other.
//!
//! | module | purpose |
//! |---|---|
//! | [`side`] | the streams beside the requests: SETTINGS, GOAWAY and QPACK |
//! | [`stream`] | one request and its response |
//!
//! `stream_head` reads the heads of requests. Bodies stay unchanged.

mod side;
mod stream;

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header;
use quinn::{
    Connecting, ConnectionError, Incoming, RecvStream, SendStream, ServerConfig, TransportErrorCode, VarInt,
};
use rustls_pki_types::CertificateDer;
use sluicegate_http1::RequestFraming;
use sluicegate_http3::{Code, Protocol};
use sluicegate_proxy_protocol::Addresses;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Client, Origin, aged, announced, end};
use super::exchange;
use super::stream_head;
use super::wire::Wire;
use crate::counters::handshake_index;
use crate::deadline::Deadline;
use crate::failure::TlsFault;
use crate::rule::Entrance;
use crate::tls::{QuicHandshake, Session};
use crate::worker::{Phase, Worker};

pub(crate) use stream::Http3Stream;
use stream::{NoHead, is_safe};

/// How long a client may take to close its connection, and at most to notice the announcement of the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many bytes without use may arrive on a connection: frames and settings that the gateway ignores.
const USELESS: u64 = 64 * 1024;
/// How many more may arrive with each request, and in each second. Clients send unknown frames with their requests, so that
/// servers accept unknown frames (RFC 9114, 7.2.8), and frames with priorities (RFC 9218, 7.2).
const USELESS_OF_REQUEST: u64 = 1024;
const USELESS_PER_SECOND: u64 = 1024;
/// How many requests a client may cancel, unless they are less than half of all requests.
const GIVEN_UP: u64 = 100;

/// The parts of a connection that its requests share.
pub(super) struct Shared {
    connection: quinn::Connection,
    worker: Rc<Worker>,
    /// The requests with a body that has arrived, and that no endpoint has taken yet.
    unread: Cell<usize>,
    /// Received bytes without use, beyond those that requests and the time since `useless_since` allow.
    useless: Cell<u64>,
    useless_since: Cell<Instant>,
    /// Whether the handshake is complete, for requests that arrived before its end.
    is_confirmed: watch::Sender<bool>,
}

impl Shared {
    /// Ends the connection because of a client that violates the protocol.
    fn fail(&self, code: Code) {
        if self.connection.close_reason().is_some() {
            return;
        }
        let stats = &self.worker.stats().http3;
        if code == Code::EXCESSIVE_LOAD { &stats.floods } else { &stats.errors }.add(1);
        tracing::debug!(%code, "an HTTP/3 connection ended because of its client");
        self.close(code);
    }

    fn close(&self, code: Code) {
        self.connection.close(VarInt::from_u32(code.value()), code.name().as_bytes());
    }

    /// Accounts for bytes without use.
    fn waste(&self, bytes: u64) {
        self.useless.set(self.useless.get().saturating_add(bytes));
        if self.useless.get() > USELESS {
            let seconds = self.useless_since.get().elapsed().as_secs();
            // The rest of a second counts for the next second.
            self.useless_since.set(self.useless_since.get() + Duration::from_secs(seconds));
            self.allow_useless(seconds.saturating_mul(USELESS_PER_SECOND));
        }
        if self.useless.get() > USELESS {
            self.fail(Code::EXCESSIVE_LOAD);
        }
    }

    /// Allows more bytes without use.
    fn allow_useless(&self, bytes: u64) {
        self.useless.set(self.useless.get().saturating_sub(bytes));
    }
}

/// Serves an HTTP/3 connection to its end. `listener` is the address of the HTTPS listener in the configuration.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    incoming: Incoming,
    config: Arc<ServerConfig>,
    (entrance, listener): (Entrance, SocketAddr),
    phase: &Cell<Phase>,
) {
    let arrived = Handshake::new(worker);
    let Some((connection, session, is_confirmed)) = Box::pin(arrived.perform(incoming, config)).await else {
        return;
    };
    drop(arrived);
    worker.stats().http3.connections.add(1);
    let certificates = connection.peer_identity();
    let certificates = certificates.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let certificates = certificates.map(|certificates| *certificates);
    let origins = Origins { session, certificates, entrance, listener, latest: RefCell::default() };
    let shared = Rc::new(Shared {
        connection,
        worker: worker.clone(),
        unread: Cell::new(0),
        useless: Cell::new(0),
        useless_since: Cell::new(Instant::now()),
        is_confirmed,
    });
    // However this task ends, the connection closes with a code of HTTP/3.
    let _closing = Closing(shared.clone());
    Connection::new(shared, origins).run(phase).await;
}

/// Closes a connection.
struct Closing(Rc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(Code::NO_ERROR);
    }
}

/// A handshake in progress.
struct Handshake<'w>(&'w Rc<Worker>);

impl<'w> Handshake<'w> {
    fn new(worker: &'w Rc<Worker>) -> Self {
        worker.stats().http3.handshaking.add(1);
        Self(worker)
    }

    /// Performs the handshake. `None` if the connection is over.
    async fn perform(
        &self,
        incoming: Incoming,
        config: Arc<ServerConfig>,
    ) -> Option<(quinn::Connection, Session, watch::Sender<bool>)> {
        let worker = self.0;
        let time = worker.settings().timeouts.tls_handshake;
        let fault = match timeout(time, self.shake(incoming, config)).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(error)) => fault_of(&error),
            Err(_) => TlsFault::Timeout,
        };
        tracing::debug!(reason = fault.reason(), "a QUIC handshake failed");
        worker.stats().tls_faults[fault.index()].add(1);
        None
    }

    async fn shake(
        &self,
        incoming: Incoming,
        config: Arc<ServerConfig>,
    ) -> Result<(quinn::Connection, Session, watch::Sender<bool>), ConnectionError> {
        let worker = self.0;
        let has_early_data = worker.settings().tls.http3.is_some_and(|http3| http3.early_data);
        let connecting = worker.handshakes.take(async { incoming.accept_with(config) });
        let mut connecting: Connecting = connecting.await?;
        let data = connecting.handshake_data().await?;
        let Ok(handshake) = data.downcast::<QuicHandshake>() else {
            return Err(ConnectionError::LocallyClosed);
        };
        let session = handshake.into_session();
        // A client with a certificate presents it at the end of the handshake.
        let (connection, accepted) = match has_early_data && session.host.client_auth.is_none() {
            true => match connecting.into_0rtt() {
                Ok((connection, accepted)) => (connection, Some(accepted)),
                Err(connecting) => (connecting.await?, None),
            },
            false => (connecting.await?, None),
        };
        let is_confirmed = watch::Sender::new(accepted.is_none());
        let count = {
            let worker = worker.clone();
            // The gateway cannot see whether a session was resumed.
            move || worker.stats().handshakes[handshake_index(true, false)].add(1)
        };
        match accepted {
            None => count(),
            Some(accepted) => {
                let confirmed = is_confirmed.clone();
                tokio::task::spawn_local(async move {
                    accepted.await;
                    count();
                    confirmed.send_replace(true);
                });
            }
        }
        Ok((connection, session, is_confirmed))
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.0.stats().http3.handshaking.sub(1);
    }
}

fn fault_of(error: &ConnectionError) -> TlsFault {
    let is_alert = |alert: u8, code: TransportErrorCode| code == TransportErrorCode::crypto(alert);
    match error {
        // RFC 8446, 6: unrecognized_name, no_application_protocol, handshake_failure, certificate_required.
        ConnectionError::TransportError(error) if is_alert(112, error.code) => TlsFault::UnknownName,
        ConnectionError::TransportError(error) if is_alert(120, error.code) || is_alert(40, error.code) => {
            TlsFault::Incompatible
        }
        ConnectionError::TransportError(error)
            if (42..=49).chain([116]).any(|alert| is_alert(alert, error.code)) =>
        {
            TlsFault::ClientCertificate
        }
        ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => TlsFault::Protocol,
        ConnectionError::ConnectionClosed(_) => TlsFault::Refused,
        ConnectionError::TimedOut => TlsFault::Timeout,
        _ => TlsFault::Closed,
    }
}

/// The origin of a connection's requests: a client may change its address.
struct Origins {
    session: Session,
    certificates: Option<Vec<CertificateDer<'static>>>,
    entrance: Entrance,
    listener: SocketAddr,
    latest: RefCell<Option<(SocketAddr, Rc<Origin>)>>,
}

impl Origins {
    fn origin(&self, shared: &Shared) -> Rc<Origin> {
        let remote = shared.connection.remote_address();
        if let Some((at, origin)) = &*self.latest.borrow()
            && *at == remote
        {
            return origin.clone();
        }
        let addresses = Addresses { source: remote, destination: self.listener };
        let local = shared.connection.local_ip().map(|ip| SocketAddr::new(ip, self.listener.port()));
        let Session { name, host, negotiated } = &self.session;
        let session = Session { name: name.clone(), host: host.clone(), negotiated: *negotiated };
        let certificates = self.certificates.as_deref();
        let http3 = shared.worker.settings().tls.http3;
        let http3 = http3.map(|http3| announced(&shared.worker, http3, self.entrance));
        let addresses = (addresses, local.unwrap_or(self.listener));
        let origin = Rc::new(Origin::new(addresses, Some(session), certificates, self.entrance, http3));
        *self.latest.borrow_mut() = Some((remote, origin.clone()));
        origin
    }
}

/// A connection with its requests in flight.
struct Connection {
    shared: Rc<Shared>,
    origins: Origins,
    /// Each task returns whether the client gave up on the request.
    streams: JoinSet<bool>,
    /// The streams beside the requests.
    side_streams: JoinSet<()>,
    accepted: u64,
    given_up: u64,
    /// The first request that the gateway does not serve, once it has announced that.
    last: Option<u64>,
}

/// How far the end of a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// The gateway has announced the end. Until this time, it serves requests that the client sent before the announcement arrived.
    Announced(Instant),
    /// Further requests are rejected, so that the client repeats them on another connection.
    Closed,
    /// All requests have ended, and the client has time to close the connection.
    Parting(Instant),
}

impl Connection {
    fn new(shared: Rc<Shared>, origins: Origins) -> Self {
        Self {
            shared,
            origins,
            streams: JoinSet::new(),
            side_streams: JoinSet::new(),
            accepted: 0,
            given_up: 0,
            last: None,
        }
    }

    async fn run(mut self, phase: &Cell<Phase>) {
        let (shared, worker) = (self.shared.clone(), self.shared.worker.clone());
        let goaway = side::start(&shared, &mut self.side_streams);
        let kinds = Rc::new(side::Kinds::default());
        let mut deadline = Deadline::new(Instant::now());
        deadline.set_after(worker.settings().timeouts.client_idle);
        let mut stopping = pin!(worker.stopping());
        let mut aged = pin!(aged(end(&worker.settings())));
        let mut is_old = false;
        let mut leaving = Leaving::No;
        loop {
            let settings = worker.settings();
            let most = settings.limits.requests_per_connection;
            // If HTTP/3 is switched off, a client with an open connection must not stay with it.
            let is_unwanted = worker.is_stopping() || settings.tls.http3.is_none();
            let is_over =
                is_old || is_unwanted && self.accepted > 0 || most.is_some_and(|most| self.accepted >= most);
            if is_over && leaving == Leaving::No {
                leaving = self.announce(&goaway);
            }
            if let Leaving::Announced(until) = leaving
                && Instant::now() >= until
            {
                // RFC 9114, 5.2: requests that arrived after the announcement are served.
                self.last = Some(self.accepted * 4);
                let _ = goaway.send(self.accepted * 4);
                leaving = Leaving::Closed;
            }
            if leaving == Leaving::Closed && self.streams.is_empty() {
                leaving = Leaving::Parting(Instant::now() + FAREWELL);
            }
            phase.set(match (self.streams.is_empty(), self.accepted) {
                (false, _) => Phase::Busy,
                (true, 0) => Phase::Fresh,
                (true, _) => Phase::Idle,
            });
            let is_idle = self.streams.is_empty() && leaving == Leaving::No;
            let next_step = async {
                match leaving {
                    Leaving::Announced(until) | Leaving::Parting(until) => sleep_until(until).await,
                    Leaving::No | Leaving::Closed => pending().await,
                }
            };
            tokio::select! {
                biased;
                accepted = shared.connection.accept_bi() => match accepted {
                    Ok((send, recv)) => self.accept(send, recv),
                    Err(error) => {
                        tracing::debug!(%error, "an HTTP/3 connection ended");
                        return;
                    }
                },
                accepted = shared.connection.accept_uni() => match accepted {
                    Ok(recv) => {
                        self.side_streams.spawn_local(side::serve(shared.clone(), kinds.clone(), recv));
                    }
                    Err(_) => return,
                },
                Some(ended) = self.streams.join_next() => {
                    self.given_up += u64::from(ended.unwrap_or(true));
                    if self.given_up > GIVEN_UP && self.given_up > self.accepted / 2 {
                        shared.fail(Code::EXCESSIVE_LOAD);
                        return;
                    }
                    deadline.set_after(settings.timeouts.client_idle);
                }
                Some(_) = self.side_streams.join_next() => {}
                () = poll_fn(|cx| deadline.poll(cx)), if is_idle => {
                    leaving = self.announce(&goaway);
                }
                () = next_step => if matches!(leaving, Leaving::Parting(_)) {
                    return;
                },
                () = &mut stopping, if !worker.is_stopping() => {}
                () = &mut aged, if !is_old => is_old = true,
            }
        }
    }

    /// Announces the end of the connection to the client. The gateway still serves requests that the client has sent.
    fn announce(&self, goaway: &side::Goaway) -> Leaving {
        // RFC 9114, 5.2: the largest identifier of a request.
        let _ = goaway.send(sluicegate_http3::varint::MAX - 3);
        let round_trip = 2 * self.shared.connection.rtt();
        Leaving::Announced(Instant::now() + round_trip.min(FAREWELL))
    }

    fn accept(&mut self, mut send: SendStream, mut recv: RecvStream) {
        let id = u64::from(recv.id());
        if self.last.is_some_and(|last| id >= last) {
            let code = VarInt::from_u32(Code::REQUEST_REJECTED.value());
            // The stream is new.
            let _ = send.reset(code);
            let _ = recv.stop(code);
            return;
        }
        self.accepted += 1;
        self.shared.allow_useless(USELESS_OF_REQUEST);
        let origin = self.origins.origin(&self.shared);
        let is_early = recv.is_0rtt() && !*self.shared.is_confirmed.borrow();
        let stream = Http3Stream::new(self.shared.clone(), send, recv);
        // Boxed, because the runtime moves a task's future and output several times.
        self.streams.spawn_local(Box::pin(serve_stream(self.shared.clone(), origin, stream, is_early)));
    }
}

/// Serves one request. Returns whether the client gave up on it.
async fn serve_stream(
    shared: Rc<Shared>,
    origin: Rc<Origin>,
    mut stream: Http3Stream,
    mut is_early: bool,
) -> bool {
    let worker = shared.worker.clone();
    let settings = worker.settings();
    let limit = settings.limits.request_head;
    let read = async {
        let head = poll_fn(|cx| stream.poll_head(cx, limit)).await?;
        let waits = is_safe(head.method()) && !head.headers().contains_key(header::EXPECT);
        poll_fn(|cx| stream.poll_body(cx, waits)).await?;
        Ok(head)
    };
    let head = match timeout(settings.timeouts.request_head, read).await {
        Ok(Ok(head)) => head,
        Ok(Err(NoHead::Refused(rejection))) => {
            let scratch = worker.scratch();
            let mut client = Client::new(Wire::Http3(Box::new(stream)), origin, &settings);
            client.reject(&worker, &scratch, rejection);
            worker.give_back(scratch);
            return drain(client, &settings).await;
        }
        Ok(Err(NoHead::Gone)) | Err(_) => {
            stream.give_up(Code::REQUEST_CANCELLED);
            return true;
        }
        Ok(Err(NoHead::Ended)) => return true,
    };
    if is_early {
        worker.stats().http3.early_requests.add(1);
        if !is_safe(head.method()) {
            // RFC 8470, 3: the client cannot replay a request behind the handshake.
            let _ = shared.is_confirmed.subscribe().wait_for(|is_confirmed| *is_confirmed).await;
        }
        is_early = !*shared.is_confirmed.borrow();
    }
    let (parts, ()) = head.into_parts();
    let protocol = parts.extensions.get::<Protocol>().map(|protocol| &*protocol.0);
    let mut scratch = worker.scratch();
    let flags = (stream.is_bodiless(), is_early);
    let read = stream_head::read(&parts, protocol, &mut scratch, &settings, flags);
    if let Ok(()) = read {
        let declared = match scratch.head.framing {
            RequestFraming::Length(length) => Some(length),
            _ => None,
        };
        if stream.expect(declared, protocol.is_some()).is_err() {
            worker.give_back(scratch);
            return true;
        }
    }
    let mut client = Client::new(Wire::Http3(Box::new(stream)), origin, &settings);
    match read {
        Ok(()) => {
            exchange::serve(&worker, &mut client, &mut scratch).await;
        }
        Err(rejection) => client.reject(&worker, &scratch, rejection),
    }
    worker.give_back(scratch);
    drain(client, &settings).await
}

/// Sends the rest of a response, and waits until the client has received it. Returns whether the client gave up.
async fn drain(client: Client, settings: &sluicegate_model::Settings) -> bool {
    let Client { wire, gone, .. } = client;
    let Wire::Http3(mut stream) = wire else { return gone };
    let sent = timeout(settings.timeouts.client_write, stream.drain()).await;
    gone || !matches!(sent, Ok(Ok(())))
}
