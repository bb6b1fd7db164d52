//! Latency histograms with fixed bounds.

use std::time::Duration;

use super::{Sharded, Tallies, Tally};

/// The upper bounds of the buckets in microseconds. One more bucket holds longer durations. The bounds range from less
/// than a gateway's overhead to more than a client's patience.
pub const BOUNDS_MICROS: [u64; 15] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// The counts of one worker for each range of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: Tallies<{ BOUNDS_MICROS.len() + 1 }>,
    sum_micros: Tally,
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        self.buckets[bucket].add(1);
        self.sum_micros.add(micros);
    }
}

/// A histogram summed over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramTotal {
    /// The number of durations in each bucket of [`BOUNDS_MICROS`], and above; not cumulative.
    pub buckets: [u64; BOUNDS_MICROS.len() + 1],
    /// The sum of all durations in microseconds.
    pub sum_micros: u64,
}

impl HistogramTotal {
    /// The sum over all shards.
    #[must_use]
    pub fn of<T>(shards: &Sharded<T>, histogram: impl Fn(&T) -> &Histogram) -> Self {
        let mut total = Self::default();
        for shard in shards.iter().map(histogram) {
            for (sum, bucket) in total.buckets.iter_mut().zip(shard.buckets.iter()) {
                *sum += bucket.get();
            }
            total.sum_micros += shard.sum_micros.get();
        }
        total
    }

    /// The number of durations.
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
        assert_eq!(total.sum_micros, 60_000_501);
    }
}
