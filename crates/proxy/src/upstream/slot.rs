//! Slots: the numbers by which routes name upstreams.
//!
//! A slot is a place in each worker's list of upstreams, and the number of earlier upstreams at the place. When an upstream
//! is gone, the next upstream of the place has another slot. A request that waited since before the change thus finds no
//! upstream, and never the upstream of another Service.

/// The number of bits for the place.
const PLACE_BITS: u32 = 32;

const _: () = assert!(usize::BITS >= 2 * PLACE_BITS, "slots need 64 bits");

/// The slot without an upstream.
pub(crate) const NONE: usize = usize::MAX;

/// The place in the list of each worker.
pub(crate) const fn place(slot: usize) -> usize {
    slot & ((1 << PLACE_BITS) - 1)
}

/// Gives upstreams their slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// The slots for upstreams at places that are free again.
    free: Vec<usize>,
    /// The number of places.
    places: usize,
}

impl Slots {
    /// The slot of a new upstream.
    pub(crate) fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        })
    }

    /// Frees the place of an upstream.
    pub(crate) fn free(&mut self, slot: usize) {
        self.free.push(slot.wrapping_add(1 << PLACE_BITS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_place_is_used_again_under_another_slot() {
        let mut slots = Slots::default();
        let (first, second) = (slots.take(), slots.take());
        slots.free(first);
        let third = slots.take();
        assert_ne!(third, first);
        assert_eq!(place(third), place(first));
        assert_ne!(place(third), place(second));
        assert_eq!(slots.take(), second + 1);
    }
}
