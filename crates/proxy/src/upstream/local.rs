//! A worker's own view of an upstream: its load estimates and its connections.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_model::{Balance, Ejection, Health, HealthCheck, ProxyProtocol, Settings, UpstreamLimits};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::UpstreamContext;
use super::pool::Pool;
use super::retry_budget::RetryBudget;
use super::shared::{EndpointSet, Security, SharedEndpoint, SharedUpstream};
use super::stalled::StalledUploads;
use crate::counters::{EndpointShard, UpstreamShard};
use crate::stream::Http2Connections;

/// An upstream as one worker sees it.
pub(crate) struct LocalUpstream {
    pub(crate) shared: Arc<SharedUpstream>,
    worker: usize,
    pub(super) context: Rc<UpstreamContext>,
    pub(super) members: RefCell<Members>,
    pub(super) cursor: Cell<usize>,
    /// Notified when the endpoints change.
    pub(crate) changed: Notify,
    /// When the last endpoint disappeared, if there is none now.
    pub(super) emptied: Cell<Option<Instant>>,
    pub(super) connect_time: ConnectTime,
    /// Whether a task checks the health of the endpoints.
    pub(super) checking: Cell<bool>,
    /// Whether a policy ejects endpoints after consecutive errors.
    pub(super) ejects: Cell<bool>,
    retired: Cell<bool>,
}

/// The endpoints that the worker received last.
#[derive(Default)]
pub(super) struct Members {
    pub(super) balance: Balance,
    pub(super) limits: UpstreamLimits,
    pub(super) security: Security,
    proxy_protocol: Option<ProxyProtocol>,
    health: Option<Arc<Health>>,
    retry_budget: Option<Arc<RetryBudget>>,
    all: BTreeMap<u64, Rc<LocalEndpoint>>,
    pub(super) eligible: Vec<Rc<LocalEndpoint>>,
}

impl LocalUpstream {
    pub(crate) fn new(shared: Arc<SharedUpstream>, context: Rc<UpstreamContext>) -> Self {
        Self {
            shared,
            worker: context.worker,
            context,
            members: RefCell::default(),
            cursor: Cell::new(fastrand::usize(..)),
            changed: Notify::new(),
            emptied: Cell::new(None),
            connect_time: ConnectTime::default(),
            checking: Cell::new(false),
            ejects: Cell::new(false),
            retired: Cell::new(false),
        }
    }

    pub(crate) fn stats(&self) -> &UpstreamShard {
        self.shared.shards().of(self.worker)
    }

    /// Counts an attempt at an endpoint.
    pub(crate) fn count_attempt(&self, endpoint: &LocalEndpoint) {
        self.stats().attempts.add(1);
        endpoint.stats().attempts.add(1);
    }

    /// Applies a new set of endpoints. Endpoints that stay retain their connections and estimates. Removed endpoints lose
    /// their idle connections at once, and their requests in flight may continue for `drain`.
    pub(crate) fn update(&self, set: &EndpointSet, drain: Duration) {
        let mut members = self.members.borrow_mut();
        let mut old = std::mem::take(&mut members.all);
        for (endpoint, _) in &set.endpoints {
            let local = old
                .remove(&endpoint.id)
                .unwrap_or_else(|| Rc::new(LocalEndpoint::new(endpoint.clone(), self.worker)));
            members.all.insert(endpoint.id, local);
        }
        let eligible = set.eligible().filter_map(|endpoint| members.all.get(&endpoint.id)).cloned().collect();
        members.eligible = eligible;
        members.balance = set.balance;
        members.limits = set.limits;
        members.proxy_protocol = set.proxy_protocol;
        self.ejects.set(set.health.as_ref().is_some_and(|health| health.ejection.is_some()));
        members.health.clone_from(&set.health);
        members.retry_budget.clone_from(&set.retry_budget);
        if !members.security.is_same(&set.security) {
            // An endpoint that was trusted before may not be trusted now.
            members.all.values().for_each(|endpoint| endpoint.close_unused());
            members.security = set.security.clone();
        }
        self.emptied.set(match members.eligible.is_empty() {
            true => self.emptied.get().or_else(|| Some(Instant::now())),
            false => None,
        });
        drop(members);
        for endpoint in old.into_values() {
            endpoint.remove(drain);
        }
        self.changed.notify_waiters();
    }

    /// No route uses the upstream any more. Requests in flight may still choose among its endpoints.
    pub(crate) fn retire(&self, drain: Duration) {
        self.retired.set(true);
        self.changed.notify_waiters();
        for endpoint in self.endpoints() {
            endpoint.remove(drain);
        }
    }

    /// The settings of the health checks, if any.
    pub(super) fn health_check(&self) -> Option<HealthCheck> {
        let members = self.members.borrow();
        members.health.as_ref().filter(|_| !self.retired.get())?.check.clone()
    }

    /// The settings for ejection of endpoints, if any.
    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.members.borrow().health.as_ref()?.ejection
    }

    /// The eligible endpoints.
    pub(super) fn eligible(&self) -> Vec<Rc<LocalEndpoint>> {
        self.members.borrow().eligible.clone()
    }

    /// Whether an endpoint is eligible.
    pub(crate) fn has_endpoint(&self) -> bool {
        !self.members.borrow().eligible.is_empty()
    }

    /// The TLS settings of connections.
    pub(super) fn security(&self) -> Security {
        self.members.borrow().security.clone()
    }

    /// The current settings of the worker.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.context.settings()
    }

    /// How many requests may be in flight over all workers.
    pub(crate) fn max_requests(&self) -> Option<u32> {
        self.members.borrow().limits.max_requests
    }

    /// The version of the PROXY header for endpoints, if any.
    pub(crate) fn proxy_protocol(&self) -> Option<ProxyProtocol> {
        self.members.borrow().proxy_protocol
    }

    /// The limit on retries, if any.
    pub(crate) fn retry_budget(&self) -> Option<Arc<RetryBudget>> {
        self.members.borrow().retry_budget.clone()
    }

    /// Every endpoint of the set.
    pub(crate) fn endpoints(&self) -> Vec<Rc<LocalEndpoint>> {
        self.members.borrow().all.values().cloned().collect()
    }

    pub(crate) fn endpoint(&self, id: u64) -> Option<Rc<LocalEndpoint>> {
        self.members.borrow().all.get(&id).cloned()
    }
}

/// An endpoint as one worker sees it.
pub(crate) struct LocalEndpoint {
    pub(crate) shared: Arc<SharedEndpoint>,
    worker: usize,
    pub(super) pool: RefCell<Pool>,
    pub(super) http2: Rc<Http2Connections>,
    pub(super) stalled: StalledUploads,
    /// The response time in microseconds: jumps up with a slow response, decays with time.
    ewma: Cell<f64>,
    ewma_at: Cell<Instant>,
    pub(super) connect_time: ConnectTime,
    /// The deadline of requests in flight; set once the endpoint is removed from the set.
    removed: Cell<Option<Instant>>,
    /// New connections that were closed without a response, since the last response.
    pub(super) resets: Cell<u32>,
    /// Consecutive requests that ended in an error.
    pub(super) errors: Cell<u32>,
    purges_seen: Cell<u64>,
}

/// The usual connect time: a moving mean.
#[derive(Default)]
pub(super) struct ConnectTime {
    micros: Cell<f64>,
}

impl ConnectTime {
    pub(super) fn add(&self, took: Duration) {
        let (old, new) = (self.micros.get(), took.as_secs_f64() * 1e6);
        self.micros.set(if old > 0.0 { old * 0.9 + new * 0.1 } else { new });
    }

    /// Zero before the first connect.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_micros(self.micros.get() as u64)
    }
}

/// The time in seconds in which an old response time loses its weight (as ingress-nginx' `ewma`).
const DECAY: f64 = 10.0;

/// The longest delay of an acknowledgement on Linux (`TCP_DELACK_MIN` of <net/tcp.h>, for a peer that does not send
/// often).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// How many round trips an acknowledgement may take: one, and a margin for a slow one.
const ROUND_TRIPS: u32 = 2;

impl LocalEndpoint {
    pub(crate) fn new(shared: Arc<SharedEndpoint>, worker: usize) -> Self {
        Self {
            purges_seen: Cell::new(shared.purges.load(Ordering::Relaxed)),
            shared,
            worker,
            pool: RefCell::default(),
            http2: Rc::default(),
            stalled: StalledUploads::default(),
            ewma: Cell::new(0.0),
            ewma_at: Cell::new(Instant::now()),
            connect_time: ConnectTime::default(),
            removed: Cell::new(None),
            resets: Cell::new(0),
            errors: Cell::new(0),
        }
    }

    pub(crate) fn stats(&self) -> &EndpointShard {
        self.shared.shards().of(self.worker)
    }

    /// Whether the endpoint was removed from the set.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.get().is_some()
    }

    /// Whether the endpoint was removed from the set, and its drain time is over.
    pub(crate) fn is_drained(&self, now: Instant) -> bool {
        self.removed.get().is_some_and(|end| now >= end)
    }

    /// How long the endpoint's kernel may take to acknowledge sent bytes, at least `least`: Linux delays an
    /// acknowledgement by up to 40 ms, and connecting took a round trip.
    pub(crate) fn acknowledges_within(&self, least: Duration) -> Duration {
        least.max(DELAYED_ACK + ROUND_TRIPS * self.connect_time.usual())
    }

    /// Records a response that took `elapsed`.
    pub(crate) fn observe(&self, elapsed: Duration, now: Instant) {
        let micros = elapsed.as_secs_f64() * 1e6;
        let old = self.ewma.get();
        // Peak sensitive: a slow response counts in full at once, a fast response by the time that passed.
        let value = if micros > old { micros } else { micros + (old - micros) * self.weight(now) };
        self.ewma.set(value);
        self.ewma_at.set(now);
        self.answered();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for show")]
        self.stats().ewma_micros.set(value as u64);
    }

    /// Records that bytes came from the endpoint.
    pub(crate) fn answered(&self) {
        self.resets.set(0);
    }

    /// The expected cost of one more request.
    pub(super) fn cost(&self, now: Instant) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
        let waiting = self.stats().in_flight.get() as f64;
        // One microsecond more, so that endpoints without responses differ by their requests in flight.
        (self.ewma.get() * self.weight(now) + 1.0) * (waiting + 1.0)
    }

    /// The remaining weight of the last estimate, 1 to 0.
    fn weight(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.ewma_at.get());
        if age < Duration::from_millis(10) {
            1.0 - age.as_secs_f64() / DECAY
        } else {
            (-age.as_secs_f64() / DECAY).exp()
        }
    }

    fn remove(&self, drain: Duration) {
        self.removed.set(Some(crate::deadline::after(Instant::now(), drain)));
        self.close_unused();
    }

    /// Closes idle connections, and assigns no further requests to shared connections.
    pub(super) fn close_unused(&self) {
        self.pool.borrow_mut().clear(self.stats());
        self.http2.clear();
    }

    /// A connection was found dead: this worker closes its idle connections now, other workers before they use one.
    pub(super) fn purge(&self) {
        self.shared.purge();
        self.close_purged_connections();
    }

    /// Closes the idle connections if a worker has found one of them dead since the last call.
    pub(super) fn close_purged_connections(&self) {
        let purges = self.shared.purges.load(Ordering::Relaxed);
        if self.purges_seen.replace(purges) != purges {
            self.close_unused();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_for_tcp_acknowledgements_grows_with_the_connect_time() {
        let address = ([127, 0, 0, 1], 1).into();
        let endpoint = LocalEndpoint::new(Arc::new(SharedEndpoint::new(address, 1, false)), 0);
        let [least, distant] = [60, 80].map(Duration::from_millis);
        assert_eq!(endpoint.acknowledges_within(least), least);
        endpoint.connect_time.add(Duration::from_micros(200));
        assert_eq!(endpoint.acknowledges_within(least), least);
        for _ in 0..100 {
            endpoint.connect_time.add(distant);
        }
        assert!(endpoint.acknowledges_within(least) > 2 * distant);
    }
}
