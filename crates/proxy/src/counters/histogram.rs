//! Histograms of durations and sizes, with fixed bounds.

use std::time::Duration;

use super::{Sharded, Tallies, Tally};

/// The upper bounds of the buckets in microseconds. One more bucket holds longer durations. The bounds range from less
/// than a gateway's overhead to more than a client's patience.
pub const BOUNDS_MICROS: [u64; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// The upper bounds of the buckets of sizes, in bytes. One more bucket holds larger sizes. These are the bounds of both
/// kinds of sizes in ingress-nginx (`--length-buckets` and `--size-buckets`).
pub const BOUNDS_BYTES: [u64; BOUNDS_MICROS.len()] =
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The counts of one worker for each range of durations or sizes.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: Tallies<{ BOUNDS_MICROS.len() + 1 }>,
    sum: Tally,
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&self, duration: Duration) {
        self.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), &BOUNDS_MICROS);
    }

    /// Counts one size in bytes.
    #[inline]
    pub fn record_size(&self, bytes: u64) {
        self.add(bytes, &BOUNDS_BYTES);
    }

    /// The sum of all values, in microseconds or bytes.
    pub(super) fn sum(&self) -> u64 {
        self.sum.get()
    }

    #[inline]
    fn add(&self, value: u64, bounds: &[u64; BOUNDS_MICROS.len()]) {
        let bucket = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.buckets[bucket].add(1);
        self.sum.add(value);
    }
}

/// A histogram summed over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramTotal {
    /// The number of values in each bucket of [`BOUNDS_MICROS`] or [`BOUNDS_BYTES`], and above; not cumulative.
    pub buckets: [u64; BOUNDS_MICROS.len() + 1],
    /// The sum of all values, in microseconds or bytes.
    pub sum: u64,
}

impl HistogramTotal {
    /// The sum over all shards.
    #[must_use]
    pub fn of<T>(shards: &Sharded<T>, histogram: impl Fn(&T) -> &Histogram) -> Self {
        let mut total = Self::default();
        shards.iter().map(histogram).for_each(|shard| total.add(shard));
        total
    }

    /// Adds the values of one worker.
    pub(super) fn add(&mut self, shard: &Histogram) {
        for (sum, bucket) in self.buckets.iter_mut().zip(shard.buckets.iter()) {
            *sum += bucket.get();
        }
        self.sum += shard.sum();
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_bucket_includes_its_upper_bound() {
        let shards = Sharded::<Histogram>::new(2);
        shards.of(0).record(Duration::from_micros(250));
        shards.of(1).record(Duration::from_micros(251));
        shards.of(1).record(Duration::from_secs(60));
        let total = HistogramTotal::of(&shards, |h| h);
        assert_eq!((total.buckets[0], total.buckets[1], total.buckets[15]), (1, 1, 1));
        assert_eq!(total.count(), 3);
        assert_eq!(total.sum, 60_000_501);
    }
}
