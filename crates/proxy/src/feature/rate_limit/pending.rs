//! Calls that were counted here, and that the server has not received yet.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::buckets::WAYS;
use super::sets::{SETS, Sets};

/// Bits of a number for the count. The other bits hold the time of the first of these calls, in units of 1,024 ns.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const TIME_MASK: u64 = u64::MAX >> COUNT_BITS;
const UNIT_BITS: u32 = 10;

/// A number for each slot, and the sets with a number other than 0.
pub(super) struct Pending {
    marks: Box<[AtomicU64]>,
    sets: Sets<Set>,
    /// The next set to take, so that every set has its turn when there are too many.
    next: AtomicUsize,
}

#[derive(Default)]
struct Set([AtomicU64; WAYS]);

/// The pending calls of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) count: u32,
    /// The age of the first of these calls, in nanoseconds.
    pub(super) age: u64,
}

impl Pending {
    pub(super) fn new() -> Self {
        Self {
            marks: (0..SETS.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            sets: Sets::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// Counts a call that was allowed.
    pub(super) fn add(&self, set: usize, way: usize, elapsed: u64) {
        let slot = &self.set(set)[way];
        let first = (elapsed >> UNIT_BITS & TIME_MASK) << COUNT_BITS | 1;
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            let new = match old & COUNT_MASK {
                0 => first,
                COUNT_MASK => return,
                _ => old + 1,
            };
            match slot.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if new == first => break,
                Ok(_) => return,
                Err(newer) => old = newer,
            }
        }
        self.marks[set / 64].fetch_or(1 << (set % 64), Ordering::Release);
    }

    /// Discards the pending calls of a slot that another key takes.
    pub(super) fn clear(&self, set: usize, way: usize) {
        self.set(set)[way].store(0, Ordering::Release);
    }

    /// The number of pending calls of a slot.
    pub(super) fn count(&self, set: usize, way: usize) -> u64 {
        self.set(set)[way].load(Ordering::Acquire) & COUNT_MASK
    }

    /// Takes the pending calls of a slot.
    pub(super) fn take(&self, set: usize, way: usize, elapsed: u64) -> Option<Amount> {
        let taken = self.set(set)[way].swap(0, Ordering::AcqRel);
        let count = u32::try_from(taken & COUNT_MASK).ok().filter(|count| *count > 0)?;
        let age = (elapsed >> UNIT_BITS).wrapping_sub(taken >> COUNT_BITS) & TIME_MASK;
        // The worker that counted may have read the clock a moment later.
        let age = if age > TIME_MASK / 2 { 0 } else { age << UNIT_BITS };
        Some(Amount { count, age })
    }

    /// Passes each set with pending calls to `take` once, until `take` reports that its room is used up.
    pub(super) fn marked(&self, mut take: impl FnMut(usize) -> bool) {
        let first = self.next.load(Ordering::Relaxed);
        for word in (0..self.marks.len()).map(|n| (first + n) % self.marks.len()) {
            let marks = &self.marks[word];
            let mut left = marks.load(Ordering::Relaxed);
            while left != 0 {
                let bit = left & left.wrapping_neg();
                left ^= bit;
                marks.fetch_and(!bit, Ordering::AcqRel);
                if !take(word * 64 + bit.trailing_zeros() as usize) {
                    self.next.store(word, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn set(&self, set: usize) -> &[AtomicU64; WAYS] {
        &self.sets.at(set).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(pending: &Pending, most: usize) -> Vec<usize> {
        let mut sets = Vec::new();
        pending.marked(|set| {
            sets.push(set);
            sets.len() < most
        });
        sets
    }

    #[test]
    fn pending_count_is_sent_only_once_together_with_its_age() {
        let pending = Pending::new();
        for elapsed in [5 << 20, 6 << 20, 7 << 20] {
            pending.add(70, 3, elapsed);
        }
        assert_eq!((marked(&pending, 9), pending.count(70, 3)), (vec![70], 3));
        assert_eq!(pending.take(70, 3, 8 << 20), Some(Amount { count: 3, age: 3 << 20 }));
        assert_eq!((pending.take(70, 3, 9 << 20), marked(&pending, 9)), (None, vec![]));
        pending.add(70, 3, 9 << 20);
        assert_eq!(pending.take(70, 3, 8 << 20), Some(Amount { count: 1, age: 0 }), "a moment later");
    }

    #[test]
    fn pending_counts_beyond_the_batch_size_are_sent_in_turns() {
        let pending = Pending::new();
        for set in [1, 2, 700, 8000] {
            pending.add(set, 0, 0);
        }
        assert_eq!(marked(&pending, 3), [1, 2, 700]);
        pending.add(1, 1, 0);
        assert_eq!(marked(&pending, 9), [8000, 1], "the first do not push in");
    }
}
