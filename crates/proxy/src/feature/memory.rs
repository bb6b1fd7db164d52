//! Remembered answers of servers, by a hash of the question.

use foldhash::HashMap;
use tokio::time::Instant;

/// The limit of a worker's memory for remembered answers of one kind, in bytes.
const REMEMBERED_MAX: usize = 16 * 1024 * 1024;

/// The memory of an answer in addition to its text, in bytes.
const OVERHEAD: usize = 256;

/// The answers that a worker remembers. When the answers exceed the limit of memory, the worker forgets the older half.
#[derive(Debug)]
pub(super) struct Memory<A> {
    young: HashMap<[u8; 32], Remembered<A>>,
    old: HashMap<[u8; 32], Remembered<A>>,
    young_size: usize,
}

#[derive(Debug)]
struct Remembered<A> {
    /// The number of the service.
    of: u64,
    until: Instant,
    answer: A,
    /// The memory of the answer, in bytes.
    size: usize,
}

impl<A> Default for Memory<A> {
    fn default() -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), young_size: 0 }
    }
}

impl<A: Clone> Memory<A> {
    pub(super) fn find(&mut self, mark: &[u8; 32], now: Instant) -> Option<A> {
        if let Some(known) = self.young.get(mark) {
            return (now < known.until).then(|| known.answer.clone());
        }
        let known = self.old.remove(mark).filter(|known| now < known.until)?;
        let answer = known.answer.clone();
        self.insert(*mark, known);
        Some(answer)
    }

    /// Remembers an answer whose text has `size` bytes.
    pub(super) fn remember(&mut self, mark: [u8; 32], of: u64, until: Instant, answer: A, size: usize) {
        self.insert(mark, Remembered { of, until, answer, size: size + OVERHEAD });
    }

    /// Forgets the answers of a service that is no longer asked.
    pub(super) fn forget(&mut self, of: u64) {
        self.old.retain(|_, known| known.of != of);
        let size = &mut self.young_size;
        self.young.retain(|_, known| {
            let stays = known.of != of;
            *size -= if stays { 0 } else { known.size };
            stays
        });
    }

    fn insert(&mut self, mark: [u8; 32], known: Remembered<A>) {
        let size = known.size;
        if self.young_size + size > REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_size = 0;
        }
        self.young_size += size;
        if let Some(before) = self.young.insert(mark, known) {
            self.young_size -= before.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    fn mark(number: u32) -> [u8; 32] {
        std::array::from_fn(|at| number.to_be_bytes().get(at).copied().unwrap_or(0))
    }

    #[test]
    fn cached_decisions_stay_within_the_memory_limit_under_a_flood_of_keys() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let until = now + Duration::from_secs(60);
        for number in 0..50_000 {
            memory.remember(mark(number), 1, until, (), 1024);
            let sizes = |part: &HashMap<_, Remembered<_>>| part.values().map(|it| it.size).sum::<usize>();
            if number % 1000 == 0 {
                assert!(sizes(&memory.young) + sizes(&memory.old) <= REMEMBERED_MAX);
                assert_eq!(sizes(&memory.young), memory.young_size);
            }
        }
        assert!(memory.find(&mark(49_999), now).is_some());
        assert!(memory.find(&mark(0), now).is_none());
    }

    #[test]
    fn cached_decision_is_dropped_at_expiry_or_when_its_service_is_removed() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        memory.remember(mark(1), 1, until, (), 1);
        memory.remember(mark(2), 2, until, (), 1);
        // A repeated answer counts once in the size.
        memory.remember(mark(2), 2, until, (), 1);
        assert!(memory.find(&mark(1), now).is_some());
        assert!(memory.find(&mark(1), until).is_none());
        memory.forget(1);
        assert!(memory.find(&mark(1), now).is_none());
        assert!(memory.find(&mark(2), now).is_some());
        memory.forget(2);
        assert_eq!((memory.young.len(), memory.young_size), (0, 0));
    }
}
