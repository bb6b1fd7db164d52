//! The sets of a limit, in chunks that are allocated when the first of their keys arrives.

use std::array;
use std::sync::OnceLock;

/// Sets in a chunk.
const CHUNK: usize = 16;

/// Chunks of a limit.
const CHUNKS: usize = 512;

/// The number of sets of a limit.
pub(super) const SETS: usize = CHUNKS * CHUNK;

type Chunk<S> = OnceLock<Box<[S; CHUNK]>>;

/// [`SETS`] sets. A limit without a call takes no memory for them: thousands of Ingresses may have limits.
pub(super) struct Sets<S>(OnceLock<Box<[Chunk<S>]>>);

impl<S> Default for Sets<S> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<S: Default> Sets<S> {
    /// The set of this number.
    pub(super) fn at(&self, number: usize) -> &S {
        let chunks = self.0.get_or_init(|| (0..CHUNKS).map(|_| OnceLock::new()).collect());
        let chunk = chunks[number / CHUNK].get_or_init(|| Box::new(array::from_fn(|_| S::default())));
        &chunk[number % CHUNK]
    }

    /// The sets of the chunks with a key.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        let chunks = self.0.get().into_iter().flatten();
        chunks.filter_map(OnceLock::get).flat_map(|chunk| chunk.iter())
    }
}
