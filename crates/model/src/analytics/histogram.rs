//! Durations in buckets.
//!
//! Four buckets divide each power of two, in equal ratios: from 1 µs to 49 minutes there are 126 buckets. The middle of a
//! bucket differs from each duration in it by 8.7 % at most. A histogram holds the buckets that occurred.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// The number of buckets. The first bucket is for zero, and the last bucket for all durations beyond 49 minutes.
pub const BUCKETS: usize = 128;

/// A quarter, a half and three quarters of a power of two, times 2^63.
const QUARTERS: [u64; 3] = [0x9837_f051_8db8_a800, 0xb504_f333_f9de_6800, 0xd744_fcca_d69d_6800];

/// The bucket of a duration in microseconds.
#[must_use]
#[inline]
pub fn bucket(micros: u64) -> u8 {
    if micros == 0 {
        return 0;
    }
    let zeros = micros.leading_zeros();
    let fraction = micros << zeros;
    let quarters = QUARTERS.iter().map(|quarter| u32::from(fraction >= *quarter)).sum::<u32>();
    // At most 1 + 4 * 63 + 3, which does not fit the buckets.
    u8::try_from((1 + 4 * (63 - zeros) + quarters).min(BUCKETS as u32 - 1)).unwrap_or(u8::MAX)
}

/// The duration that stands for a bucket, in microseconds. The mean that has the same relative error at both ends.
#[must_use]
pub fn middle(bucket: u8) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let low = f64::from(bucket - 1) / 4.0;
    let (low, high) = (low.exp2(), (low + 0.25).exp2());
    2.0 * low * high / (low + high)
}

/// Durations: their sum and their histogram.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Times {
    /// The sum, in microseconds.
    #[n(0)]
    pub micros: u64,
    /// The durations by bucket.
    #[n(1)]
    pub histogram: Histogram,
}

impl Times {
    /// Adds `count` durations of this length.
    pub fn record(&mut self, micros: u64, count: u64) {
        self.micros = self.micros.saturating_add(micros.saturating_mul(count));
        self.histogram.record(bucket(micros), count);
    }

    /// Adds other durations.
    pub fn add(&mut self, other: &Self) {
        self.micros = self.micros.saturating_add(other.micros);
        self.histogram.add(&other.histogram);
    }
}

/// The number of durations in each bucket. Buckets without a duration take no space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// In the order of the buckets.
    cells: Vec<(u8, u64)>,
}

impl Histogram {
    /// Adds `count` durations to a bucket.
    pub fn record(&mut self, bucket: u8, count: u64) {
        match self.cells.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(place) => self.cells[place].1 = self.cells[place].1.saturating_add(count),
            Err(place) => self.cells.insert(place, (bucket, count)),
        }
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.cells {
            self.record(*bucket, *count);
        }
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().map(|(_, count)| *count).sum()
    }

    /// The duration that this share of the durations does not exceed, in microseconds; 0 without durations.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = (self.count() as f64 * share).ceil().max(1.0);
        let mut below = 0_u64;
        for (bucket, count) in &self.cells {
            below += count;
            if below as f64 >= rank {
                return middle(*bucket);
            }
        }
        0.0
    }

    /// The bytes for a database: the distance to the previous bucket and the count of each cell, as LEB128.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * self.cells.len());
        let mut before = 0;
        for (bucket, count) in &self.cells {
            bytes.push(bucket - before);
            before = *bucket;
            let mut rest = *count;
            while rest > 0x7f {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes
    }

    /// Reads [`to_bytes`](Self::to_bytes). `None` for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut cells = Vec::new();
        let (mut bucket, mut bytes) = (0_u8, bytes.iter());
        while let Some(step) = bytes.next() {
            bucket = bucket.checked_add(*step).filter(|bucket| usize::from(*bucket) < BUCKETS)?;
            if *step == 0 && !cells.is_empty() {
                return None;
            }
            let (mut count, mut shift) = (0_u64, 0);
            loop {
                let byte = *bytes.next()?;
                if shift > 56 {
                    return None;
                }
                count |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            cells.push((bucket, count));
        }
        Some(Self { cells })
    }
}

impl<C> Encode<C> for Histogram {
    fn encode<W: encode::Write>(
        &self,
        encoder: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.bytes(&self.to_bytes())?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Histogram {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let bytes = ByteVec::decode(decoder, context)?;
        Self::from_bytes(&bytes).ok_or_else(|| decode::Error::message("a histogram is malformed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_of_a_bucket_differs_by_less_than_nine_percent() {
        let mut micros = 1_u64;
        while micros < 2_900_000_000 {
            let error = (middle(bucket(micros)) / micros as f64 - 1.0).abs();
            assert!(error < 0.088, "{micros}: {error}");
            micros += 1 + micros / 1000;
        }
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 1, 127));
    }

    #[test]
    fn quantiles_are_those_of_the_recorded_durations() {
        let mut histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(bucket(micros * 100), 1);
        }
        for (share, micros) in [(0.5, 50_000.0), (0.95, 95_000.0), (0.99, 99_000.0), (0.0, 100.0)] {
            let error = (histogram.quantile(share) / micros - 1.0).abs();
            assert!(error < 0.19, "{share}: {}", histogram.quantile(share));
        }
        assert_eq!(Histogram::default().quantile(0.5), 0.0);
    }

    #[test]
    fn bytes_of_a_histogram_are_read_again_and_others_are_rejected() {
        let mut histogram = Histogram::default();
        for (bucket, count) in [(0, 3), (1, 127), (60, 128), (127, u64::MAX >> 1)] {
            histogram.record(bucket, count);
        }
        assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), Some(histogram));
        assert_eq!(Histogram::from_bytes(&[]), Some(Histogram::default()));
        for wrong in [&[1][..], &[200, 1], &[1, 0x80], &[1, 1, 0, 1], &[9]] {
            assert_eq!(Histogram::from_bytes(wrong), None, "{wrong:?}");
        }
        let mut long = vec![1];
        long.extend([0xff; 9]);
        long.push(1);
        assert_eq!(Histogram::from_bytes(&long), None);
    }
}
