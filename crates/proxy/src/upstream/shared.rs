//! The part of an upstream that all workers share: its identity, its endpoints' health, its counters.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sluicegate_model::{
    Balance, Conditions, Endpoint, Health, ProxyProtocol, UpstreamKey, UpstreamLimits, UpstreamTls,
};
use tokio::time::Instant;

use super::retry_budget::RetryBudget;
use crate::counters::{EndpointShard, Sharded, UpstreamShard};
use crate::hash::StableHash;
use crate::tls::Connector;

/// The flag for an endpoint that fails its health checks.
const FAILING: u64 = 1 << 63;

/// The ejection time grows up to this many ejections in a row.
const EJECTED_MOST: u32 = 10;

/// An upstream, for as long as some route names it.
#[derive(Debug)]
pub struct SharedUpstream {
    key: UpstreamKey,
    /// The number by which routes name it ([`slot`](super::slot)).
    pub(crate) slot: usize,
    shards: Sharded<UpstreamShard>,
    /// Requests in flight over all workers; counted only if a limit needs the number.
    pub(crate) in_flight: AtomicU64,
    /// The endpoints that the workers received last.
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

    /// The endpoints that the workers received last.
    #[must_use]
    pub fn endpoints(&self) -> Arc<EndpointSet> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_endpoints(&self, endpoints: Arc<EndpointSet>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = endpoints;
    }
}

/// The TLS settings of connections to the endpoints of an upstream.
#[derive(Clone, Debug, Default)]
pub(crate) enum Security {
    /// Connections are in clear text.
    #[default]
    None,
    /// Connections use TLS.
    Tls(Arc<Connector>),
    /// Connections must use TLS, but the TLS configuration is unusable.
    Unusable(Arc<UpstreamTls>),
}

impl Security {
    /// Compiles the settings from the model; reuses `before` if the settings have not changed.
    pub(crate) fn of(tls: Option<&Arc<UpstreamTls>>, before: &Self, upstream: &UpstreamKey) -> Self {
        let Some(tls) = tls else { return Self::None };
        match before {
            Self::Tls(connector) if connector.model == *tls => return before.clone(),
            Self::Unusable(known) if known == tls => return before.clone(),
            _ => {}
        }
        match Connector::new(tls, upstream.transport.protocol) {
            Ok(connector) => Self::Tls(Arc::new(connector)),
            Err(error) => {
                tracing::error!(%error, %upstream, "cannot use TLS with endpoints; requests to this upstream receive 502");
                Self::Unusable(tls.clone())
            }
        }
    }

    /// Whether both are the same, so that connections under one can be used under the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Tls(one), Self::Tls(other)) => Arc::ptr_eq(one, other),
            (Self::Unusable(one), Self::Unusable(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The endpoints of an upstream, and the load balancing settings.
#[derive(Debug, Default)]
pub struct EndpointSet {
    /// The load balancing algorithm.
    pub balance: Balance,
    /// The concurrency limits.
    pub limits: UpstreamLimits,
    /// The TLS settings of connections.
    pub(crate) security: Security,
    /// The version of the PROXY header for endpoints, if any.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Which endpoints count as unhealthy although they accept connections.
    pub health: Option<Arc<Health>>,
    /// The limit on retries, if any.
    pub(crate) retry_budget: Option<Arc<RetryBudget>>,
    /// Every endpoint with its conditions.
    pub endpoints: Vec<(Arc<SharedEndpoint>, Conditions)>,
}

impl EndpointSet {
    /// The endpoints in the form of the model.
    pub(crate) fn to_model(&self) -> Arc<[Endpoint]> {
        let endpoint = |(endpoint, conditions): &(Arc<SharedEndpoint>, Conditions)| Endpoint {
            address: endpoint.address(),
            conditions: *conditions,
        };
        self.endpoints.iter().map(endpoint).collect()
    }

    /// The eligible endpoints: the ready endpoints; if there are none, endpoints that serve while they terminate; if
    /// there are none either, all endpoints that serve.
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
    /// When the endpoint became unhealthy, by [`uptime_millis`], and [`FAILING`]; 0 while the endpoint is healthy.
    unhealthy_since: AtomicU64,
    /// The end of the ejection, by [`uptime_millis`].
    ejected_until: AtomicU64,
    /// The number of ejections in a row.
    ejected: AtomicU32,
    /// When slow start began, by [`uptime_millis`]; 0 if the endpoint has its full share.
    ramp_from: AtomicU64,
    /// Incremented to make all workers close their idle connections to the endpoint.
    pub(crate) purges: AtomicU64,
    /// Requests in flight over all workers; counted only if a limit needs the number.
    pub(crate) in_flight: AtomicU64,
    shards: Sharded<EndpointShard>,
}

impl SharedEndpoint {
    /// A new endpoint. With `ramp`, it joins other endpoints and begins with slow start.
    pub(crate) fn new(address: SocketAddr, workers: usize, ramp: bool) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address,
            mark: mark(address),
            unhealthy_since: AtomicU64::new(0),
            ejected_until: AtomicU64::new(0),
            ejected: AtomicU32::new(0),
            ramp_from: AtomicU64::new(if ramp { uptime_millis() } else { 0 }),
            purges: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            shards: Sharded::new(workers),
        }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A hash of the address, by which all data planes identify the endpoint.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Its counters.
    #[must_use]
    pub fn shards(&self) -> &Sharded<EndpointShard> {
        &self.shards
    }

    /// Whether the endpoint is avoided while other endpoints are eligible.
    #[must_use]
    #[inline]
    pub fn is_unhealthy(&self) -> bool {
        self.unhealthy_since.load(Ordering::Relaxed) != 0
    }

    /// How long the endpoint has been unhealthy.
    #[must_use]
    pub fn unhealthy_for(&self) -> Option<Duration> {
        match self.unhealthy_since.load(Ordering::Relaxed) & !FAILING {
            0 => None,
            since => Some(Duration::from_millis(uptime_millis().saturating_sub(since))),
        }
    }

    /// The endpoint's share relative to a full member, 0.1 to 1, growing over `slow_start`.
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

    /// Marks the endpoint unhealthy. True for the one caller that changed the state, which must probe the endpoint.
    pub(crate) fn mark_unhealthy(&self) -> bool {
        let since = uptime_millis();
        let marked = |before: u64| (before & !FAILING == 0).then_some(before | since);
        self.unhealthy_since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked).is_ok()
    }

    /// The endpoint responded: it is healthy again, with slow start. True for the one caller that changed the state.
    pub(crate) fn readmit(&self) -> bool {
        let changed = self.unhealthy_since.fetch_and(FAILING, Ordering::Relaxed) & !FAILING != 0;
        if changed {
            self.ramp_from.store(uptime_millis(), Ordering::Relaxed);
        }
        changed
    }

    /// Sets whether the endpoint fails its health checks. True for the one caller that changed the state.
    pub(crate) fn set_failing(&self, fails: bool) -> bool {
        match fails {
            true => self.unhealthy_since.fetch_or(FAILING, Ordering::Relaxed) & FAILING == 0,
            false => {
                let changed = self.unhealthy_since.fetch_and(!FAILING, Ordering::Relaxed) & FAILING != 0;
                if changed {
                    self.ramp_from.store(uptime_millis(), Ordering::Relaxed);
                }
                changed
            }
        }
    }

    /// Whether the endpoint fails its health checks.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.unhealthy_since.load(Ordering::Relaxed) & FAILING != 0
    }

    /// Ejects the endpoint for `time`, and for as much longer each time in a row.
    pub(crate) fn eject_for(&self, time: Duration) {
        let times = self.ejected.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(EJECTED_MOST);
        let millis = u64::try_from((time * times).as_millis()).unwrap_or(u64::MAX);
        self.ejected_until.store(uptime_millis().saturating_add(millis), Ordering::Relaxed);
    }

    /// The rest of the ejection, which responses do not shorten.
    pub(crate) fn ejected_for(&self) -> Option<Duration> {
        let left = self.ejected_until.load(Ordering::Relaxed).checked_sub(uptime_millis())?;
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// The endpoint responds without errors: the next ejection counts as the first.
    pub(crate) fn reset_ejections(&self) {
        if self.ejected.load(Ordering::Relaxed) > 0 {
            self.ejected.store(0, Ordering::Relaxed);
        }
    }

    /// Makes all workers close their idle connections to the endpoint before they use another.
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
    #[cfg(test)]
    let elapsed =
        crate::net::simulated::start_of_clock().unwrap_or_else(|| *START.get_or_init(Instant::now)).elapsed();
    #[cfg(not(test))]
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
    fn terminating_endpoints_are_eligible_only_if_no_endpoint_is_ready() {
        let (ready, leaving, gone) = ((true, true, false), (false, true, true), (false, false, true));
        let starting = (false, false, false);
        assert_eq!(eligible(&[ready, leaving, gone, ready]), [0, 3]);
        assert_eq!(eligible(&[starting, leaving, gone]), [1]);
        assert_eq!(eligible(&[gone, starting]), [0u16; 0]);
        assert_eq!(eligible(&[(true, true, true)]), [0], "publishNotReadyAddresses: ready and terminating");
    }

    #[test]
    fn readmitted_endpoint_receives_a_small_share_of_requests_at_first() {
        let endpoint = SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false);
        assert!(endpoint.mark_unhealthy());
        assert!(!endpoint.mark_unhealthy(), "only one caller probes");
        assert!(endpoint.is_unhealthy());
        assert!(endpoint.readmit());
        assert!(!endpoint.is_unhealthy());
        assert!(endpoint.share(Duration::from_secs(3600)) <= 0.11);
        assert!((endpoint.share(Duration::ZERO) - 1.0).abs() < f64::EPSILON);
    }
}
