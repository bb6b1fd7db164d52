//! What a control plane knows of its data planes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Upper bounds of [`LinkTelemetry::lag`], in seconds; one more bucket has the rest.
pub const LAG_BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What a control plane knows of its data planes, at a moment.
#[derive(Clone, Debug)]
pub struct LinkTelemetry {
    /// The newest version; 0 before the first configuration.
    pub version: u64,
    /// How many resources it consists of.
    pub resources: usize,
    /// Who is connected, the longest connected first.
    pub subscribers: Vec<SubscriberStatus>,
    /// What happened since the start.
    pub counts: LinkCounts,
    /// How often it took how long from a change until a data plane said that it serves it, by [`LAG_BOUNDS`]. Not
    /// cumulative.
    pub lag: [u64; LAG_BOUNDS.len() + 1],
    /// The sum of these times.
    pub lag_sum: Duration,
}

/// One data plane.
#[derive(Clone, Debug)]
pub struct SubscriberStatus {
    /// Whom its certificate is for.
    pub identity: Arc<str>,
    /// The pod or node that it says it runs on.
    pub node: Arc<str>,
    /// The version of its program.
    pub build: Arc<str>,
    /// Where it connects from.
    pub address: SocketAddr,
    /// Since when.
    pub connected: SystemTime,
    /// Which version it serves.
    pub version: u64,
    /// For how long it has not served the newest version; zero if it does.
    pub lag: Duration,
    /// How many resources it could not read.
    pub refused: u32,
}

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Data planes that were accepted.
    pub accepted: u64,
    /// Data planes that were refused because there are as many as may be.
    pub refused: u64,
    /// Connections without a certificate of the authority, or that speak something else.
    pub handshakes_failed: u64,
    /// Data planes that were disconnected because they took nothing for too long.
    pub dropped: u64,
    /// Data planes that had to say resource by resource what they have.
    pub inventories: u64,
    /// Batches that were sent.
    pub batches: u64,
    /// Their bytes, before encryption.
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

/// A data plane as its session keeps it up to date.
pub(super) struct Record {
    pub(super) identity: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) build: Arc<str>,
    pub(super) address: SocketAddr,
    pub(super) connected: SystemTime,
    pub(super) version: AtomicU64,
    pub(super) refused: AtomicU32,
    /// Since when there is something newer than what it serves.
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

/// Who is connected, in the order of their coming.
#[derive(Default)]
pub(super) struct Records(Mutex<BTreeMap<u64, Arc<Record>>>);

impl Records {
    /// Adds somebody unless there are `max` already.
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

    /// How many serve this version or a newer one.
    pub(super) fn at(&self, version: u64) -> usize {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().filter(|record| record.version.load(Ordering::Relaxed) >= version).count()
    }
}
