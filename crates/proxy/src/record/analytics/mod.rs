//! Analytics: the sums of requests by route, operation, consumer, plan, endpoint and status.
//!
//! Each worker adds its requests to sums of its own, without a lock. The worker hands the sums over at the end of each minute, and
//! every 5 s while they are few. A separate thread merges the sums of the workers, and passes them on as batches.
//!
//! The workers share a limit of series. Beyond the limit, requests of new series are counted without their consumer and endpoint.
//! No request is lost from the sums.
//!
//! | module | purpose |
//! |---|---|
//! | `minute` | the sums of a minute |
//! | `cells` | the histograms of the sums |
//! | `collector` | the thread that merges the sums of workers |

mod cells;
mod collector;
mod minute;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, SystemTime};

use sluicegate_model::ObjectId;
use sluicegate_model::analytics::Batch;
use sluicegate_model::rule::{ApiOperation, PathMatch};

use super::{CLOSED, RequestRecord, RouteRecord};
use crate::counters::WorkerStats;
use crate::rule::RouteIndex;
pub(crate) use collector::Collector;
use minute::{Minute, NONE, OTHERS, Sample, SeriesKey, Target};

/// The default of [`Analytics::max_series`]. With the minutes that wait for a control plane, the sums then take about 55 MB, with 150 bytes for a series.
pub const DEFAULT_MAX_SERIES: usize = 100_000;

/// The interval at which a worker hands over few sums, in seconds.
const INTERVAL: u64 = 5;
/// The number of series up to which a worker hands sums over before the end of the minute.
const FEW: usize = 2000;
/// The number of series that a worker reserves at once.
const RESERVED: usize = 64;
/// Beyond the limit of series: one more series for so many within the limit, for requests without consumer and endpoint.
const OVERFLOW: usize = 8;

/// The target of the sums.
pub trait AnalyticsOut: Send + Sync {
    /// Takes a batch. Must not wait.
    fn batch(&self, batch: Batch);
}

/// The analytics of a proxy.
#[derive(Clone)]
pub struct Analytics {
    /// The maximum number of series in a minute, for all workers together.
    pub max_series: usize,
    /// The target of the sums.
    pub out: Arc<dyn AnalyticsOut>,
}

impl fmt::Debug for Analytics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analytics").field("max_series", &self.max_series).finish_non_exhaustive()
    }
}

/// The limit of series that workers share.
#[derive(Debug)]
struct Limit {
    max: usize,
    left: AtomicUsize,
}

impl Limit {
    /// Takes some series. Returns their number.
    fn reserve(&self) -> usize {
        let take = |left: usize| left.min(RESERVED);
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - take(left)));
        take(left.unwrap_or_default())
    }

    fn release(&self, series: usize) {
        self.left.fetch_add(series, Ordering::Relaxed);
    }
}

/// The sums of one worker.
#[derive(Debug)]
pub(crate) struct AnalyticsBuffer {
    limit: Arc<Limit>,
    minutes: SyncSender<Minute>,
    sums: RefCell<Sums>,
}

#[derive(Debug)]
struct Sums {
    minute: Minute,
    /// When the worker hands over next: a number of intervals since 1970.
    interval: u64,
    /// The series that the worker has reserved for this minute.
    reserved: usize,
    /// The series beyond the limit.
    beyond: usize,
    known: Known,
}

/// What is known about the objects of a configuration: indices of the minute by numbers of the configuration.
#[derive(Debug, Default)]
struct Known {
    generation: u64,
    targets: HashMap<RouteIndex, u32, foldhash::fast::RandomState>,
    /// The name of each consumer; [`NONE`] before the first request.
    consumers: Vec<u32>,
    endpoints: HashMap<SocketAddr, u32, foldhash::fast::RandomState>,
}

impl AnalyticsBuffer {
    fn new(limit: Arc<Limit>, minutes: SyncSender<Minute>) -> Self {
        let now = now();
        let sums = Sums {
            minute: Minute::new(now / 60, limit.max),
            interval: now / INTERVAL,
            reserved: 0,
            beyond: 0,
            known: Known::default(),
        };
        Self { limit, minutes, sums: RefCell::new(sums) }
    }

    /// Adds a finished request.
    pub(super) fn request(&self, record: &RequestRecord<'_>, stats: &WorkerStats) {
        let mut sums = self.sums.borrow_mut();
        let Sums { minute, known, .. } = &mut *sums;
        let (mut target, mut consumer) = (NONE, NONE);
        if let Some(route) = &record.route {
            let generation = route.table.generation();
            if generation > known.generation {
                *known = Known { generation, ..Known::default() };
            }
            // A request that began before the last change of the configuration has numbers of its own.
            let is_known = generation == known.generation;
            target = match known.targets.get(&route.index) {
                Some(target) if is_known => *target,
                _ => {
                    let target = target_of(minute, route);
                    if is_known {
                        known.targets.insert(route.index, target);
                    }
                    target
                }
            };
            consumer = match (record.consumer, record.consumer_number) {
                (Some((id, _)), Some(number)) if is_known => known.consumer(minute, id, number),
                (Some((id, _)), _) => minute.name(&object(id)),
                _ => NONE,
            };
        }
        let endpoint = record.endpoint.map_or(NONE, |address| {
            *known.endpoints.entry(address).or_insert_with(|| minute.name(&address.to_string()))
        });
        let plan = record.plan.map_or(NONE, |plan| minute.name(plan));
        let status = match record.status {
            0 => CLOSED,
            _ if !record.is_complete => 0,
            status => status,
        };
        let key = SeriesKey { target, consumer, plan, endpoint, status };
        let sample = Sample {
            request_bytes: record.request_bytes,
            response_bytes: record.bytes,
            total: micros(record.duration),
            upstream: record.upstream_duration.map(micros),
            is_limited: record.limit.is_some(),
            is_hit: record.cache.map(|effect| matches!(effect, "hit" | "revalidated" | "stale_if_error")),
        };
        self.add(&mut sums, key, &sample, stats);
    }

    #[inline]
    fn add(&self, sums: &mut Sums, key: SeriesKey, sample: &Sample, stats: &WorkerStats) {
        let series = match sums.minute.find(&key) {
            Some(series) => series,
            None => self.new_series(sums, key, stats),
        };
        sums.minute.record(series, sample);
    }

    /// A new series, or a series without consumer and endpoint if there are too many.
    #[cold]
    fn new_series(&self, sums: &mut Sums, key: SeriesKey, stats: &WorkerStats) -> u32 {
        let used = sums.minute.len() - sums.beyond;
        if used == sums.reserved {
            sums.reserved += self.limit.reserve();
        }
        if used < sums.reserved {
            return sums.minute.insert(key);
        }
        stats.analytics_over_limit.add(1);
        let other = |name: u32| if name == NONE { NONE } else { OTHERS };
        let without = SeriesKey { consumer: other(key.consumer), endpoint: other(key.endpoint), ..key };
        let all = SeriesKey { target: OTHERS, plan: other(key.plan), ..without };
        for key in [without, all] {
            if let Some(series) = sums.minute.find(&key) {
                return series;
            }
            if sums.beyond < self.limit.max / OVERFLOW || key == all {
                sums.beyond += 1;
                return sums.minute.insert(key);
            }
        }
        sums.minute.insert(all)
    }

    /// Hands the sums over at the end of a minute, and every 5 s if they are few.
    pub(super) fn flush(&self) {
        self.flush_at(now());
    }

    fn flush_at(&self, now: u64) {
        let mut sums = self.sums.borrow_mut();
        let is_over = sums.minute.minute != now / 60;
        if !is_over && (sums.interval == now / INTERVAL || sums.minute.len() > FEW) {
            return;
        }
        sums.interval = now / INTERVAL;
        if sums.minute.is_empty() {
            sums.minute.minute = now / 60;
            return;
        }
        let full = self.take(&mut sums, now / 60);
        // If the thread is behind, the sums of the next minute are added to this minute.
        if let Err(TrySendError::Full(full)) = self.minutes.try_send(full) {
            self.take_back(&mut sums, full);
        }
    }

    /// Hands all sums over, at the end of the worker.
    pub(super) fn finish(&self) {
        let mut sums = self.sums.borrow_mut();
        if !sums.minute.is_empty() {
            let last = self.take(&mut sums, now() / 60);
            // The thread ends after all workers.
            let _ = self.minutes.send(last);
        }
    }

    fn take(&self, sums: &mut Sums, minute: u64) -> Minute {
        self.limit.release(std::mem::take(&mut sums.reserved));
        sums.beyond = 0;
        let generation = sums.known.generation;
        sums.known = Known { generation, ..Known::default() };
        std::mem::replace(&mut sums.minute, Minute::new(minute, self.limit.max))
    }

    fn take_back(&self, sums: &mut Sums, minute: Minute) {
        sums.beyond = minute.len();
        sums.minute = minute;
    }
}

impl Known {
    #[inline]
    fn consumer(&mut self, minute: &mut Minute, id: &ObjectId, number: u32) -> u32 {
        let number = number as usize;
        if self.consumers.len() <= number {
            self.consumers.resize(number + 1, NONE);
        }
        let known = &mut self.consumers[number];
        if *known == NONE {
            *known = minute.name(&object(id));
        }
        *known
    }
}

/// The target of a route, by its names.
#[cold]
fn target_of(minute: &mut Minute, route: &RouteRecord<'_>) -> u32 {
    let path = route.table.path(route.index).map(PathMatch::as_str);
    let mut target = Target { route: minute.name(&route_name(route.id, path)), ..Target::default() };
    if let Some(ApiOperation { version, environment, operation, .. }) = route.api {
        target.api = minute.name(&object(route.id));
        target.version = minute.name(version);
        target.environment = minute.name(environment);
        target.operation = operation.as_ref().map_or(NONE, |operation| minute.name(operation));
    }
    minute.target(target)
}

/// The longest path pattern in a name, in bytes.
const PATH_MAX: usize = 256;

fn route_name(id: &ObjectId, path: Option<&str>) -> String {
    let path = path.unwrap_or_default();
    match path.get(..path.floor_char_boundary(PATH_MAX)) {
        None | Some("") => id.to_string(),
        Some(path) => format!("{id} {path}"),
    }
}

fn object(ObjectId { namespace, name, .. }: &ObjectId) -> String {
    format!("{namespace}/{name}")
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
