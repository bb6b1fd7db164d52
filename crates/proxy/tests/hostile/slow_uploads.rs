//! Clients that send a request body slowly: the minimum rate, the total limit, and the share of an endpoint's
//! connections that stalled uploads may hold.

use std::time::Duration;

use sluicegate_model::Settings;
use sluicegate_proxy::failure::ClientFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;

use super::{GET, Stage, TestResult, client_faults, serves_on};

const GRACE: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(20);

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

async fn before(
    behaviour: Behaviour,
    change: impl FnOnce(&mut Settings),
) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(1).settings(change).start().await?;
    Ok((backend, gateway))
}

#[tokio::test]
async fn request_body_below_the_minimum_rate_returns_408() -> TestResult {
    let (backend, gateway) =
        before(Behaviour::ok(), |settings| settings.timeouts.request_body_grace = GRACE).await?;
    let expecting = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    let chunks = "1\r\nx\r\n".repeat(60);
    for (count, (head, rest)) in (1..).zip([
        (POST, "x".repeat(60)),
        (CHUNKED, chunks),
        (expecting, "x".repeat(60)),
        (POST, String::new()),
    ]) {
        let mut client = gateway.connect().await?;
        client.send(head).await?;
        let piece = if head == CHUNKED { 6 } else { 1 };
        client.send_slowly(rest, piece, TICK).await?;
        let response = client.read_response().await?;
        assert_eq!((response.status, response.header("Connection")), (408, Some("close")), "{head}");
        client.expect_end().await?;
        assert_eq!(client_faults(&gateway, ClientFault::BodyTooSlow), count, "{head}");
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn long_request_body_above_the_minimum_rate_is_served() -> TestResult {
    let (backend, gateway) = before(Behaviour::ok(), |settings| {
        settings.timeouts.request_body_grace = GRACE;
        settings.limits.request_body_rate = 20;
    })
    .await?;
    let mut client = gateway.connect().await?;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 600\r\n\r\n").await?;
    client.send_slowly("x".repeat(600), 10, TICK).await?;
    assert_eq!(client.read_response().await?.status, 200);
    assert_eq!(backend.last_request().map(|request| request.body.len()), Some(600));
    Ok(())
}

#[tokio::test]
async fn request_body_at_any_rate_is_served_without_a_minimum_rate() -> TestResult {
    let (_backend, gateway) = before(Behaviour::ok(), |settings| {
        settings.timeouts.request_body_grace = TICK;
        settings.limits.request_body_rate = 0;
    })
    .await?;
    let mut client = gateway.connect().await?;
    client.send(POST).await?;
    client.send_slowly("x".repeat(95), 5, TICK).await?;
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn upload_blocked_by_the_endpoint_is_not_rejected_as_too_slow() -> TestResult {
    // More than the kernel's buffers hold.
    const LENGTH: usize = 24 << 20;
    let second = Duration::from_secs(1);
    let stage = Stage::with(|builder| {
        builder.settings(|settings| {
            settings.timeouts.request_body_grace = second;
            // A fast start earns no time for later.
            settings.timeouts.request_body = second;
        })
    })
    .await?;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    let (mut client, mut endpoint, _) = stage.play(head).await?;
    let uploading = tokio::spawn(async move {
        client.send(vec![b'x'; LENGTH]).await?;
        client.read_response().await
    });
    // The endpoint reads nothing until other clients become too slow.
    for count in 1..=3 {
        let (mut slow, _endpoint, _) = stage.play(POST).await?;
        assert_eq!(slow.read_response().await?.status, 408);
        assert_eq!(client_faults(&stage.gateway, ClientFault::BodyTooSlow), count);
    }
    let mut read = 0;
    while read < LENGTH {
        read += endpoint.read_exact((LENGTH - read).min(64 * 1024)).await?.len();
    }
    endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(uploading.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn client_that_waits_for_100_continue_is_not_rejected_as_too_slow() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder()
        .endpoints([])
        .settings(|settings| {
            settings.timeouts.request_body_grace = GRACE;
            settings.resilience.endpoint_wait = Duration::from_secs(20);
        })
        .start()
        .await?;
    let mut client = gateway.connect().await?;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await?;
    gateway
        .wait_until(|gateway| {
            gateway.proxy().registry().counters().workers().sum(|worker| &worker.in_flight) == 1
        })
        .await?;
    tokio::time::sleep(2 * GRACE).await;
    gateway.set_addresses([backend.addr()]).await;
    assert_eq!(client.read_interim().await?, 100);
    client.send("hello").await?;
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn request_body_beyond_the_total_timeout_returns_408() -> TestResult {
    let (backend, gateway) =
        before(Behaviour::ok(), |settings| settings.timeouts.request_body_total = GRACE).await?;
    let mut client = gateway.connect().await?;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").await?;
    client.send_slowly("x".repeat(60_000), 1000, TICK).await?;
    assert_eq!(client.read_response().await?.status, 408);
    assert_eq!(client_faults(&gateway, ClientFault::BodyTotalTimeout), 1);
    backend.wait_until(|backend| backend.open() == 0).await?;
    // The gateway breaks off a response that has begun.
    backend.set(Behaviour::chunked(vec!["hello"; 600], TICK, &[]).early());
    let mut client = gateway.connect().await?;
    client.send(POST).await?;
    assert!(client.read_response().await.is_err(), "the response is not whole");
    assert_eq!(client_faults(&gateway, ClientFault::BodyTotalTimeout), 2);
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn stalled_uploads_occupy_a_limited_number_of_endpoint_connections() -> TestResult {
    const LIMIT: usize = 8;
    let (backend, gateway) = before(Behaviour::ok(), |settings| {
        settings.limits.request_body_rate = 0;
        settings.limits.stalled_uploads_per_endpoint = LIMIT;
    })
    .await?;
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = gateway.connect().await?;
        client.send(POST).await?;
        clients.push(client);
    }
    gateway.wait_until(|gateway| client_faults(gateway, ClientFault::UploadStalled) == 92).await?;
    backend.wait_until(|backend| backend.open() == LIMIT as u64).await?;
    assert_eq!(gateway.connect().await?.request(GET).await?.status, 200, "others are served");
    let mut statuses = Vec::new();
    for mut client in clients {
        statuses.push(finish(&mut client).await?);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), LIMIT, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 408).count(), 100 - LIMIT, "{statuses:?}");
    serves_on(&gateway).await
}

/// Sends the rest of the body, and returns the status of the response.
async fn finish(client: &mut Client) -> anyhow::Result<u16> {
    client.send("x".repeat(95)).await?;
    Ok(client.read_response().await?.status)
}
