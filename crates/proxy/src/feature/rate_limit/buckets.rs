//! The counts of all keys of a limit, for all workers: exact, bounded, and without a lock for a known key.
//!
//! A key is the hash of the properties that calls have in common. The place of a key depends on a secret of the process,
//! so that no client can aim at the place of another key. A key has one of the eight slots of a set. A new key takes an
//! empty slot, or the slot that is forgotten first. So a flood of keys evicts other keys of the flood, but no key that
//! has used up its limit. The exception is a flood that uses up the limit of each of its keys too.

use std::hash::{BuildHasher as _, DefaultHasher, RandomState};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::clock::Clock;
use super::pending::{Amount, Pending};
use super::sets::{SETS, Sets};
use super::window::{Counted, Pace};

/// Keys in a set.
pub(super) const WAYS: usize = 8;

/// How often a worker checks whether another worker has finished taking a slot.
pub(super) const SPINS: u32 = 64;

/// The counts of a limit: room for 65,536 keys in 1.1 MiB, or 1.6 MiB for a shared limit.
pub(super) struct Buckets {
    /// The hasher of keys, with its initial input.
    pub(super) hasher: DefaultHasher,
    /// The secret on which the places of keys depend.
    salt: u64,
    clock: Arc<Clock>,
    /// The counts to send to the server, for a shared limit.
    pending: Option<Pending>,
    sets: Sets<Set>,
}

#[derive(Default)]
struct Set {
    /// Odd while a worker takes a slot for a new key.
    version: AtomicU64,
    slots: [Slot; WAYS],
}

#[derive(Default)]
struct Slot {
    /// The key in this slot; 0: the slot is empty.
    key: AtomicU64,
    state: AtomicU64,
}

impl std::fmt::Debug for Buckets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Buckets")
    }
}

impl Buckets {
    /// Counts of this process alone. The hash of a key is a secret too.
    pub(super) fn new() -> Self {
        Self::by(RandomState::new().build_hasher(), Arc::new(Clock::new()), None)
    }

    /// Counts that data planes with the same hasher and clock share.
    pub(super) fn shared(hasher: DefaultHasher, clock: Arc<Clock>) -> Self {
        Self::by(hasher, clock, Some(Pending::new()))
    }

    fn by(hasher: DefaultHasher, clock: Arc<Clock>, pending: Option<Pending>) -> Self {
        Self { hasher, salt: RandomState::new().hash_one(0), clock, pending, sets: Sets::default() }
    }

    /// Counts a call under its key.
    pub(super) fn count(&self, key: u64, pace: &Pace, now: Instant) -> Counted {
        let elapsed = self.clock.elapsed(now);
        let now = pace.time(&self.clock, elapsed);
        let (key, at) = self.place(key);
        let set = self.set(at);
        let clear = |way| self.pending.iter().for_each(|pending| pending.clear(at, way));
        let way = set.way(key, pace, now, clear);
        let slot = &set.slots[way];
        let mut state = slot.state.load(Ordering::Acquire);
        let counted = loop {
            let (next, counted) = pace.count(state, now);
            if next == state {
                break counted;
            }
            match slot.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break counted,
                Err(newer) => state = newer,
            }
        };
        if let (Some(pending), None) = (&self.pending, counted.wait) {
            pending.add(at, way, elapsed);
        }
        counted
    }

    /// The outcome of a call under its key, without counting the call.
    pub(super) fn look(&self, key: u64, pace: &Pace, now: Instant) -> Counted {
        let now = pace.time(&self.clock, self.clock.elapsed(now));
        let (key, at) = self.place(key);
        let set = self.set(at);
        let state = set.find(key).map_or(0, |way| set.slots[way].state.load(Ordering::Acquire));
        let (_, counted) = pace.count(state, now);
        Counted { left: counted.left + u64::from(counted.wait.is_none()), ..counted }
    }

    /// Takes the counts that the server has not received yet: of `most` keys, and of up to as many more as a set has less
    /// one.
    pub(super) fn take(&self, most: usize, now: Instant) -> Vec<(u64, Amount)> {
        let (mut taken, elapsed) = (Vec::new(), self.clock.elapsed(now));
        let Some(pending) = &self.pending else { return taken };
        pending.marked(|at| {
            for (way, slot) in self.set(at).slots.iter().enumerate() {
                let key = slot.key.load(Ordering::Acquire);
                let amount = pending.take(at, way, elapsed);
                // If another key has taken the slot meanwhile, the count belongs to the other key.
                let is_its = key != 0 && slot.key.load(Ordering::Acquire) == key;
                taken.extend(amount.filter(|_| is_its).map(|amount| (key, amount)));
            }
            taken.len() < most
        });
        taken
    }

    /// Adopts the server's count of a key, which includes all calls that were taken here.
    pub(super) fn merge(&self, key: u64, pace: &Pace, others: u64, now: Instant) {
        let now = pace.time(&self.clock, self.clock.elapsed(now));
        let (key, at) = self.place(key);
        let set = self.set(at);
        let Some(way) = set.find(key) else { return };
        let own = self.pending.as_ref().map_or(0, |pending| pending.count(at, way));
        let state = &set.slots[way].state;
        let mut old = state.load(Ordering::Acquire);
        loop {
            let new = pace.merge(old, others, own, now);
            match state.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(newer) => old = newer,
            }
        }
    }

    /// The stored form of a key, and the number of its set.
    fn place(&self, key: u64) -> (u64, usize) {
        // The highest bits of the product depend on all bits (Knuth, 6.4).
        let mixed = (key ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (key.max(1), (mixed >> 32) as usize % SETS)
    }

    fn set(&self, at: usize) -> &Set {
        self.sets.at(at)
    }
}

impl Set {
    /// The slot of a key.
    fn find(&self, key: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.key.load(Ordering::Acquire) == key)
    }

    /// The slot of a key. A key without a slot takes one, after a call of `clear` with that slot.
    fn way(&self, key: u64, pace: &Pace, now: u64, clear: impl Fn(usize)) -> usize {
        for _ in 0..SPINS {
            let version = self.version.load(Ordering::Acquire);
            if let Some(way) = self.find(key) {
                return way;
            }
            let is_free = version.is_multiple_of(2);
            // Two workers that bring the same key must not take two slots for it.
            let taken = is_free
                && self
                    .version
                    .compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if taken {
                let least = (0..WAYS).min_by_key(|way| self.slots[*way].forgotten(pace, now));
                let way = least.unwrap_or(0);
                let slot = &self.slots[way];
                slot.key.store(0, Ordering::Release);
                clear(way);
                slot.state.store(0, Ordering::Release);
                slot.key.store(key, Ordering::Release);
                self.version.store(version + 2, Ordering::Release);
                return way;
            }
            spin_loop();
        }
        // The worker that takes a slot was interrupted meanwhile. The call counts under another key instead of waiting.
        (key >> 32) as usize % WAYS
    }
}

impl Slot {
    fn forgotten(&self, pace: &Pace, now: u64) -> u64 {
        match self.key.load(Ordering::Relaxed) {
            0 => 0,
            _ => pace.forgotten(self.state.load(Ordering::Relaxed), now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use super::*;

    fn pace(requests: u32) -> Pace {
        let limit = serde_json::json!({"name": "a", "requests": requests, "per": "1h"});
        Pace::new(&serde_json::from_value(limit).unwrap())
    }

    fn hash(buckets: &Buckets, n: u64) -> u64 {
        let mut hasher = buckets.hasher.clone();
        hasher.write_u64(n);
        hasher.finish()
    }

    #[test]
    fn concurrent_workers_admit_exactly_as_many_requests_as_the_rate_limit() {
        let (buckets, pace, now) = (Buckets::new(), pace(10_000), Instant::now());
        let counted = |_| {
            let admitted = |n: u64| buckets.count(n % 7, &pace, now).wait.is_none();
            (0..50_000).filter(|n| admitted(*n)).count()
        };
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || counted(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // The period of an hour is so long that no tokens return during the test.
        assert_eq!(total, 7 * 10_000);
    }

    #[test]
    fn flood_of_keys_neither_grows_memory_nor_resets_an_exhausted_rate_limit() {
        let (buckets, pace, now) = (Buckets::new(), pace(100), Instant::now());
        let key = hash(&buckets, 1 << 63);
        for _ in 0..100 {
            assert_eq!(buckets.count(key, &pace, now).wait, None);
        }
        for n in 0..1_000_000_u64 {
            buckets.count(hash(&buckets, n), &pace, now);
        }
        assert!(buckets.count(key, &pace, now).wait.is_some());
        assert!(buckets.sets.iter().count() <= SETS && size_of::<Set>() * SETS <= 1200 * 1024);
    }
}
