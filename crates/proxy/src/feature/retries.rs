//! Retries: their conditions, and their budget.
//!
//! The retry budget counts over all workers: a percentage of the requests of the last 10 s, and a minimum for each second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_model::feature::{Retries, RetryBudget};
use sluicegate_model::value::Span;
use tokio::time::Instant;

use super::traffic::TrafficPolicy;
use crate::failure::Failure;

/// The length of the window, in seconds.
const SECONDS: u64 = 10;

/// The retry budget of a policy.
#[derive(Debug)]
pub(crate) struct Budget {
    source: RetryBudget,
    /// The time from which seconds are numbered.
    begun: Instant,
    /// Indexed by the number of the second modulo `SECONDS`.
    seconds: [Second; SECONDS as usize],
}

/// The counts of one second.
#[derive(Debug, Default)]
struct Second {
    /// The number of the second.
    number: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
}

impl TrafficPolicy {
    fn retries(&self) -> Option<&Retries> {
        self.source().features.retries.as_ref()
    }

    /// Whether the policy retries responses with this status.
    pub(crate) fn retries_status(&self, status: u16) -> bool {
        self.retries().is_some_and(|retries| retries.codes.iter().any(|code| code.get() == status))
    }

    /// The wait before a retry after this failure.
    pub(crate) fn backoff(&self, failure: Failure) -> Option<Duration> {
        // Nothing processed the request, so the endpoint needs no rest.
        let is_unprocessed = matches!(failure, Failure::Stale | Failure::Refused);
        self.retries()?.backoff.filter(|_| !is_unprocessed).map(Span::get)
    }

    /// Whether the retry budget allows another attempt, which counts as made.
    pub(crate) fn spend_retry(&self, worker: usize, now: Instant) -> bool {
        let Some(budget) = &self.compiled.budget else { return true };
        let is_free = budget.retry(now);
        if !is_free {
            self.stats.of(worker).over_budget.add(1);
        }
        is_free
    }
}

impl Budget {
    pub(crate) fn new(source: RetryBudget) -> Self {
        Self { source, begun: Instant::now(), seconds: Default::default() }
    }

    pub(crate) fn is_of(&self, source: RetryBudget) -> bool {
        self.source == source
    }

    /// Counts a request.
    pub(crate) fn request(&self, at: Instant) {
        self.second(self.second_of(at)).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a retry is allowed. If so, the retry is counted.
    pub(crate) fn retry(&self, at: Instant) -> bool {
        let now = self.second_of(at);
        let current = self.second(now);
        let counts = self.seconds.iter().filter(|second| second.is_of_last(now));
        let (requests, retries) = counts.fold((0, 0), |(requests, retries), second| {
            (
                requests + second.requests.load(Ordering::Relaxed),
                retries + second.retries.load(Ordering::Relaxed),
            )
        });
        let RetryBudget { percent, min_per_second } = self.source;
        // The minimum applies to each second separately, so that quiet seconds do not add up to a burst.
        let least = u64::from(min_per_second.get());
        let is_free = current.retries.load(Ordering::Relaxed) < least
            || retries < requests * u64::from(percent.get()) / 100;
        if is_free {
            current.retries.fetch_add(1, Ordering::Relaxed);
        }
        is_free
    }

    /// The number of a second, from 1. Counts with number 0 have never begun.
    fn second_of(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_secs() + 1
    }

    /// The counts of a second, which begin at zero. If two workers begin the same second at once, some counts may be
    /// lost.
    fn second(&self, number: u64) -> &Second {
        let second = &self.seconds[(number % SECONDS) as usize];
        if second.number.load(Ordering::Relaxed) != number
            && second.number.swap(number, Ordering::Relaxed) != number
        {
            second.requests.store(0, Ordering::Relaxed);
            second.retries.store(0, Ordering::Relaxed);
        }
        second
    }
}

impl Second {
    fn is_of_last(&self, now: u64) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        number > 0 && now.saturating_sub(number) < SECONDS
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::value::Number;

    use std::time::Duration;

    use super::*;

    #[test]
    fn retry_budget_is_a_share_of_requests_in_the_last_ten_seconds() {
        let budget = Budget::new(RetryBudget { percent: Number::of(20), min_per_second: Number::of(0) });
        let at = |seconds: u64| budget.begun + Duration::from_secs(1000 + seconds);
        assert!(!budget.retry(at(0)), "of no request");
        for _ in 0..50 {
            budget.request(at(0));
        }
        let granted = |seconds: u64| (0..100).filter(|_| budget.retry(at(seconds))).count();
        assert_eq!(granted(0), 10);
        assert_eq!(granted(9), 0, "they are still counted");
        for _ in 0..10 {
            budget.request(at(9));
        }
        assert_eq!(granted(9), 2);
        assert_eq!(granted(10), 0, "of 10 requests 2 were sent again");
        assert_eq!(granted(30), 0);
    }

    #[test]
    fn retry_budget_always_grants_the_minimum_retries_per_second() {
        let budget = Budget::new(RetryBudget { percent: Number::of(0), min_per_second: Number::of(3) });
        for second in [5, 6, 100] {
            let granted =
                (0..10).filter(|_| budget.retry(budget.begun + Duration::from_secs(second))).count();
            assert_eq!(granted, 3, "{second}");
        }
    }
}
