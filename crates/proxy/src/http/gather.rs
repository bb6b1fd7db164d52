//! Bodies that an authorization service receives before the endpoint does: the gateway buffers the whole body.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;

use sluicegate_http1::{Known, RequestFraming};
use tokio::time::{Instant, timeout_at};

use super::encode::write_display;
use super::exchange::Exchange;
use super::pace::Pace;
use super::refuse::Refusal;
use crate::deadline::after;
use crate::failure::{ClientFault, Denial, Failure};
use crate::feature::compression::is_grpc;
use crate::worker::Scratch;

/// The limit of memory for the buffered bodies of a worker, in bytes.
const GATHERED_MAX: usize = 64 * 1024 * 1024;

/// The limit of a body whose length the gateway finds out by reading it, in bytes.
const MEASURED_MAX: usize = 1024 * 1024;

/// The memory for a buffered body.
#[derive(Debug)]
pub(super) struct Room {
    taken: Rc<Cell<usize>>,
    size: usize,
}

impl Room {
    pub(super) fn new(taken: &Rc<Cell<usize>>) -> Self {
        Self { taken: taken.clone(), size: 0 }
    }

    /// Takes memory for a body of this size so far. False if the worker has no memory left.
    pub(super) fn grow_to(&mut self, size: usize) -> bool {
        let sum = self.taken.get() - self.size + size;
        let fits = sum <= GATHERED_MAX;
        if fits {
            self.taken.set(sum);
            self.size = size;
        }
        fits
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.set(self.taken.get() - self.size);
    }
}

/// What happens to a body that is too long to be buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathering {
    /// The request is rejected.
    Whole,
    /// The body is forwarded as it arrives.
    IfShort,
}

/// Why a body is not buffered.
pub(super) enum GatherError {
    Client(ClientFault),
    Denied(Denial),
    /// The deadline of the request is over.
    Late,
}

impl From<ClientFault> for GatherError {
    fn from(fault: ClientFault) -> Self {
        Self::Client(fault)
    }
}

impl Exchange<'_> {
    /// Reads a body without a length as a whole, if the route forwards bodies with their length. A worker without memory for the
    /// longest body forwards the body as it arrives.
    pub(super) async fn measure_body(&mut self) -> Result<(), Refusal> {
        let Some(policy) = self.traffic() else { return Ok(()) };
        let most = self.settings().limits.request_body.and_then(|most| usize::try_from(most).ok());
        let is_call = self.head().header(Known::ContentType).is_some_and(is_grpc);
        let Some(most) = most.filter(|most| *most <= MEASURED_MAX) else { return Ok(()) };
        let has_room = self.worker.gathered.get() + most <= GATHERED_MAX;
        if !policy.source().features.endpoint_form.states_length || is_call || !has_room {
            return Ok(());
        }
        self.gather(most).await.map_err(|error| match error {
            GatherError::Client(fault) => fault.into(),
            GatherError::Late => Failure::ResponseTimeout.into(),
            GatherError::Denied(denial) => Refusal::Denied(denial),
        })?;
        if let Some(length) = self.upload.state_length() {
            let Scratch { head, request_lines, .. } = &mut *self.scratch;
            head.framing = RequestFraming::Length(length as u64);
            head.lines
                .iter_mut()
                .filter(|line| line.known == Known::ContentLength)
                .for_each(|line| line.hop_by_hop = true);
            write_display(request_lines, "Content-Length", length);
        }
        Ok(())
    }

    /// Buffers the body of the request, which has at most `most` bytes. With 0, the body stays with the client. The limits
    /// for uploads apply: the minimum rate, the longest pause, and the total time; also the deadline of the request.
    pub(super) async fn gather(&mut self, most: usize) -> Result<(), GatherError> {
        self.gather_as(most, Gathering::Whole).await
    }

    /// Buffers the body of the request, if it has at most `most` bytes.
    pub(super) async fn gather_as(&mut self, most: usize, how: Gathering) -> Result<(), GatherError> {
        let is_optional = how == Gathering::IfShort;
        if most == 0 || self.upload.holds_part() {
            return Ok(());
        }
        let known = match self.scratch.head.framing {
            RequestFraming::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            RequestFraming::None | RequestFraming::Chunked => 0,
        };
        if known > most || self.upload.gathered().is_some_and(|body| body.len() > most) {
            if is_optional {
                return Ok(());
            }
            return Err(ClientFault::BodyTooLarge.into());
        }
        if self.upload.gathered().is_some() || self.upload.is_complete() {
            return Ok(());
        }
        let mut room = Room::new(&self.worker.gathered);
        let timeouts = self.settings().timeouts.clone();
        let limits = self.settings().limits.clone();
        let most_pause = timeouts.request_body;
        let mut pace = Pace::new(limits.request_body_rate, timeouts.request_body_grace, most_pause, 0);
        let total = timeouts.request_body_total;
        let over = (!total.is_zero()).then(|| after(self.record.started, total));
        let mut body = Vec::new();
        loop {
            let now = Instant::now();
            pace.await_client(now, body.len() as u64);
            let pause = after(now, most_pause);
            let ends = [over, self.head_deadline];
            let due =
                [Some(pause), pace.too_slow_at()].into_iter().chain(ends).flatten().min().unwrap_or(pause);
            let head_len = self.scratch.head.len;
            let step = poll_fn(|cx| {
                let (client, input) = (&mut self.client.wire, &mut self.scratch.input);
                let most = if is_optional { usize::MAX } else { most };
                self.upload.poll_gather(cx, (client, input, head_len), &mut body, most)
            });
            match timeout_at(due, step).await {
                Ok(Ok(is_whole)) => {
                    if self.record.route.is_some() && self.upload.exceeds_limit() {
                        return Err(ClientFault::BodyTooLarge.into());
                    }
                    let has_room = room.grow_to(body.capacity());
                    if is_optional && !is_whole && (body.len() > most || !has_room) {
                        self.upload.hold(body);
                        return Ok(());
                    }
                    if !has_room && !is_optional {
                        return Err(GatherError::Denied(Denial::TooManyExternalChecks));
                    }
                    if is_whole {
                        break;
                    }
                }
                Ok(Err(fault)) => return Err(fault.into()),
                Err(_) if self.head_deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Err(GatherError::Late);
                }
                Err(_) if over.is_some_and(|over| Instant::now() >= over) => {
                    return Err(ClientFault::BodyTotalTimeout.into());
                }
                // The gateway itself withholds the window of the connection.
                Err(_) if self.client.wire.is_window_exhausted(&limits) => {
                    pace.skip_blocked_time(Instant::now());
                }
                Err(_) if due < pause => return Err(ClientFault::BodyTooSlow.into()),
                Err(_) => return Err(ClientFault::BodyTimeout.into()),
            }
        }
        self.upload.set_gathered(body);
        self.room = Some(Box::new(room));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_limits_the_memory_for_bodies_that_authorization_services_receive() {
        let taken = Rc::default();
        let most = 1024 * 1024;
        let mut rooms: Vec<_> = (0..=GATHERED_MAX / most).map(|_| Room::new(&taken)).collect();
        let mut last = rooms.pop().unwrap();
        assert!(rooms.iter_mut().all(|room| room.grow_to(1) && room.grow_to(most)));
        assert!(!last.grow_to(1));
        rooms.pop();
        assert!(last.grow_to(most));
        drop((rooms, last));
        assert_eq!(taken.get(), 0);
    }
}
