//! Collects a response on its way to a client.

use std::sync::Arc;

use bytes::Bytes;
use sluicegate_http1::{Chunk, ChunkedDecoder, ResponseFraming};

use super::account::Charge;
use super::draft::Draft;
use super::entry::Entry;
use super::flight::{Flight, Outcome};
use crate::counters::TrafficStats;

/// The smallest step of growth, in bytes.
const STEP: usize = 4096;

/// Collects a response. If the collector is dropped before the response is complete, nothing is cached.
pub(crate) struct Collector {
    flight: Flight,
    draft: Draft,
    body: Vec<u8>,
    charge: Charge,
    /// The longest body.
    most: usize,
    decoder: Option<ChunkedDecoder>,
    /// The statistics of the policy, and the worker.
    stats: (Arc<TrafficStats>, usize),
}

impl Collector {
    /// `None` if there is no room for the response, or if its end is ambiguous: a response that ends with the connection
    /// may be cut off.
    pub(crate) fn new(
        flight: Flight,
        draft: Draft,
        framing: ResponseFraming,
        stats: (Arc<TrafficStats>, usize),
    ) -> Option<Self> {
        let cache = flight.cache();
        let most = usize::try_from(cache.rules().longest_body()).unwrap_or(usize::MAX);
        let (length, decoder) = match framing {
            ResponseFraming::None => (0, None),
            ResponseFraming::Length(length) => (usize::try_from(length).ok()?, None),
            ResponseFraming::Chunked => (0, Some(ChunkedDecoder::default())),
            ResponseFraming::UntilClose => {
                flight.is_of_no_use();
                return None;
            }
        };
        if length > most {
            flight.is_of_no_use();
            return None;
        }
        let charge = cache.charge(draft.size() + length)?;
        // Until the response is complete.
        flight.ends(Outcome::Lost);
        Some(Self { flight, draft, body: Vec::with_capacity(length), charge, most, decoder, stats })
    }

    /// A longer body is not stored.
    pub(crate) fn limit(&mut self, most: u64) {
        self.most = self.most.min(usize::try_from(most).unwrap_or(usize::MAX));
    }

    /// Processes a part of the body as the endpoint sent it. Returns how many bytes were used: the rest comes again, with
    /// more. `None` if the response is not to be cached.
    pub(crate) fn take(&mut self, raw: &[u8]) -> Option<usize> {
        let Some(mut decoder) = self.decoder.take() else { return self.add(raw).then_some(raw.len()) };
        let mut taken = 0;
        while !decoder.is_done() {
            let (used, chunk) = decoder.next(&raw[taken..]).ok()?;
            taken += used;
            match chunk {
                Chunk::Data(data) if !self.add(data) => return None,
                Chunk::Data(_) => {}
                // Later clients could not learn of the trailers before the body.
                Chunk::Trailers(_) => {
                    self.flight.is_of_no_use();
                    return None;
                }
                Chunk::Partial | Chunk::End => break,
            }
        }
        self.decoder = Some(decoder);
        Some(taken)
    }

    /// Whether a body with its own end has ended.
    pub(crate) fn is_at_end(&self) -> bool {
        self.decoder.as_ref().is_some_and(ChunkedDecoder::is_done)
    }

    /// The response is neither for this client nor for the cache.
    pub(crate) fn give_up(self) {
        self.flight.is_of_no_use();
    }

    fn add(&mut self, data: &[u8]) -> bool {
        let needed = self.body.len() + data.len();
        if needed > self.most {
            self.flight.is_of_no_use();
            return false;
        }
        let room = self.body.capacity();
        if needed > room {
            let wanted = needed.max(2 * room).max(STEP).min(self.most);
            if !self.charge.grow(wanted - room) {
                self.flight.ends(Outcome::NotShareable);
                return false;
            }
            self.body.reserve_exact(wanted - self.body.len());
        }
        self.body.extend_from_slice(data);
        true
    }

    /// The whole response was collected: it is cached from here on.
    pub(crate) fn complete(mut self) {
        self.body.shrink_to_fit();
        self.charge.shrink_to(self.draft.size() + self.body.len());
        let entry = Arc::new(Entry::new(self.draft, Bytes::from(self.body), self.charge));
        let evicted = self.flight.keep(entry);
        let (stats, worker) = self.stats;
        let shard = stats.of(worker);
        if let Some(evicted) = evicted {
            shard.cache_stored.add(1);
            shard.cache_evicted.add(evicted);
        }
    }
}
