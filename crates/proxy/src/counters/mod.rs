//! The counters of the data plane. Each worker has its own shard of every counter; readers sum the shards.
//!
//! A counter belongs to what was written, and outlives configurations:
//!
//! | counters | key |
//! |---|---|
//! | [`RouteStats`] | [`RouteLabels`]: object, host, path, upstream |
//! | [`Layer4Stats`] | [`Layer4Labels`]: listener, protocol, host, object |
//! | [`ApiStats`], [`ConsumerStats`], [`PolicyStats`], [`TrafficStats`] | the object |
//! | [`UpstreamShard`] | the upstream's key |
//! | [`EndpointShard`] | the upstream's key and the address |

mod api;
mod datagram;
mod histogram;
mod layer4;
mod policy;
mod route;
mod series;
mod span;
mod tally;
mod upstream;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use api::{ApiShard, ApiStats};
pub use datagram::DroppedDatagram;
pub use histogram::{BOUNDS_BYTES, BOUNDS_MICROS, Histogram, HistogramTotal};
pub use layer4::{Layer4Labels, Layer4Shard, Layer4Stats};
pub use policy::{Check, PolicyShard, PolicyStats, SessionEvent, TrafficShard, TrafficStats};
pub use route::{ConsumerShard, ConsumerStats, RouteLabels, RouteShard, RouteStats, RouteTotals};
pub(crate) use series::EndpointTimes;
use series::SeriesBudget;
pub use series::{MAX_SERIES, MAX_SERIES_PER_ROUTE, Series, SeriesKey, SeriesStatus, SeriesTotal};
pub use span::{SpanLoss, SpanStats};
pub use tally::{Sharded, Tallies, Tally};
pub use upstream::{EndpointShard, UpstreamShard};
pub(crate) use worker::LocalStats;
pub use worker::{CompressedStats, Http3Stats, WorkerStats, handshake_index};

/// At most this many consumers have separate counters. Further consumers share one set with empty labels.
pub const MAX_CONSUMERS: usize = 2_000;

/// At most this many routes have separate counters. Further routes share one set with empty labels.
pub const MAX_ROUTES: usize = 20_000;

/// The counters of the process, and the source of new counters.
#[derive(Debug)]
pub struct Counters {
    workers: Sharded<WorkerStats>,
    /// The time from passing a change to the proxy until its last worker serves it.
    propagation: Mutex<Sharded<Histogram>>,
    /// Shared by the routes beyond [`MAX_ROUTES`].
    overflow: Arc<RouteStats>,
    /// The limit of the series of all routes.
    series: Arc<SeriesBudget>,
    /// Shared by the consumers beyond [`MAX_CONSUMERS`].
    other_consumers: Arc<ConsumerStats>,
    spans: Arc<SpanStats>,
    /// Access log lines that were passed on but not written.
    lost_lines: Arc<AtomicU64>,
}

impl Counters {
    /// Zeros. `lost_lines` counts the lines that the writer of the access log loses.
    pub(crate) fn new(workers: usize, lost_lines: Arc<AtomicU64>) -> Self {
        let shards = Sharded::<WorkerStats>::new(workers);
        // Readers compare the shards by their places.
        for worker in 0..workers {
            shards.of(worker).in_flight.add(0);
        }
        Self {
            workers: shards,
            propagation: Mutex::new(Sharded::new(1)),
            overflow: Arc::new(RouteStats::new(workers, None)),
            series: Arc::default(),
            other_consumers: Arc::new(Sharded::new(workers)),
            spans: Arc::default(),
            lost_lines,
        }
    }

    /// The counters of each worker.
    #[must_use]
    #[inline]
    pub fn workers(&self) -> &Sharded<WorkerStats> {
        &self.workers
    }

    /// How long changes took from the call of the proxy until its last worker served them.
    #[must_use]
    pub fn propagation(&self) -> HistogramTotal {
        let shards = self.propagation.lock().unwrap_or_else(PoisonError::into_inner);
        HistogramTotal::of(&shards, |histogram| histogram)
    }

    pub(crate) fn record_propagation(&self, duration: Duration) {
        self.propagation.lock().unwrap_or_else(PoisonError::into_inner).of(0).record(duration);
    }

    /// Lost access log lines: the writer was too slow, or the file did not accept them.
    #[must_use]
    pub fn lost_lines(&self) -> u64 {
        let dropped = self.workers.sum(|worker| &worker.log_dropped);
        dropped + self.lost_lines.load(Ordering::Relaxed)
    }

    /// The fate of spans that workers passed on.
    #[must_use]
    pub fn spans(&self) -> &Arc<SpanStats> {
        &self.spans
    }

    /// The counters of a new route, after `before` other routes.
    pub(crate) fn new_route(&self, before: usize, has_series: bool) -> Arc<RouteStats> {
        if self.has_room(before) {
            Arc::new(RouteStats::new(self.worker_count(), has_series.then(|| self.series.clone())))
        } else {
            self.overflow.clone()
        }
    }

    /// Whether a route beside `others` other routes has counters of its own.
    pub(crate) fn has_room(&self, others: usize) -> bool {
        others < MAX_ROUTES
    }

    /// Whether these counters are the shared counters beyond [`MAX_ROUTES`].
    pub(crate) fn is_overflow(&self, stats: &Arc<RouteStats>) -> bool {
        Arc::ptr_eq(stats, &self.overflow)
    }

    /// The counters of a new consumer, after `before` other consumers.
    pub(crate) fn new_consumer(&self, before: usize) -> Arc<ConsumerStats> {
        match before {
            0..MAX_CONSUMERS => Arc::new(Sharded::new(self.worker_count())),
            _ => self.other_consumers.clone(),
        }
    }

    /// Whether these counters are the shared counters beyond [`MAX_CONSUMERS`].
    pub(crate) fn is_of_other_consumers(&self, stats: &Arc<ConsumerStats>) -> bool {
        Arc::ptr_eq(stats, &self.other_consumers)
    }

    /// The counters of a new route below HTTP.
    pub(crate) fn new_layer4(&self) -> Arc<Layer4Stats> {
        Arc::new(Layer4Stats::new(self.worker_count()))
    }

    /// The counters of a new policy for security or limits.
    pub(crate) fn new_policy(&self) -> Arc<PolicyStats> {
        Arc::new(Sharded::new(self.worker_count()))
    }

    /// The counters of a new API.
    pub(crate) fn new_api(&self) -> Arc<ApiStats> {
        Arc::new(Sharded::new(self.worker_count()))
    }

    /// The counters of a new traffic policy.
    pub(crate) fn new_traffic(&self) -> Arc<TrafficStats> {
        Arc::new(Sharded::new(self.worker_count()))
    }

    fn worker_count(&self) -> usize {
        self.workers.workers()
    }
}
