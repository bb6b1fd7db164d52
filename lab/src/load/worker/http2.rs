//! Responses in HTTP/2: many at a time.

use rustix::event::epoll;

use super::super::counts::{Failure, Wrong};
use super::super::nanos::Nanos;
use super::slot::{Protocol, Slot};
use super::{EVENTS_OF_STREAMS, Stays, Worker};

impl Worker<'_> {
    /// Reads input.
    pub(super) fn take_frames(&mut self, at: usize) -> Stays {
        let slot = &mut self.slots[at];
        let Protocol::Http2(session) = &mut slot.protocol else { return Stays::Open };
        let outcome = session.read(&self.scratch.plain, &mut self.outgoing, &mut self.finished);
        let is_over = session.is_over();
        slot.connection.limit(session.at_once());
        let stays = self.settle(at);
        let is_idle = self.slots[at].connection.under_way() == 0;
        match outcome {
            _ if stays == Stays::Closed => stays,
            Ok(()) if is_over && is_idle => {
                self.counts.closed_idle += 1;
                self.close(at)
            }
            // A connection for a single request has no successor.
            Ok(()) if is_over && at < self.dealt && !self.plan.is_new_each => self.retire(at),
            Ok(()) => self.proceed(at),
            Err(_) if is_idle => {
                self.counts.wrong(Wrong::Surplus, self.clock.now());
                self.close(at)
            }
            Err(_) => self.lose(at, Failure::Malformed, Failure::Malformed),
        }
    }

    /// The server takes no more requests on a connection, but responds to the requests in flight. The connection moves
    /// aside, so that another connection takes its place at once, as in browsers.
    fn retire(&mut self, at: usize) -> Stays {
        if self.transmit(at) == Stays::Closed {
            return Stays::Closed;
        }
        let aside = self.spare.pop().unwrap_or(self.slots.len());
        let generation = self.slots.get(aside).map_or(0, |slot| slot.generation.wrapping_add(1));
        let slot = &mut self.slots[at];
        let retired = Slot {
            connection: slot.connection.clone(),
            stream: slot.stream.take(),
            protocol: std::mem::replace(&mut slot.protocol, Protocol::new(self.plan)),
            is_to_open: false,
            generation,
        };
        let again = slot.connection.close(self.clock.now());
        self.open_at(at, again);
        // From now on events refer to the new place. Input that has already arrived causes another event.
        let told = match &retired.stream {
            Some(stream) => epoll::modify(&self.epoll, stream, retired.event_data(aside), EVENTS_OF_STREAMS),
            None => Ok(()),
        };
        if aside == self.slots.len() {
            self.slots.push(retired);
        } else {
            self.slots[aside] = retired;
        }
        if told.is_err() {
            self.lose(aside, Failure::Exhausted, Failure::Exhausted);
        }
        Stays::Closed
    }

    /// Resets streams whose requests were sent too long ago. The other streams continue.
    pub(super) fn expire_streams(&mut self, at: usize, now: Nanos) {
        let Protocol::Http2(session) = &mut self.slots[at].protocol else { return };
        session.expire(now - self.plan.timeout, &mut self.outgoing, &mut self.finished);
        if !self.finished.is_empty() && self.settle(at) == Stays::Open {
            self.proceed(at);
        }
    }

    /// Counts the results of requests. A connection for a single request then ends.
    fn settle(&mut self, at: usize) -> Stays {
        if self.finished.is_empty() {
            return Stays::Open;
        }
        let now = self.clock.now();
        let mut finished = std::mem::take(&mut self.finished);
        for (pending, outcome) in finished.drain(..) {
            match outcome {
                Ok(answer) => self.finish(at, pending, answer, now),
                Err(failure) => {
                    self.counts.fail(failure, pending.due);
                    self.slots[at].connection.give_up();
                    self.waiting -= 1;
                }
            }
        }
        self.finished = finished;
        if self.plan.is_new_each { self.close(at) } else { Stays::Open }
    }
}
