//! A client connection: wait for a request, read its head, serve it, and again.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustls::ProtocolVersion;
use sluicegate_http1::{HeadLimits, HeadScan, Rejection};
use sluicegate_model::Settings;
use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::exchange::{self, Persist};
use super::record::{self, Headless};
use super::reply;
use crate::deadline::{Deadline, after};
use crate::failure::{ClientFault, TlsFault};
use crate::options::Protocol;
use crate::stream::Stream;
use crate::telemetry::handshake_index;
use crate::tls::{self, Accepted, Session, TlsStream};
use crate::worker::{BUFFER, Phase, Scratch, Worker};

/// How long the rest of a refused request is read, so that the client gets to see the answer rather than a
/// reset (RFC 9112, 9.6): in all, and between two reads (nginx `lingering_time`, `lingering_timeout`).
const LINGER: Duration = Duration::from_secs(30);
const LINGER_STILL: Duration = Duration::from_secs(5);

/// How long a client that was not told that its connection ends may take for its next request, once idle
/// connections are closed.
pub(crate) const LAST_IDLE: Duration = Duration::from_secs(1);

/// A client connection.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    /// Over TLS: as whom it came.
    pub(crate) session: Option<Session>,
    pub(crate) peer: IpAddr,
    /// The address of the listener that took it.
    pub(crate) listener: SocketAddr,
    pub(crate) deadline: Deadline,
    /// Requests served so far.
    pub(crate) served: u64,
    /// The forwarding headers that are the same for all its requests, as header lines.
    pub(crate) forwarding: Box<[u8]>,
    /// What the client's certificate tells endpoints, as header lines.
    pub(crate) identity: Box<[u8]>,
}

/// How reading a head ended without one.
enum NoHead {
    /// The client closed the connection, or it broke.
    Gone,
    /// The rest of it, since then.
    Late(Instant),
    Refused(Rejection),
}

/// Serves a client connection to its end, and tells the worker what it is about.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    stream: TcpStream,
    protocol: Protocol,
    peer: SocketAddr,
    listener: SocketAddr,
    phase: &Cell<Phase>,
) {
    let (stream, session) = match protocol {
        Protocol::Http => (Stream::Plain(stream), None),
        // Boxed, so that an idle connection's task is small.
        Protocol::Https => match Box::pin(handshake(worker, stream)).await {
            Some((stream, session)) => (Stream::Tls(stream), Some(session)),
            None => return,
        },
    };
    let mut client = Client::new(stream, session, peer.ip().to_canonical(), listener, &worker.settings());
    loop {
        if !client.readable().await {
            return;
        }
        phase.set(Phase::Busy);
        let mut scratch = worker.scratch();
        // Boxed, so that an idle connection's task is small.
        let persist = Box::pin(client.serve_requests(worker, &mut scratch)).await;
        worker.give_back(scratch);
        match persist {
            Persist::KeepAlive => {}
            Persist::Close => return,
            Persist::Linger => return linger(client.stream).await,
        }
        phase.set(Phase::Idle);
        let idle = worker.settings().timeouts.client_idle;
        client.deadline.set_after(if worker.closes_idle() { idle.min(LAST_IDLE) } else { idle });
    }
}

/// Carries out the TLS handshake. Without a connection afterwards, it is over.
async fn handshake(worker: &Rc<Worker>, stream: TcpStream) -> Option<(Box<TlsStream>, Session)> {
    let snapshot = worker.snapshot();
    let (limit, time) = (snapshot.settings.limits.client_hello, snapshot.settings.timeouts.tls_handshake);
    let fault = match timeout(time, tls::accept(stream, &snapshot.table.tls, limit)).await {
        Ok(Ok(Accepted::Tls(stream, session))) => {
            let is_tls13 = stream.version() == Some(ProtocolVersion::TLSv1_3);
            worker.stats().handshakes[handshake_index(is_tls13, stream.is_resumed())].add(1);
            return Some((stream, session));
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
        Ok(Err(fault)) => fault,
        Err(_) => TlsFault::Timeout,
    };
    tracing::debug!(reason = fault.reason(), "a TLS handshake failed");
    worker.stats().tls_faults[fault.index()].add(1);
    None
}

impl Client {
    fn new(
        stream: Stream,
        session: Option<Session>,
        peer: IpAddr,
        listener: SocketAddr,
        settings: &Settings,
    ) -> Self {
        let port = listener.port();
        let scheme = if session.is_some() { "https" } else { "http" };
        let mut forwarding = Vec::with_capacity(192);
        // Writing to a Vec does not fail.
        let _ = write!(
            forwarding,
            "X-Forwarded-For: {peer}\r\nX-Real-IP: {peer}\r\nX-Forwarded-Port: {port}\r\n\
             X-Forwarded-Proto: {scheme}\r\nX-Forwarded-Scheme: {scheme}\r\nX-Scheme: {scheme}\r\n"
        );
        let auth = session.as_ref().and_then(|session| session.host.client_auth.as_deref());
        let identity = match (auth, &stream) {
            (Some(auth), Stream::Tls(stream)) => tls::identity(auth, stream.peer_certificates()),
            _ => Vec::new(),
        };
        let deadline = Deadline::new(after(Instant::now(), settings.timeouts.request_head));
        Self {
            stream,
            session,
            peer,
            listener,
            deadline,
            served: 0,
            forwarding: forwarding.into(),
            identity: identity.into(),
        }
    }

    /// How it came: `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.session.is_some() { "https" } else { "http" }
    }

    /// Waits for bytes, or the end of the stream. False if none came in time.
    async fn readable(&mut self) -> bool {
        poll_fn(|cx| {
            let ready = match (&mut self.stream, self.served) {
                // The runtime takes an accepted connection to be readable until reading it proved otherwise.
                (Stream::Plain(tcp), 0) => tcp.poll_peek(cx, &mut ReadBuf::new(&mut [0])).map_ok(drop),
                (stream, _) => stream.poll_readable(cx),
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

    /// Reads until there is a whole head in the buffer.
    async fn read_head(&mut self, worker: &Worker, scratch: &mut Scratch) -> Result<(), NoHead> {
        scratch.scan = HeadScan::default();
        let settings = worker.settings();
        let limits = HeadLimits { bytes: settings.limits.request_head, headers: settings.limits.headers };
        let Scratch { input, head, scan, .. } = scratch;
        let mut waiting = None;
        poll_fn(|cx| {
            loop {
                if !input.is_empty() {
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
                match input.poll_fill(cx, &mut self.stream) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(NoHead::Gone)),
                    Poll::Pending => break,
                }
            }
            self.deadline.poll(cx).map(|()| Err(waiting.map_or(NoHead::Gone, NoHead::Late)))
        })
        .await
    }

    /// Answers a head that did not come or cannot be accepted.
    async fn without_head(&mut self, worker: &Worker, scratch: &mut Scratch, no_head: NoHead) -> Persist {
        let (status, reason, duration) = match no_head {
            NoHead::Gone => return Persist::Close,
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
        reply::write(&mut scratch.response, status, &worker.date(), true, true);
        let (buf, bytes) = (scratch.input.filled(), scratch.response.len());
        record::log_headless(worker, self, &Headless { buf, status, reason, bytes, duration });
        let write = self.stream.write_all(&scratch.response);
        match timeout(worker.settings().timeouts.client_write, write).await {
            Ok(Ok(())) => Persist::Linger,
            _ => Persist::Close,
        }
    }
}

/// Ends the connection so that the client can read the last response although it may still be sending.
async fn linger(mut stream: Stream) {
    let drain = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        // What it is does not matter any more, so it is not decrypted.
        let mut sink = vec![0; BUFFER];
        loop {
            match timeout(LINGER_STILL, stream.tcp().readable()).await {
                Ok(Ok(())) => {}
                _ => return,
            }
            match stream.tcp().try_read(&mut sink) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = timeout(LINGER, drain).await;
}
