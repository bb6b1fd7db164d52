//! The budget of retries: a share of the requests of the last interval, and a minimum rate of retries.
//!
//! A budget counts over all workers with atomic numbers, without a lock. Only requests of routes and upstreams with a budget
//! write them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_model::feature::RetryConstraint;
use tokio::time::Instant;

/// The number of parts of the interval. Requests and retries leave the counts part by part.
const PARTS: u32 = 10;

/// A budget of retries.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    constraint: RetryConstraint,
    /// The time from which parts are numbered.
    begun: Instant,
    /// Indexed by the number of the part modulo `PARTS`.
    parts: [Part; PARTS as usize],
    minimum: MinimumRate,
}

/// The retries in the current interval of the minimum rate. One word has both the number of the interval, from 1, and the count,
/// so that the begin of an interval never loses a retry and never counts a retry of another interval.
#[derive(Debug, Default)]
struct MinimumRate(AtomicU64);

/// The bits of the count, which may reach `RetryConstraint::min_retries`. The rest is enough for 500 years of milliseconds.
const COUNT_BITS: u32 = 20;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The counts of a part of an interval.
#[derive(Debug, Default)]
struct Part {
    /// The number of the part, from 1. Counts with number 0 have never begun.
    number: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
}

impl RetryBudget {
    pub(crate) fn new(constraint: RetryConstraint) -> Self {
        Self { constraint, begun: Instant::now(), parts: Default::default(), minimum: MinimumRate::default() }
    }

    /// The budget of a constraint, with the counts of `before` if the constraint has not changed.
    pub(crate) fn following(
        constraint: Option<RetryConstraint>,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let constraint = constraint?;
        let before = before.filter(|before| before.constraint == constraint).cloned();
        Some(before.unwrap_or_else(|| Arc::new(Self::new(constraint))))
    }

    /// Counts a request.
    pub(crate) fn count_request(&self, at: Instant) {
        self.part(at).1.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a retry is allowed. If so, the caller makes the retry and [counts](Self::count_retry) it.
    pub(crate) fn allows_retry(&self, at: Instant) -> bool {
        let RetryConstraint { percent, min_retries, .. } = self.constraint;
        // The minimum applies to each of its intervals separately, so that quiet intervals do not add up to a burst.
        if self.minimum.retries(self.min_interval(at)) < u64::from(min_retries.get()) {
            return true;
        }
        let (now, _) = self.part(at);
        let counts = self.parts.iter().filter(|part| part.is_of_last(now));
        let (requests, retries) = counts.fold((0_u64, 0_u64), |(requests, retries), part| {
            (requests + part.requests.load(Ordering::Relaxed), retries + part.retries.load(Ordering::Relaxed))
        });
        retries < requests.saturating_mul(u64::from(percent.get())) / 100
    }

    /// Counts a retry.
    pub(crate) fn count_retry(&self, at: Instant) {
        self.part(at).1.retries.fetch_add(1, Ordering::Relaxed);
        self.minimum.count(self.min_interval(at));
    }

    /// The part at this time, with its number.
    fn part(&self, at: Instant) -> (u64, &Part) {
        let number = self.number(at, self.constraint.interval.get() / PARTS);
        let part = &self.parts[(number % u64::from(PARTS)) as usize];
        part.begin(number);
        (number, part)
    }

    /// The number of the interval of the minimum rate at this time.
    fn min_interval(&self, at: Instant) -> u64 {
        self.number(at, self.constraint.min_interval.get())
    }

    /// The number of a part with this length, from 1.
    fn number(&self, at: Instant, length: Duration) -> u64 {
        let elapsed = at.saturating_duration_since(self.begun).as_millis();
        let number = elapsed / length.as_millis().max(1);
        u64::try_from(number).unwrap_or(u64::MAX - 1) + 1
    }
}

impl Part {
    /// Begins the part with this number at zero, unless a newer part has begun. If two workers begin the same part at once,
    /// some counts may be lost.
    fn begin(&self, number: u64) {
        if self.number.load(Ordering::Relaxed) < number
            && self.number.fetch_max(number, Ordering::Relaxed) < number
        {
            self.requests.store(0, Ordering::Relaxed);
            self.retries.store(0, Ordering::Relaxed);
        }
    }

    fn is_of_last(&self, now: u64) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        number > 0 && now.saturating_sub(number) < u64::from(PARTS)
    }
}

impl MinimumRate {
    /// The retries in the interval with this number, or in a newer interval if one has begun.
    fn retries(&self, interval: u64) -> u64 {
        let word = self.0.load(Ordering::Relaxed);
        if word >> COUNT_BITS < interval { 0 } else { word & COUNT_MAX }
    }

    /// Counts a retry in the interval with this number, or in a newer interval if one has begun.
    fn count(&self, interval: u64) {
        let count = |word: u64| match word >> COUNT_BITS < interval {
            true => Some(interval << COUNT_BITS | 1),
            // A full count is beyond every minimum.
            false => (word & COUNT_MAX < COUNT_MAX).then_some(word + 1),
        };
        // An error means that the count is full.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use sluicegate_model::value::{Number, Span};

    use super::*;

    fn budget(percent: i64, interval: u64, min_retries: i64, min_interval: u64) -> RetryBudget {
        RetryBudget::new(RetryConstraint {
            percent: Number::of(percent),
            interval: Span::of_millis(interval),
            min_retries: Number::of(min_retries),
            min_interval: Span::of_millis(min_interval),
        })
    }

    /// The number of retries that the budget grants of 100 at this time.
    fn granted(budget: &RetryBudget, millis: u64) -> usize {
        let at = budget.begun + Duration::from_millis(millis);
        let retry = |budget: &RetryBudget| {
            let is_allowed = budget.allows_retry(at);
            if is_allowed {
                budget.count_retry(at);
            }
            is_allowed
        };
        (0..100).filter(|_| retry(budget)).count()
    }

    fn count_requests(budget: &RetryBudget, requests: usize, millis: u64) {
        for _ in 0..requests {
            budget.count_request(budget.begun + Duration::from_millis(millis));
        }
    }

    #[test]
    fn retry_budget_is_a_share_of_the_requests_of_the_last_interval() {
        for second in [1000, 100] {
            let budget = budget(20, 10 * second, 0, 1000);
            let at = |seconds: u64| (1000 + seconds) * second;
            assert_eq!(granted(&budget, at(0)), 0, "of no request");
            count_requests(&budget, 50, at(0));
            assert_eq!(granted(&budget, at(0)), 10);
            assert_eq!(granted(&budget, at(9)), 0, "they are still counted");
            count_requests(&budget, 10, at(9));
            assert_eq!(granted(&budget, at(9)), 2);
            assert_eq!(granted(&budget, at(10)), 0, "of 10 requests 2 were sent again");
            assert_eq!(granted(&budget, at(30)), 0);
        }
    }

    #[test]
    fn retry_budget_always_grants_the_minimum_rate_of_retries() {
        for (length, times) in [(1000, [5000, 6000, 100_000]), (250, [5000, 5250, 5500])] {
            let budget = budget(0, 10_000, 3, length);
            for time in times {
                assert_eq!(granted(&budget, time), 3, "{length} {time}");
                assert_eq!(granted(&budget, time + length - 1), 0, "{length} {time}");
            }
        }
    }

    #[test]
    fn no_retry_is_lost_when_workers_begin_an_interval_of_the_minimum_rate_at_once() {
        const WORKERS: u64 = 4;
        let budget = budget(0, 3_600_000, 1_000_000, 1);
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    for interval in 0..5000 {
                        let at = budget.begun + Duration::from_millis(interval);
                        together.wait();
                        budget.count_retry(at);
                        budget.count_retry(at);
                        together.wait();
                        let retries = budget.minimum.retries(budget.min_interval(at));
                        assert_eq!(retries, 2 * WORKERS, "{interval}");
                    }
                });
            }
        });
    }

    #[test]
    fn retries_of_the_minimum_rate_count_for_the_share() {
        let budget = budget(10, 10_000, 5, 1000);
        count_requests(&budget, 100, 0);
        assert_eq!(granted(&budget, 0), 10, "5 of the minimum rate and 5 more");
        assert_eq!(granted(&budget, 1000), 5);
    }
}
