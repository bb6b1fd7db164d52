//! Load balancing.

use std::cmp::Reverse;
use std::rc::Rc;

use sluicegate_model::{Balance, settings::Resilience};
use tokio::time::Instant;

use super::local::{LocalEndpoint, LocalUpstream, Members};
use crate::hash::mix;

/// The endpoints that a request avoids.
#[derive(Default)]
pub(crate) struct AvoidedEndpoints {
    /// The endpoints that failed the request.
    failed: Vec<u64>,
    /// The endpoints to which a connect was started.
    connects: Vec<u64>,
    doubtful: Option<u64>,
}

impl AvoidedEndpoints {
    /// The endpoint failed the request.
    pub(crate) fn add(&mut self, endpoint: &LocalEndpoint) {
        if !self.failed.contains(&endpoint.shared.id) {
            self.failed.push(endpoint.shared.id);
        }
    }

    /// A connect to the endpoint starts. The connect may fail, or lose a race.
    pub(super) fn add_connect(&mut self, endpoint: &LocalEndpoint) {
        if !self.connects.contains(&endpoint.shared.id) {
            self.connects.push(endpoint.shared.id);
        }
    }

    /// Allows connects to the same endpoints again, except to the endpoints that failed the request.
    pub(super) fn forget_connects(&mut self) {
        self.connects.clear();
    }

    /// A connection to the endpoint was dead. The endpoint may be about to end, or may be fine. Another endpoint comes
    /// first, unless only unhealthy endpoints are left.
    pub(crate) fn doubt(&mut self, endpoint: &LocalEndpoint) {
        self.doubtful = Some(endpoint.shared.id);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn contains(&self, endpoint: &LocalEndpoint) -> bool {
        self.failed.contains(&endpoint.shared.id) || self.connects.contains(&endpoint.shared.id)
    }

    fn doubts(&self, endpoint: &LocalEndpoint) -> bool {
        self.doubtful == Some(endpoint.shared.id)
    }
}

/// The endpoint that a request prefers. Preferences come before the upstream's settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndpointPreference {
    /// The balance to use instead of the upstream's balance.
    pub(crate) balance: Option<Balance>,
    /// Requests with the same hash go to the same endpoint, unless the endpoint is overloaded.
    pub(crate) hash: Option<u64>,
    /// Whether an overloaded endpoint also receives the requests with its hash.
    pub(crate) is_strict: bool,
    /// The number of endpoints that a hash selects, one of which the request goes to at random. 0 is as 1.
    pub(crate) subset: usize,
    /// The endpoint with this [`mark`](super::SharedEndpoint::mark), before any other choice.
    pub(crate) mark: Option<u64>,
}

/// How many requests of a worker an endpoint may have in flight before consistent hashing checks its share.
const HASHED_MIN: u64 = 8;

/// How many random hashes the gateway tries to find a hash for an endpoint.
const HASHES_MAX: usize = 1000;

/// How often the random choice is repeated after an unwelcome endpoint, before all endpoints are searched.
const CHOICE_RETRIES: usize = 4;

impl LocalUpstream {
    /// The endpoint for the next attempt, none of `tried`. Unhealthy endpoints only if there are no healthy endpoints, or
    /// too few.
    pub(crate) fn pick(
        &self,
        tried: &AvoidedEndpoints,
        preference: &EndpointPreference,
        resilience: &Resilience,
        now: Instant,
    ) -> Option<Rc<LocalEndpoint>> {
        let members = self.members.borrow();
        if let Some(preferred_endpoint) = members.preferred_endpoint(preference, tried) {
            return Some(preferred_endpoint.clone());
        }
        let panic = members.is_panic(resilience);
        let balance = preference.balance.unwrap_or(members.balance);
        for _ in 0..CHOICE_RETRIES {
            let thrown = self.next_candidate(&members, balance, now)?;
            let welcome = !tried.doubts(thrown) && (panic || !thrown.shared.is_unhealthy());
            if welcome && members.is_free(thrown, tried) {
                let share = thrown.shared.share(resilience.slow_start);
                if share >= 1.0 || fastrand::f64() < share {
                    return Some(thrown.clone());
                }
            }
        }
        // Rare: searches all endpoints from a random start.
        let start = fastrand::usize(..members.eligible.len());
        let (after, before) = members.eligible.split_at(start);
        let free = || before.iter().chain(after).filter(|endpoint| members.is_free(endpoint, tried));
        let trusted = || free().filter(|endpoint| !endpoint.shared.is_unhealthy());
        let best = trusted().find(|endpoint| !tried.doubts(endpoint)).or_else(|| trusted().next());
        best.or_else(|| free().next()).cloned()
    }

    /// Whether an eligible endpoint has this mark.
    pub(crate) fn has_marked(&self, mark: u64) -> bool {
        self.members.borrow().eligible.iter().any(|endpoint| endpoint.shared.mark() == mark)
    }

    /// A hash that leads to the endpoint with this mark: `hash` if it leads there already, else a random hash. `None` if
    /// none of [`HASHES_MAX`] hashes leads there.
    pub(crate) fn hash_of(&self, mark: u64, hash: u64) -> Option<u64> {
        let members = self.members.borrow();
        let leads = |hash: &u64| {
            let first = members.eligible.iter().min_by_key(|endpoint| order(*hash, endpoint));
            first.is_some_and(|first| first.shared.mark() == mark)
        };
        let random = std::iter::repeat_with(|| fastrand::u64(..)).take(HASHES_MAX);
        std::iter::once(hash).chain(random).find(leads)
    }

    /// Whether every eligible endpoint is at its own limit.
    pub(crate) fn is_full(&self) -> bool {
        let members = self.members.borrow();
        !members.eligible.is_empty() && members.eligible.iter().all(|endpoint| members.is_at_limit(endpoint))
    }

    /// Whether an eligible endpoint is at its own limit.
    pub(super) fn has_full_endpoint(&self) -> bool {
        let members = self.members.borrow();
        members.eligible.iter().any(|endpoint| members.is_at_limit(endpoint))
    }

    fn next_candidate<'m>(
        &self,
        members: &'m Members,
        balance: Balance,
        now: Instant,
    ) -> Option<&'m Rc<LocalEndpoint>> {
        let eligible = &members.eligible;
        let count = eligible.len();
        if count < 2 {
            return eligible.first();
        }
        if balance == Balance::RoundRobin {
            let next = (self.cursor.get() % count + 1) % count;
            self.cursor.set(next);
            return Some(&eligible[next]);
        }
        let one = fastrand::usize(..count);
        let other = (one + fastrand::usize(1..count)) % count;
        let (one, other) = (&eligible[one], &eligible[other]);
        let one_is_better = match balance {
            Balance::LeastRequest => one.stats().in_flight.get() <= other.stats().in_flight.get(),
            Balance::Ewma | Balance::RoundRobin => one.cost(now) <= other.cost(now),
        };
        // An unhealthy endpoint never wins because it has few requests.
        let prefer_one = match (one.shared.is_unhealthy(), other.shared.is_unhealthy()) {
            (true, false) => false,
            (false, true) => true,
            _ => one_is_better,
        };
        Some(if prefer_one { one } else { other })
    }
}

/// The place of an endpoint in the order that a hash gives.
fn order(hash: u64, endpoint: &LocalEndpoint) -> Reverse<u64> {
    Reverse(mix(hash ^ endpoint.shared.mark()))
}

impl Members {
    fn is_free(&self, endpoint: &LocalEndpoint, tried: &AvoidedEndpoints) -> bool {
        !tried.contains(endpoint) && !self.is_at_limit(endpoint)
    }

    /// The preferred endpoint, if it can take the request.
    fn preferred_endpoint(
        &self,
        preference: &EndpointPreference,
        tried: &AvoidedEndpoints,
    ) -> Option<&Rc<LocalEndpoint>> {
        let serves = |endpoint: &&Rc<LocalEndpoint>| {
            self.is_free(endpoint, tried) && !endpoint.shared.is_unhealthy() && !tried.doubts(endpoint)
        };
        let marked = preference.mark.and_then(|mark| {
            self.eligible.iter().find(|endpoint| endpoint.shared.mark() == mark).filter(serves)
        });
        marked.or_else(|| match preference.subset {
            0 | 1 => self.hashed(preference.hash?, preference.is_strict, serves),
            size => self.hashed_subset(preference.hash?, size, serves),
        })
    }

    /// One of the first endpoints in the order that the hash gives, at random.
    fn hashed_subset(
        &self,
        hash: u64,
        size: usize,
        serves: impl Fn(&&Rc<LocalEndpoint>) -> bool,
    ) -> Option<&Rc<LocalEndpoint>> {
        let mut endpoints: Vec<_> = self.eligible.iter().collect();
        let size = size.min(endpoints.len());
        if size < endpoints.len() {
            endpoints.select_nth_unstable_by_key(size, |endpoint| order(hash, endpoint));
        }
        if size == 0 {
            return None;
        }
        let start = fastrand::usize(..size);
        (start..start + size).map(|at| endpoints[at % size]).find(serves)
    }

    /// The first endpoint in the order that the hash gives, among the endpoints with no more than their share of
    /// requests. In rendezvous hashing, a change of one endpoint moves only the requests of that endpoint. The limit of
    /// the share is from Mirrokni et al., Consistent Hashing with Bounded Loads.
    fn hashed(
        &self,
        hash: u64,
        is_strict: bool,
        serves: impl Fn(&&Rc<LocalEndpoint>) -> bool,
    ) -> Option<&Rc<LocalEndpoint>> {
        let busy = |endpoint: &Rc<LocalEndpoint>| endpoint.stats().in_flight.get();
        let total: u64 = self.eligible.iter().map(busy).sum();
        // 5/4 of the mean, this request included.
        let share = ((total + 1) * 5).div_ceil(self.eligible.len().max(1) as u64 * 4);
        let most = if is_strict { u64::MAX } else { share.max(HASHED_MIN) };
        let free = self.eligible.iter().filter(|endpoint| busy(endpoint) < most).filter(serves);
        free.min_by_key(|endpoint| order(hash, endpoint))
    }

    fn is_at_limit(&self, endpoint: &LocalEndpoint) -> bool {
        self.limits.max_requests_per_endpoint.is_some_and(|limit| {
            endpoint.shared.in_flight.load(std::sync::atomic::Ordering::Relaxed) >= u64::from(limit)
        })
    }

    /// Whether too few endpoints are healthy for health to matter (panic threshold).
    fn is_panic(&self, resilience: &Resilience) -> bool {
        let threshold = usize::from(resilience.panic_threshold_percent);
        if threshold == 0 {
            return false;
        }
        let trusted = self.eligible.iter().filter(|endpoint| !endpoint.shared.is_unhealthy()).count();
        trusted * 100 < threshold * self.eligible.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::UpstreamContext;
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use sluicegate_model::{Conditions, UpstreamKey};

    use super::*;
    use crate::hash::StableHash;
    use crate::upstream::{EndpointSet, SharedEndpoint, SharedUpstream};

    fn upstream(balance: Balance, endpoints: u16) -> LocalUpstream {
        let key = UpstreamKey::new("n", "s", "80");
        let upstream = LocalUpstream::new(
            Arc::new(SharedUpstream::new(key, 0, 1)),
            UpstreamContext::new(0, Rc::default()).into(),
        );
        let endpoint = |port| {
            let address = ([127, 0, 0, 1], port).into();
            (Arc::new(SharedEndpoint::new(address, 1, false)), Conditions::READY)
        };
        let set =
            EndpointSet { balance, endpoints: (1..=endpoints).map(endpoint).collect(), ..Default::default() };
        upstream.update(&set, Duration::ZERO);
        upstream
    }

    fn picks(upstream: &LocalUpstream, times: usize, resilience: &Resilience) -> HashMap<u16, usize> {
        let mut counts = HashMap::new();
        for _ in 0..times {
            if let Some(endpoint) = upstream.pick(
                &AvoidedEndpoints::default(),
                &EndpointPreference::default(),
                resilience,
                Instant::now(),
            ) {
                *counts.entry(endpoint.shared.address().port()).or_default() += 1;
            }
        }
        counts
    }

    fn by_port(upstream: &LocalUpstream, port: u16) -> Rc<LocalEndpoint> {
        upstream.endpoints().into_iter().find(|e| e.shared.address().port() == port).expect("port")
    }

    #[test]
    fn round_robin_selects_endpoints_in_turn() {
        let counts = picks(&upstream(Balance::RoundRobin, 4), 400, &Resilience::default());
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100; 4]);
    }

    #[test]
    fn ewma_avoids_slow_endpoints_and_least_request_avoids_busy_endpoints() {
        let upstream_ewma = upstream(Balance::Ewma, 2);
        by_port(&upstream_ewma, 1).observe(Duration::from_millis(100), Instant::now());
        by_port(&upstream_ewma, 2).observe(Duration::from_millis(1), Instant::now());
        assert_eq!(picks(&upstream_ewma, 50, &Resilience::default()).get(&1), None);
        let upstream = upstream(Balance::LeastRequest, 2);
        by_port(&upstream, 2).stats().in_flight.add(3);
        assert_eq!(picks(&upstream, 50, &Resilience::default()).get(&2), None);
    }

    #[test]
    fn unhealthy_endpoint_is_avoided_unless_all_are_unhealthy() {
        for balance in [Balance::Ewma, Balance::RoundRobin, Balance::LeastRequest] {
            let upstream = upstream(balance, 3);
            by_port(&upstream, 1).shared.mark_unhealthy();
            assert_eq!(picks(&upstream, 100, &Resilience::default()).get(&1), None);
            by_port(&upstream, 2).shared.mark_unhealthy();
            by_port(&upstream, 3).shared.mark_unhealthy();
            assert_eq!(picks(&upstream, 300, &Resilience::default()).len(), 3, "{balance:?}");
        }
    }

    #[test]
    fn doubted_endpoint_is_picked_after_healthy_and_before_unhealthy_endpoints() {
        let upstream = upstream(Balance::Ewma, 3);
        let mut tried = AvoidedEndpoints::default();
        tried.doubt(&by_port(&upstream, 1));
        let port = |tried: &AvoidedEndpoints| {
            let picked =
                upstream.pick(tried, &EndpointPreference::default(), &Resilience::default(), Instant::now());
            picked.map(|endpoint| endpoint.shared.address().port())
        };
        assert!((0..50).all(|_| port(&tried) != Some(1)));
        tried.add(&by_port(&upstream, 2));
        assert!((0..50).all(|_| port(&tried) == Some(3)));
        by_port(&upstream, 3).shared.mark_unhealthy();
        assert!((0..50).all(|_| port(&tried) == Some(1)));
        tried.add(&by_port(&upstream, 1));
        assert_eq!(port(&tried), Some(3));
    }

    #[test]
    fn below_the_panic_threshold_endpoint_health_is_ignored() {
        let upstream = upstream(Balance::RoundRobin, 4);
        for port in 1..=3 {
            by_port(&upstream, port).shared.mark_unhealthy();
        }
        let resilience = Resilience { panic_threshold_percent: 50, ..Resilience::default() };
        assert_eq!(picks(&upstream, 100, &resilience).len(), 4);
        assert_eq!(picks(&upstream, 100, &Resilience::default()).len(), 1);
    }

    #[test]
    fn recovered_endpoint_is_picked_less_often_during_slow_start() {
        let upstream = upstream(Balance::RoundRobin, 2);
        let endpoint = by_port(&upstream, 1);
        endpoint.shared.mark_unhealthy();
        endpoint.shared.readmit();
        let resilience = Resilience { slow_start: Duration::from_secs(3600), ..Resilience::default() };
        let share = picks(&upstream, 2000, &resilience).get(&1).copied().unwrap_or(0);
        assert!((1..600).contains(&share), "{share} of 2000");
    }

    #[test]
    fn retry_does_not_pick_an_endpoint_that_was_already_tried() {
        let upstream = upstream(Balance::Ewma, 3);
        let mut tried = AvoidedEndpoints::default();
        for _ in 0..3 {
            let endpoint = upstream
                .pick(&tried, &EndpointPreference::default(), &Resilience::default(), Instant::now())
                .expect("an endpoint");
            tried.add(&endpoint);
        }
        assert!(
            upstream
                .pick(&tried, &EndpointPreference::default(), &Resilience::default(), Instant::now())
                .is_none()
        );
    }

    #[test]
    fn endpoint_whose_connect_lost_a_race_is_picked_again_before_an_endpoint_that_failed_the_request() {
        let upstream = upstream(Balance::Ewma, 2);
        let mut tried = AvoidedEndpoints::default();
        tried.add_connect(&by_port(&upstream, 1));
        tried.add(&by_port(&upstream, 1));
        tried.add_connect(&by_port(&upstream, 2));
        let port = |tried: &AvoidedEndpoints| {
            let preference = EndpointPreference::default();
            let picked = upstream.pick(tried, &preference, &Resilience::default(), Instant::now());
            picked.map(|endpoint| endpoint.shared.address().port())
        };
        assert_eq!(port(&tried), None);
        tried.forget_connects();
        assert!((0..50).all(|_| port(&tried) == Some(2)));
    }

    fn hashed(upstream: &LocalUpstream, hash: u64) -> u16 {
        let preference = EndpointPreference { hash: Some(hash), ..EndpointPreference::default() };
        let picked =
            upstream.pick(&AvoidedEndpoints::default(), &preference, &Resilience::default(), Instant::now());
        picked.map_or(0, |endpoint| endpoint.shared.address().port())
    }

    #[test]
    fn adding_an_endpoint_moves_only_its_share_of_evenly_spread_hashes() {
        let (ten, eleven) = (upstream(Balance::Ewma, 10), upstream(Balance::Ewma, 11));
        let mut counts = HashMap::new();
        let mut moved = 0;
        for hash in (0..10_000).map(mix) {
            let (before, after) = (hashed(&ten, hash), hashed(&eleven, hash));
            *counts.entry(before).or_insert(0) += 1;
            if before != after {
                assert_eq!(after, 11, "moved to another one than the new");
                moved += 1;
            }
        }
        assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert!((700..1200).contains(&moved), "{moved}");
    }

    #[test]
    fn requests_hashed_to_a_full_or_unhealthy_endpoint_move_temporarily() {
        let upstream = upstream(Balance::RoundRobin, 3);
        let first = hashed(&upstream, 7);
        assert!((0..50).all(|_| hashed(&upstream, 7) == first));
        let endpoint = by_port(&upstream, first);
        endpoint.stats().in_flight.add(HASHED_MIN);
        let second = hashed(&upstream, 7);
        assert_ne!(second, first);
        endpoint.stats().in_flight.sub(1);
        assert_eq!(hashed(&upstream, 7), first);
        endpoint.shared.mark_unhealthy();
        assert_eq!(hashed(&upstream, 7), second);
    }

    #[test]
    fn affinity_cookie_value_selects_its_endpoint_while_healthy_and_untried() {
        let upstream = upstream(Balance::RoundRobin, 3);
        let endpoint = by_port(&upstream, 2);
        let preference =
            EndpointPreference { mark: Some(endpoint.shared.mark()), ..EndpointPreference::default() };
        let pick = |tried: &AvoidedEndpoints| {
            let picked = upstream.pick(tried, &preference, &Resilience::default(), Instant::now());
            picked.map(|endpoint| endpoint.shared.address().port())
        };
        assert!((0..50).all(|_| pick(&AvoidedEndpoints::default()) == Some(2)));
        let mut tried = AvoidedEndpoints::default();
        tried.add(&endpoint);
        assert_ne!(pick(&tried), Some(2));
        endpoint.shared.mark_unhealthy();
        assert_ne!(pick(&AvoidedEndpoints::default()), Some(2));
    }

    /// The cookies of clients depend on these values, and so does the agreement between data planes of two versions.
    #[test]
    fn stable_hash_has_the_same_value_in_every_version() {
        let mut hash = StableHash::new();
        hash.part(b"a");
        hash.part(b"");
        assert_eq!(hash.finish(), 0xe841_4f3b_057f_42e7);
    }
}
