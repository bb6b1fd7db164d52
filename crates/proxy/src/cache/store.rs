//! All responses that a policy keeps, and who asks the endpoint for what several want.
//!
//! The only locks on the way of a request are here: one for each of a few parts of a cache, held for look-ups, never while
//! anything is waited for. Routes without a cache do not come by.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use foldhash::quality::RandomState;
use sluicegate_model::UpstreamKey;
use sluicegate_model::policy::traffic as model;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::account::{Account, Charge};
use super::entry::{Asked, Entry};

/// The most parts.
const SHARDS_MAX: u64 = 16;
/// The largest responses that a part has room for, at least.
const LARGEST_MIN: u64 = 4;
/// How many responses are kept of one URI, for different headers and upstreams.
const VARIANTS_MAX: usize = 32;
/// How long anybody waits for what another one asks for (nginx: `proxy_cache_lock_timeout`). Whoever comes after that asks
/// in its place: its client may be one that reads slowly on purpose.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// How many requests may wait for what one of them asks for.
const WAITING_MAX: usize = 1024;
/// For how long nobody waits for a response after one was of no use to others.
const OF_NO_USE: Duration = Duration::from_secs(10);
/// How many of those are remembered.
const REMEMBERED: usize = 1024;

/// The responses that a policy keeps.
#[derive(Debug)]
pub(crate) struct Cache {
    rules: model::Cache,
    shards: Box<[Mutex<Shard>]>,
    /// How many bytes a shard keeps.
    share: usize,
    account: Arc<Account>,
    hasher: RandomState,
    /// Keys of which a response was of no use to others: the upper half of their hash, and until when, in seconds.
    of_no_use: Box<[AtomicU64]>,
    /// How often responses to some keys were thrown out since something was changed, by their hash.
    changes: Box<[AtomicU64]>,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Shard {
    /// The numbers of the responses to each key, oldest first.
    index: HashMap<Arc<[u8]>, Vec<u64>>,
    entries: HashMap<u64, Arc<Entry>>,
    /// Numbers in the order in which they may be thrown out; some are gone already.
    queue: VecDeque<u64>,
    next: u64,
    bytes: usize,
    /// What endpoints are being asked for.
    flights: HashMap<Arc<[u8]>, Arc<UnderWay>>,
}

/// What an endpoint is being asked for.
#[derive(Debug)]
pub(crate) struct UnderWay {
    upstream: UpstreamKey,
    lines: Box<[u8]>,
    begun: Instant,
    /// How often what it asks for had been changed.
    changes: u64,
    /// Whether its response is most likely for nobody else.
    is_private: bool,
    /// Closed when it ends.
    done: Semaphore,
    waiting: AtomicUsize,
    outcome: AtomicU8,
}

/// How it ended to ask an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// Whoever asked went away.
    Lost,
    /// There is a response for others.
    Kept,
    /// There is a response, and not for others.
    OfNoUse,
    /// There is no response.
    Failed,
}

/// Who asks an endpoint for what several want. What others wait for ends with it.
#[derive(Debug)]
pub(crate) struct Flight {
    cache: Arc<Cache>,
    key: Arc<[u8]>,
    state: Arc<UnderWay>,
}

/// What becomes of a request.
pub(crate) enum Entered {
    /// This answers it.
    Kept(Arc<Entry>),
    /// It asks the endpoint, also for others. What is stale may be used by its rules.
    Leads(Flight, Option<Arc<Entry>>),
    /// Another one asks the endpoint.
    Waits(Arc<UnderWay>, Option<Arc<Entry>>),
    /// It asks the endpoint for itself.
    Alone(Option<Arc<Entry>>),
}

impl Cache {
    pub(crate) fn new(rules: &model::Cache) -> Self {
        let kept = rules.max_size / 4 * 3;
        let shards = (kept / (LARGEST_MIN * rules.max_response_size.max(1))).clamp(1, SHARDS_MAX);
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            rules: rules.clone(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            share: bytes(kept / shards),
            account: Account::new(bytes(rules.max_size)),
            hasher: RandomState::default(),
            of_no_use: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            changes: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn rules(&self) -> &model::Cache {
        &self.rules
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.account.used() as u64
    }

    /// How many responses it keeps.
    pub(crate) fn entries(&self) -> u64 {
        self.account.entries.load(Ordering::Relaxed)
    }

    pub(super) fn charge(&self, bytes: usize) -> Option<Charge> {
        Charge::new(&self.account, bytes)
    }

    /// What becomes of a request, for which an endpoint would be sent `request`. One that `waits` may wait for another, one that
    /// `leads` may have others wait for it.
    pub(crate) fn enter(
        self: &Arc<Self>,
        asked: &Asked,
        request: &[u8],
        (waits, leads): (bool, bool),
        now: Instant,
    ) -> Entered {
        let hash = self.hash(&asked.key);
        let mut shard = self.shard(hash);
        let found = shard.find(asked, request);
        if let Some(entry) = found.as_ref().filter(|entry| entry.is_fresh(asked, now)) {
            entry.touch();
            return Entered::Kept(entry.clone());
        }
        let is_private =
            asked.has_credentials || asked.is_conditional && found.is_none() || self.is_of_no_use(hash, now);
        // One of which nobody else gets anything is not in the way of one for all.
        let is_in_the_way = |other: &&Arc<UnderWay>| now < other.until() && (is_private || !other.is_private);
        if let Some(under_way) = shard.flights.get(&asked.key).filter(is_in_the_way) {
            if let Some(entry) = found.as_ref().filter(|entry| entry.may_bridge(asked, now)) {
                return Entered::Kept(entry.clone());
            }
            let is_same = under_way.upstream == asked.upstream && under_way.lines == asked.lines;
            if waits && is_same && !under_way.is_private && !asked.has_credentials && under_way.take_place() {
                return Entered::Waits(under_way.clone(), found);
            }
            return Entered::Alone(found);
        }
        if !leads {
            return Entered::Alone(found);
        }
        let state = Arc::new(UnderWay {
            upstream: asked.upstream.clone(),
            lines: asked.lines.clone(),
            begun: now,
            changes: self.changes(hash).load(Ordering::Relaxed),
            is_private,
            done: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
            outcome: AtomicU8::new(Outcome::Lost as u8),
        });
        shard.flights.insert(asked.key.clone(), state.clone());
        Entered::Leads(Flight { cache: self.clone(), key: asked.key.clone(), state }, found)
    }

    /// Throws out all responses to a key, and those that are on their way (RFC 9111, 4.4).
    pub(crate) fn invalidate(&self, key: &[u8]) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash);
        self.changes(hash).fetch_add(1, Ordering::Relaxed);
        let numbers = shard.index.remove(key).unwrap_or_default();
        let gone: Vec<_> = numbers.into_iter().filter_map(|number| shard.take(number)).collect();
        shard.flights.remove(key);
        drop(shard);
        self.count_gone(gone.len());
    }

    /// Throws out one response.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        let key = entry.draft().key();
        let mut shard = self.shard(self.hash(key));
        let number = shard.index.get(key).into_iter().flatten().copied();
        let number = number
            .into_iter()
            .find(|number| shard.entries.get(number).is_some_and(|found| Arc::ptr_eq(found, entry)));
        let gone = number.and_then(|number| shard.remove(number));
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

    /// Counted while the shard is locked.
    fn changes(&self, hash: u64) -> &AtomicU64 {
        &self.changes[(hash % REMEMBERED as u64) as usize]
    }

    fn count_gone(&self, entries: usize) {
        self.account.entries.fetch_sub(entries as u64, Ordering::Relaxed);
    }

    /// The second of a time, from 1, in 32 bits.
    fn second(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.begun).as_secs() + 1) & 0xffff_ffff
    }

    fn is_of_no_use(&self, hash: u64, now: Instant) -> bool {
        let said = self.of_no_use[(hash % REMEMBERED as u64) as usize].load(Ordering::Relaxed);
        said >> 32 == hash >> 32 && self.second(now) < said & 0xffff_ffff
    }

    fn remember_of_no_use(&self, hash: u64, now: Instant) {
        let until = self.second(now + OF_NO_USE);
        let said = hash >> 32 << 32 | until;
        self.of_no_use[(hash % REMEMBERED as u64) as usize].store(said, Ordering::Relaxed);
    }
}

impl Shard {
    /// The newest response that answers a request.
    fn find(&self, asked: &Asked, request: &[u8]) -> Option<Arc<Entry>> {
        let numbers = self.index.get(&asked.key)?;
        let entries = numbers.iter().rev().filter_map(|number| self.entries.get(number));
        entries.into_iter().find(|entry| entry.answers(asked, request)).cloned()
    }

    /// Takes a response out, and leaves its number among those of its key.
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

    /// Throws out what was not used for longest, roughly: in the order in which it came, but whoever was used since comes once
    /// more (the clock, or "second chance").
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
        // Those that are gone already take room, too.
        if self.queue.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.queue.retain(|number| entries.contains_key(number));
        }
    }
}

impl UnderWay {
    /// Until when it is waited for.
    pub(crate) fn until(&self) -> Instant {
        self.begun + WAIT
    }

    fn take_place(&self) -> bool {
        let taken = self.waiting.fetch_add(1, Ordering::Relaxed);
        if taken >= WAITING_MAX {
            self.leave();
        }
        taken < WAITING_MAX
    }

    fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for its end.
    pub(crate) async fn end(&self) -> Outcome {
        struct Place<'u>(&'u UnderWay);
        impl Drop for Place<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let _place = Place(self);
        // It gives nothing, and is closed.
        let _ = self.done.acquire().await;
        match self.outcome.load(Ordering::Acquire) {
            1 => Outcome::Kept,
            2 => Outcome::OfNoUse,
            3 => Outcome::Failed,
            _ => Outcome::Lost,
        }
    }
}

impl Flight {
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Says how it will have ended.
    pub(crate) fn ends(&self, outcome: Outcome) {
        self.state.outcome.store(outcome as u8, Ordering::Release);
    }

    /// What has come is of no use to others, nor will be what comes next.
    pub(crate) fn is_of_no_use(&self) {
        self.ends(Outcome::OfNoUse);
        if !self.state.is_private {
            self.cache.remember_of_no_use(self.cache.hash(&self.key), Instant::now());
        }
    }

    /// Keeps the response that was asked for, in place of those that would have answered the same. Says how many others had to
    /// go; nothing if it is not kept itself.
    pub(crate) fn keep(self, entry: Arc<Entry>) -> Option<u64> {
        self.ends(Outcome::OfNoUse);
        let (bytes, share) = (entry.bytes(), self.cache.share);
        if bytes > share {
            return None;
        }
        let (mut evicted, mut replaced) = (Vec::new(), Vec::new());
        let hash = self.cache.hash(&self.key);
        let mut shard = self.cache.shard(hash);
        // What it asked for was changed since. That somebody else asks meanwhile, since it takes long, is no reason.
        if self.cache.changes(hash).load(Ordering::Relaxed) != self.state.changes {
            return None;
        }
        let numbers = shard.index.get(&self.key).cloned().unwrap_or_default();
        let same = |number: &u64| shard.entries.get(number).is_some_and(|old| old.is_replaced_by(&entry));
        let mut old: Vec<u64> = numbers.iter().copied().filter(same).collect();
        let is_newer = |number: &u64| shard.entries.get(number).is_some_and(|old| old.is_newer_than(&entry));
        if old.iter().any(is_newer) {
            return None;
        }
        if old.is_empty() && numbers.len() >= VARIANTS_MAX {
            // Who makes up variants does not push out those that others want.
            let is_idle = |number: &u64| !shard.entries.get(number).is_some_and(|entry| entry.take_touch());
            let idle = numbers.iter().position(is_idle).unwrap_or(0);
            old.extend(numbers.get(idle));
            if let Some(numbers) = shard.index.get_mut(&self.key) {
                // Those that were passed over come last.
                numbers.rotate_left(idle);
            }
        }
        replaced.extend(old.into_iter().filter_map(|number| shard.remove(number)));
        shard.make_room(bytes, share, &mut evicted);
        let number = shard.next;
        shard.next += 1;
        shard.bytes += bytes;
        shard.index.entry(self.key.clone()).or_default().push(number);
        shard.entries.insert(number, entry);
        shard.queue.push_back(number);
        drop(shard);
        self.cache.account.entries.fetch_add(1, Ordering::Relaxed);
        self.cache.count_gone(evicted.len() + replaced.len());
        self.ends(Outcome::Kept);
        Some(evicted.len() as u64)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut shard = self.cache.shard(self.cache.hash(&self.key));
        if shard.flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.state)) {
            shard.flights.remove(&self.key);
        }
        drop(shard);
        self.state.done.close();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sluicegate_http1::{HeadLimits, HeadScan, Method, ResponseHead};

    use super::super::entry::{Draft, Times};
    use super::super::{Collector, RequestDirectives};
    use super::*;
    use crate::date::http_date;
    use crate::telemetry::TrafficStats;

    fn cache(max_size: u64, max_response_size: u64) -> Arc<Cache> {
        Arc::new(Cache::new(&model::Cache {
            max_size,
            max_response_size,
            default_time: None,
            stale_if_error: Duration::ZERO,
            key_headers: Vec::new(),
        }))
    }

    fn asked(key: &str) -> Asked {
        Asked {
            key: key.as_bytes().into(),
            upstream: UpstreamKey::new("n", "s", "80"),
            lines: Box::default(),
            directives: RequestDirectives::default(),
            has_credentials: false,
            has_cookie: false,
            is_conditional: false,
        }
    }

    fn draft(asked: &Asked, request: &[u8], lines: &str) -> Draft {
        let now = Instant::now();
        let bytes = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{lines}\r\n").into_bytes();
        let mut head = ResponseHead::default();
        assert!(head.parse(&bytes, &mut HeadScan::default(), Method::Head, &HeadLimits::default()).unwrap());
        let times = Times { asked: now, now, date: (0, http_date(0)) };
        Draft::of(asked, request, (&head, &bytes), cache(1 << 20, 1 << 10).rules(), &times).unwrap()
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    fn enter(cache: &Arc<Cache>, asked: &Asked, request: &[u8]) -> Entered {
        cache.enter(asked, request, (true, true), Instant::now())
    }

    /// Whether there was one; if not there is afterwards, if there is room.
    fn hit(cache: &Arc<Cache>, key: &str, request: &[u8], lines: &str, body: usize) -> bool {
        let asked = asked(key);
        match enter(cache, &asked, request) {
            Entered::Kept(_) => true,
            Entered::Leads(flight, _) => {
                let draft = draft(&asked, request, lines);
                if let Some(charge) = cache.charge(draft.size() + body) {
                    flight.keep(Arc::new(Entry::new(draft, Bytes::from(vec![b'x'; body]), charge)));
                }
                false
            }
            Entered::Waits(..) | Entered::Alone(_) => panic!("nobody else asks"),
        }
    }

    #[test]
    fn what_is_asked_for_again_stays_through_a_flood() {
        let cache = cache(128 << 10, 32 << 10);
        for number in 0..10_000 {
            hit(&cache, &format!("cold {number}"), REQUEST, "", 100);
            if number % 20 == 0 {
                assert_eq!(hit(&cache, "hot", REQUEST, "", 100), number > 0, "{number}");
            }
            assert!(cache.bytes() <= 128 << 10);
        }
        let shard = cache.shards[0].lock().unwrap();
        assert_eq!(shard.entries.len() as u64, cache.entries());
        assert_eq!(shard.index.len(), shard.entries.len());
        assert_eq!(shard.bytes as u64, cache.bytes());
        assert!(shard.queue.len() <= 2 * shard.entries.len() + 65 && shard.flights.is_empty());
    }

    #[test]
    fn what_clients_still_read_counts_until_they_have() {
        let cache = cache(64 << 10, 16 << 10);
        let mut readers = Vec::new();
        for number in 0..100 {
            hit(&cache, &number.to_string(), REQUEST, "", 4000);
            if let Entered::Kept(entry) = enter(&cache, &asked(&number.to_string()), REQUEST) {
                readers.push(entry);
            }
            assert!(cache.bytes() <= 64 << 10, "{}", cache.bytes());
        }
        assert!((5..20).contains(&readers.len()), "{}", readers.len());
        drop(readers);
        assert!(!hit(&cache, "new", REQUEST, "", 4000));
        assert!(hit(&cache, "new", REQUEST, "", 4000), "there is room again");
    }

    #[test]
    fn variants_of_one_target_are_limited() {
        let cache = cache(1 << 20, 1 << 10);
        let request = |number: usize| format!("GET / HTTP/1.1\r\nA: {number}\r\n\r\n").into_bytes();
        for number in 0..100 {
            assert!(!hit(&cache, "k", &request(number), "Vary: A\r\n", 10));
        }
        assert_eq!(cache.entries(), VARIANTS_MAX as u64);
        assert!(hit(&cache, "k", &request(99), "Vary: A\r\n", 10));
        cache.invalidate(b"k");
        assert_eq!((cache.entries(), cache.bytes()), (0, 0));
    }

    #[test]
    fn who_asks_too_long_is_followed_by_another() {
        let cache = cache(1 << 20, 1 << 10);
        let asked = asked("k");
        let begun = Instant::now();
        let at = |after| cache.enter(&asked, REQUEST, (true, true), begun + after);
        let Entered::Leads(slow, _) = at(Duration::ZERO) else { panic!("nobody asks") };
        assert!(matches!(at(WAIT / 2), Entered::Waits(..)));
        let Entered::Leads(other, _) = at(2 * WAIT) else { panic!("it takes too long") };
        let entry = |flight: &Flight| {
            let draft = draft(&asked, REQUEST, "");
            let charge = flight.cache().charge(draft.size()).unwrap();
            Arc::new(Entry::new(draft, Bytes::new(), charge))
        };
        let late = entry(&slow);
        assert_eq!(slow.keep(late.clone()), Some(0), "it is no worse for having taken long");
        assert!(matches!(at(2 * WAIT), Entered::Kept(kept) if Arc::ptr_eq(&kept, &late)));
        let new = entry(&other);
        assert_eq!(other.keep(new.clone()), Some(0));
        assert!(matches!(at(2 * WAIT), Entered::Kept(kept) if Arc::ptr_eq(&kept, &new)));
        // Who has the head of the response later has the newer one, whoever is done first.
        assert!(new.is_newer_than(&late));
    }

    #[test]
    fn what_is_on_its_way_while_something_changes_is_not_kept() {
        let cache = cache(1 << 20, 1 << 10);
        let asked = asked("k");
        let Entered::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        cache.invalidate(&asked.key);
        let Entered::Leads(newer, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        let entry = || {
            let draft = draft(&asked, REQUEST, "");
            let charge = cache.charge(draft.size()).unwrap();
            Arc::new(Entry::new(draft, Bytes::new(), charge))
        };
        assert_eq!(flight.keep(entry()), None);
        assert_eq!(newer.keep(entry()), Some(0));
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let cache = cache(1 << 20, 1 << 10);
        let asked = asked("k");
        let Entered::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        for _ in 0..WAITING_MAX {
            assert!(matches!(enter(&cache, &asked, REQUEST), Entered::Waits(..)));
        }
        assert!(matches!(enter(&cache, &asked, REQUEST), Entered::Alone(_)));
        flight.is_of_no_use();
        drop(flight);
        let Entered::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        assert!(
            matches!(enter(&cache, &asked, REQUEST), Entered::Alone(_)),
            "nobody waits for what was of no use"
        );
        drop(flight);
    }

    #[test]
    fn nobody_waits_for_a_target_whose_responses_have_trailers() {
        let cache = cache(1 << 20, 1 << 10);
        let asked = asked("k");
        let Entered::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        let (framing, stats) = (sluicegate_http1::ResponseFraming::Chunked, Arc::new(TrafficStats::new(1)));
        let collector = Collector::new(flight, draft(&asked, REQUEST, ""), framing, (stats, 0));
        let mut collector = collector.expect("there is room");
        assert_eq!(collector.take(b"1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"), None);
        drop(collector);
        let Entered::Leads(_flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        assert!(matches!(enter(&cache, &asked, REQUEST), Entered::Alone(_)));
    }

    #[test]
    fn what_is_collected_is_charged_and_given_back() {
        let cache = cache(64 << 10, 16 << 10);
        let stats = Arc::new(TrafficStats::new(1));
        let mut collectors = Vec::new();
        for number in 0..100 {
            let asked = asked(&number.to_string());
            let Entered::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
            let framing = sluicegate_http1::ResponseFraming::Chunked;
            let collector = Collector::new(flight, draft(&asked, REQUEST, ""), framing, (stats.clone(), 0));
            collectors
                .extend(collector.and_then(|mut collector| collector.take(b"1000\r\n").map(|_| collector)));
            let piece = [b'x'; 4096];
            collectors.retain_mut(|collector| collector.take(&piece[..64]).is_some());
            assert!(cache.bytes() <= 64 << 10);
        }
        assert!(!collectors.is_empty() && collectors.len() < 20, "{}", collectors.len());
        drop(collectors);
        assert_eq!(cache.bytes(), 0);
    }
}
