//! The connection with a client: HTTP/1, or a stream of HTTP/2 or HTTP/3.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use sluicegate_http1::is_trailer;
use sluicegate_model::settings::Limits;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::encode::may_forward_header;
use super::http3::Http3Stream;
use crate::buffer::Buffer;
use crate::failure::ClientFault;
use crate::request::WireVersion;
use crate::stream::Batch;
use crate::stream::Stream;
use crate::stream::header_fields;

/// The size of a frame without its data, with room for a WINDOW_UPDATE (RFC 9113, 4.1).
const FRAME: usize = 32;

/// The connection with a client.
///
/// For HTTP/1, this type reads and writes all bytes. For HTTP/2 and HTTP/3, it reads and writes bodies and tunnels: heads
/// have their own functions.
pub(crate) enum Wire {
    Http1(Stream),
    Http2(Http2Stream),
    Http3(Box<Http3Stream>),
}

/// One request and its response on an HTTP/2 connection.
pub(crate) struct Http2Stream {
    respond: SendResponse<Bytes>,
    /// The sender of the response's body, once the head was sent.
    send: Option<SendStream<Bytes>>,
    recv: RecvStream,
    /// Received bytes without room in the buffer.
    rest: Bytes,
    /// Whether the last byte of the response was sent.
    ended: bool,
    /// Whether all received bytes of the body were read.
    is_dry: bool,
    /// The connection, which counts useful bytes.
    batch: Batch,
}

impl Wire {
    /// The version of HTTP.
    pub(super) fn version(&self) -> WireVersion {
        match self {
            Self::Http1(_) => WireVersion::Http1,
            Self::Http2(_) => WireVersion::Http2,
            Self::Http3(_) => WireVersion::Http3,
        }
    }

    /// Sends the head of the response on a stream. With `ends`, the head is the whole response. HTTP/1 writes heads as bytes.
    pub(super) fn respond(&mut self, response: Response<()>, ends: bool) -> io::Result<()> {
        match self {
            Self::Http1(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Http2(stream) => stream.respond(response, ends),
            Self::Http3(stream) => stream.respond(&response, ends),
        }
    }

    /// Sends the whole body of a response whose head was sent on a stream.
    pub(super) fn give(&mut self, body: Bytes) -> io::Result<()> {
        match self {
            Self::Http1(_) => Err(io::ErrorKind::Unsupported.into()),
            Self::Http2(stream) => stream.give(body),
            Self::Http3(stream) => stream.give(&body),
        }
    }

    /// Sends an interim response on a stream (RFC 9110, 15.2). Another part of the code notices that a client is gone.
    pub(super) fn send_interim_response(&mut self, response: Response<()>) {
        match self {
            Self::Http1(_) => {}
            Self::Http2(stream) => stream.send_interim_response(response),
            Self::Http3(stream) => stream.send_interim_response(&response),
        }
    }

    /// Writes as much of `data` as the client accepts. `last` marks the end of the response.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Http1(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Http2(stream) => stream.poll_send(cx, data, last),
            Self::Http3(stream) => stream.poll_send(cx, data, last),
        }
    }

    /// Ends a response whose body was written. `trailers` are header lines.
    pub(super) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        match self {
            Self::Http1(_) => Ok(()),
            Self::Http2(stream) => stream.finish(trailers),
            Self::Http3(stream) => stream.finish(trailers),
        }
    }

    /// Notices that the client closed the connection while the gateway expects only further requests, which stay in the
    /// buffer.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>, input: &mut Buffer) -> Result<(), ClientFault> {
        match self {
            Self::Http1(stream) => {
                while !input.is_full() {
                    match input.poll_fill(cx, stream) {
                        Poll::Ready(Ok(1..)) => {}
                        Poll::Ready(_) => return Err(ClientFault::Closed),
                        Poll::Pending => break,
                    }
                }
                Ok(())
            }
            Self::Http2(stream) => match stream.poll_reset(cx) {
                Poll::Ready(_) => Err(ClientFault::Closed),
                Poll::Pending => Ok(()),
            },
            Self::Http3(stream) => stream.poll_gone(cx),
        }
    }

    /// The trailers of a request's body that has ended, as header lines.
    pub(super) fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ClientFault>> {
        match self {
            // The chunked coding contains the trailers.
            Self::Http1(_) => Poll::Ready(Ok(Vec::new())),
            Self::Http2(stream) => {
                let trailers = ready!(stream.recv.poll_trailers(cx)).map_err(|_| ClientFault::Closed)?;
                if trailers.as_ref().is_some_and(|trailers| !stream.is_sound(trailers)) {
                    return Poll::Ready(Err(ClientFault::BadBody));
                }
                Poll::Ready(Ok(trailer_lines(trailers.as_ref())))
            }
            Self::Http3(stream) => {
                let trailers = ready!(stream.poll_trailers(cx))?;
                Poll::Ready(Ok(trailer_lines(trailers.as_ref())))
            }
        }
    }

    /// Whether a write is incomplete, so that no other response can replace it.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Http1(stream) => stream.has_unsent(),
            Self::Http2(stream) => stream.send.is_some(),
            Self::Http3(stream) => stream.has_responded(),
        }
    }

    /// Whether the client may be unable to send: waiting data of other requests on its connection uses up the
    /// connection's window (RFC 9113, 6.9.1).
    pub(super) fn is_window_exhausted(&self, limits: &Limits) -> bool {
        let unread = match self {
            Self::Http1(_) => return false,
            Self::Http2(stream) => stream.batch.unread(),
            Self::Http3(stream) => stream.unread(),
        };
        let window = usize::try_from(limits.http2_stream_window).unwrap_or(usize::MAX);
        unread.saturating_mul(window) as u64 >= u64::from(limits.http2_connection_window)
    }

    /// Shows the client that the response is incomplete.
    pub(super) fn break_off(&mut self) {
        match self {
            Self::Http1(stream) => stream.break_off(),
            Self::Http2(stream) => stream.reset(Reason::INTERNAL_ERROR),
            Self::Http3(stream) => stream.break_off(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Http1(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Http2(stream) => stream.poll_read(cx, buf),
            Self::Http3(stream) => stream.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_send(cx, data, false)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Http1(stream) => Pin::new(stream).poll_flush(cx),
            Self::Http2(_) => Poll::Ready(Ok(())),
            Self::Http3(stream) => stream.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Http1(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Http2(stream) => Poll::Ready(stream.finish(&[])),
            Self::Http3(stream) => Poll::Ready(stream.finish(&[])),
        }
    }
}

impl Http2Stream {
    pub(super) fn new(recv: RecvStream, respond: SendResponse<Bytes>, batch: Batch) -> Self {
        let is_dry = recv.is_end_stream();
        if !is_dry {
            batch.note_unread_body();
        }
        Self { respond, send: None, recv, rest: Bytes::new(), ended: false, is_dry, batch }
    }

    /// Whether the request has no body and will have none.
    pub(super) fn is_bodiless(&self) -> bool {
        self.recv.is_end_stream()
    }

    /// Whether trailers have no pseudo-header fields and no values with a space or a tab around them (RFC 9113, 8.1 and
    /// 8.2.1).
    fn is_sound(&self, trailers: &HeaderMap) -> bool {
        self.batch.has_valid_trailers(self.recv.stream_id().as_u32(), trailers.len())
            && !trailers.values().any(has_space_around)
    }

    /// Sends the head of the response. With `ends`, the head is the whole response.
    pub(super) fn respond(&mut self, response: Response<()>, ends: bool) -> io::Result<()> {
        let send = self.respond.send_response(response, ends).map_err(io::Error::other)?;
        self.send = Some(send);
        self.ended = ends;
        Ok(())
    }

    /// Sends the whole body of a response whose head was sent.
    pub(super) fn give(&mut self, body: Bytes) -> io::Result<()> {
        self.ended = true;
        let send = self.send.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        // Bytes that the client does not accept at once wait in the connection: the body is small.
        send.send_data(body, true).map_err(io::Error::other)
    }

    /// Sends an interim response.
    pub(super) fn send_interim_response(&mut self, response: Response<()>) {
        // Another part of the code notices that a client is gone.
        let _ = self.respond.send_informational(response);
    }

    /// Ends the stream for this reason.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.ended = true;
        match &mut self.send {
            Some(send) => send.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8], last: bool) -> Poll<io::Result<usize>> {
        let Some(send) = &mut self.send else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        if self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        send.reserve_capacity(data.len());
        while send.capacity() == 0 && !data.is_empty() {
            match ready!(send.poll_capacity(cx)) {
                Some(capacity) => capacity.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let taken = send.capacity().min(data.len());
        self.ended = last && taken == data.len();
        send.send_data(Bytes::copy_from_slice(&data[..taken]), self.ended).map_err(io::Error::other)?;
        Poll::Ready(Ok(taken))
    }

    fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        let Some(send) = &mut self.send else { return Ok(()) };
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let sent = match trailers {
            [] => send.send_data(Bytes::new(), true),
            lines => send.send_trailers(header_fields(lines)),
        };
        sent.map_err(io::Error::other)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            let data = self.recv.poll_data(cx);
            self.set_dry(!matches!(data, Poll::Ready(Some(_))));
            match ready!(data) {
                Some(data) => {
                    self.rest = data.map_err(io::Error::other)?;
                    self.batch.explain(self.rest.len() + FRAME);
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        let taken = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..taken]);
        self.rest.advance(taken);
        // The client may send the same number of bytes again.
        self.recv.flow_control().release_capacity(taken).map_err(io::Error::other)?;
        Poll::Ready(Ok(()))
    }

    fn set_dry(&mut self, is_dry: bool) {
        match (std::mem::replace(&mut self.is_dry, is_dry), is_dry) {
            (true, false) => self.batch.note_unread_body(),
            (false, true) => self.batch.is_up_to_date(),
            _ => {}
        }
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.send {
            Some(send) => send.poll_reset(cx).map(drop),
            None => self.respond.poll_reset(cx).map(drop),
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        self.set_dry(true);
    }
}

/// The trailers that endpoints receive, as header lines.
fn trailer_lines(trailers: Option<&HeaderMap>) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in trailers.into_iter().flatten() {
        if is_trailer(name.as_str().as_bytes()) && may_forward_header(name.as_str().as_bytes(), false, false)
        {
            write_line(&mut lines, name.as_str(), value.as_bytes());
        }
    }
    lines
}

/// Whether a value begins or ends with a space or a tab, which makes an HTTP/2 message malformed (RFC 9113, 8.2.1). The
/// HTTP/1.1 parser would remove it.
pub(super) fn has_space_around(value: &HeaderValue) -> bool {
    matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Appends a header line.
pub(super) fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
