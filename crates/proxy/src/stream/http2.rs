//! Endpoints that speak HTTP/2: connections that many requests share.
//!
//! To the rest of the data plane, a request's stream looks like a separate HTTP/1.1 connection. Bytes written to the
//! stream become a request, and the response is read back as HTTP/1.1. So retries, draining, timeouts and bodies work the
//! same for both protocols.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::io::{self, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
use bytes::{Buf as _, Bytes};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use sluicegate_http1::{
    Chunk, ChunkedDecoder, HeadLimits, HeadScan, Known, RequestFraming, RequestHead, write_chunk_header,
};
use tokio::io::ReadBuf;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Stream;
use super::batch::{Batch, Sender};

/// How many bytes of one response an endpoint may send before the client has taken some of them.
const STREAM_WINDOW: u32 = 256 * 1024;
/// How many bytes of all responses of a connection an endpoint may send before clients have taken some of them.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How many bytes of a request's body wait for the endpoint to accept them.
const SEND_BUFFER: usize = 64 * 1024;
/// The limit of concurrent requests on one connection. The endpoint may set a lower limit.
const STREAMS: usize = 100;
/// The limits for the head of a rewritten request, whose parts satisfied their limits before.
const HEAD: HeadLimits = HeadLimits { bytes: 1 << 20, headers: 512 };

/// An endpoint's connections on one worker.
#[derive(Default)]
pub(crate) struct Http2Connections {
    open: RefCell<Vec<Rc<Shared>>>,
    /// Held while a connection is made. Other requests wait, and then share the connection.
    turn: tokio::sync::Mutex<()>,
}

/// A connection that requests share.
struct Shared {
    requests: SendRequest<Bytes>,
    batch: Batch,
    in_flight: Cell<usize>,
    idle_since: Cell<Instant>,
    /// Whether the endpoint accepts no further requests here, or is gone.
    closed: Cell<bool>,
    driver: RefCell<Option<AbortHandle>>,
}

impl Http2Connections {
    /// A stream of an existing connection with room.
    pub(crate) fn stream(&self) -> Option<Http2Call> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| !shared.closed.get());
        // The fullest connection with room, so that other connections become idle and are closed.
        let free = open.iter().filter(|shared| shared.has_room());
        free.max_by_key(|shared| shared.in_flight.get()).map(Http2Call::new)
    }

    /// A stream of a connection that has room by then, or of a new connection over the result of `connect`.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        connect: impl Future<Output = io::Result<Stream>>,
    ) -> io::Result<Http2Call> {
        let _turn = self.turn.lock().await;
        if let Some(call) = self.stream() {
            return Ok(call);
        }
        let batch = Batch::new(connect.await?, &[], 0, Sender::Endpoint);
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER);
        let (requests, mut connection) = builder.handshake(batch.clone()).await.map_err(io::Error::other)?;
        // An endpoint that speaks another protocol shows it in its first bytes.
        poll_fn(|cx| {
            let state = Pin::new(&mut connection).poll(cx);
            let sent = batch.poll_send(cx);
            match (state, sent) {
                (Poll::Ready(Err(error)), _) => Poll::Ready(Err(io::Error::other(error))),
                (Poll::Ready(Ok(())), _) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
                _ if batch.has_received() => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        })
        .await?;
        let shared = Rc::new(Shared {
            requests,
            batch: batch.clone(),
            in_flight: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            closed: Cell::new(false),
            driver: RefCell::new(None),
        });
        let driven = Rc::downgrade(&shared);
        let driver = tokio::task::spawn_local(async move {
            let ended = poll_fn(|cx| {
                loop {
                    if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                        return Poll::Ready(ended);
                    }
                    let was_full = batch.is_full();
                    match batch.poll_send(cx) {
                        Poll::Ready(Ok(())) if was_full => {}
                        // The endpoint accepts no more bytes. Bytes that it sent before are read to their end.
                        Poll::Ready(Err(_)) => {
                            batch.discard_writes();
                            if let Some(shared) = driven.upgrade() {
                                shared.closed.set(true);
                            }
                        }
                        _ => return Poll::Pending,
                    }
                }
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "an HTTP/2 connection to an endpoint broke");
            }
            if let Some(shared) = driven.upgrade() {
                shared.closed.set(true);
            }
        });
        *shared.driver.borrow_mut() = Some(driver.abort_handle());
        self.open.borrow_mut().push(shared.clone());
        Ok(Http2Call::new(&shared))
    }

    /// Assigns no further requests to the open connections. Requests in flight continue.
    pub(crate) fn clear(&self) {
        self.open.borrow_mut().clear();
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn expire(&self, now: Instant, idle: Duration) {
        self.open.borrow_mut().retain(|shared| {
            !shared.closed.get()
                && (shared.in_flight.get() > 0
                    || now.saturating_duration_since(shared.idle_since.get()) < idle)
        });
    }
}

impl Shared {
    fn has_room(&self) -> bool {
        self.in_flight.get() < self.requests.current_max_send_streams().min(STREAMS)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Without requests, a graceful end has no use.
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.abort();
        }
    }
}

/// One request on a shared connection.
pub(crate) struct Http2Call {
    shared: Rc<Shared>,
    sending: Sending,
    receiving: Receiving,
    /// The response text to read next, and how much of it was read.
    text: Vec<u8>,
    read: usize,
    /// Bytes of a response's body, behind `text`.
    data: Bytes,
}

enum Sending {
    Head,
    Body(SendStream<Bytes>, Body),
    Done(Option<SendStream<Bytes>>),
}

/// The kind of a request, which decides how its response continues.
enum Asked {
    Method(Method),
    /// A tunnel for WebSocket (RFC 8441, 4), with the key of the client's handshake.
    WebSocket(Vec<u8>),
}

enum Body {
    /// Bytes behind the head of a tunnel, until the tunnel ends.
    Tunnel,
    Length(u64),
    Chunked(ChunkedDecoder, Vec<u8>),
}

enum Receiving {
    Nothing,
    /// The request was not sent: the connection accepts no more requests.
    Refused,
    /// The request was not sent: the endpoint does not support WebSocket.
    NoWebSocket,
    Head(ResponseFuture, Asked),
    Body(RecvStream, Framing),
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Plain,
    Chunked,
}

/// The endpoint has not processed the request (RFC 9113, 8.7), so that any request can be repeated.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint refused the stream")]
pub(crate) struct Refused;

/// The endpoint does not support WebSocket over HTTP/2: it has not sent `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441, 3).
#[derive(Debug, thiserror::Error)]
#[error("the endpoint does not support WebSocket over HTTP/2")]
pub(crate) struct NoWebSocket;

impl Http2Call {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.in_flight.set(shared.in_flight.get() + 1);
        Self {
            shared: shared.clone(),
            sending: Sending::Head,
            receiving: Receiving::Nothing,
            text: Vec::new(),
            read: 0,
            data: Bytes::new(),
        }
    }

    /// Calls a function with the connection below.
    pub(crate) fn with_stream<T>(&self, ask: impl FnOnce(&Stream) -> T) -> T {
        self.shared.batch.with_stream(ask)
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.sending {
            Sending::Head => {
                let mut requests = self.shared.requests.clone();
                if self.shared.closed.get() || ready!(requests.poll_ready(cx)).is_err() {
                    return Poll::Ready(Err(self.refuse()));
                }
                let (mut request, head) = request(data)?;
                let framing = head.framing;
                // A request with a body is an ordinary request: a tunnel has no framing.
                let has_body = !matches!(framing, RequestFraming::None | RequestFraming::Length(0));
                let asked = match websocket_key(&head, data).filter(|_| !has_body) {
                    Some(_) if !requests.is_extended_connect_protocol_enabled() => {
                        self.receiving = Receiving::NoWebSocket;
                        return Poll::Ready(Err(io::Error::other(NoWebSocket)));
                    }
                    Some(key) => {
                        connect_websocket(&mut request);
                        Asked::WebSocket(key)
                    }
                    None => Asked::Method(request.method().clone()),
                };
                let is_tunnel = matches!(asked, Asked::WebSocket(_));
                let is_bodiless =
                    !is_tunnel && matches!(framing, RequestFraming::None | RequestFraming::Length(0));
                let Ok((response, send)) = requests.send_request(request, is_bodiless) else {
                    return Poll::Ready(Err(self.refuse()));
                };
                self.receiving = Receiving::Head(response, asked);
                self.sending = match framing {
                    _ if is_tunnel => Sending::Body(send, Body::Tunnel),
                    _ if is_bodiless => Sending::Done(Some(send)),
                    RequestFraming::Chunked => {
                        Sending::Body(send, Body::Chunked(ChunkedDecoder::default(), Vec::new()))
                    }
                    RequestFraming::Length(length) => Sending::Body(send, Body::Length(length)),
                    RequestFraming::None => Sending::Done(Some(send)),
                };
                Poll::Ready(Ok(head.len))
            }
            Sending::Body(send, body) => {
                let sent = ready!(body.poll_send(cx, send, data))?;
                // Releases the unused reservation of the connection's window: otherwise a slow stream would block other
                // requests for as long as it is open.
                send.reserve_capacity(0);
                if sent.is_last
                    && let Sending::Body(send, _) = std::mem::replace(&mut self.sending, Sending::Done(None))
                {
                    self.sending = Sending::Done(Some(send));
                }
                Poll::Ready(Ok(sent.taken))
            }
            Sending::Done(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.read < self.text.len() || !self.data.is_empty() {
                let text = &self.text[self.read..];
                let taken = text.len().min(buf.remaining());
                buf.put_slice(&text[..taken]);
                self.read += taken;
                let taken = self.data.len().min(buf.remaining());
                if self.read == self.text.len() && taken > 0 {
                    buf.put_slice(&self.data[..taken]);
                    self.data.advance(taken);
                    if let Receiving::Body(body, framing) = &mut self.receiving {
                        // The endpoint may send the same number of bytes again.
                        let _ = body.flow_control().release_capacity(taken);
                        if self.data.is_empty() && *framing == Framing::Chunked {
                            self.text.clear();
                            self.text.extend_from_slice(b"\r\n");
                            self.read = 0;
                        }
                    }
                }
                return Poll::Ready(Ok(()));
            }
            self.text.clear();
            self.read = 0;
            match &mut self.receiving {
                Receiving::Refused => return Poll::Ready(Err(io::Error::other(Refused))),
                Receiving::Nothing | Receiving::Ended => return Poll::Ready(Ok(())),
                Receiving::NoWebSocket => return Poll::Ready(Err(io::Error::other(NoWebSocket))),
                Receiving::Head(response, asked) => {
                    let response = ready!(Pin::new(response).poll(cx)).map_err(of_h2)?;
                    let framing = match asked {
                        Asked::Method(method) => write_head(&mut self.text, &response, method),
                        Asked::WebSocket(key) if response.status().is_success() => {
                            write_switching(&mut self.text, &response, key);
                            Framing::Plain
                        }
                        Asked::WebSocket(_) => write_head(&mut self.text, &response, &Method::GET),
                    };
                    self.receiving = Receiving::Body(response.into_body(), framing);
                }
                Receiving::Body(body, framing) => match ready!(body.poll_data(cx)) {
                    Some(data) => {
                        self.data = data.map_err(of_h2)?;
                        if *framing == Framing::Chunked && !self.data.is_empty() {
                            write_chunk_header(&mut self.text, self.data.len());
                        }
                    }
                    None if *framing == Framing::Plain => self.receiving = Receiving::Ended,
                    None => {
                        let trailers = ready!(body.poll_trailers(cx)).map_err(of_h2)?;
                        let (stream, fields) =
                            (body.stream_id().as_u32(), trailers.as_ref().map_or(0, HeaderMap::len));
                        if trailers.is_some() && !self.shared.batch.has_valid_trailers(stream, fields) {
                            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                        }
                        self.text.extend_from_slice(b"0\r\n");
                        write_fields(&mut self.text, trailers.iter().flatten());
                        self.text.extend_from_slice(b"\r\n");
                        self.receiving = Receiving::Ended;
                    }
                },
            }
        }
    }

    fn refuse(&mut self) -> io::Error {
        self.shared.closed.set(true);
        self.receiving = Receiving::Refused;
        io::Error::other(Refused)
    }

    /// Ends the request's direction.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.sending, Sending::Done(None)) {
            Sending::Body(mut send, _) => send.send_data(Bytes::new(), true).map_err(of_h2),
            Sending::Head | Sending::Done(_) => Ok(()),
        }
    }
}

impl Drop for Http2Call {
    fn drop(&mut self) {
        // Unless the response was read to its end, the endpoint need not continue.
        let is_over = matches!(self.receiving, Receiving::Ended | Receiving::Nothing | Receiving::Refused);
        if !is_over && let Sending::Body(send, _) | Sending::Done(Some(send)) = &mut self.sending {
            send.send_reset(Reason::CANCEL);
        }
        self.shared.in_flight.set(self.shared.in_flight.get() - 1);
        self.shared.idle_since.set(Instant::now());
    }
}

/// The result of sending a body.
struct Sent {
    taken: usize,
    is_last: bool,
}

impl Body {
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: &mut SendStream<Bytes>,
        data: &[u8],
    ) -> Poll<io::Result<Sent>> {
        match self {
            Self::Tunnel => {
                let taken = ready!(poll_room(cx, send, data.len()))?.min(data.len());
                send.send_data(Bytes::copy_from_slice(&data[..taken]), false).map_err(of_h2)?;
                Poll::Ready(Ok(Sent { taken, is_last: false }))
            }
            Self::Length(left) => {
                let room = ready!(poll_room(cx, send, data.len()))?;
                let taken = room.min(data.len()).min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                let is_last = *left == 0;
                send.send_data(Bytes::copy_from_slice(&data[..taken]), is_last).map_err(of_h2)?;
                Poll::Ready(Ok(Sent { taken, is_last }))
            }
            Self::Chunked(decoder, trailers) => {
                let mut taken = 0;
                while taken < data.len() && !decoder.is_done() {
                    // Bytes that are not data need no room.
                    let room = match poll_room(cx, send, data.len() - taken) {
                        Poll::Ready(room) => room?,
                        Poll::Pending if taken > 0 => break,
                        Poll::Pending => return Poll::Pending,
                    };
                    let piece = &data[taken..][..room.min(data.len() - taken)];
                    let broken = |_| io::Error::from(io::ErrorKind::InvalidInput);
                    let (used, chunk) = decoder.next(piece).map_err(broken)?;
                    taken += used;
                    match chunk {
                        Chunk::Data(data) => {
                            send.send_data(Bytes::copy_from_slice(data), false).map_err(of_h2)?;
                        }
                        Chunk::Trailers(lines) => trailers.extend_from_slice(lines),
                        Chunk::Partial if used == 0 => break,
                        Chunk::Partial | Chunk::End => {}
                    }
                }
                let is_last = decoder.is_done();
                if is_last {
                    let sent = match header_fields(trailers) {
                        fields if fields.is_empty() => send.send_data(Bytes::new(), true),
                        fields => send.send_trailers(fields),
                    };
                    sent.map_err(of_h2)?;
                }
                Poll::Ready(Ok(Sent { taken, is_last }))
            }
        }
    }
}

/// How many bytes the endpoint accepts now, up to `wanted`.
fn poll_room(cx: &mut Context<'_>, send: &mut SendStream<Bytes>, wanted: usize) -> Poll<io::Result<usize>> {
    send.reserve_capacity(wanted.max(1));
    while send.capacity() == 0 {
        match ready!(send.poll_capacity(cx)) {
            Some(capacity) => capacity.map_err(of_h2)?,
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
    }
    Poll::Ready(Ok(send.capacity()))
}

/// Parses a complete and valid head from the gateway as a request.
fn request(data: &[u8]) -> io::Result<(Request<()>, RequestHead)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut head = RequestHead::default();
    if !head.parse(data, &mut HeadScan::default(), &HEAD).map_err(|_| invalid())? {
        return Err(invalid());
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method_name.of(data)).map_err(|_| invalid())?;
    let authority = head.authority.map_or(&[][..], |authority| authority.of(data));
    let target = head.target.of(data);
    *request.uri_mut() = Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query(target)
        .build()
        .map_err(|_| invalid())?;
    let mut is_grpc = false;
    let fields = request.headers_mut();
    fields.reserve(head.lines.len() + 1);
    for line in head.lines.iter().filter(|line| !line.hop_by_hop && line.known != Known::Host) {
        let name = HeaderName::from_bytes(line.name.of(data));
        let value = HeaderValue::from_bytes(line.value.of(data));
        if let (Ok(name), Ok(value)) = (name, value) {
            is_grpc |= line.known == Known::ContentType && value.as_bytes().starts_with(b"application/grpc");
            fields.append(name, value);
        }
    }
    if is_grpc {
        // Servers require that the client accepts trailers ("gRPC over HTTP/2", Requests).
        fields.insert(http::header::TE, HeaderValue::from_static("trailers"));
    }
    Ok((request, head))
}

/// The key of a WebSocket handshake (RFC 6455, 4.1), if the request asks for WebSocket and no other protocol.
fn websocket_key(head: &RequestHead, data: &[u8]) -> Option<Vec<u8>> {
    let upgrade = head.upgrade?.of(data).trim_ascii();
    let key = upgrade.eq_ignore_ascii_case(b"websocket").then(|| head.find(data, "sec-websocket-key"))??;
    Some(key.to_vec())
}

/// Turns an HTTP/1.1 handshake into an HTTP/2 handshake (RFC 8441, 5).
fn connect_websocket(request: &mut Request<()>) {
    *request.method_mut() = Method::CONNECT;
    request.headers_mut().remove(http::header::SEC_WEBSOCKET_KEY);
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
}

/// Writes the HTTP/1.1 response that opens a tunnel (RFC 6455, 4.2.2).
fn write_switching(out: &mut Vec<u8>, response: &Response<RecvStream>, key: &[u8]) {
    use base64::Engine as _;
    /// RFC 6455, 1.3.
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = aws_lc_rs::digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n",
    );
    out.extend_from_slice(b"sec-websocket-accept: ");
    out.extend_from_slice(base64::prelude::BASE64_STANDARD.encode(digest).as_bytes());
    out.extend_from_slice(b"\r\n");
    write_fields(out, response.headers());
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a response as HTTP/1.1. Returns the framing of its body.
fn write_head(out: &mut Vec<u8>, response: &Response<RecvStream>, method: &Method) -> Framing {
    let status = response.status();
    // Writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default());
    write_fields(out, response.headers());
    let is_bodiless = method == Method::HEAD
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || response.headers().contains_key(http::header::CONTENT_LENGTH);
    let framing = match (is_bodiless, response.body().is_end_stream()) {
        (true, _) => Framing::Plain,
        (false, true) => {
            out.extend_from_slice(b"content-length: 0\r\n");
            Framing::Plain
        }
        (false, false) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunked
        }
    };
    out.extend_from_slice(b"\r\n");
    framing
}

fn write_fields<'f>(out: &mut Vec<u8>, fields: impl IntoIterator<Item = (&'f HeaderName, &'f HeaderValue)>) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Converts header lines to fields. Leaves out lines that HTTP/2 does not allow.
pub(crate) fn header_fields(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}

fn of_h2(error: h2::Error) -> io::Error {
    let is_refused = error.reason() == Some(Reason::REFUSED_STREAM) || error.is_go_away();
    if error.is_remote() && is_refused { io::Error::other(Refused) } else { io::Error::other(error) }
}
