//! Hashes of names and of numbers.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use sluicegate_model::ObjectId;

/// The hash of an object, in 128 bits. Each process chooses random keys for the hash (SipHash), so an attacker cannot construct two
/// objects with the same fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u64, u64);

impl Fingerprint {
    pub(crate) fn of(object: &ObjectId) -> Self {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        Self(KEYS[0].hash_one(object), KEYS[1].hash_one(object))
    }
}

/// Spreads the bits of a hash (the last step of `SplitMix64`).
pub(crate) fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// A hash that is the same in every process (FNV-1a), so that data planes choose the same endpoint. It does not protect
/// against chosen input.
pub(crate) struct StableHash(u64);

impl StableHash {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a part with a terminator.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        mix(self.0)
    }
}
