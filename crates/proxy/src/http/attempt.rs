//! One try at one endpoint, up to the head of its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_http1::{HeadLimits, HeadScan, ResponseError, Version};
use sluicegate_model::Settings;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::download::DRAIN_CHECK;
use super::encode::{ResponsePlan, write_response};
use super::exchange::Exchange;
use super::upload::{Progress, Sides, Upload, UploadError};
use crate::deadline::{Deadline, after};
use crate::failure::{ClientFault, Failure, Fault};
use crate::upstream::{Connection, LocalUpstream};
use crate::worker::{BUFFER, Buffer};

/// What the attempt waits for, which decides what its end by time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    ClientBody,
    EndpointWrite,
    /// The endpoint's kernel has been given the request and may not have acknowledged it.
    Acknowledgement,
    Response,
}

/// The interim responses that endpoints may send before the final one, in bytes.
const MAX_INTERIM: usize = 64 * 1024;

impl Exchange<'_> {
    /// Sends the request and reads the head of the response, which is in the `reply` buffer afterwards.
    /// `repeatable`: if the endpoint seems dead, another one can be asked.
    pub(super) async fn attempt(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        connection: &mut Connection,
        repeatable: bool,
    ) -> Result<(), Fault> {
        self.scratch.reply.clear();
        self.scratch.reply_scan = HeadScan::default();
        let reused = connection.is_reused();
        let mut clock = Clock::new(repeatable);
        let mut broken = false;
        poll_fn(|cx| {
            let endpoint = &mut connection.socket.stream;
            if !broken && clock.sent_at.is_none() {
                match self.poll_upload(cx, endpoint) {
                    Ok(progress) => {
                        clock.advance(
                            progress,
                            &self.upload,
                            &mut self.client.deadline,
                            &self.snapshot.settings,
                        );
                    }
                    Err(UploadError::Client(fault)) => return Poll::Ready(Err(fault.into())),
                    // It may have answered before it closed.
                    Err(UploadError::Endpoint) => broken = true,
                }
            }
            if let Poll::Ready(result) = self.poll_reply_head(cx, endpoint, reused) {
                return Poll::Ready(result.map_err(Fault::from));
            }
            if self.upload.is_complete() {
                self.watch_client(cx)?;
            }
            self.poll_deadline(cx, &mut clock, upstream, connection)
        })
        .await
    }

    pub(super) fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &mut TcpStream,
    ) -> Result<Progress, UploadError> {
        let mut sides = Sides {
            client: &mut self.client.stream,
            endpoint,
            request: &mut self.scratch.request,
            input: &mut self.scratch.input,
            head_len: self.scratch.head.len,
        };
        self.upload.poll(cx, &mut sides)
    }

    /// Reads until the head of a final response is there.
    fn poll_reply_head(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &mut TcpStream,
        reused: bool,
    ) -> Poll<Result<(), Failure>> {
        let limits = &self.snapshot.settings.limits;
        let limits = HeadLimits { bytes: limits.response_head, headers: limits.headers };
        loop {
            let reply = &mut self.scratch.reply;
            match reply.poll_fill(cx, endpoint) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => {
                    return Poll::Ready(Err(match (reply.is_empty(), reused) {
                        (false, _) => Failure::Truncated,
                        (true, true) => Failure::Stale,
                        (true, false) => Failure::Reset,
                    }));
                }
                Poll::Pending => return Poll::Pending,
            }
            while !self.scratch.reply.is_empty() && self.parse_reply_head(&limits)? {
                if self.scratch.reply_head.status >= 200 || self.scratch.reply_head.status == 101 {
                    return Poll::Ready(Ok(()));
                }
                self.pass_interim(cx)?;
            }
            self.scratch.reply.reserve(1, limits.bytes + BUFFER);
        }
    }

    fn parse_reply_head(&mut self, limits: &HeadLimits) -> Result<bool, Failure> {
        let scratch = &mut *self.scratch;
        scratch
            .reply_head
            .parse(scratch.reply.filled(), &mut scratch.reply_scan, scratch.head.method, limits)
            .map_err(Failure::BadResponse)
    }

    /// Passes on a 1xx other than 100, which the client got from us if it expected it (RFC 9110, 15.2), and
    /// makes ready for the next head.
    fn pass_interim(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        let scratch = &mut *self.scratch;
        let head = &scratch.reply_head;
        self.interim_received += head.len;
        if self.interim_received > MAX_INTERIM {
            return Err(Failure::BadResponse(ResponseError::HeadTooLarge));
        }
        if head.status != 100 && scratch.head.version == Version::Http11 {
            let plan = ResponsePlan { version: Version::Http11, close: false, chunked: false };
            write_response(&mut scratch.response, scratch.reply.filled(), head, &self.worker.date(), &plan);
            // At once if the client takes it, else with the final response.
            let rest = &scratch.response[self.interim_written..];
            if let Poll::Ready(Ok(written)) = Pin::new(&mut self.client.stream).poll_write(cx, rest) {
                self.interim_written += written;
            }
        }
        scratch.reply.consume(head.len);
        scratch.reply_scan = HeadScan::default();
        Ok(())
    }

    /// Notices that the client closed the connection, while nothing else is expected from it but further
    /// requests, which stay in the buffer.
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), ClientFault> {
        let input: &mut Buffer = &mut self.scratch.input;
        while !input.is_full() {
            match input.poll_fill(cx, &mut self.client.stream) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Err(ClientFault::Closed),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut Clock,
        upstream: &Rc<LocalUpstream>,
        connection: &Connection,
    ) -> Poll<Result<(), Fault>> {
        while self.client.deadline.poll(cx).is_ready() {
            match clock.waiting {
                Waiting::ClientBody => return Poll::Ready(Err(ClientFault::BodyTimeout.into())),
                Waiting::EndpointWrite => return Poll::Ready(Err(Failure::WriteTimeout.into())),
                Waiting::Response => {
                    let now = Instant::now();
                    let due = clock.response_due(&self.snapshot.settings);
                    if now >= due {
                        return Poll::Ready(Err(Failure::ResponseTimeout.into()));
                    }
                    if connection.endpoint().drained_at().is_some_and(|drained| now >= drained) {
                        return Poll::Ready(Err(Failure::Drained.into()));
                    }
                    self.client.deadline.set(due.min(now + DRAIN_CHECK));
                }
                Waiting::Acknowledgement => {
                    let settings = &self.snapshot.settings;
                    let left = sluicegate_sys::unacknowledged_bytes(&connection.socket.stream).unwrap_or(0);
                    let before = clock.unacknowledged.replace(left).unwrap_or(self.upload.passed());
                    let repeatable = clock.repeatable && self.upload.is_replayable();
                    let alive = left == 0 || !self.scratch.reply.is_empty() || left < before && !repeatable;
                    if alive {
                        clock.waiting = Waiting::Response;
                        self.client.deadline.set_after(DRAIN_CHECK.min(settings.timeouts.response_head));
                        continue;
                    }
                    // An endpoint that takes the request piece by piece is slow, not dead.
                    if left == before {
                        if repeatable || clock.elapsed() >= settings.timeouts.connect {
                            return Poll::Ready(Err(Failure::Unacknowledged.into()));
                        }
                        // This one can only wait. Others need not come.
                        upstream.suspect(self.worker, connection.endpoint());
                    }
                    self.client.deadline.set_after(settings.resilience.unacknowledged);
                }
            }
        }
        Poll::Pending
    }
}

/// The time limits of an attempt.
struct Clock {
    waiting: Waiting,
    position: (usize, u64),
    /// When the request was sent as a whole.
    sent_at: Option<Instant>,
    /// How many bytes were not acknowledged at the last look.
    unacknowledged: Option<usize>,
    repeatable: bool,
}

impl Clock {
    fn new(repeatable: bool) -> Self {
        Self {
            waiting: Waiting::Response,
            position: (usize::MAX, 0),
            sent_at: None,
            unacknowledged: None,
            repeatable,
        }
    }

    /// The upload came this far: sets the limit for what comes next.
    fn advance(&mut self, progress: Progress, upload: &Upload, deadline: &mut Deadline, settings: &Settings) {
        let timeouts = &settings.timeouts;
        let (waiting, limit) = match progress {
            Progress::AwaitsClient => (Waiting::ClientBody, timeouts.request_body),
            Progress::AwaitsEndpoint => (Waiting::EndpointWrite, timeouts.upstream_idle),
            Progress::Sent => {
                self.sent_at = Some(Instant::now());
                match settings.resilience.unacknowledged {
                    Duration::ZERO => (Waiting::Response, timeouts.response_head.min(DRAIN_CHECK)),
                    soon => (Waiting::Acknowledgement, soon.min(timeouts.response_head)),
                }
            }
        };
        if (waiting, upload.position()) != (self.waiting, self.position) {
            (self.waiting, self.position) = (waiting, upload.position());
            deadline.set_after(limit);
        }
    }

    /// Until when the head of the response may come.
    fn response_due(&mut self, settings: &Settings) -> Instant {
        after(self.sent_at(), settings.timeouts.response_head)
    }

    /// How long ago the request was sent.
    fn elapsed(&mut self) -> Duration {
        self.sent_at().elapsed()
    }

    /// When the request was sent; now, if the endpoint answers before it is.
    fn sent_at(&mut self) -> Instant {
        *self.sent_at.get_or_insert_with(Instant::now)
    }
}
