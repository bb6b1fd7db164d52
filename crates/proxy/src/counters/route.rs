//! The counters of routes and consumers.

use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_http1::Method;
use sluicegate_model::{ObjectId, UpstreamKey};

use super::series::{SeriesBudget, SeriesList, totals};
use super::{Histogram, HistogramTotal, Series, SeriesKey, SeriesTotal, Sharded, Tallies, Tally};

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
    /// The limit of all series, if the route counts by series.
    series: Option<Arc<SeriesBudget>>,
}

/// A worker's part of [`RouteStats`]: the requests that no series counts.
#[derive(Debug, Default)]
pub struct RouteShard {
    pub(super) series: SeriesList,
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

/// The numbers of a route, summed over all workers and series.
#[derive(Clone, Debug, Default)]
pub struct RouteTotals {
    /// See [`RouteShard::responses`].
    pub responses: [u64; 5],
    /// See [`RouteShard::aborted`].
    pub aborted: u64,
    /// See [`RouteShard::latency`].
    pub latency: HistogramTotal,
    /// See [`RouteShard::endpoint_micros`].
    pub endpoint_micros: u64,
    /// See [`RouteShard::bytes_out`].
    pub bytes_out: u64,
}

impl RouteStats {
    /// Zeros. With a limit, the route counts by series.
    pub(super) fn new(workers: usize, series: Option<Arc<SeriesBudget>>) -> Self {
        Self { shards: Sharded::new(workers), series }
    }

    /// The workers' parts.
    #[must_use]
    pub fn shards(&self) -> &Sharded<RouteShard> {
        &self.shards
    }

    /// Whether the route counts by series.
    #[must_use]
    pub fn has_series(&self) -> bool {
        self.series.is_some()
    }

    /// The series of requests in the worker's part of the counters; `None` if the part itself counts the requests.
    pub(crate) fn series_of<'s>(
        &self,
        shard: &'s RouteShard,
        method: Method,
        status: u16,
        canary: Option<&UpstreamKey>,
    ) -> Option<&'s Series> {
        shard.series.of(method, status, canary, self.series.as_ref()?)
    }

    /// The numbers of each series.
    #[must_use]
    pub fn series(&self) -> BTreeMap<SeriesKey, SeriesTotal> {
        totals(&self.shards)
    }

    /// The numbers of all requests.
    #[must_use]
    pub fn totals(&self) -> RouteTotals {
        let shards = &self.shards;
        let mut totals = RouteTotals {
            responses: array::from_fn(|class| shards.sum(|shard| &shard.responses[class])),
            aborted: shards.sum(|shard| &shard.aborted),
            latency: HistogramTotal::of(shards, |shard| &shard.latency),
            endpoint_micros: shards.sum(|shard| &shard.endpoint_micros),
            bytes_out: shards.sum(|shard| &shard.bytes_out),
        };
        for (key, series) in shards.iter().flat_map(|shard| shard.series.iter()) {
            totals.add(&key, series);
        }
        totals
    }
}

impl RouteTotals {
    fn add(&mut self, key: &SeriesKey, series: &Series) {
        let of_class = key.status.class().and_then(|class| self.responses.get_mut(usize::from(class) - 1));
        match of_class {
            Some(responses) => *responses += series.responses.get(),
            None => self.aborted += series.responses.get(),
        }
        self.aborted += series.aborted.get();
        self.latency.add(&series.latency);
        self.endpoint_micros += series.head.sum().saturating_sub(series.connect.sum());
        self.bytes_out += series.response_size.sum();
    }
}

/// The series of a removed route make room for others.
impl Drop for RouteStats {
    fn drop(&mut self) {
        if let Some(budget) = &self.series {
            budget.give_back(self.shards.iter().map(|shard| shard.series.iter().count()).sum());
        }
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
