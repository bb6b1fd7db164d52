//! Counters that one worker writes and any thread reads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that a single thread changes and other threads read. A change costs a load and a store, without a locked
/// instruction. So each worker has its own.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// Overwrites the number.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A fixed number of tallies.
#[derive(Debug)]
pub struct Tallies<const N: usize>([Tally; N]);

impl<const N: usize> Default for Tallies<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Tally::default()))
    }
}

impl<const N: usize> std::ops::Deref for Tallies<N> {
    type Target = [Tally; N];

    fn deref(&self) -> &[Tally; N] {
        &self.0
    }
}

/// One shard for each worker, each on separate cache lines. A shard takes memory from its first use on: most of ten thousand
/// routes have no request on most of the workers.
#[derive(Debug)]
pub struct Sharded<T>(Box<[OnceLock<Box<Padded<T>>>]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl<T: Default> Sharded<T> {
    /// A shard for each of `workers`.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| OnceLock::new()).collect())
    }

    /// The shard of one worker.
    ///
    /// # Panics
    /// If there is no such worker.
    #[must_use]
    #[inline]
    pub fn of(&self, worker: usize) -> &T {
        &self.0[worker].get_or_init(Box::default).0
    }
}

impl<T> Sharded<T> {
    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.len()
    }

    /// The shards that were used.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get).map(|padded| &padded.0)
    }

    /// The sum of one tally over all shards.
    #[must_use]
    pub fn sum(&self, tally: impl Fn(&T) -> &Tally) -> u64 {
        self.iter().fold(0, |sum: u64, shard| sum.wrapping_add(tally(shard).get()))
    }
}
