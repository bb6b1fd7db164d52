//! Opening and closing of connections.

use std::cmp::Reverse;

use rustix::event::epoll;
use rustix::io::Errno;

use super::super::counts::Failure;
use super::super::nanos::Nanos;
use super::super::stream::{Broken, Stream};
use super::slot::Protocol;
use super::{EVENTS_OF_STREAMS, Stays, Worker};

impl Worker<'_> {
    /// Schedules the opening of a connection.
    pub(super) fn open_at(&mut self, at: usize, when: Nanos) {
        let slot = &mut self.slots[at];
        if !slot.is_to_open {
            slot.is_to_open = true;
            self.openings.push(Reverse((when, at)));
        }
    }

    pub(super) fn open_connections(&mut self, now: Nanos) {
        while let Some(Reverse((when, at))) = self.openings.peek().copied()
            && when <= now
        {
            self.openings.pop();
            self.slots[at].is_to_open = false;
            if now < self.schedule.last_send() {
                self.open(at, now);
            }
        }
    }

    fn open(&mut self, at: usize, now: Nanos) {
        let slot = &mut self.slots[at];
        slot.connection.open(now, now + self.plan.timeout);
        slot.protocol.reset(self.plan);
        slot.generation = slot.generation.wrapping_add(1);
        let (stream, connected) = match Stream::connect(&self.plan.address) {
            Ok(connecting) => connecting,
            Err(error) => {
                self.fail(at, of_connecting(error));
                return;
            }
        };
        if epoll::add(&self.epoll, &stream, slot.event_data(at), EVENTS_OF_STREAMS).is_err() {
            self.fail(at, Failure::Exhausted);
            return;
        }
        slot.stream = Some(stream);
        if connected {
            self.connected(at);
        }
    }

    pub(super) fn connected(&mut self, at: usize) -> Stays {
        let slot = &mut self.slots[at];
        let Some(stream) = &mut slot.stream else { return Stays::Closed };
        let Some(options) = &self.plan.tls else {
            return self.ready(at);
        };
        slot.connection.begin_handshake();
        match stream.begin_tls(options, &mut self.scratch) {
            Ok(()) => Stays::Open,
            Err(broken) => self.fail(at, of_handshake(broken)),
        }
    }

    pub(super) fn ready(&mut self, at: usize) -> Stays {
        let slot = &mut self.slots[at];
        match &mut slot.protocol {
            Protocol::Http1(_) => slot.connection.ready(1),
            Protocol::Http2(session) => {
                if !slot.stream.as_ref().is_some_and(Stream::is_http2) {
                    return self.fail(at, Failure::Handshake);
                }
                session.begin(&mut self.outgoing);
                slot.connection.ready(session.at_once());
            }
        }
        self.counts.connected += 1;
        self.proceed(at)
    }

    /// The opening failed.
    pub(super) fn fail(&mut self, at: usize, failure: Failure) -> Stays {
        let now = self.clock.now();
        self.counts.fail(failure, now);
        self.leave(at, now)
    }

    /// The connection is lost, and with it each request in flight: `begun` is the failure of requests with a part of
    /// their response, `untouched` of the others.
    pub(super) fn lose(&mut self, at: usize, untouched: Failure, begun: Failure) -> Stays {
        let mut count = |(due, has_begun)| {
            self.counts.fail(if has_begun { begun } else { untouched }, due);
        };
        match &self.slots[at].protocol {
            Protocol::Http1(http1) => http1.under_way().into_iter().for_each(&mut count),
            Protocol::Http2(session) => session.under_way().for_each(&mut count),
        }
        self.close(at)
    }

    pub(super) fn close(&mut self, at: usize) -> Stays {
        self.leave(at, self.clock.now())
    }

    /// Drops the stream, which removes it from the epoll set. Another connection opens in its place; if each request
    /// has its own connection, it opens when the next request is due.
    fn leave(&mut self, at: usize, now: Nanos) -> Stays {
        let slot = &mut self.slots[at];
        slot.stream = None;
        self.outgoing.clear();
        self.waiting -= slot.connection.under_way();
        let again = slot.connection.close(now);
        if at >= self.dealt {
            self.spare.push(at);
        } else if !self.plan.is_new_each || slot.connection.has_due(now, &self.schedule) {
            self.open_at(at, again);
        }
        Stays::Closed
    }
}

pub(super) fn of_connecting(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED => Failure::Refused,
        Errno::TIMEDOUT => Failure::ConnectTimeout,
        Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
            Failure::Exhausted
        }
        _ => Failure::Unreachable,
    }
}

pub(super) fn of_handshake(broken: Broken) -> Failure {
    match broken {
        Broken::Tls | Broken::Alert => Failure::Handshake,
        Broken::Socket => Failure::HandshakeClosed,
    }
}
