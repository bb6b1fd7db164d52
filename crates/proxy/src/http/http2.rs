//! An HTTP/2 connection of a client: each stream is a request, served like any other.
//!
//! `stream_head` reads the heads of requests. Bodies stay unchanged.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use sluicegate_model::Settings;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::connection::{Client, Origin, aged};
use super::exchange;
use super::stream_head;
use super::wire::{Http2Stream, Wire};
use crate::deadline::Deadline;
use crate::stream::Stream;
use crate::stream::{Batch, Sender};
use crate::worker::{Phase, Worker};

/// The first line of an HTTP/2 client (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// The length of the preface, including `\r\nSM\r\n\r\n` (RFC 9113, 3.4).
const WHOLE_PREFACE: usize = 24;

/// Serves an HTTP/2 connection to its end.
pub(super) async fn serve(
    worker: &Rc<Worker>,
    stream: Stream,
    preread: &[u8],
    origin: Rc<Origin>,
    phase: &Cell<Phase>,
) {
    let settings = worker.settings();
    let batch = Batch::new(stream, preread, WHOLE_PREFACE, Sender::Client);
    let handshake = async {
        let mut handshake = pin!(builder(&settings).handshake::<_, Bytes>(batch.clone()));
        poll_fn(|cx| {
            let done = handshake.as_mut().poll(cx);
            let sent = batch.poll_send(cx);
            if matches!(sent, Poll::Ready(Err(_))) { Poll::Ready(None) } else { done.map(Result::ok) }
        })
        .await
    };
    let Ok(Some(connection)) = timeout(settings.timeouts.request_head, handshake).await else { return };
    drop(settings);
    let mut deadline = Deadline::new(Instant::now());
    deadline.set_after(worker.settings().timeouts.client_idle);
    let mut connection = Connection::new(connection, batch, deadline, &worker.settings());
    let mut stopping = pin!(worker.stopping());
    let mut served = 0_u64;
    let mut leaving = false;
    let mut aged = pin!(aged(origin.ends));
    let mut is_old = false;
    loop {
        let settings = worker.settings();
        let most = settings.limits.requests_per_connection;
        let is_over = is_old || worker.is_stopping() && served > 0 || most.is_some_and(|most| served >= most);
        if is_over && !leaving {
            // Requests in flight are served, and the client makes a new connection for later requests.
            connection.connection.graceful_shutdown();
            leaving = true;
        }
        phase.set(match (connection.streams.is_empty(), served) {
            (false, _) => Phase::Busy,
            (true, 0) => Phase::Fresh,
            (true, _) => Phase::Idle,
        });
        tokio::select! {
            biased;
            event = poll_fn(|cx| connection.poll(cx, phase, settings.timeouts.client_idle)) => match event {
                Event::Request(request, respond) => {
                    served += 1;
                    let batch = connection.batch.clone();
                    let serving = serve_stream(worker.clone(), origin.clone(), batch, request, respond);
                    // Boxed, because the runtime moves a task's future and output several times.
                    connection.streams.spawn_local(Box::pin(serving));
                }
                Event::Flood => {
                    worker.stats().http2_floods.add(1);
                    connection.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    leaving = true;
                }
                Event::Idle if leaving => return,
                Event::Idle => {
                    connection.connection.graceful_shutdown();
                    leaving = true;
                    connection.deadline.set_after(FAREWELL);
                }
                Event::Over => return,
            },
            () = &mut stopping, if !worker.is_stopping() => {}
            () = &mut aged, if !is_old => is_old = true,
        }
    }
}

/// A connection with its requests in flight.
struct Connection {
    connection: h2::server::Connection<Batch, Bytes>,
    batch: Batch,
    /// Each task returns whether the client gave up on the request.
    streams: JoinSet<bool>,
    accepted: u64,
    given_up: u64,
    /// The limit of received bytes without use.
    useless_most: usize,
    useless_since: Instant,
    flooded: bool,
    /// When the client has been idle for too long.
    deadline: Deadline,
}

#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and a box would be made for each request"
)]
enum Event {
    Request(Request<RecvStream>, SendResponse<Bytes>),
    /// The client causes work without making requests.
    Flood,
    /// The client has made no request for too long.
    Idle,
    /// The connection has ended.
    Over,
}

impl Connection {
    fn new(
        connection: h2::server::Connection<Batch, Bytes>,
        batch: Batch,
        deadline: Deadline,
        settings: &Settings,
    ) -> Self {
        // Sent bodies that wait for the endpoint are useful, but are not accounted as useful yet.
        let window = usize::try_from(settings.limits.http2_connection_window).unwrap_or(usize::MAX);
        Self {
            connection,
            batch,
            streams: JoinSet::new(),
            accepted: 0,
            given_up: 0,
            useless_most: window.saturating_add(USELESS),
            useless_since: Instant::now(),
            flooded: false,
            deadline,
        }
    }

    /// Whether the client causes work without making requests: by useless frames, such as PING, SETTINGS and empty
    /// frames, or by requests that it cancels (CVE-2023-44487).
    fn is_flood(&mut self) -> bool {
        if self.batch.unexplained() > self.useless_most / 2 || self.batch.control() > USELESS / 2 {
            let seconds = self.useless_since.elapsed().as_secs();
            // The rest of a second counts for the next second.
            self.useless_since += Duration::from_secs(seconds);
            self.batch
                .allow(usize::try_from(seconds).unwrap_or(usize::MAX).saturating_mul(USELESS_PER_SECOND));
        }
        self.batch.unexplained() > self.useless_most
            || self.batch.control() > USELESS
            || self.given_up > GIVEN_UP && self.given_up > self.accepted / 2
    }

    /// Moves all streams on. Sets the phase and the limit of the idle time when requests end, without another turn, which would poll
    /// the whole connection again.
    fn poll(&mut self, cx: &mut Context<'_>, phase: &Cell<Phase>, idle: Duration) -> Poll<Event> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.accepted += 1;
                    self.batch.explain(size_of(&request));
                    self.batch.allow_request();
                    return Poll::Ready(Event::Request(request, respond));
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "an HTTP/2 connection broke");
                    return Poll::Ready(Event::Over);
                }
                Poll::Ready(None) => return Poll::Ready(Event::Over),
                Poll::Pending => {}
            }
            // All frames that the streams have ready leave at once.
            let was_full = self.batch.is_full();
            match self.batch.poll_send(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Over),
                Poll::Ready(Ok(())) if was_full => {}
                _ => break,
            }
        }
        let mut has_served = false;
        while let Poll::Ready(Some(given_up)) = self.streams.poll_join_next(cx) {
            self.given_up += u64::from(given_up.unwrap_or(true));
            has_served = true;
        }
        if !self.flooded && self.is_flood() {
            self.flooded = true;
            return Poll::Ready(Event::Flood);
        }
        if has_served {
            self.deadline.set_after(idle);
        }
        if self.streams.is_empty() {
            if has_served {
                phase.set(Phase::Idle);
            }
            return self.deadline.poll(cx).map(|()| Event::Idle);
        }
        Poll::Pending
    }
}

fn builder(settings: &Settings) -> Builder {
    let limits = &settings.limits;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.http2_streams)
        .initial_window_size(limits.http2_stream_window)
        .initial_connection_window_size(limits.http2_connection_window)
        .max_header_list_size(u32::try_from(limits.request_head).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .data_frame_budget(SMALL_FRAMES)
        .enable_connect_protocol();
    builder
}

/// How long a client may take to close its connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// How many bytes of useless frames may arrive, and how many more in each second.
const USELESS: usize = 64 * 1024;
const USELESS_PER_SECOND: usize = 1024;

/// How many requests a client may cancel, unless they are less than half of all requests.
const GIVEN_UP: u64 = 100;

/// How much memory waiting data may use in addition to its bytes. This is enough for about 16,000 frames of a few bytes
/// each, such as gRPC messages that arrive faster than the endpoint accepts them. More end the connection.
const SMALL_FRAMES: usize = 4 * 1024 * 1024;

/// How much of a response a stream buffers until the client accepts it.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves one request. Returns whether the client gave up on it.
async fn serve_stream(
    worker: Rc<Worker>,
    origin: Rc<Origin>,
    batch: Batch,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> bool {
    let (parts, recv) = request.into_parts();
    let stream = Http2Stream::new(recv, respond, batch.clone());
    let is_bodiless = stream.is_bodiless();
    let settings = worker.settings();
    let mut client = Client::new(Wire::Http2(stream), origin, &settings);
    let mut scratch = worker.scratch();
    let protocol = parts.extensions.get::<Protocol>().map(Protocol::as_str);
    match stream_head::read(&parts, protocol, &mut scratch, &settings, (is_bodiless, false)) {
        Ok(()) => {
            exchange::serve(&worker, &mut client, &mut scratch).await;
        }
        Err(rejection) => client.reject(&worker, &scratch, rejection),
    }
    worker.give_back(scratch);
    if let Wire::Http2(stream) = &client.wire
        && !stream.is_bodiless()
    {
        // A discarded body that is still arriving is not the client's fault.
        batch.explain(usize::try_from(settings.limits.http2_stream_window).unwrap_or(usize::MAX));
    }
    client.gone
}

/// About the memory of a request's head and stream.
fn size_of(request: &Request<RecvStream>) -> usize {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    fields.sum::<usize>() + request.uri().path().len() + request.uri().query().map_or(0, str::len) + 128
}
