//! Digests, by which the planes compare resources.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
#[cfg(any(test, fuzzing))]
use bytes::Bytes;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(sum)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    /// The first bytes, which suffice to distinguish two versions of one resource.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.0[..16]
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
