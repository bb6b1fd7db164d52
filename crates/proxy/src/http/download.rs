//! The response's way to the client.

use std::future::poll_fn;
use std::task::{Context, Poll};

use sluicegate_http1::{ChunkedDecoder, ResponseFraming, write_chunk_header};
use tokio::time::Instant;

use super::chunks;
use super::exchange::Exchange;
use super::upload::{Progress, UploadError};
use super::wire::Wire;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::relay::DRAIN_CHECK;
use crate::stream::Stream;
use crate::upstream::{Connection, LocalEndpoint};
use crate::worker::{BUFFER, Buffer};

/// How far a response has gone.
pub(super) struct Download {
    body: Body,
    coding: Coding,
    /// What follows the body on an HTTP/2 stream, as header lines.
    trailers: Vec<u8>,
    /// How much of the `response` buffer was written.
    written: usize,
    /// Bytes written before the `response` buffer's present content.
    passed: u64,
    /// Whether the body was taken from the endpoint to its end.
    complete: bool,
}

enum Body {
    None,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

/// How the client gets the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// As it is: its length was said, or the end of the connection ends it.
    Plain,
    /// In the chunked coding.
    Chunked,
    /// As it is, on a stream that has an end of its own (HTTP/2).
    Stream,
}

/// What a download waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    AwaitsClient,
    AwaitsEndpoint,
}

impl Download {
    /// `written`: how much of the `response` buffer was written already.
    pub(super) fn new(framing: ResponseFraming, coding: Coding, written: usize) -> Self {
        let body = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => Body::None,
            ResponseFraming::Length(length) => Body::Length(length),
            ResponseFraming::Chunked => Body::Chunked(ChunkedDecoder::default()),
            ResponseFraming::UntilClose => Body::UntilClose,
        };
        Self { complete: matches!(body, Body::None), body, coding, trailers: Vec::new(), written, passed: 0 }
    }

    /// Bytes written to the client so far.
    pub(super) fn bytes_out(&self) -> u64 {
        self.passed + self.written as u64
    }

    /// Whether nothing has to be taken from the endpoint any more.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the response's end can only be told by the end of the connection, on both sides.
    pub(super) fn is_unframed(&self) -> bool {
        matches!(self.body, Body::UntilClose | Body::Chunked(_)) && self.coding == Coding::Plain
    }

    /// Moves bytes until the response is written as a whole, or one side has to be waited for.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        response: &mut Vec<u8>,
        reply: &mut Buffer,
        endpoint: &mut Stream,
        client: &mut Wire,
    ) -> Result<Step, Fault> {
        loop {
            // The head and what fits beside it go in one write.
            self.take(response, reply)?;
            while self.written < response.len() {
                let last = self.complete && self.trailers.is_empty();
                match client.poll_send(cx, &response[self.written..], last) {
                    Poll::Ready(Ok(written @ 1..)) => self.written += written,
                    Poll::Ready(_) => return Err(ClientFault::Closed.into()),
                    Poll::Pending => return Ok(Step::AwaitsClient),
                }
            }
            self.passed += self.written as u64;
            self.written = 0;
            response.clear();
            if self.complete {
                client.finish(&self.trailers).map_err(|_| ClientFault::Closed)?;
                return Ok(Step::Done);
            }
            if !reply.is_empty() && self.is_verbatim() {
                let Poll::Ready(written) = self.pass(cx, reply, client)? else {
                    return Ok(Step::AwaitsClient);
                };
                self.passed += written;
                continue;
            }
            // What did not fit beside the head comes before anything new.
            self.take(response, reply)?;
            if self.complete || !response.is_empty() {
                continue;
            }
            match reply.poll_fill(cx, endpoint) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) if matches!(self.body, Body::UntilClose) => self.finish(response),
                Poll::Ready(_) => return Err(Failure::Truncated.into()),
                Poll::Pending => return Ok(Step::AwaitsEndpoint),
            }
        }
    }

    /// Whether the body goes on as it comes.
    fn is_verbatim(&self) -> bool {
        !self.complete
            && match self.body {
                Body::Length(_) => true,
                Body::UntilClose => self.coding != Coding::Chunked,
                Body::None | Body::Chunked(_) => false,
            }
    }

    /// Moves body from what came to what is written: where it has to be recoded, and beside a head.
    fn take(&mut self, response: &mut Vec<u8>, reply: &mut Buffer) -> Result<(), Failure> {
        if reply.is_empty() || self.complete || response.len() >= BUFFER {
            return Ok(());
        }
        let filled = reply.filled();
        let taken = match &mut self.body {
            Body::None => 0,
            Body::Length(_) | Body::UntilClose if self.coding != Coding::Chunked && response.is_empty() => 0,
            Body::Length(left) => {
                let room = (BUFFER - response.len()).min(filled.len());
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(room);
                response.extend_from_slice(&filled[..taken]);
                *left -= taken as u64;
                self.complete = *left == 0;
                taken
            }
            Body::Chunked(decoder) => {
                let mut coding = match self.coding {
                    Coding::Plain => chunks::Coding::Plain,
                    Coding::Chunked => chunks::Coding::Chunked,
                    Coding::Stream => chunks::Coding::Split(&mut self.trailers),
                };
                let recoded =
                    chunks::recode(decoder, filled, response, &mut coding).map_err(|_| Failure::Truncated)?;
                self.complete = decoder.is_done();
                recoded.taken
            }
            Body::UntilClose => {
                if self.coding == Coding::Chunked {
                    write_chunk_header(response, filled.len());
                }
                response.extend_from_slice(filled);
                if self.coding == Coding::Chunked {
                    response.extend_from_slice(b"\r\n");
                }
                filled.len()
            }
        };
        reply.consume(taken);
        reply.reserve(BUFFER / 2, 2 * BUFFER);
        Ok(())
    }

    /// Writes body to the client straight from where it was read.
    fn pass(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Buffer,
        client: &mut Wire,
    ) -> Result<Poll<u64>, ClientFault> {
        let filled = reply.filled();
        let (length, last) = match &self.body {
            Body::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(filled.len());
                (length, length as u64 == *left)
            }
            _ => (filled.len(), false),
        };
        match client.poll_send(cx, &filled[..length], last) {
            Poll::Ready(Ok(written @ 1..)) => {
                reply.consume(written);
                if let Body::Length(left) = &mut self.body {
                    *left -= written as u64;
                    self.complete = *left == 0;
                }
                Ok(Poll::Ready(written as u64))
            }
            Poll::Ready(_) => Err(ClientFault::Closed),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// The endpoint closed the connection, which ends a body without a length.
    fn finish(&mut self, response: &mut Vec<u8>) {
        self.complete = true;
        if self.coding == Coding::Chunked {
            response.extend_from_slice(sluicegate_http1::LAST_CHUNK);
        }
    }
}

impl Exchange<'_> {
    /// Writes the response to the client, and goes on with the request's body if it is not at its end.
    pub(super) async fn download(
        &mut self,
        connection: &mut Connection,
        download: &mut Download,
    ) -> Result<(), Fault> {
        let mut uploading = !self.upload.is_sent();
        let mut last: Option<(Step, u64, (usize, u64))> = None;
        let mut moved_at = None;
        let local = connection.endpoint().clone();
        poll_fn(|cx| {
            let endpoint = &mut connection.socket.stream;
            if uploading {
                match self.poll_upload(cx, endpoint) {
                    Ok(Progress::Sent) | Err(UploadError::Endpoint) => uploading = false,
                    Ok(_) => {}
                    Err(UploadError::Client(fault)) => return Poll::Ready(Err(fault.into())),
                }
            }
            let scratch = &mut *self.scratch;
            let client = &mut self.client.wire;
            let step = download.poll(cx, &mut scratch.response, &mut scratch.reply, endpoint, client)?;
            if step == Step::Done {
                return Poll::Ready(Ok(()));
            }
            if self.upload.is_complete() {
                self.watch_client(cx)?;
            }
            let position = (step, download.bytes_out(), self.upload.position());
            if last != Some(position) {
                last = Some(position);
                moved_at = None;
            }
            let moved_at = *moved_at.get_or_insert_with(Instant::now);
            self.poll_still(cx, step, moved_at, &local)
        })
        .await
    }

    /// Ends a response that stands still for too long, or whose endpoint's drain time is over.
    fn poll_still(
        &mut self,
        cx: &mut Context<'_>,
        step: Step,
        moved_at: Instant,
        endpoint: &LocalEndpoint,
    ) -> Poll<Result<(), Fault>> {
        let timeouts = &self.snapshot.settings.timeouts;
        let (limit, fault) = match step {
            Step::AwaitsClient => (timeouts.client_write, Fault::Client(ClientFault::WriteTimeout)),
            Step::AwaitsEndpoint | Step::Done => {
                (timeouts.upstream_idle, Fault::Upstream(Failure::BodyTimeout))
            }
        };
        let due = after(moved_at, limit);
        loop {
            let now = Instant::now();
            if now >= due {
                return Poll::Ready(Err(fault));
            }
            if endpoint.is_drained(now) {
                return Poll::Ready(Err(Failure::Drained.into()));
            }
            self.client.deadline.set(due.min(now + DRAIN_CHECK));
            if self.client.deadline.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
