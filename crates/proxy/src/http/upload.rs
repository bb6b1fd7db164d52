//! The path of the request to the endpoint: its head, and its body as it arrives from the client.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BufMut as _;
use http::{Response, StatusCode};
use sluicegate_http1::{ChunkedDecoder, LAST_CHUNK, RequestFraming, RequestHead, write_chunk_header};
use sluicegate_model::settings::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWrite};

use super::chunks::{self, Coding};
use super::wire::Wire;
use crate::buffer::{BUFFER, Buffer};
use crate::failure::ClientFault;
use crate::stream::Stream;

/// The interim response for a client that waits for it before it sends its body (RFC 9110, 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The most bytes that are read from the client at once when the gateway forwards a body as it arrives.
const DIRECT: usize = 64 * 1024;
/// Room for the line before a chunk, and for the line end behind it.
const CHUNK_EXTRA: usize = 20;

/// The progress of a request. The bytes to send are in the exchange's `request` buffer. After sending, they stay in the
/// buffer as long as a retry may need them.
pub(super) struct Upload {
    body: Body,
    /// The number of bytes of the `request` buffer that were sent in this attempt.
    sent: usize,
    /// Whether the `request` buffer holds the request from its first byte.
    replayable: bool,
    /// Whether the `request` buffer holds the request to its last byte.
    complete: bool,
    /// Whether the whole request was sent in this attempt.
    finished: bool,
    /// The number of bytes that were sent in this attempt.
    passed: usize,
    /// The number of written bytes of the 100, if the client waits for it.
    promised: Option<usize>,
    /// The size of the body so far.
    received: u64,
    /// The limit of [`received`](Self::received).
    limit: u64,
    /// The number of body bytes to buffer for another attempt.
    replay: usize,
    /// Whether trailers are dropped.
    discards_trailers: bool,
    /// The first part of the body, which the gateway has taken from the client, and has not sent yet.
    held: Vec<u8>,
}

enum Body {
    None,
    Length(u64),
    Chunked(ChunkedDecoder),
    /// The client ends a body without a length (HTTP/2). The gateway forwards it in the chunked coding.
    Stream,
    /// The whole body, which the gateway has taken from the client, and whether the gateway forwards it in the chunked coding.
    Gathered(Vec<u8>, bool),
}

/// The progress of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The whole request is sent.
    Sent,
    /// The client sends no more at the moment. The task wakes when the client sends.
    AwaitsClient,
    /// The endpoint accepts no more at the moment. The task wakes when the endpoint has room.
    AwaitsEndpoint,
}

/// Why an upload ended early.
pub(super) enum UploadError {
    /// The client broke off, or sent invalid data.
    Client(ClientFault),
    /// The endpoint accepts no more. It may have sent a response.
    Endpoint,
}

/// The buffers and connections of an upload.
pub(super) struct Sides<'s> {
    pub(super) client: &'s mut Wire,
    pub(super) endpoint: &'s mut Stream,
    /// The request in the form for the endpoint.
    pub(super) request: &'s mut Vec<u8>,
    /// The bytes from the client: the head, which stays, and the body behind it.
    pub(super) input: &'s mut Buffer,
    pub(super) head_len: usize,
}

impl Upload {
    pub(super) fn new(head: &RequestHead, has_streams: bool, limits: &Limits) -> Self {
        let (limit, replay) = (limits.request_body, limits.replay);
        let body = match head.framing {
            RequestFraming::None | RequestFraming::Length(0) => Body::None,
            RequestFraming::Length(length) => Body::Length(length),
            RequestFraming::Chunked if has_streams => Body::Stream,
            RequestFraming::Chunked => Body::Chunked(ChunkedDecoder::default()),
        };
        Self {
            complete: matches!(body, Body::None),
            body,
            sent: 0,
            replayable: true,
            finished: false,
            passed: 0,
            promised: head.expect_continue.then_some(0),
            received: 0,
            limit: limit.unwrap_or(u64::MAX),
            replay,
            discards_trailers: false,
            held: Vec::new(),
        }
    }

    /// Replaces the size limits of the body.
    pub(super) fn set_limits(&mut self, limits: &Limits) {
        self.limit = limits.request_body.unwrap_or(u64::MAX);
        self.replay = limits.replay;
    }

    /// Drops trailers (RFC 9110, 6.5: trailers may be discarded).
    pub(super) fn discard_trailers(&mut self) {
        self.discards_trailers = true;
    }

    /// Whether the whole body was taken from the client.
    pub(super) fn is_complete(&self) -> bool {
        self.complete || self.gathered().is_some()
    }

    /// The whole body, if the gateway has buffered it and has not sent it yet.
    pub(super) fn gathered(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Gathered(body, _) => Some(body),
            _ => None,
        }
    }

    /// Replaces the body by the whole body, which [`poll_gather`](Self::poll_gather) has taken.
    pub(super) fn set_gathered(&mut self, body: Vec<u8>) {
        let is_chunked = matches!(self.body, Body::Chunked(_) | Body::Stream);
        self.body = Body::Gathered(body, is_chunked);
    }

    /// Forwards this first part of the body, which [`poll_gather`](Self::poll_gather) has taken, before the rest.
    pub(super) fn hold(&mut self, part: Vec<u8>) {
        self.held = part;
    }

    /// Whether a first part of the body is taken and not sent.
    pub(super) fn holds_part(&self) -> bool {
        !self.held.is_empty()
    }

    /// Forwards the buffered body as it is. Returns its length.
    pub(super) fn state_length(&mut self) -> Option<usize> {
        match &mut self.body {
            Body::Gathered(body, is_chunked) => {
                *is_chunked = false;
                Some(body.len())
            }
            _ => None,
        }
    }

    /// Moves bytes of the body from the client to `body`. Returns whether `body` is the whole body. `client` is the
    /// connection, its buffer, and the length of the head in the buffer.
    pub(super) fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        (client, input, head_len): (&mut Wire, &mut Buffer, usize),
        body: &mut Vec<u8>,
        most: usize,
    ) -> Poll<Result<bool, ClientFault>> {
        let arrived = &input.filled()[head_len..];
        if arrived.is_empty() {
            if ready!(self.receive(cx, client, input, head_len))? > 0 {
                return Poll::Ready(Ok(false));
            }
            // The gateway drops the trailers.
            return client.poll_trailers(cx).map_ok(|_| true);
        }
        let before = body.len();
        let (taken, is_whole) = match &mut self.body {
            Body::None | Body::Gathered(..) => (0, true),
            Body::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(arrived.len());
                body.extend_from_slice(&arrived[..taken]);
                *left -= taken as u64;
                (taken, *left == 0)
            }
            Body::Chunked(decoder) => {
                let recoded = chunks::recode(decoder, arrived, body, &mut Coding::Plain)
                    .map_err(|_| ClientFault::BadBody)?;
                (recoded.taken, decoder.is_done())
            }
            Body::Stream => {
                body.extend_from_slice(arrived);
                (arrived.len(), false)
            }
        };
        let is_stuck = taken == 0 && !is_whole;
        input.cut(head_len, taken);
        self.received += (body.len() - before) as u64;
        // The limit of the route is not known before the gateway has selected the route.
        if body.len() > most {
            return Poll::Ready(Err(ClientFault::BodyTooLarge));
        }
        self.promised = self.promised.filter(|written| *written > 0);
        if is_stuck {
            // A part of a line of the chunked coding.
            ready!(self.receive(cx, client, input, head_len))?;
        }
        Poll::Ready(Ok(is_whole))
    }

    /// Whether the body is longer than the limit.
    pub(super) fn exceeds_limit(&self) -> bool {
        self.received > self.limit
    }

    /// Whether the whole request was sent to the endpoint.
    pub(super) fn is_sent(&self) -> bool {
        self.finished
    }

    /// The number of bytes that were sent in this attempt.
    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// Whether any bytes were sent in this attempt.
    pub(super) fn has_sent(&self) -> bool {
        self.sent > 0 || !self.replayable
    }

    /// The position of the upload, which shows whether the upload moves.
    pub(super) fn position(&self) -> (usize, u64) {
        (self.sent, self.received)
    }

    /// Whether the request can be sent again from its first byte.
    pub(super) fn is_replayable(&self) -> bool {
        self.replayable
    }

    /// Prepares to send the request again from its first byte. False if the first bytes are gone.
    pub(super) fn rewind(&mut self) -> bool {
        self.sent = 0;
        self.passed = 0;
        self.finished = false;
        self.replayable
    }

    /// Sends the available bytes, and takes more from the client, until the whole request is sent or one side is not
    /// ready.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sides: &mut Sides<'_>,
    ) -> Result<Progress, UploadError> {
        if self.passed == 0 && !self.complete {
            // The received part of the body leaves in one write with the head. If it is rejected, nothing leaves.
            self.take_body(sides).map_err(UploadError::Client)?;
            // The body of a request on a stream is buffered in the connection.
            let may_be_there = !matches!(sides.client, Wire::Http1(_)) && self.promised.is_none();
            if may_be_there && !self.complete && self.read(cx, sides)?.is_ready() {
                self.take_body(sides).map_err(UploadError::Client)?;
            }
        }
        loop {
            while self.sent < sides.request.len() {
                match Pin::new(&mut *sides.endpoint).poll_write(cx, &sides.request[self.sent..]) {
                    Poll::Ready(Ok(written @ 1..)) => {
                        self.sent += written;
                        self.passed += written;
                    }
                    Poll::Ready(_) => return Err(UploadError::Endpoint),
                    Poll::Pending => return Ok(Progress::AwaitsEndpoint),
                }
            }
            if self.complete {
                self.finished = true;
                return Ok(Progress::Sent);
            }
            if !self.replayable {
                sides.request.clear();
                self.sent = 0;
            }
            let before = sides.request.len();
            self.take_body(sides).map_err(UploadError::Client)?;
            let is_pending = sides.request.len() == before
                && !self.complete
                && match self.direct_bytes() {
                    Some(left) => self.read_directly(cx, sides, left)?.is_pending(),
                    None => self.read(cx, sides)?.is_pending(),
                };
            if is_pending {
                return Ok(Progress::AwaitsClient);
            }
        }
    }

    /// Moves body from the client's buffer to the request buffer.
    fn take_body(&mut self, sides: &mut Sides<'_>) -> Result<(), ClientFault> {
        let (head_len, request) = (sides.head_len, &mut *sides.request);
        if let Body::Gathered(body, is_chunked) = &mut self.body {
            let body = std::mem::take(body);
            if *is_chunked && !body.is_empty() {
                write_chunk_header(request, body.len());
            }
            request.extend_from_slice(&body);
            if *is_chunked {
                request.extend_from_slice(if body.is_empty() { b"" } else { b"\r\n" });
                request.extend_from_slice(LAST_CHUNK);
            }
            (self.body, self.complete) = (Body::None, true);
            if self.received > self.limit {
                return Err(ClientFault::BodyTooLarge);
            }
            return Ok(());
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let is_chunked = matches!(self.body, Body::Chunked(_) | Body::Stream);
            if is_chunked {
                write_chunk_header(request, held.len());
            }
            request.extend_from_slice(&held);
            if is_chunked {
                request.extend_from_slice(b"\r\n");
            }
            self.replayable &= request.len() <= self.replay + head_len + BUFFER;
        }
        let body = &sides.input.filled()[head_len..];
        if body.is_empty() {
            return Ok(());
        }
        self.reserve(request, body.len() + CHUNK_EXTRA, head_len);
        let taken = match &mut self.body {
            Body::None | Body::Gathered(..) => 0,
            Body::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(body.len());
                request.extend_from_slice(&body[..taken]);
                self.received += taken as u64;
                *left -= taken as u64;
                self.complete = *left == 0;
                taken
            }
            Body::Chunked(decoder) => {
                let mut coding = if self.discards_trailers { Coding::Bare } else { Coding::OfClient };
                let recoded =
                    chunks::recode(decoder, body, request, &mut coding).map_err(|_| ClientFault::BadBody)?;
                self.received += recoded.data;
                self.complete = decoder.is_done();
                recoded.taken
            }
            Body::Stream => {
                write_chunk_header(request, body.len());
                request.extend_from_slice(body);
                request.extend_from_slice(b"\r\n");
                self.received += body.len() as u64;
                body.len()
            }
        };
        sides.input.cut(head_len, taken);
        if self.received > self.limit {
            return Err(ClientFault::BodyTooLarge);
        }
        // A client that sent body bytes does not wait for a 100.
        self.promised = self.promised.filter(|written| *written > 0);
        self.replayable &= request.len() <= self.replay + head_len + BUFFER;
        Ok(())
    }

    /// The rest of the body, if the gateway forwards it as it arrives, and no attempt needs it again.
    fn direct_bytes(&self) -> Option<u64> {
        let is_continued = self.promised.is_none_or(|written| written >= CONTINUE.len());
        match self.body {
            Body::Length(left) if !self.replayable && is_continued => Some(left),
            _ => None,
        }
    }

    /// Reads once from the client into the request buffer, without the way through the client's buffer.
    fn read_directly(
        &mut self,
        cx: &mut Context<'_>,
        sides: &mut Sides<'_>,
        left: u64,
    ) -> Result<Poll<()>, UploadError> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(DIRECT);
        sides.request.reserve(most);
        let mut room = (&mut *sides.request).limit(most);
        let Poll::Ready(read) = pin!(sides.client.read_buf(&mut room)).poll(cx) else {
            return Ok(Poll::Pending);
        };
        let read = read.ok().filter(|read| *read > 0).ok_or(UploadError::Client(ClientFault::Closed))?;
        let left = left - read as u64;
        (self.body, self.complete) = (Body::Length(left), left == 0);
        self.received += read as u64;
        match self.exceeds_limit() {
            true => Err(UploadError::Client(ClientFault::BodyTooLarge)),
            false => Ok(Poll::Ready(())),
        }
    }

    /// Makes room in the request buffer for more bytes. The buffer grows in steps, but not beyond what another attempt may need, so
    /// that the buffers of the request are small enough for reuse.
    fn reserve(&self, request: &mut Vec<u8>, more: usize, head_len: usize) {
        let needed = request.len() + more;
        if needed > request.capacity() {
            let most = self.replay.saturating_add(head_len + 2 * BUFFER);
            let capacity = (2 * request.capacity()).min(most).max(needed);
            request.reserve_exact(capacity - request.len());
        }
    }

    /// Reads once from the client, after a 100 if the client waits for it.
    fn read(&mut self, cx: &mut Context<'_>, sides: &mut Sides<'_>) -> Result<Poll<()>, UploadError> {
        match self.receive(cx, sides.client, sides.input, sides.head_len) {
            Poll::Ready(Ok(1..)) => Ok(Poll::Ready(())),
            Poll::Ready(Ok(0)) => self.end(cx, sides),
            Poll::Ready(Err(fault)) => Err(UploadError::Client(fault)),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Reads once from the client into the buffer. 0: the client has ended a body without a length.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Wire,
        input: &mut Buffer,
        head_len: usize,
    ) -> Poll<Result<usize, ClientFault>> {
        if self.promised == Some(0) && !matches!(client, Wire::Http1(_)) {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::CONTINUE;
            client.send_interim_response(response);
            self.promised = None;
        }
        while let Some(rest) =
            self.promised.and_then(|written| CONTINUE.get(written..)).filter(|r| !r.is_empty())
        {
            match ready!(Pin::new(&mut *client).poll_write(cx, rest)) {
                Ok(written @ 1..) => {
                    self.promised = self.promised.map(|before| before + written);
                }
                _ => return Poll::Ready(Err(ClientFault::Closed)),
            }
        }
        input.reserve(BUFFER / 2, head_len + 2 * BUFFER);
        match ready!(input.poll_fill(cx, client)) {
            Ok(read @ 1..) => Poll::Ready(Ok(read)),
            Ok(0) if matches!(self.body, Body::Stream) => Poll::Ready(Ok(0)),
            _ => Poll::Ready(Err(ClientFault::Closed)),
        }
    }

    /// The client has ended a body without a length. Trailers may follow.
    fn end(&mut self, cx: &mut Context<'_>, sides: &mut Sides<'_>) -> Result<Poll<()>, UploadError> {
        match sides.client.poll_trailers(cx) {
            Poll::Ready(Ok(trailers)) if trailers.is_empty() || self.discards_trailers => {
                sides.request.extend_from_slice(LAST_CHUNK);
            }
            Poll::Ready(Ok(trailers)) => {
                sides.request.extend_from_slice(b"0\r\n");
                sides.request.extend_from_slice(&trailers);
                sides.request.extend_from_slice(b"\r\n");
            }
            Poll::Ready(Err(fault)) => return Err(UploadError::Client(fault)),
            Poll::Pending => return Ok(Poll::Pending),
        }
        self.complete = true;
        Ok(Poll::Ready(()))
    }
}
