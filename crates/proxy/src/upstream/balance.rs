//! Choosing an endpoint.

use std::rc::Rc;

use sluicegate_model::{Balance, settings::Resilience};
use tokio::time::Instant;

use super::local::{LocalEndpoint, LocalUpstream, Members};

/// The endpoints that a request has tried without success.
#[derive(Default)]
pub(crate) struct Tried {
    failed: Vec<u64>,
    doubtful: Option<u64>,
}

impl Tried {
    pub(crate) fn add(&mut self, endpoint: &LocalEndpoint) {
        if !self.contains(endpoint) {
            self.failed.push(endpoint.shared.id);
        }
    }

    /// A connection to it was dead, which can mean that it is dying or nothing at all: another one comes first,
    /// unless only suspects are left.
    pub(crate) fn doubt(&mut self, endpoint: &LocalEndpoint) {
        self.doubtful = Some(endpoint.shared.id);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn contains(&self, endpoint: &LocalEndpoint) -> bool {
        self.failed.contains(&endpoint.shared.id)
    }

    fn doubts(&self, endpoint: &LocalEndpoint) -> bool {
        self.doubtful == Some(endpoint.shared.id)
    }
}

/// How often a choice that is not welcome is thrown again before all endpoints are looked through.
const THROWS: usize = 4;

impl LocalUpstream {
    /// The endpoint for the next attempt, none of `tried`. Suspects only if there is nobody else, or too few.
    pub(crate) fn pick(
        &self,
        tried: &Tried,
        resilience: &Resilience,
        now: Instant,
    ) -> Option<Rc<LocalEndpoint>> {
        let members = self.members.borrow();
        let panic = members.is_panic(resilience);
        for _ in 0..THROWS {
            let thrown = self.throw(&members, now)?;
            let welcome = !tried.doubts(thrown) && (panic || !thrown.shared.is_suspect());
            if welcome && members.is_free(thrown, tried) {
                let share = thrown.shared.share(resilience.slow_start);
                if share >= 1.0 || fastrand::f64() < share {
                    return Some(thrown.clone());
                }
            }
        }
        // Rare: look through all, from anywhere.
        let start = fastrand::usize(..members.eligible.len());
        let (after, before) = members.eligible.split_at(start);
        let free = || before.iter().chain(after).filter(|endpoint| members.is_free(endpoint, tried));
        let trusted = || free().filter(|endpoint| !endpoint.shared.is_suspect());
        let best = trusted().find(|endpoint| !tried.doubts(endpoint)).or_else(|| trusted().next());
        best.or_else(|| free().next()).cloned()
    }

    /// Whether every eligible endpoint is at its own limit.
    pub(crate) fn is_full(&self) -> bool {
        let members = self.members.borrow();
        !members.eligible.is_empty() && members.eligible.iter().all(|endpoint| members.is_at_limit(endpoint))
    }

    fn throw<'m>(&self, members: &'m Members, now: Instant) -> Option<&'m Rc<LocalEndpoint>> {
        let eligible = &members.eligible;
        let count = eligible.len();
        if count < 2 {
            return eligible.first();
        }
        if members.balance == Balance::RoundRobin {
            let next = (self.cursor.get() % count + 1) % count;
            self.cursor.set(next);
            return Some(&eligible[next]);
        }
        let one = fastrand::usize(..count);
        let other = (one + fastrand::usize(1..count)) % count;
        let (one, other) = (&eligible[one], &eligible[other]);
        let one_is_better = match members.balance {
            Balance::LeastRequest => one.stats().in_flight.get() <= other.stats().in_flight.get(),
            Balance::Ewma | Balance::RoundRobin => one.cost(now) <= other.cost(now),
        };
        // A suspect never beats its rival by having little to do.
        let prefer_one = match (one.shared.is_suspect(), other.shared.is_suspect()) {
            (true, false) => false,
            (false, true) => true,
            _ => one_is_better,
        };
        Some(if prefer_one { one } else { other })
    }
}

impl Members {
    fn is_free(&self, endpoint: &LocalEndpoint, tried: &Tried) -> bool {
        !tried.contains(endpoint) && !self.is_at_limit(endpoint)
    }

    fn is_at_limit(&self, endpoint: &LocalEndpoint) -> bool {
        self.limits.max_requests_per_endpoint.is_some_and(|limit| {
            endpoint.shared.in_flight.load(std::sync::atomic::Ordering::Relaxed) >= u64::from(limit)
        })
    }

    /// Whether too few endpoints are free of suspicion for suspicion to mean anything.
    fn is_panic(&self, resilience: &Resilience) -> bool {
        let threshold = usize::from(resilience.panic_threshold_percent);
        if threshold == 0 {
            return false;
        }
        let trusted = self.eligible.iter().filter(|endpoint| !endpoint.shared.is_suspect()).count();
        trusted * 100 < threshold * self.eligible.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use sluicegate_model::{Conditions, UpstreamKey};

    use super::*;
    use crate::upstream::{EndpointSet, SharedEndpoint, SharedUpstream};

    fn upstream(balance: Balance, endpoints: u16) -> LocalUpstream {
        let key = UpstreamKey::new("n", "s", "80");
        let upstream = LocalUpstream::new(Arc::new(SharedUpstream::new(key, 0, 1)), 0);
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
            if let Some(endpoint) = upstream.pick(&Tried::default(), resilience, Instant::now()) {
                *counts.entry(endpoint.shared.address().port()).or_default() += 1;
            }
        }
        counts
    }

    fn by_port(upstream: &LocalUpstream, port: u16) -> Rc<LocalEndpoint> {
        upstream.endpoints().into_iter().find(|e| e.shared.address().port() == port).expect("port")
    }

    #[test]
    fn round_robin_takes_turns() {
        let counts = picks(&upstream(Balance::RoundRobin, 4), 400, &Resilience::default());
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100; 4]);
    }

    #[test]
    fn ewma_avoids_the_slow_and_least_request_the_busy() {
        let upstream_ewma = upstream(Balance::Ewma, 2);
        by_port(&upstream_ewma, 1).observe(Duration::from_millis(100), Instant::now());
        by_port(&upstream_ewma, 2).observe(Duration::from_millis(1), Instant::now());
        assert_eq!(picks(&upstream_ewma, 50, &Resilience::default()).get(&1), None);
        let upstream = upstream(Balance::LeastRequest, 2);
        by_port(&upstream, 2).stats().in_flight.add(3);
        assert_eq!(picks(&upstream, 50, &Resilience::default()).get(&2), None);
    }

    #[test]
    fn a_suspect_gets_nothing_while_others_serve_and_all_are_used_when_all_are_suspect() {
        for balance in [Balance::Ewma, Balance::RoundRobin, Balance::LeastRequest] {
            let upstream = upstream(balance, 3);
            by_port(&upstream, 1).shared.suspect();
            assert_eq!(picks(&upstream, 100, &Resilience::default()).get(&1), None);
            by_port(&upstream, 2).shared.suspect();
            by_port(&upstream, 3).shared.suspect();
            assert_eq!(picks(&upstream, 300, &Resilience::default()).len(), 3, "{balance:?}");
        }
    }

    #[test]
    fn the_doubtful_come_after_the_trusted_and_before_the_suspect() {
        let upstream = upstream(Balance::Ewma, 3);
        let mut tried = Tried::default();
        tried.doubt(&by_port(&upstream, 1));
        let port = |tried: &Tried| {
            let picked = upstream.pick(tried, &Resilience::default(), Instant::now());
            picked.map(|endpoint| endpoint.shared.address().port())
        };
        assert!((0..50).all(|_| port(&tried) != Some(1)));
        tried.add(&by_port(&upstream, 2));
        assert!((0..50).all(|_| port(&tried) == Some(3)));
        by_port(&upstream, 3).shared.suspect();
        assert!((0..50).all(|_| port(&tried) == Some(1)));
        tried.add(&by_port(&upstream, 1));
        assert_eq!(port(&tried), Some(3));
    }

    #[test]
    fn below_the_panic_threshold_suspicion_is_ignored() {
        let upstream = upstream(Balance::RoundRobin, 4);
        for port in 1..=3 {
            by_port(&upstream, port).shared.suspect();
        }
        let resilience = Resilience { panic_threshold_percent: 50, ..Resilience::default() };
        assert_eq!(picks(&upstream, 100, &resilience).len(), 4);
        assert_eq!(picks(&upstream, 100, &Resilience::default()).len(), 1);
    }

    #[test]
    fn a_recovered_endpoint_comes_slowly_to_its_share() {
        let upstream = upstream(Balance::RoundRobin, 2);
        let endpoint = by_port(&upstream, 1);
        endpoint.shared.suspect();
        endpoint.shared.readmit();
        let resilience = Resilience { slow_start: Duration::from_secs(3600), ..Resilience::default() };
        let share = picks(&upstream, 2000, &resilience).get(&1).copied().unwrap_or(0);
        assert!((1..600).contains(&share), "{share} of 2000");
    }

    #[test]
    fn what_was_tried_is_not_picked_again() {
        let upstream = upstream(Balance::Ewma, 3);
        let mut tried = Tried::default();
        for _ in 0..3 {
            let endpoint =
                upstream.pick(&tried, &Resilience::default(), Instant::now()).expect("an endpoint");
            tried.add(&endpoint);
        }
        assert!(upstream.pick(&tried, &Resilience::default(), Instant::now()).is_none());
    }
}
