//! A connection's place, which stays when the connection is opened again.

use rustix::event::epoll::EventData;

use super::super::answer::Reader;
use super::super::connection::{Connection, Pending};
use super::super::http2::{Checks, Session};
use super::super::nanos::Nanos;
use super::super::plan::{self, Plan};
use super::super::stream::Stream;

/// A connection's place.
pub(super) struct Slot {
    pub(super) connection: Connection,
    pub(super) stream: Option<Stream>,
    pub(super) protocol: Protocol,
    /// Whether it is among the openings.
    pub(super) is_to_open: bool,
    /// Distinguishes events of this stream from events of earlier streams.
    pub(super) generation: u32,
}

/// The protocol of the connection, and its requests in flight.
pub(super) enum Protocol {
    Http1(Http1),
    Http2(Box<Session>),
}

/// The state of HTTP/1.1: one request at a time.
#[derive(Default)]
pub(super) struct Http1 {
    pub(super) reader: Reader,
    pub(super) pending: Option<Pending>,
}

impl Slot {
    /// The data that identifies it in events.
    pub(super) fn event_data(&self, at: usize) -> EventData {
        EventData::new_u64(at as u64 | u64::from(self.generation) << 32)
    }
}

impl Protocol {
    pub(super) fn new(plan: &Plan) -> Self {
        match plan.protocol {
            plan::Protocol::Http1 => Self::Http1(Http1::default()),
            plan::Protocol::Http2 { streams, is_grpc } => {
                let checks = Checks { run: plan.run, verify: plan.verify, is_grpc };
                Self::Http2(Box::new(Session::new(checks, streams)))
            }
        }
    }

    /// Resets the state for another connection.
    pub(super) fn reset(&mut self, plan: &Plan) {
        match self {
            // The reset keeps the buffers.
            Self::Http1(http1) => {
                http1.reader.reset();
                http1.pending = None;
            }
            Self::Http2(_) => *self = Self::new(plan),
        }
    }
}

impl Http1 {
    /// The time at which the request in flight was due, if there is one, and whether a part of its response has
    /// arrived.
    pub(super) fn under_way(&self) -> Option<(Nanos, bool)> {
        self.pending.map(|pending| (pending.due, self.reader.has_begun()))
    }
}
