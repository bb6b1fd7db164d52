//! Z6: the gateway retries a request whose connection died before the first byte of the response, if a retry is safe.
//! Z7: the gateway never retries a request that may have been processed and is not idempotent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluicegate_model::Upstream;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour, repeated_ids};
use sluicegate_testkit::gateway::{Gateway, key, ready};

use super::{GET, POST, TestResult, failures, fill_pools, retries};

/// Each connection serves one request like `first`, and fails at the next like `dies`.
fn first_then(first: Behaviour, dies: Behaviour) -> Behaviour {
    Behaviour::choose(move |request| if request.nth == 1 { first.clone() } else { dies.clone() })
}

/// Reads a whole request, as if to process it, and closes the connection.
fn close_after_reading() -> Behaviour {
    Behaviour::raw("").then_close()
}

#[tokio::test]
async fn get_on_a_stale_connection_is_retried() -> TestResult {
    for dies in [Behaviour::close_on_request(), Behaviour::reset_on_request()] {
        let backend = Backend::start(first_then(Behaviour::ok(), dies)).await?;
        let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
        let mut client = gateway.connect().await?;
        for request in 0..6 {
            assert_eq!(client.request(GET).await?.status, 200);
            assert_eq!(retries(&gateway, Failure::Stale), request);
        }
    }
    Ok(())
}

#[tokio::test]
async fn put_is_retried_with_its_complete_body() -> TestResult {
    let body: String = (0..50_000).map(|at| char::from(b'a' + u8::try_from(at % 23).unwrap_or(0))).collect();
    let plain = format!("PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    let chunked =
        format!("PUT /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\nSum: 1\r\n\r\n");
    for dies in [Behaviour::close_on_request(), close_after_reading()] {
        for request in [&plain, &chunked] {
            let backend = Backend::start(first_then(Behaviour::echo(), dies.clone())).await?;
            let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
            let mut client = gateway.connect().await?;
            client.request(GET).await?;
            assert_eq!(client.request(request).await?.status, 200);
            let got = backend.last_request().map(|request| request.body).unwrap_or_default();
            assert!(got == body.as_bytes(), "{} bytes arrived", got.len());
            assert_eq!((retries(&gateway, Failure::Stale), backend.requests()), (1, 3));
        }
    }
    Ok(())
}

#[tokio::test]
async fn request_with_a_partly_sent_body_is_retried_from_the_first_byte() -> TestResult {
    let backend = Backend::start(first_then(Behaviour::echo(), Behaviour::close_on_request())).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
    let mut client = gateway.connect().await?;
    client.request(GET).await?;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst").await?;
    backend.wait_until(|backend| backend.requests() == 3).await?;
    client.send("later").await?;
    assert!(client.read_response().await?.text().ends_with("\r\n\r\nfirstlater"));
    Ok(())
}

#[tokio::test]
async fn detection_of_a_stale_connection_closes_all_idle_connections_to_its_endpoint() -> TestResult {
    let old = Arc::new(AtomicBool::new(false));
    let dead = old.clone();
    let slow = Behaviour::ok().delay(Duration::from_millis(30));
    let behaviour = Behaviour::choose(move |request| match dead.load(Ordering::Relaxed) {
        // As after a change of the node's connection tracking: every old connection is silently dead.
        true if request.connection <= 5 => Behaviour::reset_on_request(),
        true => Behaviour::ok(),
        false => slow.clone(),
    });
    let backend = Backend::start(behaviour).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
    let mut clients = fill_pools(&gateway, 5).await?;
    assert_eq!(backend.accepted(), 5);
    old.store(true, Ordering::Relaxed);
    for client in &mut clients {
        assert_eq!(client.request(GET).await?.status, 200);
    }
    assert_eq!(retries(&gateway, Failure::Stale), 1, "one of five found out for all");
    backend.wait_until(|backend| backend.open() == 1).await?;
    Ok(())
}

#[tokio::test]
async fn body_over_the_replay_limit_is_not_retried() -> TestResult {
    let backend = Backend::start(first_then(Behaviour::ok(), close_after_reading())).await?;
    let builder = Gateway::builder().backends([&backend]).workers(1);
    let gateway = builder.settings(|settings| settings.limits.replay = 1024).start().await?;
    let mut client = gateway.connect().await?;
    client.request(GET).await?;
    let body = "x".repeat(200_000);
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nX-Id: put\r\nContent-Length: {}\r\n\r\n", body.len());
    assert_eq!(client.request(head + &body).await?.status, 502);
    assert_eq!((backend.ids(), failures(&gateway, Failure::Stale)), (vec!["put".to_owned()], 1));
    Ok(())
}

#[tokio::test]
async fn failed_request_is_sent_to_at_most_three_endpoints() -> TestResult {
    let backends = super::backends(5, Behaviour::reset_on_request()).await?;
    let gateway = Gateway::of(&backends).await?;
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 502);
    let requests: Vec<_> = backends.iter().map(Backend::requests).collect();
    assert_eq!(requests.iter().sum::<u64>(), 3, "{requests:?}");
    assert_eq!(requests.iter().max(), Some(&1), "{requests:?}: another one each time");
    assert_eq!((retries(&gateway, Failure::Reset), failures(&gateway, Failure::Reset)), (2, 1));
    Ok(())
}

#[tokio::test]
async fn post_that_an_endpoint_may_have_processed_is_not_retried() -> TestResult {
    let backend = Backend::start(first_then(Behaviour::ok(), close_after_reading())).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 200);
    assert_eq!(client.request(POST).await?.status, 502, "on a kept-alive connection");
    backend.set(close_after_reading());
    assert_eq!(client.request(POST).await?.status, 502, "on a new connection");
    assert_eq!(backend.ids(), ["post", "post"], "each came once");
    assert_eq!(gateway.count(|upstream| &upstream.not_repeated), 2);
    assert_eq!((failures(&gateway, Failure::Stale), failures(&gateway, Failure::Reset)), (1, 1));
    Ok(())
}

#[tokio::test]
async fn request_with_a_started_response_is_never_retried() -> TestResult {
    let answers = [
        Behaviour::too_little(5),
        Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Le").then_close(),
        Behaviour::garbage(),
    ];
    for behaviour in answers {
        let name = format!("{behaviour:?}");
        let backend = Backend::start(behaviour).await?;
        let gateway = Gateway::of([&backend]).await?;
        let mut client = gateway.connect().await?;
        let answer = client.request(GET).await.map(|response| response.status);
        assert!(!matches!(answer, Ok(200)), "{name}: {answer:?}");
        assert_eq!(backend.requests(), 1, "{name}");
    }
    Ok(())
}

/// The test keeps the worker busy, so that closes and requests reach it at the same time. A request that cannot be
/// retried must not use a connection that the peer has already closed.
#[tokio::test]
async fn post_is_not_sent_on_a_closed_connection() -> TestResult {
    let busy = Backend::start(Behaviour::ok()).await?;
    let mut closing = Backend::start(Behaviour::ok()).await?;
    let builder = Gateway::builder().backends([&closing]).workers(1).route("busy", "/", "busy");
    let gateway = builder.start().await?;
    let upstream = Upstream { endpoints: [ready(busy.addr())].into(), ..Upstream::default() };
    gateway.configure(|config| drop(config.upstreams.insert(key("busy"), upstream.into()))).await;
    let load = gateway.load().host("busy").connections(16).start()?;
    let mut client = gateway.connect().await?;
    for _ in 0..300 {
        assert_eq!(client.request(POST).await?.status, 200);
        closing.restart().await?;
    }
    load.stop().await?;
    Ok(())
}

#[tokio::test]
async fn post_to_a_killed_endpoint_is_delivered_at_most_once() -> TestResult {
    let mut backends = super::backends(3, Behaviour::ok()).await?;
    let gateway = Gateway::of(&backends).await?;
    let load = gateway.load().connections(8).posts(1.0, 2000).start()?;
    for round in 0..12 {
        load.wait_for_ok(load.snapshot().ok + 100, Duration::from_secs(10)).await?;
        let victim = &mut backends[round % 3];
        match round % 2 {
            0 => victim.kill().await,
            _ => victim.kill_with_reset().await,
        }
        victim.restart().await?;
    }
    let report = load.stop().await?;
    assert_eq!(repeated_ids(&backends), [""; 0]);
    assert_eq!(report.failures(), gateway.count(|upstream| &upstream.not_repeated), "{report}");
    assert!(report.failures() <= 12 * 8, "no more than were in flight: {report}");
    Ok(())
}
