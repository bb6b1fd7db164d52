//! The algorithms of limits. The state of each key is one number, so that a call changes the state in one step.

use std::time::Duration;

use sluicegate_model::feature::{Limit, Window};

use super::clock::Clock;

/// The rate that a limit allows.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    /// The generic cell rate algorithm (ITU-T I.371, A). The state is the time at which the bucket is full again, by a
    /// clock that is never adjusted.
    Bucket {
        /// The interval between two calls at an even pace, in nanoseconds.
        interval: u64,
        /// How far calls may be ahead of that pace, in nanoseconds.
        tolerance: u64,
    },
    /// The state is the number of the window, the count of the previous window, and the count of this window. All data
    /// planes that share the limit number windows by one clock.
    Sliding {
        /// In nanoseconds.
        window: u64,
        most: u64,
    },
}

/// The outcome of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// How long to wait until there is room; `None` if there was room.
    pub(super) wait: Option<Duration>,
    /// The number of further calls that the limit allows now.
    pub(super) left: u64,
    /// The time until the full quota is available again.
    pub(super) reset: Duration,
}

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const NUMBER_MASK: u64 = (1 << (64 - 2 * COUNT_BITS)) - 1;

/// A state that is more windows ahead of the clock than this is not believed.
const AHEAD: u64 = 2;

/// The maximum number of full buckets that the calls of several data planes take at once: one full bucket, and one more
/// by which they overdraw the bucket.
pub(super) const BUCKETS_MAX: u64 = 2;

impl Pace {
    pub(super) fn new(limit: &Limit) -> Self {
        let per = u64::try_from(limit.per.get().as_nanos()).unwrap_or(u64::MAX).max(1);
        match limit.window() {
            Window::TokenBucket { burst } => {
                let interval = (per / u64::from(limit.requests.get())).max(1);
                // Half of the range of the numbers, about 290 years.
                let tolerance = interval.saturating_mul(u64::from(burst.max(1))).min(u64::MAX / 2);
                Self::Bucket { interval, tolerance }
            }
            Window::Sliding => {
                Self::Sliding { window: per, most: u64::from(limit.requests.get()).min(COUNT_MASK) }
            }
        }
    }

    /// The time by which the limit counts, `elapsed` after the epoch of the clock.
    pub(super) fn time(&self, clock: &Clock, elapsed: u64) -> u64 {
        match self {
            // If a server sets back its clock, buckets by that clock would stay empty for the same time.
            Self::Bucket { .. } => elapsed,
            Self::Sliding { .. } => clock.shown(elapsed),
        }
    }

    /// The state after a call at `now`, in nanoseconds, and the outcome of the call. A call without room does not change
    /// the state.
    pub(super) fn count(&self, state: u64, now: u64) -> (u64, Counted) {
        match *self {
            Self::Bucket { interval, tolerance } => {
                let full = state.max(now);
                let next = full.saturating_add(interval);
                let wait = next.saturating_sub(now).saturating_sub(tolerance);
                let full = if wait == 0 { next } else { full };
                let counted = Counted {
                    wait: (wait > 0).then(|| Duration::from_nanos(wait)),
                    left: tolerance.saturating_sub(full - now) / interval,
                    reset: Duration::from_nanos(full - now),
                };
                (if wait == 0 { next } else { state }, counted)
            }
            Self::Sliding { window, most } => {
                let (number, within) = at(state, window, now);
                let (before, current) = counts(state, number);
                // The previous window counts by the fraction of it that the sliding window still covers.
                let in_sight =
                    (u128::from(before) * u128::from(window - within)).div_ceil(u128::from(window));
                let used = u64::try_from(in_sight).unwrap_or(u64::MAX) + current;
                if used < most {
                    let counted = Counted {
                        wait: None,
                        left: most - used - 1,
                        reset: Duration::from_nanos(window - within),
                    };
                    return (pack(number, before, current + 1), counted);
                }
                // Until the sliding window has left enough of the previous window, or this window ends.
                let excess = used - most + 1;
                let wait = match before {
                    1.. if current < most => {
                        (u128::from(excess) * u128::from(window) / u128::from(before)) as u64
                    }
                    _ => window - within,
                };
                let wait = wait.clamp(1, window);
                let counted = Counted {
                    wait: Some(Duration::from_nanos(wait)),
                    left: 0,
                    reset: Duration::from_nanos(window - within),
                };
                (state, counted)
            }
        }
    }

    /// The state of a key that other data planes count too. It is their count with the `own` calls that they do not know
    /// yet, and never less than the count here. At most [`BUCKETS_MAX`] of the others' count is believed.
    pub(super) fn merge(&self, state: u64, others: u64, own: u64, now: u64) -> u64 {
        match *self {
            Self::Bucket { interval, tolerance } => {
                let most = now.saturating_add(tolerance.saturating_mul(BUCKETS_MAX));
                state.max(others.min(most).saturating_add(own.saturating_mul(interval)))
            }
            Self::Sliding { window, .. } => {
                let (number, _) = at(state, window, now);
                let ((before, current), theirs) = (counts(state, number), counts(others, number));
                pack(number, before.max(theirs.0), current.max(theirs.1 + own))
            }
        }
    }

    /// The time from which a state has no effect any more, in nanoseconds.
    pub(super) fn forgotten(&self, state: u64, now: u64) -> u64 {
        match *self {
            Self::Bucket { .. } => state,
            Self::Sliding { window, .. } => {
                let (number, _) = at(state, window, now);
                match counts(state, number) {
                    (0, 0) => 0,
                    (_, 0) => (number + 1) * window,
                    _ => (number + 2).saturating_mul(window),
                }
            }
        }
    }
}

/// The number of the current window, and the time since its begin. If the state is of a later window, that window is the
/// current one: the window has just begun elsewhere, or a call got ahead of this call.
fn at(state: u64, window: u64, now: u64) -> (u64, u64) {
    let number = now / window;
    match (state >> (2 * COUNT_BITS)).wrapping_sub(number) & NUMBER_MASK {
        ahead @ 1..=AHEAD if state != 0 => (number + ahead, 0),
        _ => (number, now % window),
    }
}

/// The counts of the previous window and of this window.
fn counts(state: u64, number: u64) -> (u64, u64) {
    let (of, before, current) =
        (state >> (2 * COUNT_BITS), state >> COUNT_BITS & COUNT_MASK, state & COUNT_MASK);
    match number.wrapping_sub(of) & NUMBER_MASK {
        0 => (before, current),
        1 => (current, 0),
        _ => (0, 0),
    }
}

pub(super) fn pack(number: u64, before: u64, current: u64) -> u64 {
    let (before, current) = (before.min(COUNT_MASK), current.min(COUNT_MASK));
    (number & NUMBER_MASK) << (2 * COUNT_BITS) | before << COUNT_BITS | current
}

#[cfg(test)]
mod tests {
    use sluicegate_model::feature::LimitAlgorithm;
    use sluicegate_model::value::{Entries, LimitName, Number, Span};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pace(requests: u32, per: u64, window: Window) -> Pace {
        let (algorithm, burst) = match window {
            Window::TokenBucket { burst } => (LimitAlgorithm::TokenBucket, Some(Number::of(burst.into()))),
            Window::Sliding => (LimitAlgorithm::SlidingWindow, None),
        };
        Pace::new(&Limit {
            name: LimitName::new("a").unwrap(),
            requests: Number::of(requests.into()),
            per: Span::of_millis(per * 1000),
            burst,
            algorithm,
            key: Entries::default(),
            groups: Entries::default(),
            dry_run: false,
            status_code: None,
        })
    }

    /// The number of calls at these times that the limit allows.
    fn let_in(pace: &Pace, times: impl IntoIterator<Item = u64>) -> u64 {
        let mut state = 0;
        let mut count = 0;
        for now in times {
            let (next, counted) = pace.count(state, now);
            state = next;
            count += u64::from(counted.wait.is_none());
        }
        count
    }

    #[test]
    fn token_bucket_admits_its_burst_and_then_the_refill_rate() {
        let pace = pace(10, 1, Window::TokenBucket { burst: 5 });
        assert_eq!(let_in(&pace, vec![SECOND; 100]), 5);
        let (state, counted) = pace.count(0, SECOND);
        assert_eq!((counted.left, counted.reset), (4, Duration::from_millis(100)));
        let full = (0..4).fold(state, |state, _| pace.count(state, SECOND).0);
        let (same, counted) = pace.count(full, SECOND);
        assert_eq!((same, counted.wait, counted.left), (full, Some(Duration::from_millis(100)), 0));
        assert_eq!(pace.count(full, SECOND + SECOND / 10).1.wait, None);
        // A hundred calls a second for ten seconds.
        assert_eq!(let_in(&pace, (0..1000).map(|n| 5 * SECOND + n * SECOND / 100)), 5 + 99);
    }

    /// The requests that `limit_req zone=Z burst=B nodelay` of nginx admits. nginx counts in thousandths of a request, by
    /// a clock of milliseconds, and does not count rejected requests.
    fn let_in_by_nginx(per_second: u64, burst: u64, times: impl IntoIterator<Item = u64>) -> Vec<bool> {
        let mut known: Option<(i64, u64)> = None;
        let admit = |now: u64| {
            let now = now / 1_000_000;
            let excess = match known {
                None => 0,
                Some((excess, last)) => {
                    let leaked = i64::try_from(per_second * (now - last)).unwrap();
                    (excess - leaked + 1000).max(0)
                }
            };
            let is_admitted = excess <= i64::try_from(burst * 1000).unwrap();
            if is_admitted {
                known = Some((excess, now));
            }
            is_admitted
        };
        times.into_iter().map(admit).collect()
    }

    #[test]
    fn token_bucket_with_one_more_token_admits_the_same_requests_as_the_burst_of_nginx_without_delay() {
        for (rate, burst) in [(10, 50), (1, 5), (4, 0), (20, 7)] {
            let pace = pace(rate, 1, Window::TokenBucket { burst: burst + 1 });
            // Gaps from none to several seconds, which neither refill the bucket always nor never.
            let mut seed = 7_u64;
            let times = (0..5000).scan(SECOND, |now, n| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let most = if n % 97 == 0 {
                    4000
                } else {
                    2000 / u64::from(rate) / if n % 500 < 250 { 4 } else { 1 }
                };
                *now += (seed >> 33) % (most + 1) * 1_000_000;
                Some(*now)
            });
            let times: Vec<u64> = times.collect();
            let nginx = let_in_by_nginx(rate.into(), burst.into(), times.iter().copied());
            let mut state = 0;
            for (now, by_nginx) in times.iter().zip(&nginx) {
                let (next, counted) = pace.count(state, *now);
                state = next;
                assert_eq!(counted.wait.is_none(), *by_nginx, "{rate} a second, burst {burst}, at {now}");
            }
            let admitted = nginx.iter().filter(|admitted| **admitted).count();
            assert!((1000..5000).contains(&admitted), "{admitted} of 5000");
            assert_eq!(let_in(&pace, vec![SECOND; 100]), u64::from(burst) + 1, "at once");
        }
    }

    #[test]
    fn sliding_window_admits_no_second_burst_at_its_boundary() {
        let pace = pace(10, 1, Window::Sliding);
        let late = (0..10).map(|n| 9 * SECOND / 10 + n);
        let early = (0..10).map(|n| SECOND + SECOND / 10 + n);
        assert_eq!(let_in(&pace, late.chain(early)), 11);
        assert_eq!(let_in(&pace, (0..20).map(|n| SECOND / 2 + n)), 10);
        let mut state = 0;
        for _ in 0..10 {
            state = pace.count(state, SECOND / 2).0;
        }
        let (_, counted) = pace.count(state, SECOND / 2);
        assert_eq!(counted.wait, Some(Duration::from_millis(500)));
        assert_eq!(pace.count(state, 3 * SECOND).1.left, 9, "long ago");
    }

    #[test]
    fn merged_counts_of_replicas_include_each_request_once_and_never_decrease() {
        let bucket = pace(10, 1, Window::TokenBucket { burst: 10 });
        let now = 100 * SECOND;
        // The shared count has three of the four calls of this process, and seven calls in total.
        let own = (0..4).fold(0, |state, _| bucket.count(state, now).0);
        let merged = bucket.merge(own, now + 7 * SECOND / 10, 1, now);
        assert_eq!(merged, now + 8 * SECOND / 10);
        assert_eq!(bucket.merge(merged, now + 8 * SECOND / 10, 0, now), merged, "told again");
        assert_eq!(bucket.merge(merged, 0, 0, now), merged, "others that have forgotten");
        assert_eq!(bucket.merge(merged, u64::MAX, 0, now), now + 2 * SECOND, "what cannot be");

        let sliding = pace(10, 1, Window::Sliding);
        let own = (0..4).fold(0, |state, _| sliding.count(state, now).0);
        let merged = sliding.merge(own, pack(100, 5, 7), 1, now);
        assert_eq!(merged, pack(100, 5, 8));
        assert_eq!(sliding.merge(merged, pack(99, 9, 3), 0, now), merged, "what is over here");
        assert_eq!(sliding.merge(merged, 0, 0, now), merged);
        // A window that has begun in the shared count is the current window here too. A call from before the window
        // counts in the window.
        let ahead = sliding.merge(merged, pack(101, 8, 10), 0, now + SECOND);
        assert!(sliding.count(ahead, now).1.wait.is_some());
    }

    #[test]
    fn limiter_whose_counts_have_expired_decides_like_a_new_limiter() {
        for pace in [pace(10, 1, Window::TokenBucket { burst: 10 }), pace(10, 1, Window::Sliding)] {
            let now = 7 * SECOND / 2;
            let state = pace.count(0, now).0;
            let then = pace.forgotten(state, now);
            assert!(then > now && then <= now + 2 * SECOND, "{pace:?}");
            let (fresh, known) = (pace.count(0, then).1, pace.count(state, then).1);
            assert_eq!(fresh, known, "{pace:?}");
        }
    }

    #[test]
    fn largest_and_smallest_limits_do_not_overflow() {
        for window in [Window::TokenBucket { burst: 1_000_000 }, Window::Sliding] {
            for (requests, per) in [(1_000_000, 1), (1, 30 * 86_400), (1_000_000, 30 * 86_400)] {
                let pace = pace(requests, per, window);
                for now in [0, 1, SECOND, u64::MAX / 4] {
                    let (state, counted) = pace.count(0, now);
                    assert_eq!(counted.wait, None);
                    pace.count(state, now);
                    pace.forgotten(state, now);
                }
            }
        }
    }
}
