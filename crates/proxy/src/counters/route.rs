//! The counters of routes and consumers.

use sluicegate_model::{ObjectId, UpstreamKey};

use super::{Histogram, Sharded, Tallies, Tally};

/// The labels of a route's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteLabels {
    /// The object that defines the route; `None` for all routes beyond [`MAX_ROUTES`](super::MAX_ROUTES).
    pub id: Option<ObjectId>,
    /// The host pattern.
    pub host: Box<str>,
    /// The path pattern.
    pub path: Box<str>,
    /// The upstream of the route.
    pub upstream: Option<UpstreamKey>,
}

/// The counters of a route.
#[derive(Debug)]
pub struct RouteStats {
    shards: Sharded<RouteShard>,
}

/// A worker's part of [`RouteStats`].
#[derive(Debug, Default)]
pub struct RouteShard {
    /// Responses by the first digit of their status: 1xx (a tunnel) to 5xx.
    pub responses: Tallies<5>,
    /// Requests that ended without a complete response.
    pub aborted: Tally,
    /// The time from the last byte of the request's head to the last byte of the response.
    pub latency: Histogram,
    /// The part of this time from the last attempt to the head of the endpoint's response, in microseconds in total.
    pub endpoint_micros: Tally,
    /// Bytes of responses, heads included.
    pub bytes_out: Tally,
}

impl RouteStats {
    pub(crate) fn new(workers: usize) -> Self {
        Self { shards: Sharded::new(workers) }
    }

    /// The workers' parts.
    #[must_use]
    pub fn shards(&self) -> &Sharded<RouteShard> {
        &self.shards
    }
}

/// The counters of a consumer.
pub type ConsumerStats = Sharded<ConsumerShard>;

/// A worker's part of [`ConsumerStats`].
#[derive(Debug, Default)]
pub struct ConsumerShard {
    /// Responses, by the first digit of their status minus one.
    pub responses: Tallies<5>,
    /// Requests that did not end properly.
    pub aborted: Tally,
    /// The time from the last byte of requests' heads to the last byte of responses, in microseconds in total.
    pub micros: Tally,
    /// The part of this time from the last attempt to the head of the endpoint's response.
    pub endpoint_micros: Tally,
    /// Bytes of responses, heads included.
    pub bytes_out: Tally,
}
