//! All cached responses of a policy.
//!
//! This module has the only locks on the path of a request: one for each shard of a cache, held for lookups, never during
//! a wait. Requests of routes without a cache take no lock.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use foldhash::quality::RandomState;
use sluicegate_model::feature as model;
use tokio::time::Instant;

use super::account::{Account, Charge};
use super::draft::Asked;
use super::entry::Entry;
use super::flight::{Flight, InFlight};

/// The limit of shards.
const SHARDS_MAX: u64 = 16;
/// The smallest number of largest responses for which a shard has room.
const LARGEST_MIN: u64 = 4;
/// How many responses of one URI are cached, for different headers and upstreams.
const VARIANTS_MAX: usize = 32;
/// After a response that cannot be shared, the time during which requests of the same key do not wait for each other.
const NOT_SHAREABLE_TIME: Duration = Duration::from_secs(10);
/// How many keys of these responses are remembered.
const REMEMBERED: usize = 1024;

/// The cached responses of a policy.
#[derive(Debug)]
pub(crate) struct Cache {
    rules: model::Cache,
    shards: Box<[Mutex<Shard>]>,
    /// The memory limit of a shard, in bytes.
    share: usize,
    account: Arc<Account>,
    hasher: RandomState,
    /// Keys whose response was not for other clients: the upper half of the hash, and the end of the time in seconds.
    not_shareable: Box<[AtomicU64]>,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Shard {
    /// The numbers of the responses to each key, oldest first.
    index: HashMap<Arc<[u8]>, Vec<u64>>,
    entries: HashMap<u64, Arc<Entry>>,
    /// Numbers in the order of eviction; some are gone already.
    queue: VecDeque<u64>,
    next: u64,
    bytes: usize,
    /// The requests in flight, the newest last. The earlier ones took too long, or are for one client only.
    flights: HashMap<Arc<[u8]>, Vec<Arc<InFlight>>>,
}

/// The result of a lookup.
pub(crate) enum CacheLookup {
    /// The cached response serves the request.
    Hit(Arc<Entry>),
    /// The request asks the endpoint, also for others. The stale response may serve within its rules.
    Leads(Flight, Option<Arc<Entry>>),
    /// The stale response serves the request. The flight asks the endpoint for later requests.
    Refreshes(Flight, Arc<Entry>),
    /// Another request asks the endpoint.
    Waits(Arc<InFlight>, Option<Arc<Entry>>),
    /// The request asks the endpoint only for itself.
    Alone(Option<Arc<Entry>>),
}

impl Cache {
    pub(crate) fn new(rules: &model::Cache) -> Self {
        let kept = rules.max_size.get() / 4 * 3;
        let shards = (kept / (LARGEST_MIN * rules.longest_body().max(1))).clamp(1, SHARDS_MAX);
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            rules: rules.clone(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            share: bytes(kept / shards),
            account: Account::new(bytes(rules.max_size.get())),
            hasher: RandomState::default(),
            not_shareable: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn rules(&self) -> &model::Cache {
        &self.rules
    }

    /// The memory in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.account.used() as u64
    }

    /// The number of cached responses.
    pub(crate) fn entries(&self) -> u64 {
        self.account.entries.load(Ordering::Relaxed)
    }

    pub(super) fn charge(&self, bytes: usize) -> Option<Charge> {
        Charge::new(&self.account, bytes)
    }

    /// Looks up the response to a request. `request` is the request for the endpoint. A request that `waits` may wait for
    /// another request. A request that `leads` may have others wait.
    pub(crate) fn enter(
        self: &Arc<Self>,
        asked: &Asked,
        request: &[u8],
        (waits, leads): (bool, bool),
        now: Instant,
    ) -> CacheLookup {
        let hash = self.hash(&asked.key);
        let mut shard = self.shard(hash);
        let found = shard.find(asked, request);
        if let Some(entry) = found.as_ref().filter(|entry| entry.is_fresh(asked, now)) {
            entry.touch();
            return CacheLookup::Hit(entry.clone());
        }
        let is_private =
            asked.has_credentials || asked.is_conditional && found.is_none() || self.is_of_no_use(hash, now);
        // A request for one client only does not block a request for all clients.
        let is_in_the_way = |other: &&Arc<InFlight>| now < other.until() && (is_private || !other.is_private);
        if let Some(in_flight) = shard.newest(&asked.key).filter(is_in_the_way) {
            if let Some(entry) = found.as_ref().filter(|entry| entry.may_serve_while_revalidating(asked, now))
            {
                return CacheLookup::Hit(entry.clone());
            }
            if waits
                && in_flight.is_for(asked)
                && !in_flight.is_private
                && !asked.has_credentials
                && in_flight.take_place()
            {
                return CacheLookup::Waits(in_flight.clone(), found);
            }
            return CacheLookup::Alone(found);
        }
        if !leads {
            return CacheLookup::Alone(found);
        }
        let state = InFlight::new(asked, is_private, now);
        shard.flights.entry(asked.key.clone()).or_default().push(state.clone());
        drop(shard);
        let flight = Flight::new(self.clone(), asked.key.clone(), state);
        match found {
            Some(entry) if entry.may_serve_while_revalidating(asked, now) => {
                CacheLookup::Refreshes(flight, entry)
            }
            found => CacheLookup::Leads(flight, found),
        }
    }

    /// Caches a response under a key, in place of responses that would serve the same requests. Returns the number of
    /// evicted responses; `None` if the response is not cached.
    pub(super) fn insert(&self, key: &Arc<[u8]>, asked: &InFlight, entry: Arc<Entry>) -> Option<u64> {
        let (bytes, share) = (entry.bytes(), self.share);
        if bytes > share {
            return None;
        }
        let now = Instant::now();
        let (mut evicted, mut replaced) = (Vec::new(), Vec::new());
        let mut shard = self.shard(self.hash(key));
        // A newer request in flight, started because this one was slow, does not matter.
        if asked.is_outdated() {
            return None;
        }
        let numbers = shard.index.get(key).cloned().unwrap_or_default();
        let same = |number: &u64| shard.entries.get(number).is_some_and(|old| old.is_replaced_by(&entry));
        let mut old: Vec<u64> = numbers.iter().copied().filter(same).collect();
        let is_better = |old: &Arc<Entry>| old.is_newer_than(&entry) || old.outlasts(&entry, now);
        if old.iter().any(|number| shard.entries.get(number).is_some_and(is_better)) {
            return None;
        }
        if old.is_empty() && numbers.len() >= VARIANTS_MAX {
            // A client that makes up variants does not evict variants that other clients use.
            let is_idle = |number: &u64| !shard.entries.get(number).is_some_and(|entry| entry.take_touch());
            let idle = numbers.iter().position(is_idle).unwrap_or(0);
            old.extend(numbers.get(idle));
            if let Some(numbers) = shard.index.get_mut(key) {
                // The skipped variants come last.
                numbers.rotate_left(idle);
            }
        }
        replaced.extend(old.into_iter().filter_map(|number| shard.remove(number)));
        shard.make_room(bytes, share, &mut evicted);
        shard.add(key, entry);
        drop(shard);
        self.account.entries.fetch_add(1, Ordering::Relaxed);
        self.count_gone(evicted.len() + replaced.len());
        Some(evicted.len() as u64)
    }

    /// Replaces a response, unless it is gone. The body is the same.
    pub(crate) fn replace(&self, old: &Arc<Entry>, new: Entry) {
        let key = old.draft().key();
        let mut shard = self.shard(self.hash(key));
        let gone = shard.number_of(old).and_then(|number| shard.remove(number));
        if gone.is_some() {
            shard.add(key, Arc::new(new));
        }
    }

    /// Ends a request in flight.
    pub(super) fn end_flight(&self, key: &Arc<[u8]>, state: &Arc<InFlight>) {
        let mut shard = self.shard(self.hash(key));
        let Some(flights) = shard.flights.get_mut(key) else { return };
        flights.retain(|flight| !Arc::ptr_eq(flight, state));
        if flights.is_empty() {
            shard.flights.remove(key);
        }
    }

    /// Removes all responses to a key, and outdates the requests in flight (RFC 9111, 4.4).
    pub(crate) fn invalidate(&self, key: &[u8]) {
        let mut shard = self.shard(self.hash(key));
        let numbers = shard.index.remove(key).unwrap_or_default();
        let gone: Vec<_> = numbers.into_iter().filter_map(|number| shard.take(number)).collect();
        for flight in shard.flights.remove(key).into_iter().flatten() {
            flight.outdate();
        }
        drop(shard);
        self.count_gone(gone.len());
    }

    /// Removes one response.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        let key = entry.draft().key();
        let mut shard = self.shard(self.hash(key));
        let gone = shard.number_of(entry).and_then(|number| shard.remove(number));
        drop(shard);
        self.count_gone(usize::from(gone.is_some()));
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(hash % self.shards.len() as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_gone(&self, entries: usize) {
        self.account.entries.fetch_sub(entries as u64, Ordering::Relaxed);
    }

    /// The second of a time, from 1, in 32 bits.
    fn second(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.begun).as_secs() + 1) & 0xffff_ffff
    }

    fn is_of_no_use(&self, hash: u64, now: Instant) -> bool {
        let said = self.not_shareable[(hash % REMEMBERED as u64) as usize].load(Ordering::Relaxed);
        said >> 32 == hash >> 32 && self.second(now) < said & 0xffff_ffff
    }

    pub(super) fn remember_not_shareable(&self, key: &[u8], now: Instant) {
        let hash = self.hash(key);
        let until = self.second(now + NOT_SHAREABLE_TIME);
        let said = hash >> 32 << 32 | until;
        self.not_shareable[(hash % REMEMBERED as u64) as usize].store(said, Ordering::Relaxed);
    }
}

impl Shard {
    /// The newest response that serves a request.
    fn find(&self, asked: &Asked, request: &[u8]) -> Option<Arc<Entry>> {
        let numbers = self.index.get(&asked.key)?;
        let entries = numbers.iter().rev().filter_map(|number| self.entries.get(number));
        entries.into_iter().find(|entry| entry.answers(asked, request)).cloned()
    }

    /// The last request in flight for this key.
    fn newest(&self, key: &Arc<[u8]>) -> Option<&Arc<InFlight>> {
        self.flights.get(key)?.last()
    }

    fn number_of(&self, entry: &Arc<Entry>) -> Option<u64> {
        let numbers = self.index.get(entry.draft().key())?;
        let is_it = |number: &&u64| self.entries.get(number).is_some_and(|found| Arc::ptr_eq(found, entry));
        numbers.iter().find(is_it).copied()
    }

    fn add(&mut self, key: &Arc<[u8]>, entry: Arc<Entry>) {
        let number = self.next;
        self.next += 1;
        self.bytes += entry.bytes();
        self.index.entry(key.clone()).or_default().push(number);
        self.entries.insert(number, entry);
        self.queue.push_back(number);
        // Numbers of removed responses take memory, too.
        if self.queue.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.queue.retain(|number| entries.contains_key(number));
        }
    }

    /// Removes a response, but leaves its number in the list of its key.
    fn take(&mut self, number: u64) -> Option<Arc<Entry>> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Entry>> {
        let entry = self.take(number)?;
        let key = entry.draft().key();
        if let Some(numbers) = self.index.get_mut(key) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.index.remove(key);
            }
        }
        Some(entry)
    }

    /// Evicts the least recently used responses, roughly: in the order of arrival, but a response that was used since
    /// gets a second chance (the clock algorithm).
    fn make_room(&mut self, bytes: usize, share: usize, gone: &mut Vec<Arc<Entry>>) {
        while self.bytes + bytes > share {
            let Some(number) = self.queue.pop_front() else { return };
            let Some(entry) = self.entries.get(&number) else { continue };
            if entry.take_touch() {
                self.queue.push_back(number);
            } else {
                gone.extend(self.remove(number));
            }
        }
    }
}

#[cfg(test)]
mod tests;
