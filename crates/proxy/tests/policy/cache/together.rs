//! Many clients that request the same at once.

use sluicegate_testkit::client::Client;
use tokio::task::JoinHandle;

use super::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Many clients that send a request at once, each on its own connection.
fn asking(
    gateway: &Gateway,
    count: usize,
    transport: Transport,
) -> Vec<JoinHandle<anyhow::Result<Response>>> {
    let address = gateway.addr_of(transport);
    let ask = move || async move { Ok(Client::connect_by(address, transport).await?.request(GET).await?) };
    (0..count).map(|_| tokio::spawn(ask())).collect()
}

/// Returns the responses to all these clients.
async fn together(gateway: &Gateway, count: usize, transport: Transport) -> anyhow::Result<Vec<Response>> {
    let mut responses = Vec::new();
    for response in asking(gateway, count, transport) {
        responses.push(response.await??);
    }
    Ok(responses)
}

/// The cache stores a response with these lines. This client's request then revalidates it, and the endpoint does not
/// respond.
async fn renewing(lines: &str) -> anyhow::Result<(Backend, Gateway, Client)> {
    let (backend, gateway) = gateway(answer(lines), rules()).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
    backend.set(Behaviour::silent());
    let mut first = gateway.connect().await?;
    first.send(GET).await?;
    backend.wait_until(|backend| backend.requests() == 2).await?;
    Ok((backend, gateway, first))
}

#[tokio::test]
async fn concurrent_requests_for_a_uri_share_a_single_fetch() -> TestResult {
    for transport in TRANSPORTS {
        let behaviour = answer("Cache-Control: max-age=60\r\n").delay(Duration::from_millis(300));
        let (backend, gateway) = gateway(behaviour, rules()).await?;
        for response in together(&gateway, 100, transport).await? {
            assert_eq!((response.status, &*response.text()), (200, "0"));
        }
        assert_eq!(backend.requests(), 1);
        assert_eq!(counted(&gateway, |shard| &shard.cache_misses), 1);
        assert_eq!(counted(&gateway, |shard| &shard.cache_hits), 99);
    }
    Ok(())
}

#[tokio::test]
async fn request_whose_response_cannot_be_shared_does_not_delay_other_requests() -> TestResult {
    for own in ["Authorization: Basic eDp4", "If-None-Match: \"made up\""] {
        let behaviour = by_request(|request| match request.header("x-slow") {
            Some(_) => "HTTP/1.1 200 OK\r\n".into(),
            None => ok("Cache-Control: public, max-age=60\r\n", "body"),
        });
        let (backend, gateway) = gateway(behaviour, rules()).await?;
        let mut slow = gateway.connect().await?;
        slow.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: 1\r\n{own}\r\n\r\n")).await?;
        backend.wait_until(|backend| backend.requests() == 1).await?;
        assert_eq!(said(&ask(&gateway, "/", &[]).await?), "sluicegate; fwd=miss; stored", "{own}");
        assert!(said(&ask(&gateway, "/", &[]).await?).starts_with("sluicegate; hit"), "{own}");
    }
    Ok(())
}

#[tokio::test]
async fn waiting_requests_fetch_concurrently_after_a_private_response() -> TestResult {
    // The endpoint responds to the first request once all others wait, and to none of the others: each of them must
    // send its own request.
    let mine = ok("Cache-Control: private\r\n", "mine");
    let count = std::sync::atomic::AtomicU64::new(0);
    let behaviour =
        Behaviour::choose(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Behaviour::raw(mine.clone()).delay(Duration::from_millis(500)),
            _ => Behaviour::silent(),
        });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        clients.push(client);
    }
    backend.wait_until(|backend| backend.requests() == 20).await?;
    // A later client does not wait for them.
    let mut next = gateway.connect().await?;
    next.send(GET).await?;
    backend.wait_until(|backend| backend.requests() == 21).await?;
    Ok(())
}

#[tokio::test]
async fn stale_while_revalidate_serves_the_stale_response_at_once() -> TestResult {
    let lines = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.text(), "0");
        backend.set(Behaviour::silent());
        // The endpoint responds to neither request, and receives one.
        for _ in 0..2 {
            let stale = ask_by(&gateway, "GET", "/", &["If-None-Match: \"mine\""], transport).await?;
            assert_eq!(stale.text(), "0");
            assert!(said(&stale).starts_with("sluicegate; hit; ttl=-3"), "{}", said(&stale));
        }
        backend.wait_until(|backend| backend.requests() == 2).await?;
        let asked = backend.last_request().unwrap();
        assert_eq!((&*asked.method, asked.header("if-none-match")), ("GET", Some("\"a\"")));
        assert_eq!(counted(&gateway, |shard| &shard.cache_refreshes), 1);
    }
    Ok(())
}

#[tokio::test]
async fn background_revalidation_renews_replaces_or_evicts_the_stored_response() -> TestResult {
    let stale = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nn\r\n2\r\new\r\n0\r\n\r\n";
    let not_modified = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n";
    for (news, expected) in [
        (not_modified.to_owned(), "0"),
        (ok("Cache-Control: max-age=60\r\n", "new"), "new"),
        (ok("Cache-Control: max-age=60\r\n", ""), ""),
        (chunked.to_owned(), "new"),
    ] {
        let (backend, gateway) = gateway_of(1, answer(stale), rules()).await?;
        ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::raw(news.clone()));
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
        let is_new = |gateway: &Gateway| {
            counted(gateway, |shard| &shard.cache_stored) == 2
                || counted(gateway, |shard| &shard.cache_revalidated) == 1
        };
        gateway.wait_until(is_new).await?;
        let fresh = ask(&gateway, "/", &[]).await?;
        assert_eq!(fresh.text(), expected, "{news}");
        assert!(said(&fresh).starts_with("sluicegate; hit; ttl=6"), "{}", said(&fresh));
        assert_eq!((backend.requests(), backend.accepted()), (2, 1), "the connection goes on: {news}");
    }
    for (news, still) in [
        ("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 0\r\n\r\n", false),
        // A failed revalidation does not remove a response that may still be used.
        ("HTTP/1.1 500 Oh\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nhalf", true),
    ] {
        let (backend, gateway) = gateway(answer(stale), rules()).await?;
        ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::raw(news).then_close());
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
        let is_over = |gateway: &Gateway| match still {
            true => counted(gateway, |shard| &shard.cache_refresh_failures) == 1,
            false => kept(gateway).entries == 0,
        };
        gateway.wait_until(is_over).await?;
        assert_eq!(kept(&gateway).entries, u64::from(still), "{news}");
        if still {
            assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "{news}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn background_revalidation_respects_the_response_body_limit() -> TestResult {
    let stale = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    let long = "x".repeat(100);
    let fresh = "Cache-Control: max-age=60\r\n";
    let chunked =
        format!("HTTP/1.1 200 OK\r\n{fresh}Transfer-Encoding: chunked\r\n\r\n64\r\n{long}\r\n0\r\n\r\n");
    for news in [ok(fresh, &long), chunked] {
        let backend = Backend::start(answer(stale)).await?;
        let mut traffic = keeping(rules());
        traffic.features.limits.response_body = Some(Size::of(99));
        let gateway = before(&backend, traffic).workers(1).start().await?;
        ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::raw(news.clone()));
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
        let is_over = |gateway: &Gateway| {
            counted(gateway, |shard| &shard.cache_refresh_failures)
                + counted(gateway, |shard| &shard.cache_stored)
                == 2
        };
        gateway.wait_until(is_over).await?;
        backend.set(Behaviour::silent());
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "{news}");
    }
    Ok(())
}

#[tokio::test]
async fn request_revalidates_in_the_foreground_above_the_background_limit() -> TestResult {
    let stale = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    let (backend, gateway) = gateway_of(1, Behaviour::raw(ok(stale, "stale")), rules()).await?;
    let targets: Vec<String> = (0..66).map(|number| format!("/{number}")).collect();
    for target in &targets {
        ask(&gateway, target, &[]).await?;
    }
    backend.set(Behaviour::silent());
    for target in &targets[2..] {
        assert_eq!(ask(&gateway, target, &[]).await?.text(), "stale");
    }
    backend.wait_until(|backend| backend.requests() == 66 + 64).await?;
    // A failing endpoint causes no lost request.
    backend.set(Behaviour::status(503));
    let failed = ask(&gateway, "/0", &[]).await?;
    assert_eq!((&*failed.text(), said(&failed)), ("stale", "sluicegate; fwd=stale; detail=stale-if-error"));
    let reload = ask(&gateway, "/0", &["Cache-Control: no-cache"]).await?;
    assert_eq!(reload.status, 503);
    backend.set(Behaviour::raw(ok("Cache-Control: max-age=60\r\n", "new")));
    for target in ["/0", "/1"] {
        assert_eq!(ask(&gateway, target, &[]).await?.text(), "new");
    }
    Ok(())
}

#[tokio::test]
async fn background_revalidation_started_before_an_invalidation_stores_nothing() -> TestResult {
    let behaviour = Behaviour::choose(|request| match (&*request.method, request.header("if-none-match")) {
        ("GET", None) => Behaviour::raw(ok(
            "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n",
            "old",
        )),
        ("GET", Some(_)) => {
            Behaviour::raw("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n")
                .delay(Duration::from_millis(300))
        }
        _ => Behaviour::status(200),
    });
    let (backend, gateway) = gateway_of(1, behaviour, rules()).await?;
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "old");
    }
    backend.wait_until(|backend| backend.requests() == 2).await?;
    ask_by(&gateway, "POST", "/", &["Content-Length: 0"], Transport::Http).await?;
    gateway.wait_until(|gateway| counted(gateway, |shard| &shard.cache_revalidated) == 1).await?;
    assert_eq!(kept(&gateway).entries, 0);
    Ok(())
}

#[tokio::test]
async fn background_revalidation_with_credentials_stores_no_response_for_other_clients() -> TestResult {
    let stale = "Cache-Control: public, max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    for news in [
        ok("Cache-Control: max-age=60\r\n", "of alice"),
        ok("Cache-Control: private, max-age=60\r\n", "of alice"),
        ok("Cache-Control: public, max-age=60\r\nSet-Cookie: s=1\r\n", "of alice"),
        "HTTP/1.1 403 No\r\nCache-Control: public, max-age=60\r\nContent-Length: 8\r\n\r\nof alice".into(),
    ] {
        let (backend, gateway) = gateway_of(1, answer(stale), rules()).await?;
        ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::raw(news.clone()));
        let own = ["Authorization: Basic eDp4", "Cookie: s=alice"];
        assert_eq!(ask(&gateway, "/", &own).await?.text(), "0");
        backend.wait_until(|backend| backend.requests() == 2).await?;
        backend.set(Behaviour::silent());
        // The endpoint receives one more request after the first revalidation has ended.
        for _ in 0..1000 {
            let other = ask(&gateway, "/", &[]).await?;
            assert_eq!((&*other.text(), other.header("set-cookie")), ("0", None), "{news}");
            if counted(&gateway, |shard| &shard.cache_refreshes) == 2 {
                break;
            }
        }
        assert_eq!(counted(&gateway, |shard| &shard.cache_refreshes), 2, "{news}");
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "{news}");
    }
    Ok(())
}

#[tokio::test]
async fn waiting_request_starts_a_fetch_after_the_client_of_the_first_fetch_disconnects() -> TestResult {
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(Behaviour::silent(), rules()).await?;
        let mut first = Client::connect_by(gateway.addr_of(transport), transport).await?;
        first.send(GET).await?;
        backend.wait_until(|backend| backend.requests() == 1).await?;
        backend.set(answer("Cache-Control: max-age=60\r\n"));
        let others = asking(&gateway, 5, transport);
        gateway.wait_until(|gateway| in_flight(gateway) == 6).await?;
        assert_eq!(backend.requests(), 1);
        drop(first);
        for other in others {
            assert_eq!(other.await??.text(), "0");
        }
        assert_eq!(backend.requests(), 2, "one of them has asked");
    }
    Ok(())
}

fn in_flight(gateway: &Gateway) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.in_flight)
}

#[tokio::test]
async fn no_cache_response_is_not_reused_during_a_revalidation_in_flight() -> TestResult {
    let lines = "Cache-Control: no-cache, max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\n";
    let (backend, gateway, first) = renewing(lines).await?;
    backend.set(answer("Cache-Control: no-store\r\n"));
    let mut second = gateway.connect().await?;
    second.send(GET).await?;
    gateway.wait_until(|gateway| in_flight(gateway) == 2).await?;
    drop(first);
    let second = second.read_response().await?;
    assert_eq!((&*second.text(), backend.requests()), ("0", 3), "{}", said(&second));
    assert!(said(&second).starts_with("sluicegate; fwd=stale"), "{}", said(&second));
    Ok(())
}

#[tokio::test]
async fn waiting_requests_receive_the_stale_response_if_the_fetch_fails() -> TestResult {
    let stale = "Cache-Control: max-age=60\r\nAge: 60\r\n";
    let mut traffic = keeping(cache_of(json!({"staleIfError": "1h"})));
    traffic.features.timeouts.request = Some(Timeout::of_millis(300));
    let backend = Backend::start(answer(stale)).await?;
    let gateway = before(&backend, traffic).start().await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    backend.set(Behaviour::silent());
    for response in together(&gateway, 12, Transport::Http).await? {
        assert_eq!(response.status, 200);
        assert_eq!(said(&response), "sluicegate; fwd=stale; detail=stale-if-error");
    }
    Ok(())
}

#[tokio::test]
async fn short_response_is_stored_although_its_client_reads_nothing() -> TestResult {
    let body = "x".repeat(100 << 10);
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, bytes) in
        [(format!("Content-Length: {}", body.len()), &body), ("Transfer-Encoding: chunked".into(), &chunked)]
    {
        let response = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{framing}\r\n\r\n{bytes}");
        let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
        // The client's window admits no byte of the body.
        let tcp = tokio::net::TcpStream::connect(gateway.addr()).await?;
        let mut builder = h2::client::Builder::new();
        let (mut requests, connection) =
            builder.initial_window_size(0).handshake::<_, bytes::Bytes>(tcp).await?;
        let driver = tokio::spawn(connection);
        let request = http::Request::get("http://localhost/").body(())?;
        let (response, _) = requests.send_request(request, true)?;
        assert_eq!(response.await?.status(), 200);
        gateway.wait_until(|gateway| counted(gateway, |shard| &shard.cache_stored) == 1).await?;
        let kept = ask(&gateway, "/", &[]).await?;
        assert_eq!((kept.text().len(), backend.requests()), (body.len(), 1), "{framing}: {}", said(&kept));
        driver.abort();
    }
    Ok(())
}

#[tokio::test]
async fn slow_client_of_a_long_response_does_not_block_waiting_requests() -> TestResult {
    let long = "x".repeat(30 << 20);
    let count = std::sync::atomic::AtomicU64::new(0);
    let behaviour = Behaviour::choose(move |_| {
        let is_first = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        Behaviour::raw(ok("Cache-Control: max-age=60\r\n", if is_first { &long } else { "short" }))
    });
    let cache = cache_of(json!({"maxSize": "256Mi", "maxResponseSize": "64Mi"}));
    let (backend, gateway) = gateway(behaviour, cache).await?;
    let mut slow = gateway.connect().await?;
    slow.send(GET).await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    // The client's own limit of 10 s ensures that it did not wait forever.
    for response in together(&gateway, 10, Transport::Http).await? {
        assert_eq!(response.text(), "short");
    }
    let kept = ask(&gateway, "/", &[]).await?;
    assert!(kept.text() == "short" && said(&kept).starts_with("sluicegate; hit"), "{}", said(&kept));
    drop(slow);
    Ok(())
}
