//! The request's way to the endpoint: its head, and its body as it comes from the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use sluicegate_http1::{ChunkedDecoder, LAST_CHUNK, RequestFraming, RequestHead, write_chunk_header};
use sluicegate_model::settings::Limits;
use tokio::io::AsyncWrite;

use super::chunks::{self, Coding};
use super::wire::Wire;
use crate::failure::ClientFault;
use crate::stream::Stream;
use crate::worker::{BUFFER, Buffer};

/// What a client that expects it gets before it sends its body (RFC 9110, 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How far a request has gone. What is to be sent lies in the exchange's `request` buffer; it stays there
/// after it was sent for as long as the request may have to be sent again.
pub(super) struct Upload {
    body: Body,
    /// How much of the `request` buffer was sent on this attempt.
    sent: usize,
    /// Whether the `request` buffer holds the request from its first byte.
    replayable: bool,
    /// Whether the `request` buffer holds the request to its last byte.
    complete: bool,
    /// Whether the whole request was sent on this attempt.
    finished: bool,
    /// How many bytes were sent on this attempt.
    passed: usize,
    /// How much of the answer 100 was written, if the client waits for it.
    promised: Option<usize>,
    /// The size of the body so far.
    received: u64,
    /// The limit of [`received`](Self::received).
    limit: u64,
    /// How many bytes of body to keep for another attempt.
    replay: usize,
    /// Whether no trailers are passed on.
    discards_trailers: bool,
}

enum Body {
    None,
    Length(u64),
    Chunked(ChunkedDecoder),
    /// It comes as it is until the client ends it (HTTP/2), and goes on in the chunked coding.
    Stream,
}

/// How far an upload came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The whole request is sent.
    Sent,
    /// The client sends no more at the moment; the task is woken when it does.
    AwaitsClient,
    /// The endpoint takes no more at the moment; the task is woken when it does.
    AwaitsEndpoint,
}

/// Why an upload ended early.
pub(super) enum UploadError {
    /// The client broke off, or sent what cannot be accepted.
    Client(ClientFault),
    /// The endpoint takes no more; it may have said why.
    Endpoint,
}

/// What an upload moves bytes between.
pub(super) struct Sides<'s> {
    pub(super) client: &'s mut Wire,
    pub(super) endpoint: &'s mut Stream,
    /// The request as it is sent.
    pub(super) request: &'s mut Vec<u8>,
    /// What came from the client: the head, which stays, and behind it the body.
    pub(super) input: &'s mut Buffer,
    pub(super) head_len: usize,
}

impl Upload {
    pub(super) fn new(head: &RequestHead, is_http2: bool, limits: &Limits) -> Self {
        let (limit, replay) = (limits.request_body, limits.replay);
        let body = match head.framing {
            RequestFraming::None | RequestFraming::Length(0) => Body::None,
            RequestFraming::Length(length) => Body::Length(length),
            RequestFraming::Chunked if is_http2 => Body::Stream,
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
        }
    }

    /// Replaces the limit of its body's size.
    pub(super) fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit.unwrap_or(u64::MAX);
    }

    /// Passes no trailers on (RFC 9110, 6.5: they may be discarded).
    pub(super) fn discard_trailers(&mut self) {
        self.discards_trailers = true;
    }

    /// Whether the whole body was taken from the client.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the whole request was sent to the endpoint.
    pub(super) fn is_sent(&self) -> bool {
        self.finished
    }

    /// How many bytes were sent on this attempt.
    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// Whether anything was sent on this attempt.
    pub(super) fn has_sent(&self) -> bool {
        self.sent > 0 || !self.replayable
    }

    /// How far it has come, to tell whether it moves.
    pub(super) fn position(&self) -> (usize, u64) {
        (self.sent, self.received)
    }

    /// Whether it could be sent again from its first byte.
    pub(super) fn is_replayable(&self) -> bool {
        self.replayable
    }

    /// Makes ready to send the request again from its first byte. False if that is no longer there.
    pub(super) fn rewind(&mut self) -> bool {
        self.sent = 0;
        self.passed = 0;
        self.finished = false;
        self.replayable
    }

    /// Sends what there is, and takes more from the client, until the request is sent as a whole or one side
    /// has to be waited for.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        sides: &mut Sides<'_>,
    ) -> Result<Progress, UploadError> {
        if self.passed == 0 && !self.complete {
            // What has come of the body goes in one write with the head; or, if it is refused, nothing goes.
            self.take_body(sides).map_err(UploadError::Client)?;
            // Of an HTTP/2 request it lies in the connection.
            let may_be_there = matches!(sides.client, Wire::Http2(_)) && self.promised.is_none();
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
            if sides.request.len() == before && !self.complete && self.read(cx, sides)?.is_pending() {
                return Ok(Progress::AwaitsClient);
            }
        }
    }

    /// Moves body from what came from the client to what is sent.
    fn take_body(&mut self, sides: &mut Sides<'_>) -> Result<(), ClientFault> {
        let (head_len, request) = (sides.head_len, &mut *sides.request);
        let body = &sides.input.filled()[head_len..];
        if body.is_empty() {
            return Ok(());
        }
        let taken = match &mut self.body {
            Body::None => 0,
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
        // Whoever sent body bytes does not wait for a 100.
        self.promised = self.promised.filter(|written| *written > 0);
        self.replayable &= request.len() <= self.replay + head_len + BUFFER;
        Ok(())
    }

    /// Reads once from the client, after telling it to go on if it waits for that.
    fn read(&mut self, cx: &mut Context<'_>, sides: &mut Sides<'_>) -> Result<Poll<()>, UploadError> {
        if let (Some(0), Wire::Http2(stream)) = (self.promised, &mut *sides.client) {
            stream.inform(100);
            self.promised = None;
        }
        while let Some(rest) =
            self.promised.and_then(|written| CONTINUE.get(written..)).filter(|r| !r.is_empty())
        {
            match Pin::new(&mut *sides.client).poll_write(cx, rest) {
                Poll::Ready(Ok(written @ 1..)) => {
                    self.promised = self.promised.map(|before| before + written);
                }
                Poll::Ready(_) => return Err(UploadError::Client(ClientFault::Closed)),
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        sides.input.reserve(BUFFER / 2, sides.head_len + 2 * BUFFER);
        match sides.input.poll_fill(cx, sides.client) {
            Poll::Ready(Ok(1..)) => Ok(Poll::Ready(())),
            Poll::Ready(Ok(0)) if matches!(self.body, Body::Stream) => self.end(cx, sides),
            Poll::Ready(_) => Err(UploadError::Client(ClientFault::Closed)),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// The client has ended a body without a length; trailers may follow.
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
