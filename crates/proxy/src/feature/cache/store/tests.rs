use bytes::Bytes;
use sluicegate_http1::{HeadLimits, HeadScan, Method, ResponseHead};
use sluicegate_model::UpstreamKey;
use sluicegate_model::value::Size;

use super::super::draft::{Draft, Times};
use super::super::flight::{WAIT, WAITING_MAX};
use super::super::{Collector, RequestDirectives};
use super::*;
use crate::counters::TrafficStats;
use crate::date::http_date;

fn cache(max_size: u64, max_response_size: u64) -> Arc<Cache> {
    Arc::new(Cache::new(&model::Cache {
        max_size: Size::of(max_size),
        max_response_size: Some(Size::of(max_response_size)),
        ..model::Cache::default()
    }))
}

fn asked(key: &str) -> Asked {
    Asked {
        key: key.as_bytes().into(),
        target: 0..key.len(),
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

fn enter(cache: &Arc<Cache>, asked: &Asked, request: &[u8]) -> CacheLookup {
    cache.enter(asked, request, (true, true), Instant::now())
}

/// Whether the response was cached. If not, the call caches the response, provided that there is room.
fn hit(cache: &Arc<Cache>, key: &str, request: &[u8], lines: &str, body: usize) -> bool {
    let asked = asked(key);
    match enter(cache, &asked, request) {
        CacheLookup::Hit(_) => true,
        CacheLookup::Leads(flight, _) => {
            let draft = draft(&asked, request, lines);
            if let Some(charge) = cache.charge(draft.size() + body) {
                flight.keep(Arc::new(Entry::new(draft, Bytes::from(vec![b'x'; body]), charge)));
            }
            false
        }
        CacheLookup::Refreshes(..) | CacheLookup::Waits(..) | CacheLookup::Alone(_) => {
            panic!("nobody else asks")
        }
    }
}

#[test]
fn cache_keeps_a_frequently_requested_response_under_a_flood_of_keys() {
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
fn repeated_revalidation_of_a_response_does_not_grow_memory() {
    let cache = cache(128 << 10, 32 << 10);
    let asked = asked("k");
    hit(&cache, "k", REQUEST, "", 100);
    for _ in 0..10_000 {
        let CacheLookup::Hit(old) = enter(&cache, &asked, REQUEST) else { panic!("it is stored") };
        let new = old.renewed(draft(&asked, REQUEST, ""), &cache).unwrap();
        cache.replace(&old, new);
    }
    let shard = cache.shards[0].lock().unwrap();
    assert_eq!((shard.entries.len(), shard.index.len()), (1, 1));
    assert!(shard.queue.len() <= 2 * shard.entries.len() + 65, "{}", shard.queue.len());
}

#[test]
fn evicted_response_counts_toward_cache_size_while_clients_read_it() {
    let cache = cache(64 << 10, 16 << 10);
    let mut readers = Vec::new();
    for number in 0..100 {
        hit(&cache, &number.to_string(), REQUEST, "", 4000);
        if let CacheLookup::Hit(entry) = enter(&cache, &asked(&number.to_string()), REQUEST) {
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
fn cache_limits_the_number_of_variants_of_a_target() {
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
fn cache_starts_a_second_fetch_if_the_first_is_slow() {
    let cache = cache(1 << 20, 1 << 10);
    let asked = asked("k");
    let begun = Instant::now();
    let at = |after| cache.enter(&asked, REQUEST, (true, true), begun + after);
    let CacheLookup::Leads(slow, _) = at(Duration::ZERO) else { panic!("nobody asks") };
    assert!(matches!(at(WAIT / 2), CacheLookup::Waits(..)));
    let CacheLookup::Leads(other, _) = at(2 * WAIT) else { panic!("it takes too long") };
    let entry = |flight: &Flight| {
        let draft = draft(&asked, REQUEST, "");
        let charge = flight.cache().charge(draft.size()).unwrap();
        Arc::new(Entry::new(draft, Bytes::new(), charge))
    };
    let late = entry(&slow);
    assert_eq!(slow.keep(late.clone()), Some(0), "it is no worse for having taken long");
    assert!(matches!(at(2 * WAIT), CacheLookup::Hit(kept) if Arc::ptr_eq(&kept, &late)));
    let new = entry(&other);
    assert_eq!(other.keep(new.clone()), Some(0));
    assert!(matches!(at(2 * WAIT), CacheLookup::Hit(kept) if Arc::ptr_eq(&kept, &new)));
    // The response whose head arrived later is the newer response, even if the other body ends later.
    assert!(new.is_newer_than(&late));
}

#[test]
fn response_in_flight_during_an_invalidation_is_not_stored() {
    let cache = cache(1 << 20, 1 << 10);
    let asked = asked("k");
    let CacheLookup::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    cache.invalidate(&asked.key);
    let CacheLookup::Leads(newer, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    let entry = || {
        let draft = draft(&asked, REQUEST, "");
        let charge = cache.charge(draft.size()).unwrap();
        Arc::new(Entry::new(draft, Bytes::new(), charge))
    };
    assert_eq!(flight.keep(entry()), None);
    assert_eq!(newer.keep(entry()), Some(0));
}

#[test]
fn invalidation_discards_only_the_fetches_in_flight_for_its_target() {
    let cache = cache(1 << 20, 1 << 10);
    let (asked, begun) = (asked("k"), Instant::now());
    let at = |after| cache.enter(&asked, REQUEST, (true, true), begun + after);
    let entry = |asked: &Asked| {
        let draft = draft(asked, REQUEST, "");
        let charge = cache.charge(draft.size()).unwrap();
        Arc::new(Entry::new(draft, Bytes::new(), charge))
    };
    let CacheLookup::Leads(slow, _) = at(Duration::ZERO) else { panic!("nothing is in flight") };
    let CacheLookup::Leads(newer, _) = at(2 * WAIT) else { panic!("the first takes too long") };
    let others: Vec<_> = (0..5000)
        .map(|number| {
            let other = self::asked(&number.to_string());
            let CacheLookup::Leads(flight, _) = enter(&cache, &other, REQUEST) else {
                panic!("nothing is in flight")
            };
            (other, flight)
        })
        .collect();
    cache.invalidate(&asked.key);
    assert_eq!((slow.keep(entry(&asked)), newer.keep(entry(&asked))), (None, None));
    for (other, flight) in others {
        assert!(flight.keep(entry(&other)).is_some());
    }
}

#[test]
fn cache_limits_the_requests_that_wait_for_the_same_fetch() {
    let cache = cache(1 << 20, 1 << 10);
    let asked = asked("k");
    let CacheLookup::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    for _ in 0..WAITING_MAX {
        assert!(matches!(enter(&cache, &asked, REQUEST), CacheLookup::Waits(..)));
    }
    assert!(matches!(enter(&cache, &asked, REQUEST), CacheLookup::Alone(_)));
    flight.is_of_no_use();
    drop(flight);
    let CacheLookup::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    assert!(
        matches!(enter(&cache, &asked, REQUEST), CacheLookup::Alone(_)),
        "nobody waits for what was of no use"
    );
    drop(flight);
}

#[test]
fn requests_do_not_wait_for_a_fetch_if_the_last_response_had_trailers() {
    let cache = cache(1 << 20, 1 << 10);
    let asked = asked("k");
    let CacheLookup::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    let (framing, stats) = (sluicegate_http1::ResponseFraming::Chunked, Arc::new(TrafficStats::new(1)));
    let collector = Collector::new(flight, draft(&asked, REQUEST, ""), framing, (stats, 0));
    let mut collector = collector.expect("there is room");
    assert_eq!(collector.take(b"1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"), None);
    drop(collector);
    let CacheLookup::Leads(_flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
    assert!(matches!(enter(&cache, &asked, REQUEST), CacheLookup::Alone(_)));
}

#[test]
fn incomplete_responses_count_toward_cache_size_until_they_are_dropped() {
    let cache = cache(64 << 10, 16 << 10);
    let stats = Arc::new(TrafficStats::new(1));
    let mut collectors = Vec::new();
    for number in 0..100 {
        let asked = asked(&number.to_string());
        let CacheLookup::Leads(flight, _) = enter(&cache, &asked, REQUEST) else { panic!("nobody asks") };
        let framing = sluicegate_http1::ResponseFraming::Chunked;
        let collector = Collector::new(flight, draft(&asked, REQUEST, ""), framing, (stats.clone(), 0));
        collectors.extend(collector.and_then(|mut collector| collector.take(b"1000\r\n").map(|_| collector)));
        let piece = [b'x'; 4096];
        collectors.retain_mut(|collector| collector.take(&piece[..64]).is_some());
        assert!(cache.bytes() <= 64 << 10);
    }
    assert!(!collectors.is_empty() && collectors.len() < 20, "{}", collectors.len());
    drop(collectors);
    assert_eq!(cache.bytes(), 0);
}
