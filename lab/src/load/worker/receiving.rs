//! The input of connections: data, ends and errors.

use rustix::event::epoll::{self, EventFlags};

use super::super::answer::{Answer, Echo};
use super::super::connection::{Pending, Phase};
use super::super::counts::{Failure, Wrong};
use super::super::nanos::Nanos;
use super::super::stream::{Broken, Received};
use super::super::tls::Progress;
use super::opening::{of_connecting, of_handshake};
use super::slot::Protocol;
use super::{EVENTS_OF_STREAMS, Stays, Worker};

/// The number of reads on a connection before other connections take their turn: 1 MiB.
const READS: usize = 16;

impl Worker<'_> {
    pub(super) fn serve(&mut self, data: u64, flags: EventFlags) {
        let (at, generation) = ((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32);
        let slot = &mut self.slots[at];
        let Some(stream) = slot.stream.as_mut().filter(|_| slot.generation == generation) else { return };
        if slot.connection.phase() == Phase::Connecting {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            let stays = match stream.connected() {
                Ok(()) => self.connected(at),
                Err(error) => self.fail(at, of_connecting(error)),
            };
            if stays == Stays::Closed {
                return;
            }
        } else if flags.contains(EventFlags::OUT) && stream.flush().is_err() {
            self.broken(at, Broken::Socket);
            return;
        }
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.contains(EventFlags::IN) || flags.intersects(ends) {
            self.receive(at, flags.intersects(ends));
        }
    }

    /// Reads available input. `to_the_end`: the kernel has reported that the end of the connection is included.
    fn receive(&mut self, at: usize, to_the_end: bool) {
        for _ in 0..READS {
            let slot = &mut self.slots[at];
            let Some(stream) = &mut slot.stream else { return };
            let outcome = stream.receive(&mut self.scratch, to_the_end);
            let was_handshaking = slot.connection.phase() == Phase::Handshaking;
            if was_handshaking
                && matches!(outcome, Ok((_, Some(Progress::Ready))))
                && self.ready(at) == Stays::Closed
            {
                return;
            }
            if !self.scratch.plain.is_empty() && self.take(at) == Stays::Closed {
                return;
            }
            match outcome {
                Ok((Received::More, _)) => {}
                Ok((Received::Drained, _)) => return,
                Ok((Received::Ended, progress)) => return self.ended(at, progress),
                Err(broken) => return self.broken(at, broken),
            }
        }
        // Requests another event, so that other connections take their turn first.
        let slot = &self.slots[at];
        if let Some(stream) = &slot.stream
            && epoll::modify(&self.epoll, stream, slot.event_data(at), EVENTS_OF_STREAMS).is_err()
        {
            self.lose(at, Failure::Exhausted, Failure::Exhausted);
        }
    }

    /// Reads input as part of responses.
    fn take(&mut self, at: usize) -> Stays {
        self.counts.bytes += self.scratch.plain.len() as u64;
        match self.slots[at].protocol {
            Protocol::Http1(_) => self.take_bytes(at),
            Protocol::Http2(_) => self.take_frames(at),
        }
    }

    /// A response is complete.
    pub(super) fn finish(&mut self, at: usize, pending: Pending, answer: Answer, now: Nanos) {
        self.counts.answer(answer.status, pending.due, pending.sent, now);
        let is_good = (200..300).contains(&answer.status);
        match answer.echo {
            Echo::Unknown | Echo::Same => {}
            // A response of the gateway itself has no id; its status is counted.
            Echo::Missing if !is_good => {}
            Echo::Missing => self.counts.wrong(Wrong::MissingId, pending.due),
            Echo::Other => self.counts.wrong(Wrong::OtherId, pending.due),
        }
        if answer.said_length.is_some_and(|said| said != answer.length) {
            self.counts.wrong(Wrong::Length, pending.due);
        }
        if answer.call_failed && is_good {
            self.counts.wrong(Wrong::Call, pending.due);
        }
        self.slots[at].connection.answered();
        self.waiting -= 1;
    }

    /// The server closed the connection.
    fn ended(&mut self, at: usize, progress: Option<Progress>) {
        match self.slots[at].connection.phase() {
            Phase::Down => {}
            Phase::Connecting | Phase::Handshaking => _ = self.fail(at, Failure::HandshakeClosed),
            Phase::Open => {
                self.end_body(at, progress);
                if self.slots[at].connection.under_way() == 0 {
                    self.counts.closed_idle += 1;
                    self.close(at);
                } else {
                    self.lose(at, Failure::Closed, Failure::Truncated);
                }
            }
        }
    }

    /// A read, or a write of remaining data, failed.
    fn broken(&mut self, at: usize, broken: Broken) {
        let connection = &self.slots[at].connection;
        match connection.phase() {
            Phase::Down => {}
            Phase::Connecting | Phase::Handshaking => _ = self.fail(at, of_handshake(broken)),
            Phase::Open if connection.under_way() > 0 => {
                let (untouched, begun) = match broken {
                    Broken::Tls => (Failure::Malformed, Failure::Malformed),
                    Broken::Alert => (Failure::Alert, Failure::Alert),
                    Broken::Socket => (Failure::Reset, Failure::Truncated),
                };
                self.lose(at, untouched, begun);
            }
            // A server that rejects the client's last message of the handshake reports it only now (RFC 8446, 4.4.2.4).
            Phase::Open if broken == Broken::Alert && !connection.is_proven() => {
                self.fail(at, Failure::Handshake);
            }
            Phase::Open => {
                // No request was waiting for a response.
                self.counts.closed_idle += 1;
                self.close(at);
            }
        }
    }

    /// Cancels requests that were sent too long ago.
    pub(super) fn expire(&mut self, at: usize, now: Nanos) {
        match &self.slots[at].protocol {
            // The connection is unusable, since any response on it would be too late.
            Protocol::Http1(http1) => {
                if http1.pending.is_some_and(|pending| now >= pending.sent + self.plan.timeout) {
                    self.lose(at, Failure::AnswerTimeout, Failure::AnswerTimeout);
                }
            }
            Protocol::Http2(_) => self.expire_streams(at, now),
        }
    }
}
