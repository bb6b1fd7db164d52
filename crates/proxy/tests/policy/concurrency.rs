//! Concurrency limits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_model::feature::{Concurrency, LimitKey};
use sluicegate_model::value::{Entries, HeaderName, LimitName, Number};
use sluicegate_testkit::client::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::limits::limit;
use super::*;

const UPGRADE: &str =
    "GET /tunnel HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn concurrency(requests: u32, key: Vec<LimitKey>) -> Concurrency {
    let limit = json!({"name": "busy", "requests": requests});
    Concurrency { key: Entries::new(key).unwrap(), ..written(limit) }
}

fn policy(concurrency: Vec<Concurrency>) -> RateLimits {
    let id = id("RateLimitPolicy", "calm");
    RateLimits {
        id,
        limits: Vec::new(),
        concurrency,
        headers: true,
        shared: None,
        exempt: Entries::default(),
    }
}

/// A gateway with these limits, in front of a backend that never responds to `/hold` and upgrades `/tunnel`.
async fn limited(policy: RateLimits) -> anyhow::Result<(Backend, Gateway)> {
    let (backend, gateway) = with(|config| set_limits(config, policy)).await?;
    backend.set(Behaviour::choose(|request| match &*request.target {
        "/hold" => Behaviour::silent(),
        "/tunnel" => Behaviour::upgrade(),
        _ => Behaviour::ok(),
    }));
    Ok((backend, gateway))
}

/// Requests that are in flight until this value is dropped, which also drops their clients.
struct Held(Vec<JoinHandle<()>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Begins this many requests that receive no response.
async fn hold(
    gateway: &Gateway,
    backend: &Backend,
    count: u64,
    line: &str,
    transport: Transport,
) -> anyhow::Result<Held> {
    let before = backend.requests();
    let mut held = Held(Vec::new());
    for _ in 0..count {
        let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
        let request = format!("GET /hold HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n");
        held.0.push(tokio::spawn(async move {
            // The request ends when the task is aborted.
            let _ = client.request(request).await;
        }));
    }
    backend.wait_until(|backend| backend.requests() == before + count).await?;
    Ok(held)
}

#[tokio::test]
async fn requests_beyond_the_concurrency_limit_return_429_until_a_request_ends() -> TestResult {
    let (backend, gateway) =
        limited(policy(vec![concurrency(4, vec![LimitKey::Header(HeaderName::new("x-tenant").unwrap())])]))
            .await?;
    let alice = "X-Tenant: alice";
    for transport in [Transport::Http, Transport::Https, Transport::Http2] {
        let one = hold(&gateway, &backend, 1, alice, transport).await?;
        let others = hold(&gateway, &backend, 3, alice, transport).await?;
        for transport in [Transport::Http, Transport::Http2] {
            let refused = ask_by(&gateway, "GET", "/", &[alice], transport).await?;
            assert_eq!(refused.status, 429, "{transport:?}");
            assert_eq!(refused.header("ratelimit-policy"), None, "it is no rate");
        }
        assert_eq!(ask(&gateway, "/", &["X-Tenant: bob"]).await?.status, 200);
        // The client disconnects.
        drop(one);
        gateway.wait_until(|gateway| in_flight(gateway) == 3).await?;
        assert_one_after_the_other(&gateway, 3, &[alice]).await?;
        drop(others);
        gateway.wait_until_idle().await?;
    }
    assert_eq!(denied(&gateway, Denial::Concurrency), 6);
    Ok(())
}

/// Beside this many requests in flight, the gateway has room for one more.
async fn assert_one_after_the_other(gateway: &Gateway, held: u64, lines: &[&str]) -> TestResult {
    for _ in 0..5 {
        assert_eq!(ask(gateway, "/", lines).await?.status, 200);
        // The client receives its response a moment before the request ends.
        gateway.wait_until(|gateway| in_flight(gateway) == held).await?;
    }
    Ok(())
}

fn in_flight(gateway: &Gateway) -> u64 {
    gateway.proxy().registry().counters().workers().iter().map(|worker| worker.in_flight.get()).sum()
}

#[tokio::test]
async fn request_beyond_a_concurrency_limit_receives_the_status_code_of_the_limit() -> TestResult {
    let by_address = vec![LimitKey::Address { ipv6_prefix: Number::of(128) }];
    let status_code = Some(Number::of(503));
    let limit = Concurrency { status_code, ..concurrency(1, by_address) };
    let (backend, gateway) = limited(policy(vec![limit])).await?;
    let held = hold(&gateway, &backend, 1, "X-A: b", Transport::Http2).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    drop(held);
    gateway.wait_until_idle().await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn tunnel_counts_as_a_request_in_flight_until_its_end() -> TestResult {
    let (_backend, gateway) = limited(policy(vec![concurrency(2, Vec::new())])).await?;
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(gateway.addr()).await?;
        assert_eq!(client.request(UPGRADE).await?.status, 101);
        client.send("ping").await?;
        assert_eq!(client.read_exact(4).await?, b"ping");
        tunnels.push(client);
    }
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 429);
    drop(tunnels.pop());
    gateway.wait_until(|gateway| in_flight(gateway) == 1).await?;
    assert_one_after_the_other(&gateway, 1, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn concurrency_never_exceeds_the_limit_and_all_permits_are_released() -> TestResult {
    const MOST: u32 = 3;
    // A rate limit rejects some of the requests that the concurrency limit admits. Rejected requests are not in flight.
    let mut limits = policy(vec![concurrency(MOST, Vec::new())]);
    limits.limits = vec![limit("few", 40, vec![LimitKey::Header(HeaderName::new("x-tenant").unwrap())])];
    let (backend, gateway) = with(|config| set_limits(config, limits)).await?;
    let (address, most) = counting().await?;
    gateway.set_addresses([address]).await;
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..12 {
        let address = gateway.addr();
        clients.spawn(async move {
            let mut statuses = [0_u32; 2];
            let mut client = Client::connect(address).await?;
            let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Tenant: {}\r\n\r\n", n % 2);
            for _ in 0..100 {
                match client.request(&request).await?.status {
                    200 => statuses[0] += 1,
                    429 => statuses[1] += 1,
                    other => anyhow::bail!("{other}"),
                }
            }
            anyhow::Ok(statuses)
        });
    }
    let (mut admitted, mut refused) = (0, 0);
    while let Some(done) = clients.join_next().await {
        let [ok, too_many] = done??;
        (admitted, refused) = (admitted + ok, refused + too_many);
    }
    assert!((1..=80).contains(&admitted) && admitted + refused == 1200, "{admitted} of 40 for each of two");
    assert!((1..=MOST as usize).contains(&most.load(Ordering::Relaxed)), "{most:?}");
    assert_eq!(
        u64::from(refused),
        denied(&gateway, Denial::Concurrency) + denied(&gateway, Denial::RateLimit)
    );
    gateway.wait_until_idle().await?;
    backend.set(Behaviour::silent());
    gateway.set_addresses([backend.addr()]).await;
    let held = hold(&gateway, &backend, MOST.into(), "X-Tenant: new", Transport::Http).await?;
    assert_eq!(ask(&gateway, "/", &["X-Tenant: newer"]).await?.status, 429);
    drop(held);
    Ok(())
}

/// A server that responds after a moment, and the highest number of its concurrent requests.
async fn counting() -> anyhow::Result<(SocketAddr, Arc<AtomicUsize>)> {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, seen) = (listener.local_addr()?, most.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (now, seen) = (now.clone(), seen.clone());
            tokio::spawn(async move {
                let mut head = [0; 4096];
                // A request of these tests arrives in one piece.
                while stream.read(&mut head).await.is_ok_and(|length| length > 0) {
                    seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
            });
        }
    });
    Ok((address, most))
}

#[tokio::test]
async fn consumers_and_groups_have_separate_concurrency_limits() -> TestResult {
    let mut alice = consumer("alice", "alice-key");
    alice.groups = vec!["gold".into()];
    let mut bob = consumer("bob", "bob-key");
    bob.groups = vec!["bronze".into()];
    let of = |group: &str, requests| Concurrency {
        name: LimitName::new(group).unwrap(),
        groups: written(json!([group])),
        ..concurrency(requests, vec![LimitKey::Consumer])
    };
    let (backend, gateway) = limited(policy(vec![of("gold", 2), of("bronze", 1)])).await?;
    gateway
        .configure(|config| {
            set_security(config, Some(asking(api_key("x-api-key"))));
            config.consumers = vec![Arc::new(alice), Arc::new(bob)];
        })
        .await;
    for (key, most) in [("X-API-Key: alice-key", 2), ("X-API-Key: bob-key", 1)] {
        let held = hold(&gateway, &backend, most, key, Transport::Http).await?;
        assert_eq!(ask(&gateway, "/", &[key]).await?.status, 429, "{key}");
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
        drop(held);
        gateway.wait_until_idle().await?;
        assert_eq!(ask(&gateway, "/", &[key]).await?.status, 200, "{key}");
    }
    Ok(())
}

#[tokio::test]
async fn dry_run_limit_admits_requests_and_an_unchanged_limit_keeps_its_count() -> TestResult {
    let dry = || Concurrency { dry_run: true, ..concurrency(2, Vec::new()) };
    let (backend, gateway) = limited(policy(vec![dry()])).await?;
    let held = hold(&gateway, &backend, 5, "X-A: b", Transport::Http).await?;
    let stats = gateway.proxy().registry().policies()[0].stats.clone();
    assert_eq!(stats.sum(|shard| &shard.dry_runs), 3);
    drop(held);
    gateway.wait_until_idle().await?;

    let firm = || concurrency(2, Vec::new());
    gateway.configure(|config| set_limits(config, policy(vec![firm()]))).await;
    let held = hold(&gateway, &backend, 2, "X-A: b", Transport::Http).await?;
    let other = Concurrency { name: LimitName::new("other").unwrap(), ..concurrency(100, Vec::new()) };
    gateway.configure(|config| set_limits(config, policy(vec![other, firm()]))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 429);
    drop(held);
    Ok(())
}
