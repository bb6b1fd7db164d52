//! The batches that are not stored yet, in memory.
//!
//! The outbox numbers batches. The receiver acknowledges a number after it has stored the batch, and ignores a number that it knows.
//! So a batch counts once, however often it is sent.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sluicegate_model::analytics::Batch;
use tokio::sync::watch;

use crate::packing::{pack, unpack};

/// The default size: more than ten minutes with 100,000 series each.
pub const DEFAULT_BYTES: usize = 24 << 20;
/// The largest batch, in bytes. A message of the link may have 1 MiB.
const BATCH_MAX: usize = 768 << 10;

/// The batches that are not stored yet.
#[derive(Debug)]
pub struct Outbox {
    instance: Box<str>,
    /// The maximum size in bytes.
    max: usize,
    state: Mutex<State>,
    /// The number of waiting batches.
    waiting: watch::Sender<usize>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    stored: u64,
    coarsened: u64,
    dropped: u64,
}

#[derive(Debug)]
struct Waiting {
    sequence: u64,
    body: Bytes,
    requests: u64,
    is_coarse: bool,
}

/// The numbers of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxStatus {
    /// The batches that wait.
    pub waiting: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// The batches that were stored.
    pub stored: u64,
    /// The requests that lost their consumer and endpoint, because the outbox was full.
    pub coarsened: u64,
    /// The requests that were lost, because the outbox was full.
    pub dropped: u64,
}

impl Outbox {
    /// An outbox of at most `max` bytes. `instance` is the identity of this run of the process.
    #[must_use]
    pub fn new(instance: Box<str>, max: usize) -> Self {
        Self {
            instance,
            max,
            state: Mutex::default(),
            waiting: watch::Sender::new(0),
            newest: watch::Sender::new(0),
        }
    }

    /// The identity of this run of the process.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Adds a batch. If there is no room, the oldest batches lose their consumers and endpoints, and then the oldest batches are
    /// dropped and counted.
    pub fn push(&self, batch: Batch) {
        let body = pack(&batch);
        if body.len() > BATCH_MAX && batch.series.len() > 1 {
            batch.split().into_iter().for_each(|half| self.push(half));
            return;
        }
        let mut state = self.state();
        state.last += 1;
        let sequence = state.last;
        state.bytes += body.len();
        let requests = batch.requests();
        state.waiting.push_back(Waiting { sequence, body: body.into(), requests, is_coarse: false });
        self.make_room(&mut state);
        self.waiting.send_replace(state.waiting.len());
        self.newest.send_replace(sequence);
    }

    fn make_room(&self, state: &mut State) {
        let mut place = 0;
        while state.bytes > self.max {
            // The newest batch stays as it is.
            if place + 1 >= state.waiting.len() {
                break;
            }
            let waiting = &mut state.waiting[place];
            place += 1;
            if waiting.is_coarse {
                continue;
            }
            waiting.is_coarse = true;
            let Ok(batch) = unpack(&waiting.body) else { continue };
            let coarse = pack(&batch.coarse());
            state.bytes = state.bytes - waiting.body.len() + coarse.len();
            waiting.body = coarse.into();
            state.coarsened += waiting.requests;
        }
        while state.bytes > self.max
            && state.waiting.len() > 1
            && let Some(oldest) = state.waiting.pop_front()
        {
            state.bytes -= oldest.body.len();
            state.dropped += oldest.requests;
        }
    }

    /// The first batch after this number, with its number.
    #[must_use]
    pub fn after(&self, sequence: u64) -> Option<(u64, Bytes)> {
        let state = self.state();
        let place = state.waiting.partition_point(|waiting| waiting.sequence <= sequence);
        state.waiting.get(place).map(|waiting| (waiting.sequence, waiting.body.clone()))
    }

    /// Removes a batch that is stored.
    pub fn acknowledge(&self, sequence: u64) {
        let mut state = self.state();
        if let Ok(place) = state.waiting.binary_search_by_key(&sequence, |waiting| waiting.sequence)
            && let Some(stored) = state.waiting.remove(place)
        {
            state.bytes -= stored.body.len();
            state.stored += 1;
            self.waiting.send_replace(state.waiting.len());
        }
    }

    /// The number of the newest batch, and every change.
    #[must_use]
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Waits until all batches are stored, at most for this time. Returns the requests that are not stored.
    pub async fn drain(&self, patience: Duration) -> u64 {
        let mut waiting = self.waiting.subscribe();
        let all = waiting.wait_for(|waiting| *waiting == 0);
        // The sender lives in self; after the timeout some batches are left.
        let _ = tokio::time::timeout(patience, all).await;
        self.state().waiting.iter().map(|waiting| waiting.requests).sum()
    }

    /// The numbers for metrics.
    #[must_use]
    pub fn status(&self) -> OutboxStatus {
        let state = self.state();
        let State { bytes, stored, coarsened, dropped, .. } = *state;
        OutboxStatus { waiting: state.waiting.len(), bytes, stored, coarsened, dropped }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::analytics::{Key, OTHER, Series, Values};

    use super::*;

    /// A batch with many consumers, each with two requests.
    fn batch(minute: u64, consumers: u32) -> Batch {
        let mut names = vec![String::new(), "Api shop/orders /".to_owned()];
        let mut random = fastrand::Rng::with_seed(minute);
        names.extend((0..consumers).map(|_| format!("shop/{:x}", random.u64(..))));
        let series = (0..consumers).map(|consumer| {
            let mut values = Values { requests: 2, request_bytes: random.u64(..10_000), ..Values::default() };
            values.total.record(random.u64(..100_000), 2);
            Series { key: Key { route: 1, consumer: consumer + 2, status: 200, ..Key::default() }, values }
        });
        Batch { minute, series: series.collect(), names }
    }

    #[test]
    fn batch_waits_until_it_is_acknowledged() {
        let outbox = Outbox::new("one".into(), DEFAULT_BYTES);
        assert_eq!(outbox.after(0), None);
        for minute in 1..=3 {
            outbox.push(batch(minute, 1));
        }
        assert_eq!(outbox.after(0).map(|(sequence, _)| sequence), Some(1));
        assert_eq!(outbox.after(1).map(|(sequence, _)| sequence), Some(2));
        outbox.acknowledge(2);
        outbox.acknowledge(2);
        assert_eq!(outbox.after(1).map(|(sequence, _)| sequence), Some(3));
        assert_eq!(outbox.after(0).map(|(sequence, _)| sequence), Some(1));
        for sequence in [1, 3, 7] {
            outbox.acknowledge(sequence);
        }
        assert_eq!(outbox.status(), OutboxStatus { stored: 3, ..OutboxStatus::default() });
    }

    #[test]
    fn full_outbox_makes_the_oldest_batches_coarse_and_then_drops_and_counts_them() {
        const CONSUMERS: u32 = 500;
        let one = pack(&batch(0, CONSUMERS)).len();
        let outbox = Outbox::new("one".into(), 4 * one);
        let mut pushed = 0;
        for minute in 1..=8 {
            outbox.push(batch(minute, CONSUMERS));
            pushed += u64::from(2 * CONSUMERS);
        }
        let status = outbox.status();
        assert_eq!((status.waiting, status.dropped), (8, 0), "{status:?}");
        assert!(status.bytes <= 4 * one && status.coarsened >= 4 * u64::from(2 * CONSUMERS), "{status:?}");
        let oldest = unpack(&outbox.after(0).expect("the oldest").1).expect("a batch");
        assert_eq!((oldest.minute, oldest.requests()), (1, u64::from(2 * CONSUMERS)));
        assert!(oldest.names.iter().any(|name| name == OTHER));
        // Coarse batches fill the outbox only after many minutes.
        let small = Outbox::new("two".into(), one / 2);
        for minute in 1..=100 {
            small.push(batch(minute, CONSUMERS));
        }
        let status = small.status();
        assert!(status.dropped > 0 && status.waiting >= 1, "{status:?}");
        let mut waiting = 0;
        let mut sequence = 0;
        while let Some((next, body)) = small.after(sequence) {
            sequence = next;
            waiting += unpack(&body).expect("a batch").requests();
        }
        assert_eq!(waiting + status.dropped, 100 * u64::from(2 * CONSUMERS));
        assert!(pushed > 0);
    }

    #[test]
    fn batch_that_is_too_long_for_a_message_is_split() {
        let outbox = Outbox::new("one".into(), DEFAULT_BYTES);
        outbox.push(batch(1, 60_000));
        let (mut sequence, mut requests) = (0, 0);
        while let Some((next, body)) = outbox.after(sequence) {
            assert!(body.len() <= BATCH_MAX);
            requests += unpack(&body).expect("a batch").requests();
            sequence = next;
        }
        assert!(sequence > 1);
        assert_eq!(requests, 120_000);
    }

    #[tokio::test]
    async fn drain_ends_when_all_batches_are_stored() {
        let outbox = Outbox::new("one".into(), DEFAULT_BYTES);
        outbox.push(batch(1, 3));
        assert_eq!(outbox.drain(Duration::from_millis(10)).await, 6);
        let acknowledged = async { outbox.acknowledge(1) };
        let (left, ()) = tokio::join!(outbox.drain(Duration::from_secs(60)), acknowledged);
        assert_eq!(left, 0);
    }
}
