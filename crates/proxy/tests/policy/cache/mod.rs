//! The response cache.
//!
//! | module | contents |
//! |---|---|
//! | this one | the responses that are stored, how long, and in how much memory |
//! | `apart` | the requests that may receive a stored response |
//! | `again` | revalidation, and responses that end early |
//! | `together` | many clients that request the same at once |
//! | `rules` | freshness and what may be stored, by RFC 9110, 9111 and 9213 |
//! | `parts` | ranges of stored responses |
//! | `changes` | requests that invalidate, and updates of stored responses by HEAD |

mod again;
mod apart;
mod changes;
mod parts;
mod rules;
mod together;

use serde_json::{Value, json};
use sluicegate_model::feature::{Cache, HeaderEdits};
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::{Age, Size, Timeout};
use sluicegate_proxy::counters::{Tally, TrafficShard};
use sluicegate_proxy::registry::CacheState;
use sluicegate_testkit::backend::Request;
use sluicegate_testkit::gateway::Builder;

use super::*;

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Http2];

/// A policy that caches the responses that allow it.
fn rules() -> Cache {
    cache_of(json!({"maxSize": "4Mi", "maxResponseSize": "256Ki"}))
}

/// Edits that remove a header.
fn removing(name: &str) -> HeaderEdits {
    serde_json::from_value(json!({"remove": [name]})).expect("the edits are valid")
}

/// A cache, from the fields of a TrafficPolicy.
fn cache_of(fields: Value) -> Cache {
    serde_json::from_value(fields).expect("the cache is valid")
}

fn keeping(cache: Cache) -> Traffic {
    let mut traffic = Traffic::new(id("TrafficPolicy", "cache"));
    traffic.features.cache = Some(cache);
    traffic
}

/// A gateway that caches the responses of this backend.
async fn gateway(behaviour: Behaviour, cache: Cache) -> anyhow::Result<(Backend, Gateway)> {
    gateway_of(2, behaviour, cache).await
}

async fn gateway_of(
    workers: usize,
    behaviour: Behaviour,
    cache: Cache,
) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let gateway = before(&backend, keeping(cache)).workers(workers).start().await?;
    Ok((backend, gateway))
}

/// The builder of a gateway whose routes lead to this backend with this policy.
fn before(backend: &Backend, traffic: Traffic) -> Builder {
    let mut builder = Gateway::builder().backends([backend]);
    let traffic = Arc::new(traffic);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    builder
}

/// A response with these lines, whose body is the number of the request.
fn answer(lines: &str) -> Behaviour {
    let lines = lines.to_owned();
    let count = std::sync::atomic::AtomicU64::new(0);
    Behaviour::choose(move |_| {
        let body = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let length = body.len();
        Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {length}\r\n\r\n{body}"))
    })
}

/// The request decides the response.
fn by_request(decide: impl Fn(&Request) -> String + Send + Sync + 'static) -> Behaviour {
    Behaviour::choose(move |request| Behaviour::raw(decide(request)))
}

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn counted(gateway: &Gateway, tally: fn(&TrafficShard) -> &Tally) -> u64 {
    gateway.proxy().registry().traffic_policies().iter().map(|policy| policy.stats.sum(tally)).sum()
}

fn kept(gateway: &Gateway) -> CacheState {
    gateway.proxy().registry().traffic_policies()[0].cache.unwrap()
}

fn said(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}

#[tokio::test]
async fn cache_serves_a_fresh_response_without_contacting_the_endpoint() -> TestResult {
    for transport in TRANSPORTS {
        let lines = "Cache-Control: max-age=60\r\nX-Own: 1\r\nAge: 5\r\nContent-Type: text/plain\r\n";
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        let first = ask_by(&gateway, "GET", "/a?b=c", &[], transport).await?;
        assert_eq!((first.status, &*first.text(), said(&first)), (200, "0", "sluicegate; fwd=miss; stored"));
        let second = ask_by(&gateway, "GET", "/a?b=c", &[], transport).await?;
        assert_eq!((second.status, &*second.text()), (200, "0"));
        assert_eq!(said(&second), "sluicegate; hit; ttl=55");
        assert_eq!(second.headers_named("age"), ["5"]);
        assert_eq!(second.headers_named("content-length"), ["1"]);
        assert_eq!((second.header("x-own"), second.header("content-type")), (Some("1"), Some("text/plain")));
        assert_eq!(second.headers_named("date").len(), 1);
        let head = ask_by(&gateway, "HEAD", "/a?b=c", &[], transport).await?;
        assert_eq!((head.status, head.header("content-length"), &*head.text()), (200, Some("1"), ""));
        assert_eq!(backend.requests(), 1);
        for (target, lines) in
            [("/a?b=d", vec![]), ("/A?b=c", vec![]), ("/a", vec![]), ("/a?", vec![]), ("/a?b=c&", vec![])]
        {
            let other = ask_by(&gateway, "GET", target, &lines, transport).await?;
            assert!(said(&other).starts_with("sluicegate; fwd=miss"), "{target}: {}", said(&other));
        }
        assert_eq!(counted(&gateway, |shard| &shard.cache_hits), 2);
        assert!(kept(&gateway).entries >= 4 && kept(&gateway).bytes > 0);
    }
    Ok(())
}

#[tokio::test]
async fn cache_does_not_store_private_or_stale_responses() -> TestResult {
    for lines in [
        "",
        "Cache-Control: no-store, max-age=60\r\n",
        "Cache-Control: private, max-age=60\r\n",
        "Cache-Control: PRIVATE=x-user, max-age=60\r\n",
        "Cache-Control: private=\"vary\", max-age=60\r\n",
        "Cache-Control: max-age=60\r\nCache-Control: no-store\r\n",
        "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
        "Cache-Control: max-age=60\r\nVary: *\r\n",
        "Cache-Control: max-age=60\r\nVary: Accept, *\r\n",
        "Cache-Control: max-age=60\r\nAge: 60\r\n",
        "Cache-Control: max-age=0\r\n",
        "Cache-Control: max-age=-1\r\n",
        "Cache-Control: max-age=60, max-age=x\r\n",
        "Cache-Control: max-age=60, s-maxage=0\r\n",
        "Cache-Control: no-cache\r\n",
        "Expires: 0\r\n",
        "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Expires: Fri, 31 Dec 2100 00:00:00 GMT\r\nCache-Control: max-age=0\r\n",
        "Cache-Control: public\r\n",
        "Cache-Control: x=\"a, max-age=60\r\nExpires: 0\r\nCache-Control: max-age=0\r\n",
    ] {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        for number in ["0", "1"] {
            assert_eq!(ask(&gateway, "/", &[]).await?.text(), number, "{lines}");
        }
        assert_eq!((backend.requests(), kept(&gateway).entries), (2, 0), "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn cache_stores_complete_responses_with_explicit_freshness() -> TestResult {
    for lines in [
        "Cache-Control: max-age=60\r\n",
        "Cache-Control: Max-Age=\"60\", no-transform\r\n",
        "Cache-Control: s-maxage=60, max-age=0\r\n",
        "Expires: Fri, 31 Dec 2100 00:00:00 GMT\r\n",
        "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\n",
        "Cache-Control: max-age=99999999999999999999\r\n",
        "Cache-Control: max-age=60\r\nVary:\r\n",
    ] {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        for _ in 0..2 {
            assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "{lines}");
        }
        assert_eq!(backend.requests(), 1, "{lines}");
    }
    // Statuses, and bodies of unknown length.
    for (response, is_kept) in [
        ("HTTP/1.1 404 Not Found\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 204 No Content\r\nCache-Control: max-age=60\r\n\r\n", true),
        (
            "HTTP/1.1 301 Moved\r\nLocation: /b\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 206 P\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", false),
        (
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
            false,
        ),
    ] {
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
            let first = ask_by(&gateway, "GET", "/", &[], transport).await?;
            let second = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!(backend.requests(), if is_kept { 1 } else { 2 }, "{response}");
            assert_eq!((first.status, &first.body), (second.status, &second.body));
            assert_eq!(second.header("location"), first.header("location"));
        }
    }
    let open_end = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nabc";
    for behaviour in [
        Behaviour::raw(open_end).then_close(),
        Behaviour::raw("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nabc")
            .then_close(),
    ] {
        let (_backend, gateway) = gateway(behaviour, rules()).await?;
        let _ = ask(&gateway, "/", &[]).await;
        assert_eq!(kept(&gateway).entries, 0, "it may have been cut off");
    }
    Ok(())
}

#[tokio::test]
async fn cache_memory_stays_within_its_limit_under_a_flood_of_keys() -> TestResult {
    let body = "x".repeat(2000);
    let flood = by_request(move |request| match request.target.starts_with("/hot") {
        true => ok("Cache-Control: max-age=60\r\n", "hot"),
        false => ok("Cache-Control: max-age=60\r\n", &body),
    });
    let cache = cache_of(json!({"maxSize": "256Ki", "maxResponseSize": "16Ki"}));
    let limit = cache.max_size.get();
    let (backend, gateway) = gateway(flood, cache).await?;
    let mut client = gateway.connect().await?;
    for number in 0..1000 {
        let long = "k".repeat(500);
        let asked = format!("GET /{number}?{long} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.request(asked).await?.status, 200);
        if number % 10 == 0 {
            client.request("GET /hot HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        }
        assert!(kept(&gateway).bytes <= limit, "{:?}", kept(&gateway));
    }
    let state = kept(&gateway);
    assert!(state.entries > 20 && state.bytes > limit / 2, "{state:?}");
    assert_eq!(backend.requests(), 1001, "what is asked for stays");
    let stored = counted(&gateway, |shard| &shard.cache_stored);
    assert_eq!(stored - counted(&gateway, |shard| &shard.cache_evicted), state.entries);
    Ok(())
}

#[tokio::test]
async fn responses_over_the_cacheable_size_are_streamed_and_not_stored() -> TestResult {
    let most = 64 << 10;
    for length in [most, most + 1] {
        let fixed = ok("Cache-Control: max-age=60\r\n", &"x".repeat(length));
        let half = "x".repeat(length - length / 2);
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{half}\r\n0\r\n\r\n",
            length / 2,
            &half[..length / 2],
            half.len(),
        );
        for response in [fixed, chunked] {
            for transport in TRANSPORTS {
                let cache = Cache { max_response_size: Some(Size::of(most as u64)), ..rules() };
                let (backend, gateway) = gateway(Behaviour::raw(response.clone()), cache).await?;
                for _ in 0..2 {
                    assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.body.len(), length);
                }
                let is_kept = length <= most;
                assert_eq!(
                    (backend.requests(), kept(&gateway).entries),
                    if is_kept { (1, 1) } else { (2, 0) }
                );
                assert!(is_kept || kept(&gateway).bytes == 0, "what was collected is given back");
            }
        }
    }
    // The client receives the first part before the endpoint sends the second.
    let streamed = Behaviour::chunked(["first", "second"], Duration::from_secs(3600), &[]);
    let (_backend, gateway) =
        gateway(streamed, Cache { default_time: Some(Age::of_millis(60_000)), ..rules() }).await?;
    let mut client = gateway.connect().await?;
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    client.read_until("first").await?;
    Ok(())
}

#[tokio::test]
async fn response_over_the_body_limit_is_not_stored() -> TestResult {
    let body = "x".repeat(12 << 10);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let response = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"
    );
    let backend = Backend::start(Behaviour::raw(response)).await?;
    let mut traffic = keeping(rules());
    traffic.features.limits.response_body = Some(Size::of(10 << 10));
    let gateway = before(&backend, traffic).start().await?;
    for _ in 0..2 {
        let whole = ask(&gateway, "/", &[]).await;
        assert!(whole.is_err() || whole.is_ok_and(|response| response.status == 502));
    }
    assert_eq!(backend.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn stored_response_with_the_maximum_number_of_headers_is_served() -> TestResult {
    // Beside `Cache-Control` and `Content-Length`.
    for others in [250, 251, 252, 253, 254] {
        let many: String = (0..others).map(|number| format!("X-{number}: 1\r\n")).collect();
        let lines = format!("Cache-Control: max-age=60\r\n{many}");
        for transport in TRANSPORTS {
            let (_backend, gateway) = gateway_of(1, answer(&lines), rules()).await?;
            gateway.configure(|config| config.settings.limits.headers = 256).await;
            for time in ["first", "second"] {
                let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
                assert_eq!(response.status, 200, "{others} lines, the {time} time, by {transport:?}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn response_without_freshness_is_stored_for_the_default_time() -> TestResult {
    let minute = Some(Age::of_millis(60_000));
    let (backend, gateway) = gateway(answer(""), Cache { default_time: minute, ..rules() }).await?;
    for (lines, body) in [
        (vec![], "0"),
        (vec![], "0"),
        // The response does not state that it is public.
        (vec!["Cookie: session=a"], "1"),
        (vec!["Cookie: session=b"], "2"),
        (vec!["Authorization: a"], "3"),
        (vec![], "0"),
    ] {
        assert_eq!(ask(&gateway, "/", &lines).await?.text(), body, "{lines:?}");
    }
    backend.set(answer("Cache-Control: no-store\r\n"));
    assert_eq!(ask(&gateway, "/b", &[]).await?.text(), "0");
    assert_eq!(ask(&gateway, "/b", &[]).await?.text(), "1");
    Ok(())
}

#[tokio::test]
async fn changed_traffic_policy_starts_with_an_empty_cache() -> TestResult {
    let (backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    let set = |traffic: Option<Traffic>| {
        let traffic = traffic.map(Arc::new);
        gateway.configure(move |config| routes(config, |route| route.traffic.clone_from(&traffic)))
    };
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
    gateway.configure(|_| {}).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "nothing has changed");
    let mut other = keeping(rules());
    other.features.response_headers = removing("cache-status");
    set(Some(other)).await;
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!((&*response.text(), response.header("cache-status")), ("1", None));
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "1");
    set(None).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "2");
    set(Some(keeping(rules()))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "3");
    assert_eq!(backend.requests(), 4);
    Ok(())
}
