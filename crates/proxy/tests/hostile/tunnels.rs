//! Upgrades: WebSocket and other protocols.

use std::time::Duration;

use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::Behaviour;
use sluicegate_testkit::client::Client;
use sluicegate_testkit::stream::Transport;

use super::{GET, Stage, TestResult, failures, gateway_to, serves_on};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Both ends of a tunnel.
async fn tunnel(stage: &Stage) -> anyhow::Result<(Client, Client)> {
    let (mut client, mut endpoint, head) = stage.play(UPGRADE).await?;
    assert!(head.contains("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    endpoint.send(SWITCHING).await?;
    let response = client.read_response().await?;
    assert_eq!((response.status, response.header("Connection")), (101, Some("Upgrade")));
    assert_eq!(response.headers_named("Upgrade"), ["websocket"]);
    assert_eq!(response.header("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    Ok((client, endpoint))
}

#[tokio::test]
async fn tunnel_carries_any_bytes_in_both_directions() -> TestResult {
    let stage = Stage::set().await?;
    let (mut client, mut endpoint) = tunnel(&stage).await?;
    for message in [&b"\0\xff\r\n\r\n"[..], GET.as_bytes(), &[0x81; 100_000]] {
        client.send(message).await?;
        assert_eq!(endpoint.read_exact(message.len()).await?, message);
        endpoint.send(message).await?;
        assert_eq!(client.read_exact(message.len()).await?, message);
    }
    drop((client, endpoint));
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn bytes_sent_together_with_the_upgrade_heads_are_forwarded() -> TestResult {
    let stage = Stage::set().await?;
    let (mut client, mut endpoint, _) = stage.play(UPGRADE.to_owned() + GET).await?;
    endpoint.send(SWITCHING.to_owned() + "early").await?;
    assert_eq!(client.read_response().await?.status, 101);
    assert_eq!(client.read_exact(5).await?, b"early");
    assert_eq!(endpoint.read_exact(GET.len()).await?, GET.as_bytes());
    Ok(())
}

#[tokio::test]
async fn bytes_sent_before_the_101_response_are_buffered_and_delivered() -> TestResult {
    let stage = Stage::set().await?;
    let early = "x".repeat(100_000);
    let (mut client, mut endpoint, _) = stage.play(UPGRADE.to_owned() + &early).await?;
    endpoint.send(SWITCHING).await?;
    assert_eq!(client.read_response().await?.status, 101);
    assert_eq!(endpoint.read_exact(early.len()).await?, early.as_bytes());
    Ok(())
}

#[tokio::test]
async fn each_direction_of_a_tunnel_closes_independently() -> TestResult {
    let stage = Stage::set().await?;
    let (mut client, mut endpoint) = tunnel(&stage).await?;
    client.send("last words").await?;
    client.half_close().await?;
    assert_eq!(endpoint.read_to_end().await?, b"last words");
    endpoint.send("and an answer").await?;
    assert_eq!(client.read_exact(13).await?, b"and an answer");
    endpoint.half_close().await?;
    client.expect_end().await?;
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn reset_of_one_side_of_a_tunnel_closes_the_other_side() -> TestResult {
    let stage = Stage::set().await?;
    let (client, mut endpoint) = tunnel(&stage).await?;
    client.reset()?;
    endpoint.expect_end().await?;
    let (mut client, endpoint) = tunnel(&stage).await?;
    endpoint.reset()?;
    client.expect_end().await?;
    drop(client);
    stage.gateway.wait_until_idle().await
}

/// The number of rounds in a test in which a reset and a write race.
const ROUNDS: usize = 40;

#[tokio::test]
async fn client_receives_all_data_that_an_endpoint_sent_before_closing_with_unread_input() -> TestResult {
    let stage = Stage::set().await?;
    let last = vec![b'z'; 50_000];
    for transport in [Transport::Http, Transport::Https] {
        for round in 0..ROUNDS {
            let mut client = Client::connect_by(stage.gateway.addr_of(transport), transport).await?;
            client.send(UPGRADE).await?;
            let mut endpoint = stage.accept().await?;
            endpoint.read_until("\r\n\r\n").await?;
            endpoint.send(SWITCHING).await?;
            assert_eq!(client.read_response().await?.status, 101);
            client.send([b'x'; 10_000]).await?;
            endpoint.send(&last).await?;
            drop(endpoint);
            for _ in 0..10 {
                // The gateway may have ended the tunnel.
                drop(client.send([b'x'; 10_000]).await);
            }
            let received = client.read_to_end().await?;
            assert!(received == last, "{transport:?}, round {round}: {} bytes", received.len());
        }
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn endpoint_receives_all_data_that_a_client_sent_before_closing_with_unread_input() -> TestResult {
    let stage = Stage::set().await?;
    let last = vec![b'z'; 50_000];
    for round in 0..ROUNDS {
        let (mut client, mut endpoint) = tunnel(&stage).await?;
        endpoint.send([b'x'; 10_000]).await?;
        client.send(&last).await?;
        drop(client);
        for _ in 0..10 {
            // The gateway may have ended the tunnel.
            drop(endpoint.send([b'x'; 10_000]).await);
        }
        let received = endpoint.read_to_end().await?;
        assert!(received == last, "round {round}: {} bytes", received.len());
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn idle_tunnel_ends_at_its_timeout() -> TestResult {
    let idle = Duration::from_millis(300);
    let stage =
        Stage::with(|builder| builder.settings(|settings| settings.timeouts.tunnel_idle = idle)).await?;
    let (mut client, mut endpoint) = tunnel(&stage).await?;
    client.expect_end().await?;
    endpoint.expect_end().await?;
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn declined_upgrade_is_forwarded_as_an_ordinary_response() -> TestResult {
    for status in [200, 400, 426] {
        let (backend, gateway) = gateway_to(Behaviour::status(status)).await?;
        let mut client = gateway.connect().await?;
        assert_eq!(client.request(UPGRADE).await?.status, status);
        assert_eq!(client.request(GET).await?.status, status);
        assert_eq!(backend.accepted(), 1);
    }
    Ok(())
}

#[tokio::test]
async fn unsolicited_101_response_returns_502() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::raw(SWITCHING)).await?;
    let unasked = [
        GET.to_owned(),
        UPGRADE.replace("keep-alive, Upgrade", "keep-alive"),
        UPGRADE.replace("HTTP/1.1", "HTTP/1.0"),
        UPGRADE.replace("websocket", "h2c"),
        UPGRADE.replace("websocket", "foo, H2C"),
    ];
    for (count, request) in (1..).zip(unasked) {
        let mut client = gateway.connect().await?;
        assert_eq!(client.request(&request).await?.status, 502, "{request}");
        assert_eq!(failures(&gateway, Failure::Unsolicited), count, "{request}");
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn response_101_without_the_requested_protocol_returns_502() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let line = |lines: &str| format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n\r\nraw bytes");
    let answers = [
        line("Connection: Upgrade"),
        line("Upgrade: websocket"),
        line("Connection: Upgrade\r\nUpgrade:"),
        line("Connection: Upgrade\r\nUpgrade: h2c"),
        line("Connection: Upgrade\r\nUpgrade: websocket, h2c"),
        line("Connection: keep-alive\r\nUpgrade: websocket"),
        line("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket"),
        line("Connection: Upgrade\r\nUpgrade: websocket").replace("HTTP/1.1", "HTTP/1.0"),
    ];
    for (count, answer) in (1..).zip(answers) {
        backend.set(Behaviour::raw(answer.clone()));
        let mut client = gateway.connect().await?;
        let response = client.request(UPGRADE).await?;
        assert_eq!((response.status, response.header("Upgrade")), (502, None), "{answer}");
        assert!(!response.text().contains("raw bytes"));
        assert_eq!(failures(&gateway, Failure::OtherProtocol), count, "{answer}");
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn upgrade_protocols_match_in_any_letter_case_and_order() -> TestResult {
    let stage = Stage::set().await?;
    let several = UPGRADE.replace("Upgrade: websocket", "Upgrade: foo/1, WebSocket");
    for answered in ["websocket", "WEBSOCKET, Foo/1"] {
        let (mut client, mut endpoint, head) = stage.play(&several).await?;
        assert!(head.contains("\r\nUpgrade: foo/1, WebSocket\r\n"), "{head}");
        endpoint.send(SWITCHING.replace("Upgrade: websocket", &format!("Upgrade: {answered}"))).await?;
        assert_eq!(client.read_response().await?.status, 101, "{answered}");
    }
    Ok(())
}

#[tokio::test]
async fn upgrade_to_http_2_or_another_http_version_is_not_forwarded() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let settings = "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n";
    for upgrade in [
        "h2c",
        "H2C",
        "h2c, websocket",
        "websocket, h2c",
        "websocket,\th2C ,x",
        "h2c/1",
        "\"h2c\"",
        "websocket, \"H2c\"",
        "h2",
        "H2-14",
        "HTTP/2.0",
        "http/2",
        "websocket, HTTP/2.0",
        "HTTP/1.1",
        "TLS/1.2, HTTP/1.1",
        "h2c h2c",
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n{settings}\r\n"
        );
        assert_eq!(gateway.connect().await?.request(request).await?.status, 200);
        let seen = backend.last_request().expect("a request");
        assert_eq!((seen.header("Upgrade"), seen.header("HTTP2-Settings")), (None, None), "{upgrade}");
        assert_eq!(seen.header("Connection"), None);
    }
    serves_on(&gateway).await
}
