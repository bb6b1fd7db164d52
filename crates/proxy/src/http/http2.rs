//! An HTTP/2 connection of a client: each stream is a request, served like any other.
//!
//! The gateway writes the head of a request as HTTP/1.1 and parses it again, so that one parser rejects ambiguous heads
//! of every version. Bodies stay unchanged.

use std::cell::Cell;
use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{HeaderValue, Method, Request, header};
use sluicegate_http1::{HeadLimits, HeadScan, Rejection, RequestFraming, is_token};
use sluicegate_model::Settings;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Client, Origin};
use super::exchange;
use super::protocols::may_be_asked;
use super::wire::{Http2Stream, Wire, has_space_around, write_line};
use crate::deadline::Deadline;
use crate::stream::Stream;
use crate::stream::{Batch, Sender};
use crate::worker::{Phase, Scratch, Worker};

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
    let ends = origin.ends;
    let mut aged = pin!(async move {
        match ends {
            Some(ends) => sleep_until(ends).await,
            None => pending().await,
        }
    });
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
            event = poll_fn(|cx| connection.poll(cx)) => match event {
                Event::Request(request, respond) => {
                    served += 1;
                    let batch = connection.batch.clone();
                    let serving = serve_stream(worker.clone(), origin.clone(), batch, request, respond);
                    connection.streams.spawn_local(serving);
                }
                Event::Flood => {
                    worker.stats().http2_floods.add(1);
                    connection.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    leaving = true;
                }
                Event::Served => connection.deadline.set_after(settings.timeouts.client_idle),
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
    /// A request has ended.
    Served,
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

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
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
        if !self.flooded && self.is_flood() {
            self.flooded = true;
            return Poll::Ready(Event::Flood);
        }
        if let Poll::Ready(Some(given_up)) = self.streams.poll_join_next(cx) {
            self.given_up += u64::from(given_up.unwrap_or(true));
            return Poll::Ready(Event::Served);
        }
        if self.streams.is_empty() {
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
    match read_head(&parts, &mut scratch, &settings, is_bodiless) {
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

/// Writes the head as HTTP/1.1, and parses it.
fn read_head(
    parts: &Parts,
    scratch: &mut Scratch,
    settings: &Settings,
    is_bodiless: bool,
) -> Result<(), Rejection> {
    let protocol = parts.extensions.get::<Protocol>();
    scratch.request.clear();
    write_head(parts, protocol, &mut scratch.request)?;
    scratch.input.append(&scratch.request);
    scratch.scan = HeadScan::default();
    let limits = HeadLimits { bytes: settings.limits.request_head, headers: settings.limits.headers };
    if !scratch.head.parse(scratch.input.filled(), &mut scratch.scan, &limits)? {
        return Err(Rejection::HeadTooLarge);
    }
    let head = &mut scratch.head;
    if protocol.is_some() {
        // The stream continues as a tunnel (RFC 8441, 5), which has no length. An endpoint that receives a length would
        // read the next request on its connection, of any client, as the body of this request.
        if head.framing != RequestFraming::None {
            return Err(Rejection::LengthOfTunnel);
        }
    } else if head.framing == RequestFraming::None && !is_bodiless {
        head.framing = RequestFraming::Chunked;
    }
    Ok(())
}

fn write_head(parts: &Parts, protocol: Option<&Protocol>, out: &mut Vec<u8>) -> Result<(), Rejection> {
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match (&parts.method, parts.uri.path_and_query()) {
        (&Method::CONNECT, _) if protocol.is_none() => authority.unwrap_or_default(),
        (_, Some(path)) => path.as_str().as_bytes(),
        (_, None) => b"/",
    };
    // The gateway forwards WebSocket over HTTP/2 as WebSocket over HTTP/1.1 (RFC 8441, 5.1).
    let method = if protocol.is_some() { "GET" } else { parts.method.as_str() };
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // RFC 9113, 8.3.1: the gateway does not know the meaning of other schemes. If a request has only a Host, h2 does not
    // pass the scheme on.
    let is_http = |scheme: &str| ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if !parts.uri.scheme_str().is_none_or(is_http) {
        return Err(Rejection::InvalidScheme);
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Rejection::DuplicateHost);
    }
    host.map_or(Ok(()), check_value)?;
    let host = host.map(HeaderValue::as_bytes);
    match (authority, host) {
        // RFC 9113, 8.3.1: if a request has both, they must be equal.
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(Rejection::HostMismatch);
        }
        (Some(named), _) | (None, Some(named)) => write_line(out, "host", named),
        (None, None) => return Err(Rejection::MissingHost),
    }
    if let Some(protocol) = protocol {
        // Unlike other pseudo-headers, `:protocol` arrives unchecked.
        let named = protocol.as_str().as_bytes();
        // Without the protocol, the request would become an ordinary request.
        if !is_token(named) || !may_be_asked(named) {
            return Err(Rejection::UnknownTunnel);
        }
        write_line(out, "connection", b"upgrade");
        write_line(out, "upgrade", named);
        write_line(out, "sec-websocket-key", websocket_key().as_bytes());
    }
    // RFC 9113, 8.2.3: each cookie may have its own field.
    let mut cookies = parts.headers.get_all(header::COOKIE).iter().peekable();
    if cookies.peek().is_some() {
        out.extend_from_slice(b"cookie: ");
        for (nth, cookie) in cookies.enumerate() {
            check_value(cookie)?;
            out.extend_from_slice(if nth > 0 { b"; " } else { b"" });
            out.extend_from_slice(cookie.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in &parts.headers {
        if name != header::COOKIE && name != header::HOST {
            check_value(value)?;
            write_line(out, name.as_str(), value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn check_value(value: &HeaderValue) -> Result<(), Rejection> {
    if has_space_around(value) { Err(Rejection::SpaceAroundValue) } else { Ok(()) }
}

/// The key of an HTTP/1.1 WebSocket client (RFC 6455, 4.1): 16 random bytes.
fn websocket_key() -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes())
}
