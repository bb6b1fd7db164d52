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
use super::{record, reply};
use crate::deadline::{Deadline, after};
use crate::failure::ClientFault;
use crate::worker::{BUFFER, Scratch, Worker};

/// How long, and for how many bytes, the rest of a refused request is read, so that the client gets to see
/// the answer rather than a reset (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// How long a client that was not told that its connection ends may take for its next request, once idle
/// connections are closed.
const LAST_IDLE: Duration = Duration::from_secs(1);

/// A client connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) peer: IpAddr,
    /// The gateway's own address on this connection.
    pub(crate) local: SocketAddr,
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
    Late,
    Refused(Rejection),
}

/// Serves a client connection to its end. `busy` tells the worker whether a request is being served.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    stream: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    busy: &Cell<bool>,
) {
    let mut client = Client::new(stream, peer.ip().to_canonical(), local, &worker.settings());
    loop {
        if !client.readable().await {
            return;
        }
        busy.set(true);
        let mut scratch = worker.scratch();
        // Boxed, so that an idle connection's task is small.
        let persist = Box::pin(client.serve_requests(worker, &mut scratch)).await;
        worker.give_back(scratch);
        match persist {
            Persist::KeepAlive => {}
            Persist::Close => return,
            Persist::Linger => return client.linger().await,
        }
        busy.set(false);
        let idle = worker.settings().timeouts.client_idle;
        client.deadline.set_after(if worker.closes_idle() { idle.min(LAST_IDLE) } else { idle });
    }
}

impl Client {
    fn new(stream: TcpStream, peer: IpAddr, local: SocketAddr, settings: &Settings) -> Self {
        let port = local.port();
        let mut forwarding = Vec::with_capacity(192);
        // Writing to a Vec does not fail.
        let _ = write!(
            forwarding,
            "X-Forwarded-For: {peer}\r\nX-Real-IP: {peer}\r\nX-Forwarded-Port: {port}\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Scheme: http\r\nX-Scheme: http\r\n"
        );
        let deadline = Deadline::new(after(Instant::now(), settings.timeouts.request_head));
        Self { stream, peer, local, deadline, served: 0, forwarding: forwarding.into() }
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
        let mut waiting = false;
        poll_fn(|cx| {
            loop {
                if !input.is_empty() {
                    match head.parse(input.filled(), scan, &limits) {
                        Ok(true) => return Poll::Ready(Ok(())),
                        Ok(false) => {}
                        Err(rejection) => return Poll::Ready(Err(NoHead::Refused(rejection))),
                    }
                    if !std::mem::replace(&mut waiting, true) {
                        self.deadline.set_after(settings.timeouts.request_head);
                    }
                    input.reserve(1, limits.bytes + BUFFER);
                }
                match input.poll_fill(cx, &mut self.stream) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(Err(NoHead::Gone)),
                    Poll::Pending => break,
                }
            }
            self.deadline.poll(cx).map(|()| Err(if waiting { NoHead::Late } else { NoHead::Gone }))
        })
        .await
    }

    /// Answers a head that did not come or cannot be accepted.
    async fn without_head(&mut self, worker: &Worker, scratch: &mut Scratch, no_head: NoHead) -> Persist {
        let status = match no_head {
            NoHead::Gone => return Persist::Close,
            NoHead::Late => {
                worker.stats().client_faults[ClientFault::HeadTimeout.index()].add(1);
                record::log_headless(worker, self, 408, ClientFault::HeadTimeout.reason());
                408
            }
            NoHead::Refused(rejection) => {
                worker.stats().rejections[rejection.index()].add(1);
                record::log_headless(worker, self, rejection.status(), rejection.reason());
                rejection.status()
            }
        };
        scratch.response.clear();
        reply::write(&mut scratch.response, status, &worker.date(), true, true);
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
        let mut left = LINGER_BYTES;
        let drain = async {
            use tokio::io::AsyncReadExt as _;
            while let Ok(read @ 1..) = self.stream.read(&mut sink).await {
                left = left.saturating_sub(read);
                if left == 0 {
                    return;
                }
            }
        };
        let _ = timeout(LINGER, drain).await;
    }
}
