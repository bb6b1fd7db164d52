//! The counters of a route by method, status and canary, as ingress-nginx counts requests.
//!
//! A worker finds the series of a request in a short list, and adds a series to its list at the first such request. The list
//! only grows, so readers need no lock. [`MAX_SERIES_PER_ROUTE`] and [`MAX_SERIES`] bound the memory: the route's own counters
//! count the other requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluicegate_http1::Method;
use sluicegate_model::UpstreamKey;

use super::{Histogram, HistogramTotal, RouteShard, Sharded, Tally};

/// The maximum number of series of one route in one worker.
pub const MAX_SERIES_PER_ROUTE: usize = 64;

/// The maximum number of series of all routes and workers. A series has about 900 bytes.
pub const MAX_SERIES: usize = 50_000;

/// The requests of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The method; `OTHER` for a method that the gateway does not know, and empty beyond [`MAX_SERIES_PER_ROUTE`].
    pub method: &'static str,
    /// The status that the client received.
    pub status: SeriesStatus,
    /// The canary that received the requests.
    pub canary: Option<UpstreamKey>,
}

/// The status of the requests of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesStatus {
    /// This status.
    Code(u16),
    /// Any status with this first digit, beyond [`MAX_SERIES_PER_ROUTE`].
    Class(u8),
}

impl SeriesStatus {
    /// The first digit; `None` if that is zero.
    #[must_use]
    pub fn class(self) -> Option<u8> {
        let class = match self {
            Self::Code(code) => u8::try_from(code / 100).unwrap_or(0),
            Self::Class(class) => class,
        };
        (class > 0).then_some(class)
    }
}

/// The code, or the class as in `5xx`.
impl fmt::Display for SeriesStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

/// A worker's counters of a series.
#[derive(Debug, Default)]
pub struct Series {
    /// Requests with a complete response.
    pub responses: Tally,
    /// Requests that ended without a complete response.
    pub aborted: Tally,
    /// The time from the last byte of the request's head to the last byte of the response.
    pub latency: Histogram,
    /// The part of this time in which the gateway connected to the endpoint; zero for a connection of the pool.
    pub connect: Histogram,
    /// The part of this time from the start of the last connect to the head of the endpoint's response.
    pub head: Histogram,
    /// The part of this time from the start of the last connect to the last byte of the response.
    pub response: Histogram,
    /// The sizes of requests, heads included.
    pub request_size: Histogram,
    /// The sizes of responses, heads included.
    pub response_size: Histogram,
}

/// The times of a request at its endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointTimes {
    pub(crate) connect: Duration,
    pub(crate) head: Duration,
    pub(crate) response: Duration,
}

/// The series of one worker for one route.
#[derive(Debug, Default)]
pub(super) struct SeriesList(OnceLock<Box<Entry>>);

#[derive(Debug)]
struct Entry {
    method: Method,
    status: u16,
    canary: Option<UpstreamKey>,
    series: Series,
    next: SeriesList,
}

/// The number of series that may still be added.
#[derive(Debug)]
pub(super) struct SeriesBudget(AtomicUsize);

impl Default for SeriesBudget {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_SERIES))
    }
}

impl SeriesBudget {
    fn take(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    pub(super) fn give_back(&self, count: usize) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

impl SeriesList {
    /// The series of requests; `None` at one of the limits.
    pub(super) fn of(
        &self,
        method: Method,
        status: u16,
        canary: Option<&UpstreamKey>,
        budget: &Arc<SeriesBudget>,
    ) -> Option<&Series> {
        let mut list = self;
        for _ in 0..MAX_SERIES_PER_ROUTE {
            let Some(entry) = list.0.get() else {
                let canary = canary.cloned();
                return budget.take().then(|| {
                    let new =
                        || Entry { method, status, canary, series: Series::default(), next: Self::default() };
                    &list.0.get_or_init(|| Box::new(new())).series
                });
            };
            if entry.method == method && entry.status == status && entry.canary.as_ref() == canary {
                return Some(&entry.series);
            }
            list = &entry.next;
        }
        None
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SeriesKey, &Series)> {
        let entries = std::iter::successors(self.0.get(), |entry| entry.next.0.get());
        entries.map(|entry| {
            let Entry { method, status, canary, series, .. } = &**entry;
            let key = SeriesKey {
                method: method.name().unwrap_or("OTHER"),
                status: SeriesStatus::Code(*status),
                canary: canary.clone(),
            };
            (key, series)
        })
    }
}

impl Series {
    /// Counts a request.
    pub(crate) fn count(
        &self,
        is_complete: bool,
        duration: Duration,
        sizes: (u64, u64),
        endpoint: Option<EndpointTimes>,
    ) {
        (if is_complete { &self.responses } else { &self.aborted }).add(1);
        self.latency.record(duration);
        if let Some(times) = endpoint {
            self.connect.record(times.connect);
            self.head.record(times.head);
            self.response.record(times.response);
        }
        let (request, response) = sizes;
        self.request_size.record_size(request);
        self.response_size.record_size(response);
    }
}

/// The numbers of a series, summed over all workers.
#[derive(Clone, Debug, Default)]
pub struct SeriesTotal {
    /// Requests.
    pub requests: u64,
    /// See [`Series::latency`].
    pub latency: HistogramTotal,
    /// See [`Series::connect`].
    pub connect: HistogramTotal,
    /// See [`Series::head`].
    pub head: HistogramTotal,
    /// See [`Series::response`].
    pub response: HistogramTotal,
    /// See [`Series::request_size`].
    pub request_size: HistogramTotal,
    /// See [`Series::response_size`].
    pub response_size: HistogramTotal,
}

/// The series of all workers. Requests beyond the limits are a series for each class of the status, which has no histograms.
pub(super) fn totals(shards: &Sharded<RouteShard>) -> BTreeMap<SeriesKey, SeriesTotal> {
    let mut totals = BTreeMap::<SeriesKey, SeriesTotal>::new();
    for shard in shards.iter() {
        for (key, series) in shard.series.iter() {
            let total = totals.entry(key).or_default();
            total.requests += series.responses.get() + series.aborted.get();
            for (sum, part) in [
                (&mut total.latency, &series.latency),
                (&mut total.connect, &series.connect),
                (&mut total.head, &series.head),
                (&mut total.response, &series.response),
                (&mut total.request_size, &series.request_size),
                (&mut total.response_size, &series.response_size),
            ] {
                sum.add(part);
            }
        }
        let classes =
            (1..).zip(shard.responses.iter()).map(|(class, tally)| (SeriesStatus::Class(class), tally));
        let rest = classes.chain([(SeriesStatus::Code(499), &shard.aborted)]);
        for (status, tally) in rest.filter(|(_, tally)| tally.get() > 0) {
            let key = SeriesKey { method: "", status, canary: None };
            totals.entry(key).or_default().requests += tally.get();
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::super::RouteStats;
    use super::*;

    fn stats(budget: &Arc<SeriesBudget>) -> RouteStats {
        RouteStats::new(2, Some(budget.clone()))
    }

    #[test]
    fn series_of_all_workers_add_up_by_method_status_and_canary() {
        let (budget, canary) = (Arc::default(), UpstreamKey::new("shop", "next", "http"));
        let stats = stats(&budget);
        let count = |worker: usize, method, status, canary| {
            let shard = stats.shards().of(worker);
            let series = stats.series_of(shard, method, status, canary).expect("room");
            series.count(true, Duration::from_millis(3), (100, 5000), None);
        };
        count(0, Method::Get, 200, None);
        count(1, Method::Get, 200, None);
        count(1, Method::Get, 200, Some(&canary));
        count(0, Method::Other, 404, None);
        let totals = stats.series();
        let requests: Vec<_> = totals
            .iter()
            .map(|(key, total)| (key.method, key.status, key.canary.is_some(), total.requests))
            .collect();
        let (ok, missing) = (SeriesStatus::Code(200), SeriesStatus::Code(404));
        assert_eq!(requests, [("GET", ok, false, 2), ("GET", ok, true, 1), ("OTHER", missing, false, 1)]);
        let first = totals.values().next().expect("a series");
        assert_eq!((first.latency.count(), first.latency.sum), (2, 6000));
        assert_eq!((first.response_size.sum, first.response_size.buckets[11]), (10_000, 2));
        assert_eq!(first.connect.count(), 0, "no endpoint was asked");
        let route = stats.totals();
        assert_eq!((route.responses, route.bytes_out, route.latency.count()), ([0, 3, 0, 1, 0], 20_000, 4));
    }

    #[test]
    fn limit_of_series_per_route_bounds_the_list_and_route_counts_the_rest() {
        let budget = Arc::default();
        let stats = stats(&budget);
        let shard = stats.shards().of(0);
        let found = (0..1000).filter(|status| stats.series_of(shard, Method::Get, *status, None).is_some());
        assert_eq!(found.count(), MAX_SERIES_PER_ROUTE);
        assert!(stats.series_of(shard, Method::Get, 0, None).is_some(), "known series stay");
        shard.responses[4].add(7);
        let rest = SeriesKey { method: "", status: SeriesStatus::Class(5), canary: None };
        assert_eq!(stats.series().get(&rest).map(|total| total.requests), Some(7));
    }

    #[test]
    fn limit_of_all_series_applies_across_routes_and_removed_routes_give_theirs_back() {
        let budget = Arc::new(SeriesBudget(AtomicUsize::new(3)));
        let (one, other) = (stats(&budget), stats(&budget));
        let add = |stats: &RouteStats, status| {
            stats.series_of(stats.shards().of(1), Method::Get, status, None).is_some()
        };
        assert!(add(&one, 200) && add(&one, 404) && add(&other, 200) && !add(&other, 404));
        drop(one);
        assert!(add(&other, 404) && add(&other, 500) && !add(&other, 503));
    }

    #[test]
    fn route_without_series_has_its_own_counters_alone() {
        let stats = RouteStats::new(1, None);
        assert!(stats.series_of(stats.shards().of(0), Method::Get, 200, None).is_none());
        assert!(!stats.has_series());
    }
}
