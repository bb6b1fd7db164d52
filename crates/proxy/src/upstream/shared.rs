//! The part of an upstream that all workers see: its identity, its endpoints' health, its counters.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sluicegate_model::{
    Balance, Conditions, Endpoint, Health, Protocol, ProxyProtocol, UpstreamKey, UpstreamLimits, UpstreamTls,
};
use tokio::time::Instant;

use super::balance::StableHash;
use crate::telemetry::{EndpointShard, Sharded, UpstreamShard};
use crate::tls::Connector;

/// Says that an endpoint answers its checks badly.
const FAILING: u64 = 1 << 63;

/// How often an endpoint is held for longer each time.
const EJECTED_MOST: u32 = 10;

/// An upstream, for as long as some route names it.
#[derive(Debug)]
pub struct SharedUpstream {
    key: UpstreamKey,
    /// Its place in every worker's list of upstreams.
    pub(crate) slot: usize,
    shards: Sharded<UpstreamShard>,
    /// Requests in flight over all workers; kept only where a limit needs it.
    pub(crate) in_flight: AtomicU64,
    /// What the workers were last given.
    latest: Mutex<Arc<EndpointSet>>,
}

impl SharedUpstream {
    pub(crate) fn new(key: UpstreamKey, slot: usize, workers: usize) -> Self {
        Self {
            key,
            slot,
            shards: Sharded::new(workers),
            in_flight: AtomicU64::new(0),
            latest: Mutex::default(),
        }
    }

    /// Its identity.
    #[must_use]
    pub fn key(&self) -> &UpstreamKey {
        &self.key
    }

    /// Its counters.
    #[must_use]
    pub fn shards(&self) -> &Sharded<UpstreamShard> {
        &self.shards
    }

    /// Its endpoints as last given to the workers.
    #[must_use]
    pub fn endpoints(&self) -> Arc<EndpointSet> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_endpoints(&self, endpoints: Arc<EndpointSet>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = endpoints;
    }
}

/// Whether connections to the endpoints of an upstream are secured.
#[derive(Clone, Debug, Default)]
pub(crate) enum Security {
    /// They are in clear text.
    #[default]
    None,
    /// They are over TLS.
    Tls(Arc<Connector>),
    /// They have to be over TLS, which cannot be spoken as it is configured.
    Unusable(Arc<UpstreamTls>),
}

impl Security {
    /// What is compiled from the model; the same as before where that has not changed.
    pub(crate) fn of(tls: Option<&Arc<UpstreamTls>>, before: &Self, upstream: &UpstreamKey) -> Self {
        let Some(tls) = tls else { return Self::None };
        match before {
            Self::Tls(connector) if connector.model == *tls => return before.clone(),
            Self::Unusable(known) if known == tls => return before.clone(),
            _ => {}
        }
        match Connector::new(tls, upstream.transport.protocol == Protocol::Http2) {
            Ok(connector) => Self::Tls(Arc::new(connector)),
            Err(error) => {
                tracing::error!(%error, %upstream, "cannot use TLS with endpoints; requests to this upstream receive 502");
                Self::Unusable(tls.clone())
            }
        }
    }

    /// Whether both are the same, so that connections of the one can be used for the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Tls(one), Self::Tls(other)) => Arc::ptr_eq(one, other),
            (Self::Unusable(one), Self::Unusable(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The endpoints of an upstream, and how to choose among them.
#[derive(Debug, Default)]
pub struct EndpointSet {
    /// How an endpoint is chosen.
    pub balance: Balance,
    /// How much may be in flight.
    pub limits: UpstreamLimits,
    /// Whether connections are secured.
    pub(crate) security: Security,
    /// How endpoints are told whom a connection is from, if they are.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Which endpoints are avoided although they take connections.
    pub health: Option<Arc<Health>>,
    /// Every endpoint with its conditions.
    pub endpoints: Vec<(Arc<SharedEndpoint>, Conditions)>,
}

impl EndpointSet {
    /// The endpoints as the model has them.
    pub(crate) fn to_model(&self) -> Arc<[Endpoint]> {
        let endpoint = |(endpoint, conditions): &(Arc<SharedEndpoint>, Conditions)| Endpoint {
            address: endpoint.address(),
            conditions: *conditions,
        };
        self.endpoints.iter().map(endpoint).collect()
    }

    /// The endpoints that may be chosen: those that are ready; if there is none, those that serve while they
    /// terminate; if there is none either, those that serve at all.
    pub fn eligible(&self) -> impl Iterator<Item = &Arc<SharedEndpoint>> {
        let any = |wanted: fn(&Conditions) -> bool| self.endpoints.iter().any(|(_, has)| wanted(has));
        let tiers: [fn(&Conditions) -> bool; 3] =
            [|has| has.ready && !has.terminating, |has| has.serving && has.terminating, |has| has.serving];
        let tier = tiers.into_iter().find(|tier| any(*tier)).unwrap_or(tiers[0]);
        self.endpoints.iter().filter(move |(_, has)| tier(has)).map(|(endpoint, _)| endpoint)
    }
}

/// One address of an upstream, for as long as it is in the upstream's set.
#[derive(Debug)]
pub struct SharedEndpoint {
    /// Unique in this process.
    pub(crate) id: u64,
    address: SocketAddr,
    /// See [`mark`](Self::mark).
    mark: u64,
    /// When it came under suspicion, by [`uptime_millis`], and [`FAILING`]; 0 while it is trusted.
    suspect_since: AtomicU64,
    /// Until when it is not trusted again, by [`uptime_millis`].
    held_until: AtomicU64,
    /// How often it was ejected in a row.
    ejected: AtomicU32,
    /// From when its share grows, by [`uptime_millis`]; 0 if it has its full share.
    ramp_from: AtomicU64,
    /// Raised to make all workers close their unused connections to it.
    pub(crate) purges: AtomicU64,
    /// Requests in flight over all workers; kept only where a limit needs it.
    pub(crate) in_flight: AtomicU64,
    shards: Sharded<EndpointShard>,
}

impl SharedEndpoint {
    /// An endpoint that joins now. It comes slowly to its share if it joins others (`ramp`).
    pub(crate) fn new(address: SocketAddr, workers: usize, ramp: bool) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address,
            mark: mark(address),
            suspect_since: AtomicU64::new(0),
            held_until: AtomicU64::new(0),
            ejected: AtomicU32::new(0),
            ramp_from: AtomicU64::new(if ramp { uptime_millis() } else { 0 }),
            purges: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            shards: Sharded::new(workers),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A hash of its address, by which all data planes know it.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Its counters.
    #[must_use]
    pub fn shards(&self) -> &Sharded<EndpointShard> {
        &self.shards
    }

    /// Whether it is avoided while others serve.
    #[must_use]
    #[inline]
    pub fn is_suspect(&self) -> bool {
        self.suspect_since.load(Ordering::Relaxed) != 0
    }

    /// For how long it has been suspect.
    #[must_use]
    pub fn suspect_for(&self) -> Option<Duration> {
        match self.suspect_since.load(Ordering::Relaxed) & !FAILING {
            0 => None,
            since => Some(Duration::from_millis(uptime_millis().saturating_sub(since))),
        }
    }

    /// Its share of what a full member gets, 0.1 to 1, growing over `slow_start`.
    #[must_use]
    #[inline]
    pub fn share(&self, slow_start: Duration) -> f64 {
        const FIRST_SHARE: f64 = 0.1;
        let from = self.ramp_from.load(Ordering::Relaxed);
        if from == 0 {
            return 1.0;
        }
        let elapsed = Duration::from_millis(uptime_millis().saturating_sub(from));
        if elapsed >= slow_start {
            self.ramp_from.store(0, Ordering::Relaxed);
            return 1.0;
        }
        elapsed.div_duration_f64(slow_start).max(FIRST_SHARE)
    }

    /// From now on it is avoided. True for the one caller that changed it, who has to see to its probing.
    pub(crate) fn suspect(&self) -> bool {
        let since = uptime_millis();
        let marked = |before: u64| (before & !FAILING == 0).then_some(before | since);
        self.suspect_since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked).is_ok()
    }

    /// It answered: it is trusted again, with a growing share. True for the one caller that changed it.
    pub(crate) fn readmit(&self) -> bool {
        let changed = self.suspect_since.fetch_and(FAILING, Ordering::Relaxed) & !FAILING != 0;
        if changed {
            self.ramp_from.store(uptime_millis(), Ordering::Relaxed);
        }
        changed
    }

    /// Whether it answers its checks badly. True for the one caller that changed it.
    pub(crate) fn set_failing(&self, fails: bool) -> bool {
        match fails {
            true => self.suspect_since.fetch_or(FAILING, Ordering::Relaxed) & FAILING == 0,
            false => {
                let changed = self.suspect_since.fetch_and(!FAILING, Ordering::Relaxed) & FAILING != 0;
                if changed {
                    self.ramp_from.store(uptime_millis(), Ordering::Relaxed);
                }
                changed
            }
        }
    }

    /// Whether it answers its checks badly.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.suspect_since.load(Ordering::Relaxed) & FAILING != 0
    }

    /// It is not trusted again before `time` is over, and for as much longer each time in a row.
    pub(crate) fn hold(&self, time: Duration) {
        let times = self.ejected.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(EJECTED_MOST);
        let millis = u64::try_from((time * times).as_millis()).unwrap_or(u64::MAX);
        self.held_until.store(uptime_millis().saturating_add(millis), Ordering::Relaxed);
    }

    /// For how long it is not trusted again, whatever it answers.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        let left = self.held_until.load(Ordering::Relaxed).checked_sub(uptime_millis())?;
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// It answers well: the next ejection is the first.
    pub(crate) fn forgive(&self) {
        if self.ejected.load(Ordering::Relaxed) > 0 {
            self.ejected.store(0, Ordering::Relaxed);
        }
    }

    /// All workers close their unused connections to it before they use another.
    pub(crate) fn purge(&self) {
        self.purges.fetch_add(1, Ordering::Relaxed);
    }
}

fn mark(address: SocketAddr) -> u64 {
    let mut hash = StableHash::new();
    hash.part(address.to_string().as_bytes());
    hash.finish()
}

/// Milliseconds since the first call, never 0.
fn uptime_millis() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(conditions: &[(bool, bool, bool)]) -> EndpointSet {
        let endpoint = |(index, &(ready, serving, terminating))| {
            let address = SocketAddr::from(([127, 0, 0, 1], index));
            (Arc::new(SharedEndpoint::new(address, 1, false)), Conditions { ready, serving, terminating })
        };
        EndpointSet { endpoints: (0..).zip(conditions).map(endpoint).collect(), ..EndpointSet::default() }
    }

    fn eligible(conditions: &[(bool, bool, bool)]) -> Vec<u16> {
        set(conditions).eligible().map(|endpoint| endpoint.address().port()).collect()
    }

    #[test]
    fn terminating_endpoints_are_eligible_only_without_ready_endpoints() {
        let (ready, leaving, gone) = ((true, true, false), (false, true, true), (false, false, true));
        let starting = (false, false, false);
        assert_eq!(eligible(&[ready, leaving, gone, ready]), [0, 3]);
        assert_eq!(eligible(&[starting, leaving, gone]), [1]);
        assert_eq!(eligible(&[gone, starting]), [0u16; 0]);
        assert_eq!(eligible(&[(true, true, true)]), [0], "publishNotReadyAddresses: ready and terminating");
    }

    #[test]
    fn readmitted_endpoint_starts_with_a_small_share() {
        let endpoint = SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false);
        assert!(endpoint.suspect());
        assert!(!endpoint.suspect(), "only one caller probes");
        assert!(endpoint.is_suspect());
        assert!(endpoint.readmit());
        assert!(!endpoint.is_suspect());
        assert!(endpoint.share(Duration::from_secs(3600)) <= 0.11);
        assert!((endpoint.share(Duration::ZERO) - 1.0).abs() < f64::EPSILON);
    }
}
