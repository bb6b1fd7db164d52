//! What happened in a run.

use std::net::SocketAddr;

use sluicegate_model::Conditions;

use super::schedule::{ROUTES, UPSTREAMS};
use crate::net::simulated::Seen;

/// Times are in milliseconds.
#[derive(Default)]
pub(super) struct History {
    /// By the ID of the request.
    pub(super) results: Vec<Vec<Attempted>>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) publications: [Vec<Publication>; UPSTREAMS],
    pub(super) moves: [Vec<Move>; ROUTES],
    /// Whether connects to a pod succeed, by pod.
    pub(super) reach: Vec<Vec<(u64, bool)>>,
    /// When the network stopped or began to deliver to a pod again, by pod.
    pub(super) silences: Vec<Vec<(u64, bool)>>,
    pub(super) seen: Vec<Seen>,
    pub(super) departures: Vec<Departure>,
    pub(super) violations: Vec<String>,
    /// The lines of the trace with their times, if the trace is wanted.
    pub(super) log: Option<Vec<(u128, String)>>,
}

/// What a client did with a request, and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Attempted {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) result: Received,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A whole response.
    Response {
        status: u16,
        id: Option<usize>,
        pod: Option<usize>,
        is_intact: bool,
        closes: bool,
    },
    /// The connection ended within the response.
    Cut,
    /// The connection ended before the response.
    Nothing,
    Refused,
    /// The client closed the connection first.
    Aborted,
    /// There is no end to it.
    Stuck,
}

/// A request at a pod.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) id: usize,
    pub(super) pod: usize,
    pub(super) connection: u64,
    pub(super) at: u64,
    pub(super) outcome: Outcome,
    /// When the outcome was certain.
    pub(super) settled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The pod died, or the gateway went away, before the pod did something.
    Received,
    Responded(u16),
    Never,
    /// Closed before a response.
    Closed,
    /// Closed within a response.
    Cut,
}

/// The endpoints of an upstream, as published.
#[derive(Clone, Debug)]
pub(super) struct Publication {
    pub(super) at: u64,
    /// When every worker served it.
    pub(super) applied: Option<u64>,
    /// `None`: no route names the upstream.
    pub(super) endpoints: Option<Vec<(SocketAddr, Conditions)>>,
}

/// The upstream of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) at: u64,
    pub(super) applied: Option<u64>,
    pub(super) upstream: usize,
}

/// A gateway's process that leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// When its responses begin to announce the end of their connections.
    pub(super) announced: u64,
    /// When it closes its listeners.
    pub(super) at: u64,
    pub(super) has_successor: bool,
}
