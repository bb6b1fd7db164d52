//! A client connection: wait for a request, read its head, serve it, and again.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustix::net::Shutdown;
use sluicegate_http1::{HeadLimits, HeadScan, Rejection};
use sluicegate_model::Settings;
use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::exchange::{self, Persist};
use super::record::{self, Headless};
use super::reply;
use crate::deadline::{Deadline, after};
use crate::failure::ClientFault;
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
    pub(crate) stream: TcpStream,
    pub(crate) peer: IpAddr,
    /// The address of the listener that took it.
    pub(crate) listener: SocketAddr,
    pub(crate) deadline: Deadline,
    /// Requests served so far.
    pub(crate) served: u64,
    /// The forwarding headers that are the same for all its requests, as header lines.
    pub(crate) forwarding: Box<[u8]>,
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
    peer: SocketAddr,
    listener: SocketAddr,
    phase: &Cell<Phase>,
) {
    let mut client = Client::new(stream, peer.ip().to_canonical(), listener, &worker.settings());
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
            Persist::Linger => return client.linger().await,
        }
        phase.set(Phase::Idle);
        let idle = worker.settings().timeouts.client_idle;
        client.deadline.set_after(if worker.closes_idle() { idle.min(LAST_IDLE) } else { idle });
    }
}

impl Client {
    fn new(stream: TcpStream, peer: IpAddr, listener: SocketAddr, settings: &Settings) -> Self {
        let port = listener.port();
        let mut forwarding = Vec::with_capacity(192);
        // Writing to a Vec does not fail.
        let _ = write!(
            forwarding,
            "X-Forwarded-For: {peer}\r\nX-Real-IP: {peer}\r\nX-Forwarded-Port: {port}\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Scheme: http\r\nX-Scheme: http\r\n"
        );
        let deadline = Deadline::new(after(Instant::now(), settings.timeouts.request_head));
        Self { stream, peer, listener, deadline, served: 0, forwarding: forwarding.into() }
    }

    /// Waits for bytes, or the end of the stream. False if none came in time.
    async fn readable(&mut self) -> bool {
        poll_fn(|cx| {
            let ready = match self.served {
                // The runtime takes an accepted connection to be readable until reading it proved otherwise.
                0 => self.stream.poll_peek(cx, &mut ReadBuf::new(&mut [0])).map_ok(drop),
                _ => self.stream.poll_read_ready(cx),
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

    /// Ends the connection so that the client can read the last response although it may still be sending.
    async fn linger(mut self) {
        if rustix::net::shutdown(&self.stream, Shutdown::Write).is_err() {
            return;
        }
        let mut sink = vec![0; BUFFER];
        let drain = async {
            use tokio::io::AsyncReadExt as _;
            while let Ok(Ok(1..)) = timeout(LINGER_STILL, self.stream.read(&mut sink)).await {}
        };
        let _ = timeout(LINGER, drain).await;
    }
}
