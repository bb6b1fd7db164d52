//! The calls of each key in flight, for all workers: exact, bounded, and without a lock for a known key.
//!
//! As in [`buckets`](super::buckets), a key is a keyed hash and has one of the slots of a set. A slot is one number of
//! key and count together, so that a worker never counts in a slot that another key has taken. Another key can take a
//! slot only if the slot has no calls in flight. So a limit distinguishes as many keys as the process has calls.

use std::hash::{BuildHasher as _, DefaultHasher, RandomState};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buckets::{SPINS, WAYS};
use super::sets::{SETS, Sets};

/// Bits of a slot for the count; the other bits hold the key.
const COUNT_MASK: u64 = (1 << 24) - 1;

/// The calls of a limit: room for 65,536 keys in 0.6 MiB.
pub(super) struct Flights {
    /// The hasher of keys, with its initial input.
    pub(super) hasher: DefaultHasher,
    sets: Sets<Set>,
}

#[derive(Default)]
struct Set {
    /// Odd while a worker takes a slot for a new key.
    version: AtomicU64,
    slots: [AtomicU64; WAYS],
}

/// A call in flight, until the value is dropped.
#[must_use]
pub(crate) struct Permit {
    flights: Arc<Flights>,
    set: usize,
    way: usize,
}

impl std::fmt::Debug for Flights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flights")
    }
}

impl Flights {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new().build_hasher(), sets: Sets::default() }
    }

    /// Begins a call of this key, if fewer than `most` calls of the key are in flight.
    pub(super) fn begin(self: &Arc<Self>, key: u64, most: u32) -> Option<Permit> {
        // The bits are independent of each other: the lower bits choose the set, and the other bits name the key in the
        // set.
        let (set, name) = (key as usize % SETS, (key & !COUNT_MASK).max(COUNT_MASK + 1));
        let way = self.set(set).begin(name, u64::from(most).min(COUNT_MASK))?;
        Some(Permit { flights: self.clone(), set, way })
    }

    fn set(&self, at: usize) -> &Set {
        self.sets.at(at)
    }
}

impl Set {
    /// The slot in which a call is counted from now on; `None` at the limit.
    fn begin(&self, name: u64, most: u64) -> Option<usize> {
        for _ in 0..SPINS {
            let version = self.version.load(Ordering::Acquire);
            for (way, slot) in self.slots.iter().enumerate() {
                if let Some(has_begun) = begin_in(slot, |word| word & !COUNT_MASK == name, most) {
                    return has_begun.then_some(way);
                }
            }
            // Two workers that bring the same key must not take two slots for it.
            let taken = version.is_multiple_of(2)
                && self
                    .version
                    .compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if taken {
                let unused = |slot: &AtomicU64| {
                    let word = slot.load(Ordering::Acquire);
                    word & COUNT_MASK == 0
                        && slot.compare_exchange(word, name | 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                };
                let way = self.slots.iter().position(unused);
                self.version.store(version + 2, Ordering::Release);
                if way.is_some() {
                    return way;
                }
                break;
            }
            spin_loop();
        }
        // All slots are in use, or the worker that takes a slot was interrupted. The call counts together with calls of
        // another key, which makes the limit stricter rather than looser.
        let way = (name >> 32) as usize % WAYS;
        begin_in(&self.slots[way], |_| true, most).filter(|has_begun| *has_begun).map(|_| way)
    }
}

/// Counts a call in a slot. Returns whether the call has begun; `None` if another key has the slot.
fn begin_in(slot: &AtomicU64, is_its: impl Fn(u64) -> bool, most: u64) -> Option<bool> {
    let mut word = slot.load(Ordering::Acquire);
    while is_its(word) {
        if word & COUNT_MASK >= most {
            return Some(false);
        }
        match slot.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some(true),
            Err(newer) => word = newer,
        }
    }
    None
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The slot counts the call, so the count is at least 1.
        self.flights.set(self.set).slots[self.way].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use super::*;

    fn hash(flights: &Flights, n: u64) -> u64 {
        let mut hasher = flights.hasher.clone();
        hasher.write_u64(n);
        hasher.finish()
    }

    fn in_flight(flights: &Flights) -> u64 {
        flights
            .sets
            .iter()
            .flat_map(|set| &set.slots)
            .map(|slot| slot.load(Ordering::Relaxed) & COUNT_MASK)
            .sum()
    }

    #[test]
    fn exhausted_concurrency_limit_admits_a_request_only_after_another_ends() {
        let flights = Arc::new(Flights::new());
        let mut permits: Vec<_> = (0..3).map_while(|_| flights.begin(7, 3)).collect();
        assert_eq!(permits.len(), 3);
        assert!(flights.begin(7, 3).is_none());
        assert!(flights.begin(hash(&flights, 1), 3).is_some(), "another key");
        permits.pop();
        assert!(flights.begin(7, 3).is_some(), "and at its end there is room for one again");
        permits.extend(flights.begin(7, 3));
        assert!(flights.begin(7, 3).is_none());
        drop(permits);
        assert_eq!(in_flight(&flights), 0);
    }

    #[test]
    fn concurrent_workers_never_exceed_the_concurrency_limit() {
        const MOST: u32 = 5;
        let flights = Arc::new(Flights::new());
        // The keys take their slots before the workers start, because a new key may share a slot while another worker
        // is taking a slot.
        for key in 0..3 {
            assert!(flights.begin(hash(&flights, key), MOST).is_some());
        }
        let counts: [AtomicU64; 3] = std::array::from_fn(|_| AtomicU64::new(0));
        let work = |seed: u64| {
            for n in seed..seed + 50_000 {
                let key = (n % 3) as usize;
                let Some(permit) = flights.begin(hash(&flights, key as u64), MOST) else { continue };
                assert!(counts[key].fetch_add(1, Ordering::SeqCst) < u64::from(MOST));
                if n % 64 == 0 {
                    std::thread::yield_now();
                }
                counts[key].fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|seed| drop(scope.spawn(move || work(seed)))));
        assert_eq!(in_flight(&flights), 0);
    }

    #[test]
    fn concurrency_limits_keep_keys_in_use_within_bounded_memory_under_a_flood() {
        let flights = Arc::new(Flights::new());
        let held = flights.begin(hash(&flights, u64::MAX), 1);
        assert!(held.is_some());
        for n in 0..500_000 {
            assert!(flights.begin(hash(&flights, n), 2).is_some());
        }
        assert!(flights.begin(hash(&flights, u64::MAX), 1).is_none());
        assert!(size_of::<Set>() * SETS <= 640 * 1024);
        // With more requests in flight than slots, each request is counted until the request ends.
        let permits: Vec<_> =
            (0..100_000).map_while(|n| flights.begin(hash(&flights, n), 1_000_000)).collect();
        assert_eq!((permits.len(), in_flight(&flights)), (100_000, 100_001));
        drop((permits, held));
        assert_eq!(in_flight(&flights), 0);
    }
}
