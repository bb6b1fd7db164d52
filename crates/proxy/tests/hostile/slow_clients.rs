//! Clients that send or read slowly, or disconnect: the gateway bounds their time and frees their resources.

use std::io::ErrorKind;
use std::time::Duration;

use sluicegate_model::Settings;
use sluicegate_proxy::failure::ClientFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::LIMIT;
use sluicegate_testkit::gateway::Gateway;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::{GET, Stage, TestResult, client_faults, gateway_to, serves_on};

const SOON: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(20);

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";

async fn impatient(change: impl FnOnce(&mut Settings)) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).settings(change).start().await?;
    Ok((backend, gateway))
}

#[tokio::test]
async fn incomplete_request_head_returns_408() -> TestResult {
    let (backend, gateway) = impatient(|settings| settings.timeouts.request_head = SOON).await?;
    for (count, before) in (1..).zip(["", GET]) {
        for head in ["G", "GET / HTTP/1.1\r\nHost: a\r\n", "\r\n"] {
            let mut client = gateway.connect().await?;
            if !before.is_empty() {
                assert_eq!(client.request(before).await?.status, 200);
            }
            client.send(head).await?;
            let response = client.read_response().await?;
            assert_eq!((response.status, response.header("Connection")), (408, Some("close")), "{head}");
            client.expect_end().await?;
        }
        assert_eq!(client_faults(&gateway, ClientFault::HeadTimeout), count * 3);
    }
    assert_eq!(backend.requests(), 3);
    serves_on(&gateway).await
}

#[tokio::test]
async fn request_head_that_arrives_byte_by_byte_times_out() -> TestResult {
    let (backend, gateway) = impatient(|settings| settings.timeouts.request_head = SOON).await?;
    let mut client = gateway.connect().await?;
    // The whole request would take four times the limit.
    client.send_slowly(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(30)), 1, TICK).await?;
    assert_eq!(client.read_response().await?.status, 408);
    client.expect_end().await?;
    assert_eq!(backend.requests(), 0);
    serves_on(&gateway).await
}

#[tokio::test]
async fn request_with_a_missing_body_returns_408() -> TestResult {
    let (backend, gateway) = impatient(|settings| settings.timeouts.request_body = SOON).await?;
    let expecting = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    for (count, request) in (1..).zip([POST, CHUNKED, expecting]) {
        let mut client = gateway.connect().await?;
        client.send(request).await?;
        let response = client.read_response().await?;
        assert_eq!((response.status, response.header("Connection")), (408, Some("close")), "{request}");
        client.expect_end().await?;
        assert_eq!(client_faults(&gateway, ClientFault::BodyTimeout), count);
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn chunk_extensions_and_trailers_do_not_count_as_progress_of_a_request_body() -> TestResult {
    let (_backend, gateway) = impatient(|settings| settings.timeouts.request_body = SOON).await?;
    for start in ["5;", "0\r\nX: "] {
        let mut client = gateway.connect().await?;
        client.send(CHUNKED).await?;
        client.send_slowly(format!("{start}{}", "x".repeat(30)), 1, TICK).await?;
        assert_eq!(client.read_response().await?.status, 408, "{start}");
        client.expect_end().await?;
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn slow_request_body_with_progress_is_served() -> TestResult {
    let (backend, gateway) =
        impatient(|settings| settings.timeouts.request_body = Duration::from_secs(2)).await?;
    let mut client = gateway.connect().await?;
    client.send_slowly(POST.to_owned() + &"x".repeat(95), 5, Duration::from_millis(50)).await?;
    assert_eq!(client.read_response().await?.status, 200);
    assert_eq!(backend.last_request().map(|request| request.body.len()), Some(100));
    Ok(())
}

#[tokio::test]
async fn idle_client_connection_is_closed_without_a_response() -> TestResult {
    let (_backend, gateway) = impatient(|settings| {
        settings.timeouts.client_idle = SOON;
        settings.timeouts.request_head = SOON;
    })
    .await?;
    let mut client = gateway.connect().await?;
    client.expect_end().await?;
    for request in [GET, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] {
        let mut client = gateway.connect().await?;
        for _ in 0..2 {
            assert_eq!(client.request(request).await?.status, 200);
        }
        client.expect_end().await?;
    }
    assert_eq!(client_faults(&gateway, ClientFault::HeadTimeout), 0);
    serves_on(&gateway).await
}

#[tokio::test]
async fn gateway_disconnects_a_client_that_reads_nothing() -> TestResult {
    let (backend, gateway) = impatient(|settings| settings.timeouts.client_write = SOON).await?;
    let chunks = vec![vec![b'x'; 1_000_000]; 30];
    let answers = [Behaviour::sized(30_000_000), Behaviour::chunked(chunks, Duration::ZERO, &[])];
    for (count, answer) in (1..).zip(answers) {
        backend.set(answer);
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        gateway.wait_until(|gateway| client_faults(gateway, ClientFault::WriteTimeout) == count).await?;
        backend.wait_until(|backend| backend.open() == 0).await?;
        gateway.wait_until_idle().await?;
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn client_that_disconnects_within_the_request_head_causes_no_endpoint_connection() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for head in ["", "\r\n", "G", "GET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r"] {
        let mut client = gateway.connect().await?;
        client.send(head).await?;
        client.half_close().await?;
        client.expect_end().await?;
        let mut client = gateway.connect().await?;
        client.send(head).await?;
        client.reset()?;
    }
    gateway.wait_until_idle().await?;
    assert_eq!(backend.accepted(), 0);
    serves_on(&gateway).await
}

#[tokio::test]
async fn client_disconnect_within_the_request_body_closes_the_endpoint_connection() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for (count, request) in (1..).zip([POST, CHUNKED]) {
        let mut client = gateway.connect().await?;
        client.send(request).await?;
        backend.wait_until(|backend| backend.requests() == count).await?;
        drop(client);
        backend.wait_until(|backend| backend.open() == 0).await?;
        // The connection ends before the fault is counted.
        gateway.wait_until(|gateway| client_faults(gateway, ClientFault::Closed) == count).await?;
    }
    assert_eq!(backend.malformed(), 0);
    serves_on(&gateway).await
}

#[tokio::test]
async fn client_disconnect_before_the_response_closes_the_endpoint_connection() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::silent()).await?;
    for (count, request) in (1..).zip([GET.to_owned(), GET.repeat(3), "POST".to_owned() + &GET[3..]]) {
        let mut client = gateway.connect().await?;
        client.send(request).await?;
        backend.wait_until(|backend| backend.requests() == count).await?;
        drop(client);
        backend.wait_until(|backend| backend.open() == 0).await?;
        gateway.wait_until(|gateway| client_faults(gateway, ClientFault::Closed) == count).await?;
        gateway.wait_until_idle().await?;
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

// After a close, the kernel holds the local port for a minute, so that clients could use up all ports to an endpoint. A POST
// may have a purpose without its client, and a reset could take it from the endpoint.
#[tokio::test]
async fn client_disconnect_resets_the_endpoint_connection_of_a_safe_request() -> TestResult {
    let stage = Stage::set().await?;
    for (request, is_reset) in [(GET.to_owned(), true), ("POST".to_owned() + &GET[3..], false)] {
        let mut client = stage.gateway.connect().await?;
        client.send(&request).await?;
        let (mut endpoint, _) = timeout(LIMIT, stage.listener.accept()).await??;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(endpoint.read_u8().await?);
        }
        drop(client);
        let end = timeout(LIMIT, endpoint.read(&mut [0; 1])).await?;
        let expected = if is_reset { Err(ErrorKind::ConnectionReset) } else { Ok(0) };
        assert_eq!(end.map_err(|error| error.kind()), expected, "{request}");
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn client_disconnect_within_the_response_closes_the_endpoint_connection() -> TestResult {
    let stage = Stage::set().await?;
    for reset in [true, false] {
        let (mut client, mut endpoint, _) = stage.play(GET).await?;
        endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await?;
        client.read_until("hello").await?;
        if reset {
            client.reset()?;
        } else {
            drop(client);
        }
        endpoint.expect_end().await?;
    }
    stage.gateway.wait_until_idle().await
}
