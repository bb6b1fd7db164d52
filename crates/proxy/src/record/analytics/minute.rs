//! The sums of one minute: names, and series with their histograms, in little memory.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::analytics::histogram::bucket;
use sluicegate_model::analytics::{Batch, Key, OTHER, Series as ModelSeries, Values};

use super::cells::{Cells, Code, Kind, List};
use crate::hash::mix;

type Random = foldhash::fast::RandomState;

/// The series in one piece of memory.
const PIECE: usize = 1024;
/// The average number of cells of a series for which there is room. A series without room for a further bucket uses the
/// nearest bucket.
const CELLS: usize = 32;

/// The index of the empty name, and of the target without names.
pub(super) const NONE: u32 = 0;
/// The index of [`OTHER`], and of the target with this name.
pub(super) const OTHERS: u32 = 1;

/// The names of a route and of its operation, as indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) route: u32,
    pub(super) api: u32,
    pub(super) version: u32,
    pub(super) environment: u32,
    pub(super) operation: u32,
}

/// The dimensions of a series, as indices of a target and of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeriesKey {
    pub(super) target: u32,
    pub(super) consumer: u32,
    pub(super) plan: u32,
    pub(super) endpoint: u32,
    pub(super) status: u16,
}

/// A finished request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) request_bytes: u64,
    pub(super) response_bytes: u64,
    /// In microseconds.
    pub(super) total: u64,
    /// In microseconds; `None` without an attempt.
    pub(super) upstream: Option<u64>,
    pub(super) is_limited: bool,
    /// Whether the response came from the cache; `None` without a cache.
    pub(super) is_hit: Option<bool>,
}

/// The sums of a minute.
#[derive(Debug)]
pub(crate) struct Minute {
    /// The number of minutes since 1970.
    pub(super) minute: u64,
    names: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, u32, Random>,
    targets: Vec<Target>,
    by_target: HashMap<Target, u32, Random>,
    series: Vec<Vec<Series>>,
    len: usize,
    /// Open addressing: the index of a series plus one, or 0.
    slots: Vec<u32>,
    cells: Cells,
}

#[derive(Clone, Copy, Debug, Default)]
struct Series {
    key: SeriesKey,
    requests: u32,
    limited: u32,
    hits: u32,
    misses: u32,
    request_bytes: u64,
    response_bytes: u64,
    total: u64,
    upstream: u64,
    cells: List,
}

impl Minute {
    /// A minute for about this number of series.
    pub(super) fn new(minute: u64, max_series: usize) -> Self {
        let mut this = Self {
            minute,
            names: Vec::new(),
            by_name: HashMap::default(),
            targets: Vec::new(),
            by_target: HashMap::default(),
            series: Vec::new(),
            len: 0,
            slots: vec![0; 64],
            cells: Cells::new(CELLS * max_series.max(PIECE)),
        };
        this.name("");
        this.name(OTHER);
        this.target(Target::default());
        let all = Target { route: OTHERS, api: OTHERS, ..Target::default() };
        this.target(all);
        this
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of series.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of a name.
    pub(super) fn name(&mut self, name: &str) -> u32 {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let (number, name) = (index(self.names.len()), Arc::<str>::from(name));
        self.names.push(name.clone());
        self.by_name.insert(name, number);
        number
    }

    /// The index of a target.
    pub(super) fn target(&mut self, target: Target) -> u32 {
        *self.by_target.entry(target).or_insert_with(|| {
            self.targets.push(target);
            index(self.targets.len() - 1)
        })
    }

    /// The series with these dimensions.
    #[inline]
    pub(super) fn find(&self, key: &SeriesKey) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut place = key.hash() as usize & mask;
        loop {
            let found = self.slots[place].checked_sub(1)?;
            if self.at(found).key == *key {
                return Some(found);
            }
            place = (place + 1) & mask;
        }
    }

    /// Adds a series, which must be new.
    pub(super) fn insert(&mut self, key: SeriesKey) -> u32 {
        if self.series.last().is_none_or(|piece| piece.len() == PIECE) {
            self.series.push(Vec::with_capacity(if self.len == 0 { 16 } else { PIECE }));
        }
        if let Some(piece) = self.series.last_mut() {
            piece.push(Series { key, ..Series::default() });
        }
        let number = index(self.len);
        self.len += 1;
        // At most two of three slots are in use.
        if self.len * 3 > self.slots.len() * 2 {
            self.slots = vec![0; self.slots.len() * 2];
            for number in 0..number {
                self.place(number);
            }
        }
        self.place(number);
        number
    }

    fn place(&mut self, number: u32) {
        let mask = self.slots.len() - 1;
        let mut place = self.at(number).key.hash() as usize & mask;
        while self.slots[place] != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place] = number + 1;
    }

    /// Adds a request to a series.
    #[inline]
    pub(super) fn record(&mut self, number: u32, sample: &Sample) {
        let series = &mut self.series[number as usize / PIECE][number as usize % PIECE];
        let upstream = sample.upstream.unwrap_or_default().min(sample.total);
        series.requests = series.requests.saturating_add(1);
        series.limited += u32::from(sample.is_limited);
        series.hits += u32::from(sample.is_hit == Some(true));
        series.misses += u32::from(sample.is_hit == Some(false));
        series.request_bytes = series.request_bytes.saturating_add(sample.request_bytes);
        series.response_bytes = series.response_bytes.saturating_add(sample.response_bytes);
        series.total = series.total.saturating_add(sample.total);
        series.upstream = series.upstream.saturating_add(upstream);
        let list = &mut series.cells;
        self.cells.add(list, Code::new(Kind::Total, bucket(sample.total)), 1);
        if sample.upstream.is_some() {
            self.cells.add(list, Code::new(Kind::Upstream, bucket(upstream)), 1);
        }
        self.cells.add(list, Code::new(Kind::Gateway, bucket(sample.total - upstream)), 1);
    }

    /// Adds the sums of another worker.
    pub(super) fn merge(&mut self, other: &Self) {
        let names: Vec<u32> = other.names.iter().map(|name| self.name(name)).collect();
        let name = |number: u32| names[number as usize];
        let targets = other.targets.iter().map(|target| Target {
            route: name(target.route),
            api: name(target.api),
            version: name(target.version),
            environment: name(target.environment),
            operation: name(target.operation),
        });
        let targets: Vec<u32> = targets.map(|target| self.target(target)).collect();
        for from in other.series.iter().flatten() {
            let key = SeriesKey {
                target: targets[from.key.target as usize],
                consumer: name(from.key.consumer),
                plan: name(from.key.plan),
                endpoint: name(from.key.endpoint),
                status: from.key.status,
            };
            let number = self.find(&key).unwrap_or_else(|| self.insert(key)) as usize;
            let into = &mut self.series[number / PIECE][number % PIECE];
            into.requests = into.requests.saturating_add(from.requests);
            into.limited += from.limited;
            into.hits += from.hits;
            into.misses += from.misses;
            into.request_bytes = into.request_bytes.saturating_add(from.request_bytes);
            into.response_bytes = into.response_bytes.saturating_add(from.response_bytes);
            into.total = into.total.saturating_add(from.total);
            into.upstream = into.upstream.saturating_add(from.upstream);
            for (code, count) in other.cells.of(from.cells) {
                self.cells.add(&mut into.cells, code, count);
            }
        }
    }

    /// The sums as batches of at most this many series.
    pub(super) fn batches(&self, series: usize) -> impl Iterator<Item = Batch> {
        let parts = (0..self.len).step_by(series.max(1));
        parts.map(move |from| self.batch(from..self.len.min(from + series.max(1))))
    }

    fn batch(&self, part: std::ops::Range<usize>) -> Batch {
        let mut numbers = HashMap::<u32, u32, Random>::default();
        let mut names = vec![String::new()];
        let mut name = |number: u32| match number {
            NONE => 0,
            _ => *numbers.entry(number).or_insert_with(|| {
                names.push(self.names[number as usize].to_string());
                index(names.len() - 1)
            }),
        };
        let series = part.map(|number| {
            let series = self.at(index(number));
            let target = self.targets[series.key.target as usize];
            let key = Key {
                route: name(target.route),
                api: name(target.api),
                version: name(target.version),
                environment: name(target.environment),
                operation: name(target.operation),
                consumer: name(series.key.consumer),
                plan: name(series.key.plan),
                endpoint: name(series.key.endpoint),
                status: series.key.status,
            };
            ModelSeries { key, values: self.values(series) }
        });
        let series = series.collect();
        Batch { minute: self.minute, names, series }
    }

    fn values(&self, series: &Series) -> Values {
        let mut values = Values {
            requests: series.requests.into(),
            limited: series.limited.into(),
            cache_hits: series.hits.into(),
            cache_misses: series.misses.into(),
            request_bytes: series.request_bytes,
            response_bytes: series.response_bytes,
            ..Values::default()
        };
        values.total.micros = series.total;
        values.upstream.micros = series.upstream;
        values.gateway.micros = series.total.saturating_sub(series.upstream);
        for (code, count) in self.cells.of(series.cells) {
            let times = match code.kind() {
                Kind::Total => &mut values.total,
                Kind::Upstream => &mut values.upstream,
                Kind::Gateway => &mut values.gateway,
            };
            times.histogram.record(code.bucket(), count);
        }
        values
    }

    #[inline]
    fn at(&self, number: u32) -> &Series {
        &self.series[number as usize / PIECE][number as usize % PIECE]
    }

    /// The memory of series in bytes, without names.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let series: usize = self.series.iter().map(Vec::capacity).sum();
        series * size_of::<Series>() + self.slots.capacity() * size_of::<u32>() + self.cells.bytes()
    }
}

impl SeriesKey {
    #[inline]
    fn hash(&self) -> u64 {
        let Self { target, consumer, plan, endpoint, status } = *self;
        let high = mix(u64::from(target) << 32 | u64::from(consumer));
        mix(high ^ (u64::from(plan) << 40) ^ (u64::from(endpoint) << 16) ^ u64::from(status))
    }
}

/// There are far fewer series and names than 2^32.
fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
