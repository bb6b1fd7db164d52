//! The control plane's view of its data planes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Upper bounds of [`LinkTelemetry::lag`], in seconds. One more bucket counts longer times.
pub const LAG_BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The state of the link at one moment.
#[derive(Clone, Debug)]
pub struct LinkTelemetry {
    /// The newest version; 0 before the first configuration.
    pub version: u64,
    /// The number of resources in that version.
    pub resources: usize,
    /// The connected data planes, in the order of their connections.
    pub subscribers: Vec<SubscriberStatus>,
    /// The counts since the start.
    pub counts: LinkCounts,
    /// Histogram of the time from a change until a data plane reports that it serves the change, by [`LAG_BOUNDS`]. Not
    /// cumulative.
    pub lag: [u64; LAG_BOUNDS.len() + 1],
    /// The sum of these times.
    pub lag_sum: Duration,
}

/// One data plane.
#[derive(Clone, Debug)]
pub struct SubscriberStatus {
    /// The name in its certificate.
    pub identity: Arc<str>,
    /// The pod or node that the data plane reports.
    pub node: Arc<str>,
    /// The version of the data plane's program.
    pub build: Arc<str>,
    /// The peer address.
    pub address: SocketAddr,
    /// The time of the connection.
    pub connected: SystemTime,
    /// The served version.
    pub version: u64,
    /// The time since a change that the data plane does not serve yet. Zero if the data plane serves the newest
    /// version.
    pub lag: Duration,
    /// The number of resources that the data plane rejected.
    pub refused: u32,
}

/// The counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Accepted data planes.
    pub accepted: u64,
    /// Data planes that were rejected because of [`max_subscribers`](super::DistributorOptions::max_subscribers).
    pub refused: u64,
    /// Connections without a valid certificate of the CA, or with another protocol.
    pub handshakes_failed: u64,
    /// Data planes that were disconnected after a timeout.
    pub dropped: u64,
    /// Data planes that sent an inventory on request.
    pub inventories: u64,
    /// Sent batches.
    pub batches: u64,
    /// The bytes of sent batches, before encryption.
    pub bytes: u64,
}

/// The counters behind [`LinkTelemetry`].
#[derive(Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) handshakes_failed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) inventories: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    lag: [AtomicU64; LAG_BOUNDS.len() + 1],
    lag_sum_micros: AtomicU64,
}

impl Counters {
    pub(super) fn counts(&self) -> LinkCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinkCounts {
            accepted: get(&self.accepted),
            refused: get(&self.refused),
            handshakes_failed: get(&self.handshakes_failed),
            dropped: get(&self.dropped),
            inventories: get(&self.inventories),
            batches: get(&self.batches),
            bytes: get(&self.bytes),
        }
    }

    pub(super) fn record_lag(&self, lag: Duration) {
        let seconds = lag.as_secs_f64();
        let bucket = LAG_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(LAG_BOUNDS.len());
        self.lag[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.lag_sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn lag(&self) -> ([u64; LAG_BOUNDS.len() + 1], Duration) {
        let sum = Duration::from_micros(self.lag_sum_micros.load(Ordering::Relaxed));
        (std::array::from_fn(|bucket| self.lag[bucket].load(Ordering::Relaxed)), sum)
    }
}

/// The record of a data plane, which its session updates.
pub(super) struct Record {
    pub(super) identity: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) build: Arc<str>,
    pub(super) address: SocketAddr,
    pub(super) connected: SystemTime,
    pub(super) version: AtomicU64,
    pub(super) refused: AtomicU32,
    /// The time of the first change that the data plane does not serve.
    pub(super) behind: Mutex<Option<Instant>>,
}

impl Record {
    fn status(&self) -> SubscriberStatus {
        let behind = *self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        SubscriberStatus {
            identity: self.identity.clone(),
            node: self.node.clone(),
            build: self.build.clone(),
            address: self.address,
            connected: self.connected,
            version: self.version.load(Ordering::Relaxed),
            lag: behind.map_or(Duration::ZERO, |since| since.elapsed()),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set_behind(&self, since: Option<Instant>) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// The connected data planes, in the order of their connections.
#[derive(Default)]
pub(super) struct Records(Mutex<BTreeMap<u64, Arc<Record>>>);

impl Records {
    /// Adds a data plane unless `max` are connected already.
    pub(super) fn add(&self, number: u64, record: &Arc<Record>, max: usize) -> bool {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = records.len() < max;
        if has_room {
            records.insert(number, record.clone());
        }
        has_room
    }

    pub(super) fn remove(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    pub(super) fn status(&self) -> Vec<SubscriberStatus> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().map(|record| record.status()).collect()
    }

    /// Whether there are data planes, and all serve this version or a newer version.
    pub(super) fn are_all_at(&self, version: u64) -> bool {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_at = |record: &Arc<Record>| record.version.load(Ordering::Relaxed) >= version;
        !records.is_empty() && records.values().all(is_at)
    }

    /// The number of data planes that serve this version or a newer version.
    pub(super) fn at(&self, version: u64) -> usize {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().filter(|record| record.version.load(Ordering::Relaxed) >= version).count()
    }
}
