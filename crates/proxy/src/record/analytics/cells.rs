//! The cells of the histograms of many series, in one block of memory.
//!
//! A cell has 4 bytes: the kind and the bucket of a duration, and a count. A series has a list of cells whose size doubles:
//! most series of a minute have some requests, and some series have all buckets.

use sluicegate_model::analytics::histogram::middle;

/// The number of bits of a count. A full cell is followed by another cell of the same code.
const COUNT_BITS: u32 = 23;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// The number of cells in the smallest list.
const SMALLEST: usize = 4;
/// The sizes of lists: 4 to 1,024 cells. All codes together are 384.
const CLASSES: usize = 9;

/// What a duration measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Total,
    Upstream,
    Gateway,
}

/// The kind and the bucket of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(u16);

impl Code {
    pub(super) fn new(kind: Kind, bucket: u8) -> Self {
        Self((kind as u16) << 7 | u16::from(bucket & 0x7f))
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 >> 7 {
            0 => Kind::Total,
            1 => Kind::Upstream,
            _ => Kind::Gateway,
        }
    }

    pub(super) fn bucket(self) -> u8 {
        (self.0 & 0x7f) as u8
    }
}

/// The list of a series.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct List {
    start: u32,
    len: u16,
    /// The size class plus one; 0 before the first cell.
    class: u8,
}

/// The cells of all series.
#[derive(Debug)]
pub(super) struct Cells {
    cells: Vec<u32>,
    /// The starts of unused lists by class.
    free: [Vec<u32>; CLASSES],
    /// The maximum number of cells.
    max: usize,
}

impl Cells {
    pub(super) fn new(max: usize) -> Self {
        // A list is found by 32 bits.
        Self { cells: Vec::new(), free: Default::default(), max: max.min(u32::MAX as usize / 2) }
    }

    /// Adds `count` durations.
    #[inline]
    pub(super) fn add(&mut self, list: &mut List, code: Code, mut count: u64) {
        let start = list.start as usize;
        let cells = &mut self.cells[start..start + usize::from(list.len)];
        for place in 0..cells.len() {
            let cell = cells[place];
            if cell >> COUNT_BITS != u32::from(code.0) {
                continue;
            }
            let room = COUNT_MAX - (cell & COUNT_MAX);
            // At most `room`, which fits.
            let added = u32::try_from(count).unwrap_or(u32::MAX).min(room);
            cells[place] = cell + added;
            count -= u64::from(added);
            // Frequent cells move to the front.
            if place > 0 {
                cells.swap(place, place - 1);
            }
            if count == 0 {
                return;
            }
        }
        self.append(list, code, count);
    }

    #[cold]
    fn append(&mut self, list: &mut List, code: Code, mut count: u64) {
        while count > 0 {
            if usize::from(list.len) == list.capacity() && !self.grow(list) {
                self.add_to_nearest(*list, code, count);
                return;
            }
            let added = u32::try_from(count).unwrap_or(u32::MAX).min(COUNT_MAX);
            self.cells[list.start as usize + usize::from(list.len)] = u32::from(code.0) << COUNT_BITS | added;
            list.len += 1;
            count -= u64::from(added);
        }
    }

    /// Doubles a list. Returns whether there was room.
    fn grow(&mut self, list: &mut List) -> bool {
        let class = usize::from(list.class);
        if class == CLASSES {
            return false;
        }
        let size = SMALLEST << class;
        let start = match self.free[class].pop() {
            Some(start) => start as usize,
            None if self.cells.len() + size > self.max => return false,
            None => {
                self.cells.resize(self.cells.len() + size, 0);
                self.cells.len() - size
            }
        };
        let old = list.start as usize;
        self.cells.copy_within(old..old + usize::from(list.len), start);
        if class > 0 {
            self.free[class - 1].push(list.start);
        }
        // At most `max`, which fits.
        list.start = u32::try_from(start).unwrap_or(u32::MAX);
        list.class += 1;
        true
    }

    /// Without room, a duration counts in the nearest bucket of its kind. The sums stay right.
    fn add_to_nearest(&mut self, list: List, code: Code, count: u64) {
        let start = list.start as usize;
        let cells = &mut self.cells[start..start + usize::from(list.len)];
        let near = cells.iter_mut().filter(|cell| code_of(**cell).kind() == code.kind());
        let room = |cell: &u32| u64::from(COUNT_MAX - (*cell & COUNT_MAX)) >= count;
        let distance = |cell: &u32| {
            let (middle, wanted) = (middle(code_of(*cell).bucket()), middle(code.bucket()));
            (middle / wanted.max(1.0)).ln().abs()
        };
        let nearest =
            near.filter(|cell| room(cell)).min_by(|one, other| distance(one).total_cmp(&distance(other)));
        if let Some(cell) = nearest {
            // There is room for the count.
            *cell += u32::try_from(count).unwrap_or_default();
        }
    }

    /// The cells of a list.
    pub(super) fn of(&self, list: List) -> impl Iterator<Item = (Code, u64)> {
        let start = list.start as usize;
        let cells = &self.cells[start..start + usize::from(list.len)];
        cells.iter().map(|cell| (code_of(*cell), u64::from(cell & COUNT_MAX)))
    }

    /// The memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        (self.cells.capacity() + free) * size_of::<u32>()
    }
}

impl List {
    fn capacity(self) -> usize {
        match self.class {
            0 => 0,
            class => SMALLEST << (class - 1),
        }
    }
}

fn code_of(cell: u32) -> Code {
    Code((cell >> COUNT_BITS) as u16)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn counts(cells: &Cells, list: List) -> BTreeMap<u16, u64> {
        let mut counts = BTreeMap::new();
        for (code, count) in cells.of(list) {
            *counts.entry(code.0).or_default() += count;
        }
        counts
    }

    #[test]
    fn cells_of_many_lists_have_the_added_counts() {
        let mut cells = Cells::new(1 << 20);
        let (mut lists, mut expected) = (vec![List::default(); 50], vec![BTreeMap::new(); 50]);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100_000 {
            let of = random.usize(..50).min(random.usize(..50));
            let code = Code(random.u16(..384).min(random.u16(..384)));
            let count = if random.u8(..) == 0 { random.u64(..1 << 26) } else { 1 };
            cells.add(&mut lists[of], code, count);
            *expected[of].entry(code.0).or_default() += count;
        }
        for (list, expected) in lists.iter().zip(expected) {
            assert_eq!(counts(&cells, *list), expected);
        }
    }

    #[test]
    fn without_room_the_nearest_bucket_of_the_kind_counts() {
        let mut cells = Cells::new(SMALLEST);
        let mut list = List::default();
        for (kind, bucket) in [(Kind::Total, 10), (Kind::Total, 40), (Kind::Upstream, 35), (Kind::Gateway, 2)]
        {
            cells.add(&mut list, Code::new(kind, bucket), 1);
        }
        cells.add(&mut list, Code::new(Kind::Total, 35), 5);
        let expected =
            [(Kind::Total, 10, 1), (Kind::Total, 40, 6), (Kind::Upstream, 35, 1), (Kind::Gateway, 2, 1)];
        assert_eq!(
            counts(&cells, list),
            expected.map(|(kind, bucket, count)| (Code::new(kind, bucket).0, count)).into()
        );
    }
}
