//! Tunnels by extended CONNECT (RFC 9220), such as WebSocket.

use std::time::Duration;

use sluicegate_testkit::backend::{Backend, Behaviour};
use tokio::time::timeout;

use crate::malformed::{connect, control, frame, headers};
use crate::{TestResult, before};

const SOON: Duration = Duration::from_secs(20);

fn extended_connect(protocol: &str) -> Vec<u8> {
    headers(&[
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
    ])
}

#[tokio::test]
async fn websocket_passes_bytes_both_ways() -> TestResult {
    let backend = Backend::start(Behaviour::upgrade()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    let _control = control(&connection, &[]).await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&extended_connect("websocket")).await?;
    let mut head = [0; 2];
    timeout(SOON, recv.read_exact(&mut head)).await??;
    assert_eq!(head[0], 1, "HEADERS");
    let mut section = vec![0; head[1].into()];
    timeout(SOON, recv.read_exact(&mut section)).await??;
    assert_eq!(section[2], 0xd9, "200");
    for message in [&b"hello"[..], b"again"] {
        send.write_all(&frame(0, message)).await?;
        let mut answer = vec![0; 2 + message.len()];
        timeout(SOON, recv.read_exact(&mut answer)).await??;
        assert_eq!(answer, frame(0, message));
    }
    send.finish()?;
    assert!(timeout(SOON, recv.read_to_end(100)).await??.is_empty());
    assert_eq!(backend.last_request().unwrap().header("upgrade"), Some("websocket"));
    Ok(())
}

#[tokio::test]
async fn tunnel_for_another_version_of_http_is_rejected() -> TestResult {
    let backend = Backend::start(Behaviour::upgrade()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    for protocol in ["h2c", "http/1.1"] {
        let (mut send, mut recv) = connection.open_bi().await?;
        send.write_all(&extended_connect(protocol)).await?;
        let response = timeout(SOON, recv.read_to_end(1000)).await??;
        assert_ne!(response[4], 0xd9, "200 for {protocol}");
    }
    assert_eq!(backend.requests(), 0);
    Ok(())
}
