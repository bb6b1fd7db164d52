//! The control plane's view of its data planes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::scopes::Scope;

/// The maximum number of data planes of one Gateway with data planes of its own.
const OWN_MAX: usize = 100;

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
    /// The name in its certificate, or its ServiceAccount.
    pub identity: Arc<str>,
    /// The scope of a data plane that serves one Gateway; `None` for a shared data plane.
    pub scope: Option<Arc<str>>,
    /// Whether the data plane serves the newest version of its scope.
    pub is_current: bool,
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
    /// Connections without a client certificate that had no valid token of a Gateway with data planes of its own.
    pub reviews_failed: u64,
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
    pub(super) reviews_failed: AtomicU64,
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
            reviews_failed: get(&self.reviews_failed),
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
    pub(super) scope: Arc<Scope>,
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
            scope: self.scope.name.clone(),
            is_current: self.is_at(u64::MAX),
            node: self.node.clone(),
            build: self.build.clone(),
            address: self.address,
            connected: self.connected,
            version: self.version.load(Ordering::Relaxed),
            lag: behind.map_or(Duration::ZERO, |since| since.elapsed()),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Whether the data plane serves everything of its scope up to this version.
    fn is_at(&self, version: u64) -> bool {
        let served = self.version.load(Ordering::Relaxed);
        // A scope has no change for some versions.
        served > 0 && (served >= version || served >= *self.scope.version.borrow())
    }

    pub(super) fn set_behind(&self, since: Option<Instant>) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// The connected data planes, in the order of their connections.
#[derive(Default)]
pub(super) struct Records(Mutex<BTreeMap<u64, Arc<Record>>>);

impl Records {
    /// Adds a data plane unless `max` of its kind are connected already, or too many of its Gateway.
    pub(super) fn add(&self, number: u64, record: &Arc<Record>, max: usize) -> bool {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = record.scope.name.is_some();
        let of_kind = records.values().filter(|other| other.scope.name.is_some() == is_own).count();
        let of_scope = records.values().filter(|other| other.scope.name == record.scope.name).count();
        let has_room = of_kind < max && (!is_own || of_scope < OWN_MAX);
        if has_room {
            records.insert(number, record.clone());
        }
        has_room
    }

    pub(super) fn remove(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// The number of data planes.
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn status(&self) -> Vec<SubscriberStatus> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().map(|record| record.status()).collect()
    }

    /// The data planes that serve this version or a newer version. `needs_shared`: the shared data planes serve a Gateway, so one of
    /// them must be connected.
    pub(super) fn progress(&self, version: u64, needs_shared: bool) -> Progress {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_shared = records.values().any(|record| record.scope.name.is_none());
        let are_at = |is_own: bool| {
            let mut of_kind = records.values().filter(|record| record.scope.name.is_some() == is_own);
            of_kind.all(|record| record.is_at(version))
        };
        match (are_at(false), are_at(true)) {
            _ if records.is_empty() || needs_shared && !has_shared => Progress::None,
            (true, true) => Progress::All,
            (true, false) => Progress::Shared,
            (false, _) => Progress::None,
        }
    }

    /// The scopes of Gateways with connected data planes, and whether all of these data planes serve changes within `patience`.
    pub(super) fn own(&self, patience: Duration) -> BTreeMap<Arc<str>, bool> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = BTreeMap::new();
        for record in records.values() {
            let Some(scope) = &record.scope.name else { continue };
            let behind = *record.behind.lock().unwrap_or_else(PoisonError::into_inner);
            let is_late = behind.is_some_and(|since| since.elapsed() > patience);
            let is_serving = record.version.load(Ordering::Relaxed) > 0;
            let (is_served, has_late) = own.entry(scope.clone()).or_insert((false, false));
            *is_served |= is_serving;
            *has_late |= is_serving && is_late;
        }
        own.into_iter().map(|(scope, (is_served, has_late))| (scope, is_served && !has_late)).collect()
    }

    /// The number of data planes that serve this version or a newer version.
    pub(super) fn at(&self, version: u64) -> usize {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().filter(|record| record.is_at(version)).count()
    }
}

/// The data planes that serve a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No data plane is connected, or a shared data plane does not serve the version.
    None,
    /// The shared data planes, but not all data planes of single Gateways.
    Shared,
    /// All.
    All,
}
