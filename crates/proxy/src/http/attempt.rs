//! One attempt at one endpoint, up to the head of its response.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use sluicegate_http1::{HeadLimits, HeadScan, ResponseError, Version};
use tokio::io::AsyncWrite;
use tokio::time::{Instant, sleep_until};

use super::encode::{ResponsePlan, stream_response, write_response};
use super::exchange::Exchange;
use super::pace::Paced;
use super::upload::{Progress, Sides, UploadError};
use crate::buffer::BUFFER;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::relay::DRAIN_CHECK;
use crate::stream::Stream;
use crate::stream::{NoWebSocket, Refused};
use crate::upstream::{Connection, LocalUpstream};

/// The event that the attempt waits for, which decides the error of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    ClientBody,
    EndpointWrite,
    Response,
}

/// The size limit of the interim responses of an endpoint before the final response, in bytes.
const MAX_INTERIM: usize = 64 * 1024;

impl Exchange<'_> {
    /// Sends the request and reads the head of the response, which is in the `reply` buffer afterwards. `repeatable`: if
    /// the endpoint seems dead, the request may go to another endpoint.
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
            if !broken && !self.upload.is_sent() {
                match self.poll_upload(cx, endpoint) {
                    Ok(progress) => self.set_limit(&mut clock, progress, connection)?,
                    Err(UploadError::Client(fault)) => return Poll::Ready(Err(fault.into())),
                    // The endpoint may have responded before it closed.
                    Err(UploadError::Endpoint) => {
                        broken = true;
                        self.set_limit(&mut clock, Progress::Sent, connection)?;
                    }
                }
            }
            let endpoint = &mut connection.socket.stream;
            if let Poll::Ready(result) = self.poll_reply_head(cx, endpoint, reused) {
                return Poll::Ready(result.map_err(Fault::from));
            }
            if self.upload.is_complete() {
                self.watch_client(cx)?;
            }
            self.poll_limit(cx, &mut clock, upstream, connection)
        })
        .await
    }

    pub(super) fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &mut Stream,
    ) -> Result<Progress, UploadError> {
        let mut sides = Sides {
            client: &mut self.client.wire,
            endpoint,
            request: &mut self.scratch.request,
            input: &mut self.scratch.input,
            head_len: self.scratch.head.len,
        };
        self.upload.poll(cx, &mut sides)
    }

    /// Reads until the head of a final response is complete.
    fn poll_reply_head(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &mut Stream,
        reused: bool,
    ) -> Poll<Result<(), Failure>> {
        let limits = &self.settings().limits;
        let limits = HeadLimits { bytes: limits.response_head, headers: limits.headers };
        loop {
            let reply = &mut self.scratch.reply;
            match reply.poll_fill(cx, endpoint) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Err(error)) if reply.is_empty() && is::<Refused>(&error) => {
                    return Poll::Ready(Err(Failure::Refused));
                }
                Poll::Ready(Err(error)) if is::<NoWebSocket>(&error) => {
                    return Poll::Ready(Err(Failure::NoWebSocket));
                }
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

    /// Passes on a 1xx other than 100, and prepares for the next head. The gateway itself sends 100 to a client that
    /// expects it (RFC 9110, 15.2).
    fn pass_interim(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        let scratch = &mut *self.scratch;
        let head = &scratch.reply_head;
        self.interim_received += head.len;
        if self.interim_received > MAX_INTERIM {
            return Err(Failure::BadResponse(ResponseError::HeadTooLarge));
        }
        let plan = ResponsePlan {
            version: Version::Http11,
            close: false,
            hsts: None,
            alt_svc: None,
            chunked: false,
            lines: &[],
            policy_lines: &[],
        };
        if head.status > 100 && self.client.has_streams() {
            let response = stream_response(scratch.reply.filled(), head, || self.worker.date(), &plan);
            self.client.wire.send_interim_response(response);
        } else if head.status != 100 && scratch.head.version == Version::Http11 {
            write_response(&mut scratch.response, scratch.reply.filled(), head, || self.worker.date(), &plan);
            // The rest leaves at once if the client takes it, else with the final response.
            let rest = &scratch.response[self.interim_written..];
            if let Poll::Ready(Ok(written)) = Pin::new(&mut self.client.wire).poll_write(cx, rest) {
                self.interim_written += written;
            }
        }
        scratch.reply.consume(head.len);
        scratch.reply_scan = HeadScan::default();
        Ok(())
    }

    /// Notices that the client closed the connection while the gateway expects only further requests, which stay in the
    /// buffer.
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>) -> Result<(), ClientFault> {
        self.client.wire.poll_gone(cx, &mut self.scratch.input)
    }

    /// The result of a future, if the client waits that long. `None` if there is no result by `until`.
    pub(super) async fn awaited<T>(
        &mut self,
        something: impl Future<Output = T>,
        until: Option<Instant>,
    ) -> Result<Option<T>, ClientFault> {
        let mut something = pin!(something);
        // Boxed, so that requests without a limit do not carry its memory.
        let mut over = until.map(|until| Box::pin(sleep_until(until)));
        poll_fn(|cx| {
            if let Poll::Ready(output) = something.as_mut().poll(cx) {
                return Poll::Ready(Ok(Some(output)));
            }
            if over.as_mut().is_some_and(|over| over.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(None));
            }
            self.watch_client(cx)?;
            Poll::Pending
        })
        .await
    }

    /// Sets the limit for the next step of the upload after `progress`.
    fn set_limit(
        &mut self,
        clock: &mut Clock,
        progress: Progress,
        connection: &Connection,
    ) -> Result<(), Failure> {
        let settings = self.settings();
        let (waiting, limit) = match progress {
            Progress::AwaitsClient => (Waiting::ClientBody, settings.timeouts.request_body),
            Progress::AwaitsEndpoint => (Waiting::EndpointWrite, settings.timeouts.upstream_idle),
            Progress::Sent => (Waiting::Response, settings.timeouts.response_head),
        };
        let position = (waiting, self.upload.position());
        if clock.position != Some(position) {
            // An attempt begins with its first step.
            let now = if clock.position.is_none() { self.record.asked } else { Instant::now() };
            if connection.endpoint().is_drained(now) {
                return Err(Failure::Drained);
            }
            match waiting {
                Waiting::Response => clock.paced = None,
                _ => {
                    let awaits_client = waiting == Waiting::ClientBody;
                    self.record_upload_wait(&mut clock.paced, awaits_client, now, &connection.socket.stream);
                }
            }
            let unwatched = waiting == Waiting::ClientBody || settings.resilience.unacknowledged.is_zero();
            clock.position = Some(position);
            // The attempt does not pay for a slow client.
            let attempt_deadline = self.attempt_deadline().filter(|_| waiting != Waiting::ClientBody);
            clock.due =
                [self.head_deadline, attempt_deadline].into_iter().flatten().chain([after(now, limit)]).min();
            clock.silent = (!unwatched).then(|| Silence { since: now, left: self.upload.passed() });
            self.schedule_next_check(clock, now, connection);
        }
        Ok(())
    }

    /// Ends an attempt that has stalled for too long, or whose endpoint was removed.
    fn poll_limit(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut Clock,
        upstream: &Rc<LocalUpstream>,
        connection: &Connection,
    ) -> Poll<Result<(), Fault>> {
        if clock.paced.as_ref().is_some_and(Paced::is_ended) {
            return Poll::Ready(Err(ClientFault::UploadStalled.into()));
        }
        while self.client.deadline.poll(cx).is_ready() {
            let now = Instant::now();
            if let Some(paced) = &mut clock.paced {
                self.enforce_upload_rate(cx, paced, now, connection.endpoint())?;
            }
            if clock.due.is_some_and(|due| now >= due) {
                return Poll::Ready(Err(match clock.position {
                    Some((Waiting::ClientBody, _)) => ClientFault::BodyTimeout.into(),
                    Some((Waiting::EndpointWrite, _)) => Failure::WriteTimeout.into(),
                    Some((Waiting::Response, _)) | None => Failure::ResponseTimeout.into(),
                }));
            }
            if connection.endpoint().is_drained(now) {
                return Poll::Ready(Err(Failure::Drained.into()));
            }
            if clock.silent.is_some() {
                self.check_acknowledgements(clock, now, upstream, connection)?;
            }
            self.schedule_next_check(clock, now, connection);
        }
        Poll::Pending
    }

    /// Asks the kernel whether the endpoint's kernel acknowledges the sent bytes.
    fn check_acknowledgements(
        &self,
        clock: &mut Clock,
        now: Instant,
        upstream: &Rc<LocalUpstream>,
        connection: &Connection,
    ) -> Result<(), Failure> {
        let Some(silent) = &mut clock.silent else { return Ok(()) };
        let stream = &connection.socket.stream;
        let Some(socket) = stream.tcp() else {
            // The bytes of this request cannot be distinguished from other requests on the shared connection.
            if stream.is_unacknowledged_for(now - silent.since) {
                return self.give_up_on(silent.since, clock.repeatable, now, upstream, connection);
            }
            clock.silent = None;
            return Ok(());
        };
        let left = crate::net::unacknowledged_bytes(socket).unwrap_or(0);
        let unsent = crate::net::unsent_bytes(socket).unwrap_or(0);
        if left <= unsent || !self.scratch.reply.is_empty() {
            // All sent bytes have arrived. The rest waits until the endpoint has room.
            clock.silent = None;
        } else if left < silent.left {
            // An endpoint that takes the request piece by piece is slow, not dead.
            *silent = Silence { since: now, left };
        } else {
            return self.give_up_on(silent.since, clock.repeatable, now, upstream, connection);
        }
        Ok(())
    }

    /// The endpoint seems dead: the request goes to another endpoint if that is safe.
    fn give_up_on(
        &self,
        since: Instant,
        repeatable: bool,
        now: Instant,
        upstream: &Rc<LocalUpstream>,
        connection: &Connection,
    ) -> Result<(), Failure> {
        let repeatable = repeatable && self.upload.is_replayable();
        if repeatable || now - since >= self.settings().timeouts.connect {
            return Err(Failure::Unacknowledged);
        }
        // A retry is not safe, so this request waits. Other requests avoid the endpoint.
        upstream.eject(connection.endpoint());
        Ok(())
    }

    /// Sets the next check of the attempt.
    fn schedule_next_check(&mut self, clock: &Clock, now: Instant, connection: &Connection) {
        let settings = self.settings();
        let pause = match clock.silent {
            None => DRAIN_CHECK,
            Some(_) => connection.endpoint().acknowledges_within(settings.resilience.unacknowledged),
        };
        let next = after(now, pause);
        let paced = clock.paced.as_ref().and_then(Paced::next);
        self.client.deadline.set([clock.due, paced].into_iter().flatten().fold(next, Instant::min));
    }
}

/// Whether the source of an error has this type.
fn is<E: Error + 'static>(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<E>())
}

/// The time limits of an attempt.
struct Clock {
    /// If the endpoint seems dead, the request may go to another endpoint.
    repeatable: bool,
    /// The event that the attempt waits for, and the position of the upload when the wait began.
    position: Option<(Waiting, (usize, u64))>,
    /// The time at which the wait ends.
    due: Option<Instant>,
    /// The endpoint's kernel has not acknowledged all sent bytes yet.
    silent: Option<Silence>,
    /// The pace of the body, once the gateway had to wait for the body.
    paced: Option<Paced>,
}

/// The number of unacknowledged bytes at the last check that saw a change.
struct Silence {
    since: Instant,
    left: usize,
}

impl Clock {
    fn new(repeatable: bool) -> Self {
        Self { repeatable, position: None, due: None, silent: None, paced: None }
    }
}
