//! The gateway streams bodies both ways at once. A response may arrive before the request has ended.

use std::net::TcpListener;
use std::time::Duration;

use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;

use super::{GET, Stage, TestResult, failures, gateway_to, serves_on};

/// A listener with small receive buffers, so that the gateway soon has to wait when it writes.
fn narrow() -> anyhow::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_recv_buffer_size(4096)?;
    socket.set_tcp_mss(536)?;
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

fn put(length: usize) -> String {
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
}

#[tokio::test]
async fn request_body_is_forwarded_before_it_ends() -> TestResult {
    let stage = Stage::set().await?;
    let cases = [
        ("Content-Length: 10\r\n", "hello", "hello", "world", "world"),
        (
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhel",
            "3\r\nhel\r\n",
            "lo\r\n0\r\n\r\n",
            "2\r\nlo\r\n0\r\n\r\n",
        ),
    ];
    for (framing, first, arrives, rest, rest_arrives) in cases {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n{first}");
        let (mut client, mut endpoint, _) = stage.play(request).await?;
        assert_eq!(endpoint.read_exact(arrives.len()).await?, arrives.as_bytes());
        client.send(rest).await?;
        assert_eq!(endpoint.read_exact(rest_arrives.len()).await?, rest_arrives.as_bytes());
        endpoint.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await?;
        assert_eq!(client.read_response().await?.header("Connection"), None, "that was the endpoint's");
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn response_body_is_forwarded_before_it_ends() -> TestResult {
    let stage = Stage::set().await?;
    let cases = [
        ("Content-Length: 10\r\n", "hello", "hello", "world", "world"),
        (
            "Transfer-Encoding: chunked\r\n",
            "5;x\r\nhel",
            "3\r\nhel\r\n",
            "lo\r\n0\r\n\r\n",
            "2\r\nlo\r\n0\r\n\r\n",
        ),
        ("", "hello", "5\r\nhello\r\n", "", "0\r\n\r\n"),
    ];
    for (framing, first, arrives, rest, rest_arrives) in cases {
        let (mut client, mut endpoint, _) = stage.play(GET).await?;
        endpoint.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n{first}")).await?;
        client.read_until("\r\n\r\n").await?;
        assert_eq!(client.read_exact(arrives.len()).await?, arrives.as_bytes());
        endpoint.send(rest).await?;
        drop(endpoint);
        assert_eq!(client.read_exact(rest_arrives.len()).await?, rest_arrives.as_bytes());
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn request_and_response_bodies_are_forwarded_concurrently() -> TestResult {
    let stage = Stage::set().await?;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut client, mut endpoint, _) = stage.play(head).await?;
    endpoint.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    client.read_until("\r\n\r\n").await?;
    for chunk in ["4\r\nping\r\n", "4\r\npong\r\n", "4\r\nping\r\n", "0\r\n\r\n"] {
        client.send(chunk).await?;
        assert_eq!(endpoint.read_exact(chunk.len()).await?, chunk.as_bytes());
        endpoint.send(chunk).await?;
        assert_eq!(client.read_exact(chunk.len()).await?, chunk.as_bytes());
    }
    client.expect_end().await?;
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn large_request_and_response_bodies_arrive_complete() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::echo()).await?;
    let mut client = gateway.connect().await?;
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let chunk = [b"2dc6c0\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
    let length = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n";
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for request in [[&length[..], &body].concat(), [&chunked[..], &chunk].concat()] {
        let response = client.request(request).await?;
        assert_eq!((response.status, response.header("Connection")), (200, None));
        let seen = backend.last_request().expect("it answered");
        assert!(seen.body == body && response.body.ends_with(&seen.raw_body));
    }
    drop(client);
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn early_response_of_an_endpoint_to_an_unfinished_request_arrives_complete() -> TestResult {
    let stage = Stage::set().await?;
    let body = "x".repeat(1_000_000);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    // An endpoint that closes with the request unread destroys the bytes still on their way to the gateway.
    for (stays, length) in [(true, 1_000_000), (false, 20_000)] {
        let (mut client, mut endpoint, _) = stage.play(head).await?;
        client.send(&body).await?;
        let answer = &body[..length];
        endpoint
            .send(format!("HTTP/1.1 413 Content Too Large\r\nContent-Length: {length}\r\n\r\n{answer}"))
            .await?;
        if !stays {
            drop(endpoint);
        }
        let response = client.read_response().await?;
        assert_eq!((response.status, response.body.len()), (413, length));
        assert_eq!(
            response.header("Connection"),
            Some("close"),
            "where the next request begins is not known"
        );
        client.expect_end().await?;
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn last_response_arrives_complete_although_the_client_sends_more_requests() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::sized(1_000_000)).await?;
    for more in [GET.repeat(10), GET.repeat(10_000)] {
        let mut client = gateway.connect().await?;
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{more}")).await?;
        // The request has ended before the client reads a byte.
        gateway.wait_until(|gateway| gateway.count(|upstream| &upstream.in_flight) == 0).await?;
        assert_eq!(client.read_response().await?.body.len(), 1_000_000);
        client.expect_end().await?;
    }
    assert_eq!(backend.requests(), 2);
    serves_on(&gateway).await
}

#[tokio::test]
async fn endpoint_connection_with_an_unsent_request_is_not_reused() -> TestResult {
    let early = Behaviour::ok().early().delay(Duration::from_millis(10));
    let backend = Backend::start_on(narrow()?, early)?;
    let soon = |settings: &mut sluicegate_model::Settings| {
        settings.timeouts.response_head = Duration::from_secs(3);
        // On a busy machine the backend acknowledges late, and a retry would be one more request.
        settings.resilience.unacknowledged = Duration::from_secs(30);
    };
    let gateway = Gateway::builder().backends([&backend]).workers(1).settings(soon).start().await?;
    // For some of these lengths the gateway has read the whole request but not sent it when the response arrives.
    for length in (20_000..240_000).step_by(4_000) {
        assert_eq!(gateway.connect().await?.request(put(length)).await?.status, 200);
        assert_eq!(gateway.connect().await?.request(GET).await?.status, 200, "after {length}");
    }
    assert_eq!((backend.requests(), backend.malformed()), (110, 0));
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn slowly_reading_endpoint_stays_healthy() -> TestResult {
    let slow = Behaviour::ok().slow_reader(4096, Duration::from_millis(25));
    let backend = Backend::start_on(narrow()?, slow)?;
    let soon = |settings: &mut sluicegate_model::Settings| {
        settings.timeouts.connect = Duration::from_millis(100);
        settings.resilience.unacknowledged = Duration::from_millis(200);
    };
    let gateway = Gateway::builder().backends([&backend]).settings(soon).start().await?;
    for (count, request) in (1..).zip([put(60_000), put(150_000), put(60_000).replace("PUT", "POST")]) {
        assert_eq!(gateway.connect().await?.request(request).await?.status, 200);
        assert_eq!((backend.requests(), failures(&gateway, Failure::Unacknowledged)), (count, 0));
    }
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn endpoint_with_a_full_receive_window_stays_healthy() -> TestResult {
    let listener = narrow()?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let gateway = Gateway::builder().endpoints([listener.local_addr()?]).start().await?;
    let mut client = gateway.connect().await?;
    client.send(put(50_000)).await?;
    let mut endpoint = Client::over(listener.accept().await?.0)?;
    // Many times as long as an acknowledgement may take.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(gateway.count(|upstream| &upstream.attempts), 1);
    assert!(!gateway.endpoint(listener.local_addr()?).is_unhealthy());
    endpoint.read_until("\r\n\r\n").await?;
    endpoint.read_exact(50_000).await?;
    endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn client_of_a_rejected_large_upload_receives_the_response() -> TestResult {
    let backend = Backend::start(Behaviour::status(401).early()).await?;
    let limit = |settings: &mut sluicegate_model::Settings| settings.limits.request_body = Some(30_000_000);
    let gateway = Gateway::builder().backends([&backend]).settings(limit).start().await?;
    for (length, status) in [(20_000_000, 401), (40_000_000, 413)] {
        let mut client = gateway.connect().await?;
        // The client sends the whole request before it reads the response.
        client.send(put(length)).await?;
        assert_eq!(client.read_response().await?.status, status);
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_that_reads_nothing_applies_back_pressure_to_the_client() -> TestResult {
    let listener = narrow()?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let soon = |settings: &mut sluicegate_model::Settings| {
        settings.timeouts.upstream_idle = Duration::from_millis(500);
    };
    let gateway = Gateway::builder().endpoints([listener.local_addr()?]).settings(soon).start().await?;
    let mut client: Client = gateway.connect().await?.with_limit(Duration::from_millis(200));
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").await?;
    let _endpoint = listener.accept().await?;
    let piece = vec![b'x'; 1_000_000];
    let mut taken = 0;
    while client.send(&piece).await.is_ok() {
        taken += 1;
        assert!(taken < 50, "all of it seems to be kept in memory");
    }
    assert_eq!(client.with_limit(Duration::from_secs(10)).read_response().await?.status, 504);
    gateway.wait_until_idle().await
}
