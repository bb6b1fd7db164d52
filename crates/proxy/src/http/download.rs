//! The path of the response to the client.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use sluicegate_http1::{ChunkedDecoder, ResponseFraming, write_chunk_header};
use tokio::io::AsyncRead;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::chunks;
use super::exchange::Exchange;
use super::upload::{Progress, UploadError};
use super::validate::RawBody;
use super::wire::Wire;
use crate::buffer::{BUFFER, Buffer};
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::feature::bandwidth::Throttle;
use crate::feature::cache::Collector;
use crate::feature::compression::Compressor;
use crate::relay::DRAIN_CHECK;
use crate::stream::Stream;
use crate::upstream::LocalEndpoint;

/// How much the gateway reads ahead of a client that does not read, if other requests wait for the cached response.
const AHEAD: usize = 16 * BUFFER;

/// The progress of a response.
pub(super) struct Download {
    body: Framing,
    coding: Coding,
    /// Collects the body for the cache.
    copy: Option<Box<Collector>>,
    /// The number of received and not yet taken bytes that were collected.
    copied: usize,
    /// Compresses the body.
    compressor: Option<Box<Compressor>>,
    /// The trailers of the body on an HTTP/2 stream, as header lines.
    trailers: Vec<u8>,
    /// The number of written bytes of the `response` buffer.
    written: usize,
    /// The bytes written before the present content of the `response` buffer.
    passed: u64,
    /// Whether the whole body was taken from the endpoint.
    ended: bool,
    /// The number of body bytes that may still be taken, as the endpoint sends them.
    left: u64,
    /// The number of body bytes that were taken, as the endpoint sent them.
    taken: u64,
    /// The bandwidth of the response, if it is limited.
    throttle: Option<Box<Throttle>>,
    /// A copy of the body for its validation, and the longest copy.
    inspected: Option<(Box<RawBody>, usize)>,
}

enum Framing {
    None,
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

/// The framing of the body for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Plain: the head stated the length, or the end of the connection ends the body.
    Plain,
    /// In the chunked coding.
    Chunked,
    /// Plain, on a stream that has its own end (HTTP/2).
    Stream,
}

/// The source of a body, after the content of the `reply` buffer.
pub(super) enum Body<'b> {
    Endpoint { stream: &'b mut Stream, endpoint: &'b LocalEndpoint },
    Buffered(&'b [u8]),
}

impl<'b> Body<'b> {
    pub(super) fn of(stream: &'b mut Stream, endpoint: &'b LocalEndpoint) -> Self {
        Self::Endpoint { stream, endpoint }
    }

    fn endpoint(&self) -> Option<&LocalEndpoint> {
        match self {
            Self::Endpoint { endpoint, .. } => Some(endpoint),
            Self::Buffered(_) => None,
        }
    }
}

/// The event that a download waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    AwaitsClient,
    AwaitsEndpoint,
    /// The bandwidth of the response allows no more bytes before this time.
    AwaitsBandwidth(Instant),
}

impl Download {
    /// `written`: the number of bytes of the `response` buffer that were written already.
    pub(super) fn new(
        framing: ResponseFraming,
        coding: Coding,
        compressor: Option<Box<Compressor>>,
        written: usize,
    ) -> Self {
        let body = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => Framing::None,
            ResponseFraming::Length(length) => Framing::Length(length),
            ResponseFraming::Chunked => Framing::Chunked(ChunkedDecoder::default()),
            ResponseFraming::UntilClose => Framing::UntilClose,
        };
        let ended = matches!(body, Framing::None);
        Self {
            body,
            coding,
            copy: None,
            copied: 0,
            compressor,
            trailers: Vec::new(),
            written,
            passed: 0,
            ended,
            left: u64::MAX,
            taken: 0,
            throttle: None,
            inspected: None,
        }
    }

    /// Also copies the body for its validation, up to `most` bytes.
    pub(super) fn inspect(&mut self, framing: ResponseFraming, most: usize) {
        self.inspected = Some((Box::new(RawBody::new(framing)), most));
    }

    /// The copy of the body, if the body has ended and is not too long.
    pub(super) fn into_inspected(self) -> Option<Vec<u8>> {
        let is_complete = self.is_complete();
        self.inspected.filter(|_| is_complete).map(|(copy, _)| copy.body)
    }

    /// Copies a taken part of the body.
    fn inspect_part(inspected: &mut Option<(Box<RawBody>, usize)>, raw: &[u8]) {
        if let Some((copy, most)) = inspected
            && (copy.take(raw).is_none() || copy.body.len() > *most)
        {
            *inspected = None;
        }
    }

    /// Limits the bandwidth.
    pub(super) fn throttle(&mut self, throttle: Throttle) {
        self.throttle = Some(Box::new(throttle));
    }

    /// The number of bytes, of this many, that may be written now. The error is the time from which more may be written.
    fn room(&self, length: usize) -> Result<usize, Instant> {
        let Some(throttle) = &self.throttle else { return Ok(length) };
        throttle.room(self.bytes_out(), Instant::now()).map(|room| room.min(length))
    }

    /// Aborts a longer body.
    pub(super) fn limit(&mut self, most: u64) {
        self.left = most;
    }

    /// Counts taken bytes of the body.
    fn account(&mut self, taken: usize) -> Result<(), Failure> {
        self.taken += taken as u64;
        self.left = self.left.checked_sub(taken as u64).ok_or(Failure::TooLong)?;
        Ok(())
    }

    /// Also collects the body for the cache.
    pub(super) fn copy_to(&mut self, copy: Box<Collector>) {
        // A response without a body has ended already.
        match self.ended {
            true => copy.complete(),
            false => self.copy = Some(copy),
        }
    }

    /// Collects the received part of the body, whether or not the client takes it.
    fn copy(&mut self, reply: &Buffer) {
        let Some(copy) = &mut self.copy else { return };
        let filled = reply.filled();
        let length = match &self.body {
            Framing::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(filled.len()),
            _ => filled.len(),
        };
        let Some(taken) = copy.take(&filled[self.copied.min(length)..length]) else {
            self.copy = None;
            return;
        };
        self.copied += taken;
        if self.copied as u64 > self.left {
            // The body is too long for this client. The download fails when it reaches that length.
            if let Some(copy) = self.copy.take() {
                copy.give_up();
            }
            return;
        }
        let is_whole = match &self.body {
            Framing::Length(left) => *left == self.copied as u64,
            _ => copy.is_at_end(),
        };
        if is_whole && let Some(copy) = self.copy.take() {
            copy.complete();
        }
    }

    /// Collects the rest of the body while the client does not read: other requests wait for the body, and must not wait
    /// for this client. Other outcomes, such as a failure, show again at the next read.
    fn read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Buffer,
        source: &mut (impl AsyncRead + Unpin),
    ) {
        while self.copy.is_some() && reply.len() + BUFFER <= AHEAD {
            reply.reserve(BUFFER, AHEAD);
            match reply.poll_fill(cx, source) {
                Poll::Ready(Ok(1..)) => self.copy(reply),
                _ => return,
            }
        }
    }

    /// The number of bytes written to the client so far.
    pub(super) fn bytes_out(&self) -> u64 {
        self.passed + self.written as u64
    }

    /// The number of body bytes from the endpoint so far, as the endpoint sent them.
    pub(super) fn bytes_in(&self) -> u64 {
        self.taken
    }

    /// Whether only the content of the `response` buffer remains to be written.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.compressor.as_ref().is_none_or(|compressor| compressor.is_finished())
    }

    /// A number that changes whenever bytes have moved.
    fn position(&self) -> u64 {
        self.bytes_out() + self.compressor.as_ref().map_or(0, |compressor| compressor.taken())
    }

    /// Whether only the end of the connection ends the response, on both sides.
    pub(super) fn is_unframed(&self) -> bool {
        matches!(self.body, Framing::UntilClose | Framing::Chunked(_)) && self.coding == Coding::Plain
    }

    /// Moves bytes until the whole response is written, or one side is not ready.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        response: &mut Vec<u8>,
        reply: &mut Buffer,
        source: &mut (impl AsyncRead + Unpin),
        client: &mut Wire,
    ) -> Result<Step, Fault> {
        if let Some(compressor) = &mut self.compressor {
            compressor.begin_turn();
        }
        loop {
            self.copy(reply);
            // The head and the part of the body that fits beside it leave in one write.
            self.take(response, reply)?;
            while self.written < response.len() {
                let unwritten = &response[self.written..];
                let length = match self.room(unwritten.len()) {
                    Ok(length) => length,
                    Err(until) => {
                        self.read_ahead(cx, reply, source);
                        return Ok(Step::AwaitsBandwidth(until));
                    }
                };
                let last = self.is_complete() && self.trailers.is_empty() && length == unwritten.len();
                match client.poll_send(cx, &unwritten[..length], last) {
                    Poll::Ready(Ok(written @ 1..)) => self.written += written,
                    Poll::Ready(_) => return Err(ClientFault::Closed.into()),
                    Poll::Pending => {
                        self.read_ahead(cx, reply, source);
                        return Ok(Step::AwaitsClient);
                    }
                }
            }
            self.passed += self.written as u64;
            self.written = 0;
            response.clear();
            if self.is_complete() {
                client.finish(&self.trailers).map_err(|_| ClientFault::Closed)?;
                return Ok(Step::Done);
            }
            if !reply.is_empty() && self.is_verbatim() {
                let room = match self.room(reply.len()) {
                    Ok(room) => room,
                    Err(until) => {
                        self.read_ahead(cx, reply, source);
                        return Ok(Step::AwaitsBandwidth(until));
                    }
                };
                let Poll::Ready(written) = self.pass(cx, reply, room, client)? else {
                    self.read_ahead(cx, reply, source);
                    return Ok(Step::AwaitsClient);
                };
                self.passed += written;
                continue;
            }
            // The rest of the body in the buffer comes before new bytes.
            let moved = self.take(response, reply)?;
            if self.is_complete() || !response.is_empty() {
                continue;
            }
            if self.compressor.as_ref().is_some_and(|compressor| compressor.is_turn_over()) {
                // This wakes the task behind all other work of the runtime, sockets included. A task that wakes itself
                // would skip the sockets up to 61 times.
                let _ = pin!(yield_now()).poll(cx);
                return Ok(Step::AwaitsEndpoint);
            }
            if moved {
                continue;
            }
            match reply.poll_fill(cx, source) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) if matches!(self.body, Framing::UntilClose) => self.finish(response),
                Poll::Ready(_) => return Err(Failure::Truncated.into()),
                Poll::Pending => {
                    // The client may be waiting for bytes that the encoder holds back.
                    let compressor = self.compressor.as_mut();
                    if !compressor.map_or(Ok(false), |compressor| compressor.flush(response))? {
                        return Ok(Step::AwaitsEndpoint);
                    }
                }
            }
        }
    }

    /// Whether the body is forwarded unchanged.
    fn is_verbatim(&self) -> bool {
        !self.ended
            && self.compressor.is_none()
            && match self.body {
                Framing::Length(_) => true,
                Framing::UntilClose => self.coding != Coding::Chunked,
                Framing::None | Framing::Chunked(_) => false,
            }
    }

    /// Moves body from the `reply` buffer to the `response` buffer, for recoding or beside a head. Returns whether bytes
    /// were taken.
    fn take(&mut self, response: &mut Vec<u8>, reply: &mut Buffer) -> Result<bool, Fault> {
        let Some(mut compressor) = self.compressor.take() else {
            if self.is_verbatim() && response.is_empty() {
                return Ok(false);
            }
            return Ok(self.recode(response, reply, self.coding)?);
        };
        let taken = self.recode(compressor.room(), reply, Coding::Stream);
        let was_finished = compressor.is_finished();
        let compressed = compressor.compress(response, self.ended);
        if compressor.is_finished() && !was_finished && self.coding == Coding::Chunked {
            end_chunks(response, &self.trailers);
        }
        self.compressor = Some(compressor);
        compressed?;
        Ok(taken?)
    }

    /// Moves body from the `reply` buffer to `out`, in this coding.
    fn recode(&mut self, out: &mut Vec<u8>, reply: &mut Buffer, coding: Coding) -> Result<bool, Failure> {
        if reply.is_empty() || self.ended || out.len() >= BUFFER {
            return Ok(false);
        }
        let filled = reply.filled();
        let taken = match &mut self.body {
            Framing::None => 0,
            Framing::Length(left) => {
                let room = (BUFFER - out.len()).min(filled.len());
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(room);
                out.extend_from_slice(&filled[..taken]);
                *left -= taken as u64;
                self.ended = *left == 0;
                taken
            }
            Framing::Chunked(decoder) => {
                let mut way = match coding {
                    Coding::Plain => chunks::Coding::Plain,
                    Coding::Chunked => chunks::Coding::Chunked,
                    Coding::Stream => chunks::Coding::Split(&mut self.trailers),
                };
                // The bytes that were read ahead can exceed one step.
                let step = &filled[..filled.len().min(2 * BUFFER)];
                let recoded = chunks::recode(decoder, step, out, &mut way).map_err(|_| Failure::Truncated)?;
                self.ended = decoder.is_done();
                recoded.taken
            }
            Framing::UntilClose => {
                if coding == Coding::Chunked {
                    write_chunk_header(out, filled.len());
                }
                out.extend_from_slice(filled);
                if coding == Coding::Chunked {
                    out.extend_from_slice(b"\r\n");
                }
                filled.len()
            }
        };
        Self::inspect_part(&mut self.inspected, &reply.filled()[..taken]);
        self.account(taken)?;
        self.copied = self.copied.saturating_sub(taken);
        reply.consume(taken);
        reply.reserve(BUFFER / 2, 2 * BUFFER);
        Ok(taken > 0)
    }

    /// Writes body to the client directly from the buffer into which it was read, at most `room` bytes.
    fn pass(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut Buffer,
        room: usize,
        client: &mut Wire,
    ) -> Result<Poll<u64>, Fault> {
        let filled = reply.filled();
        let (length, last) = match &self.body {
            Framing::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(filled.len()).min(room);
                (length, length as u64 == *left)
            }
            _ => (filled.len().min(room), false),
        };
        match client.poll_send(cx, &filled[..length], last) {
            Poll::Ready(Ok(written @ 1..)) => {
                if let Framing::Length(left) = &mut self.body {
                    *left -= written as u64;
                    self.ended = *left == 0;
                }
                Self::inspect_part(&mut self.inspected, &filled[..written]);
                self.copied = self.copied.saturating_sub(written);
                self.account(written)?;
                reply.consume(written);
                Ok(Poll::Ready(written as u64))
            }
            Poll::Ready(_) => Err(ClientFault::Closed.into()),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// The endpoint closed the connection, which ends a body without a length.
    fn finish(&mut self, response: &mut Vec<u8>) {
        self.ended = true;
        if self.coding == Coding::Chunked && self.compressor.is_none() {
            response.extend_from_slice(sluicegate_http1::LAST_CHUNK);
        }
    }
}

/// Writes the end of a body in the chunked coding, with these trailers.
fn end_chunks(out: &mut Vec<u8>, trailers: &[u8]) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

impl Exchange<'_> {
    /// Writes the response to the client, and continues the upload if the request's body has not ended.
    pub(super) async fn download(&mut self, body: Body<'_>, download: &mut Download) -> Result<(), Fault> {
        let mut body = body;
        let mut uploading = !self.upload.is_sent();
        // The endpoint has begun to respond: from now on both sides may pause, as streams do.
        let over = match &body {
            Body::Endpoint { stream, .. } if uploading => self.upload_ends(stream),
            _ => None,
        };
        let mut last: Option<(Step, u64, (usize, u64))> = None;
        let mut moved_at = None;
        poll_fn(|cx| {
            if let Body::Endpoint { stream, .. } = &mut body
                && uploading
            {
                match self.poll_upload(cx, stream) {
                    Ok(Progress::Sent) | Err(UploadError::Endpoint) => uploading = false,
                    Ok(_) => {}
                    Err(UploadError::Client(fault)) => return Poll::Ready(Err(fault.into())),
                }
            }
            let scratch = &mut *self.scratch;
            let client = &mut self.client.wire;
            let (response, reply) = (&mut scratch.response, &mut scratch.reply);
            let step = match &mut body {
                Body::Endpoint { stream, .. } => download.poll(cx, response, reply, *stream, client),
                Body::Buffered(bytes) => download.poll(cx, response, reply, bytes, client),
            }?;
            if step == Step::Done {
                return Poll::Ready(Ok(()));
            }
            if self.upload.is_complete() {
                self.watch_client(cx)?;
            }
            let position = (step, download.position(), self.upload.position());
            if last != Some(position) {
                last = Some(position);
                moved_at = None;
            }
            let moved_at = *moved_at.get_or_insert_with(Instant::now);
            let over = over.filter(|_| !self.upload.is_complete());
            self.poll_still(cx, (step, moved_at), over, body.endpoint())
        })
        .await
    }

    /// Ends a response that has stalled for too long, whose endpoint's drain time is over, or whose request's body is at
    /// its deadline `over`.
    fn poll_still(
        &mut self,
        cx: &mut Context<'_>,
        (step, moved_at): (Step, Instant),
        over: Option<Instant>,
        endpoint: Option<&LocalEndpoint>,
    ) -> Poll<Result<(), Fault>> {
        let timeouts = &self.settings().timeouts;
        let (limit, fault) = match step {
            Step::AwaitsBandwidth(until) => return self.poll_bandwidth(cx, until, over, endpoint),
            Step::AwaitsClient => (timeouts.client_write, Fault::Client(ClientFault::WriteTimeout)),
            Step::AwaitsEndpoint | Step::Done => {
                (timeouts.upstream_idle, Fault::Upstream(Failure::BodyTimeout))
            }
        };
        let due = after(moved_at, limit);
        loop {
            let now = Instant::now();
            check_end(now, over, endpoint)?;
            if now >= due {
                return Poll::Ready(Err(fault));
            }
            self.client.deadline.set(over.map_or(due, |over| due.min(over)).min(now + DRAIN_CHECK));
            if self.client.deadline.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Waits until the bandwidth of the response allows more bytes. The wait has no other timeout, because neither side
    /// causes it.
    fn poll_bandwidth(
        &mut self,
        cx: &mut Context<'_>,
        until: Instant,
        over: Option<Instant>,
        endpoint: Option<&LocalEndpoint>,
    ) -> Poll<Result<(), Fault>> {
        loop {
            let now = Instant::now();
            check_end(now, over, endpoint)?;
            if now >= until {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.client.deadline.set(over.map_or(until, |over| until.min(over)).min(now + DRAIN_CHECK));
            if self.client.deadline.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Ends a response whose request's body is at its deadline `over`, or whose endpoint's drain time is over.
fn check_end(now: Instant, over: Option<Instant>, endpoint: Option<&LocalEndpoint>) -> Result<(), Fault> {
    if over.is_some_and(|over| now >= over) {
        return Err(ClientFault::BodyTotalTimeout.into());
    }
    match endpoint.is_some_and(|endpoint| endpoint.is_drained(now)) {
        true => Err(Failure::Drained.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::ContentCoding;
    use sluicegate_model::feature::compression::Levels;
    use sluicegate_testkit::client::LIMIT;
    use sluicegate_testkit::decode::{Decoded, decode};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;
    use crate::feature::compression::TURN;

    /// Both ends of a connection.
    async fn connection() -> std::io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        Ok((near, listener.accept().await?.0))
    }

    #[tokio::test]
    async fn compression_of_a_large_body_yields_to_other_tasks() -> std::io::Result<()> {
        let (near_endpoint, endpoint) = connection().await?;
        let (near_client, mut client) = connection().await?;
        let (mut endpoint_stream, mut wire) =
            (Stream::Plain(near_endpoint.into()), Wire::Http1(Stream::Plain(near_client.into())));
        // The endpoint has sent as much as the buffers of the kernel hold before the download begins.
        let mut length = 0;
        endpoint.writable().await?;
        while let Ok(sent) = endpoint.try_write(&[b'x'; 10_000]) {
            length += sent;
        }
        assert!(length > 3 * TURN, "{length} bytes");
        let framing = ResponseFraming::Length(length as u64);
        let compressor = Compressor::uncounted(ContentCoding::Gzip, &Levels::default(), false);
        let mut download = Download::new(framing, Coding::Stream, Some(Box::new(compressor)), 0);
        let (mut response, mut reply) = (Vec::new(), Buffer::with_size(BUFFER));
        let (mut taken, mut turns) = (0, 0);
        let turns_of_all = poll_fn(|cx| {
            let step = download.poll(cx, &mut response, &mut reply, &mut endpoint_stream, &mut wire);
            let so_far = download.compressor.as_ref().map_or(0, |compressor| compressor.taken());
            let in_turn = so_far - std::mem::replace(&mut taken, so_far);
            assert!(in_turn < (TURN + BUFFER) as u64, "{in_turn} bytes in a turn");
            turns += 1;
            // A poll that ends early to let other tasks run wakes its own task.
            if step == Ok(Step::Done) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(LIMIT, turns_of_all).await?;
        assert!(turns >= length / (TURN + BUFFER), "{turns} turns");
        drop(wire);
        let mut sent = Vec::new();
        client.read_to_end(&mut sent).await?;
        let whole = Decoded { body: vec![b'x'; length], is_whole: true };
        assert!(decode(ContentCoding::Gzip, &sent) == whole, "{} bytes", sent.len());
        Ok(())
    }
}
