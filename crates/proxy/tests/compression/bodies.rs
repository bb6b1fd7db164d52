//! Compressed bodies: streaming, flushing and limits.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use sluicegate_model::ContentCoding;
use sluicegate_testkit::backend::Behaviour;
use sluicegate_testkit::client::{Client, Error, LIMIT, Response};
use sluicegate_testkit::decode::{Decoded, decode};
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::stream::Transport;
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{TRANSPORTS, TestResult, all, answer, connect, count, decoded, gateway_to, get, text};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A gateway whose only endpoint is a socket of the test.
struct Stage {
    gateway: Gateway,
    listener: TcpListener,
}

impl Stage {
    async fn set(change: impl FnOnce(Builder) -> Builder) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let builder = Gateway::builder().endpoints([listener.local_addr()?]).settings(all);
        Ok(Self { gateway: change(builder).start().await?, listener })
    }

    /// Sends a request on a new connection. Returns the client, and the endpoint that has read the request.
    async fn play(&self, transport: Transport, request: &str) -> anyhow::Result<(Client, Client)> {
        let mut client = connect(&self.gateway, transport).await?;
        client.send(request).await?;
        let (stream, _) = timeout(LIMIT, self.listener.accept()).await??;
        let mut endpoint = Client::over(stream)?;
        endpoint.read_until("\r\n\r\n").await?;
        Ok((client, endpoint))
    }
}

/// The part of a chunked body that has arrived so far.
#[derive(Default)]
struct Coming(Vec<u8>);

impl Coming {
    /// Waits for one more chunk.
    async fn read(&mut self, client: &mut Client) -> Result<(), Error> {
        let line = client.read_until("\r\n").await?;
        let digits = String::from_utf8_lossy(&line).trim().to_owned();
        let size = usize::from_str_radix(&digits, 16).map_err(|_| Error::Malformed(digits))?;
        let chunk = client.read_exact(size + 2).await?;
        self.0.extend_from_slice(&chunk[..size]);
        Ok(())
    }
}

#[tokio::test]
async fn gateway_forwards_compressed_bytes_at_once_when_the_endpoint_pauses() -> TestResult {
    let stage = Stage::set(|builder| builder).await?;
    for transport in TRANSPORTS {
        for coding in ContentCoding::ALL {
            let (mut client, mut endpoint) = stage.play(transport, &get(coding.name())).await?;
            endpoint.send(CHUNKED).await?;
            let head = client.read_until("\r\n\r\n").await?;
            let head = String::from_utf8(head)?.to_lowercase();
            assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{head}");
            let (mut coming, mut said) = (Coming::default(), String::new());
            for nth in 0..5 {
                let event = format!("data: event {nth}\n\n");
                endpoint.send(format!("{:x}\r\n{event}\r\n", event.len())).await?;
                said += &event;
                // Each read of the client has a timeout, so the test fails if no byte arrives.
                while decode(coding, &coming.0).body != said.as_bytes() {
                    coming.read(&mut client).await?;
                }
            }
            assert!(!decode(coding, &coming.0).is_whole);
            endpoint.send("0\r\n\r\n").await?;
            while !decode(coding, &coming.0).is_whole {
                coming.read(&mut client).await?;
            }
            assert_eq!(client.read_exact(5).await?, b"0\r\n\r\n");
        }
    }
    Ok(())
}

#[tokio::test]
async fn compressor_does_not_flush_after_each_read_of_a_continuous_response() -> TestResult {
    let (_backend, gateway) = gateway_to(answer("Content-Type: text/plain\r\n", &text(1_000_000))).await?;
    let response = connect(&gateway, Transport::Http).await?.request(get("gzip")).await?;
    assert_eq!(decoded(&response).len(), 1_000_000);
    // Each flush leaves an empty block (RFC 1951, 3.2.4). There are 61 reads, and the sender may be slow.
    let flushes = memchr::memmem::find_iter(&response.body, b"\x00\x00\xff\xff").count();
    assert!(flushes < 20, "{flushes} flushes");
    Ok(())
}

#[tokio::test]
async fn truncated_response_never_decodes_to_a_complete_body() -> TestResult {
    let half = text(100_000);
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let length =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100001\r\n\r\n{half}");
    for broken in [
        length,
        format!("{CHUNKED}186a0\r\n{half}\r\n"),
        format!("{CHUNKED}186a1\r\n{half}"),
        format!("{CHUNKED}186a0\r\n{half}\r\nnonsense\r\n"),
    ] {
        backend.set(Behaviour::raw(broken.clone()).then_close());
        for coding in ContentCoding::ALL {
            for transport in TRANSPORTS {
                let mut client = connect(&gateway, transport).await?;
                let error = client.request(get(coding.name())).await.expect_err("it is not whole");
                assert!(matches!(error, Error::Closed { .. }), "{coding} by {transport:?}: {error}");
            }
            let mut client = connect(&gateway, Transport::Http).await?;
            client.send(get(coding.name())).await?;
            client.read_until("\r\n\r\n").await?;
            let mut coming = Coming::default();
            while coming.read(&mut client).await.is_ok() {}
            assert!(!decode(coding, &coming.0).is_whole, "{coding} has no end");
            client.expect_end().await?;
        }
    }
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn compressed_body_delimited_by_close_arrives_complete() -> TestResult {
    let body = text(100_000);
    let raw = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}");
    let (_backend, gateway) = gateway_to(Behaviour::raw(raw).then_close()).await?;
    for transport in TRANSPORTS {
        let mut client = connect(&gateway, transport).await?;
        for coding in ContentCoding::ALL {
            let response = client.request(get(coding.name())).await?;
            assert_eq!(decoded(&response), body.as_bytes(), "{coding} by {transport:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn trailers_of_a_compressed_response_are_forwarded() -> TestResult {
    let body = text(50_000);
    let raw = format!("{CHUNKED}c350\r\n{body}\r\n0\r\nX-Sum: 6\r\nX-More: a b\r\n\r\n");
    let (_backend, gateway) = gateway_to(Behaviour::raw(raw)).await?;
    for transport in TRANSPORTS {
        let mut client = connect(&gateway, transport).await?;
        for coding in ContentCoding::ALL {
            let response = client.request(get(coding.name())).await?;
            assert_eq!(decoded(&response), body.as_bytes(), "{coding} by {transport:?}");
            let trailers: Vec<_> = response.trailers.iter().map(|(_, value)| &**value).collect();
            assert_eq!(trailers, ["6", "a b"], "{coding} by {transport:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn compression_of_a_response_that_echoes_a_large_request_completes() -> TestResult {
    let (_backend, gateway) = gateway_to(Behaviour::echo()).await?;
    let body = text(3_000_000);
    for transport in TRANSPORTS {
        let mut client = connect(&gateway, transport).await?;
        for coding in ContentCoding::ALL {
            let request = format!(
                "POST / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let response = client.request(request).await?;
            assert_eq!(response.header("Content-Encoding"), Some(coding.name()));
            assert!(decoded(&response).ends_with(body.as_bytes()), "{coding} by {transport:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn unread_compressed_response_applies_back_pressure_to_the_endpoint() -> TestResult {
    const SIZE: usize = 30_000_000;
    let stage = Stage::set(|builder| builder).await?;
    for transport in TRANSPORTS {
        let (mut client, endpoint) = stage.play(transport, &get("gzip")).await?;
        let mut endpoint = endpoint.with_limit(Duration::from_millis(300));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {SIZE}\r\n\r\n");
        endpoint.send(head).await?;
        // Noise, so that the client receives about as much as the endpoint sends.
        let mut sent: Vec<u8> = Vec::new();
        loop {
            let piece: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(10_000).collect();
            sent.extend_from_slice(&piece);
            assert!(sent.len() < SIZE, "it never had to wait");
            if endpoint.send(&piece).await.is_err() {
                break;
            }
        }
        drop(endpoint);
        client.read_until("\r\n\r\n").await?;
        let mut coming = Coming::default();
        while coming.read(&mut client).await.is_ok() {}
        let Decoded { body, is_whole } = decode(ContentCoding::Gzip, &coming.0);
        assert!(!is_whole, "{transport:?}: the endpoint left");
        assert!(sent.starts_with(&body), "{transport:?}: {} bytes", body.len());
        // The lost bytes are at most those in the encoder's buffer and a part of one piece.
        let lost = sent.len() - body.len();
        assert!(lost < 200_000, "{transport:?}: {lost} bytes lost of {}", sent.len());
    }
    Ok(())
}

#[tokio::test]
async fn responses_beyond_the_limit_of_compressions_are_forwarded_uncompressed() -> TestResult {
    let limit = |settings: &mut sluicegate_model::Settings| settings.limits.compressions_per_worker = 1;
    let stage = Stage::set(|builder| builder.workers(1).settings(limit)).await?;
    let compressing = |gateway: &Gateway| count(gateway, |worker| &worker.compressing);
    let passed_over = |gateway: &Gateway| count(gateway, |worker| &worker.compressions_passed_over);
    let (mut first, mut first_endpoint) = stage.play(Transport::Http, &get("gzip")).await?;
    first_endpoint.send(CHUNKED).await?;
    first.read_until("\r\n\r\n").await?;
    assert_eq!(compressing(&stage.gateway), 1);
    let whole = format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n");
    let (mut second, mut endpoint) = stage.play(Transport::Http2, &get("gzip")).await?;
    endpoint.send(&whole).await?;
    let response = second.read_response().await?;
    assert_eq!(
        (response.header("Content-Encoding"), response.header("Vary")),
        (None, Some("Accept-Encoding"))
    );
    assert_eq!((response.body, passed_over(&stage.gateway)), (b"hello".to_vec(), 1));
    first_endpoint.send("0\r\n\r\n").await?;
    stage.gateway.wait_until(|gateway| compressing(gateway) == 0).await?;
    // The gateway first reuses the idle connection that was used last.
    second.send(get("gzip")).await?;
    first_endpoint.read_until("\r\n\r\n").await?;
    first_endpoint.send(&whole).await?;
    let response = second.read_response().await?;
    assert_eq!((response.header("Content-Encoding"), passed_over(&stage.gateway)), (Some("gzip"), 1));
    assert_eq!(decoded(&response), b"hello");
    Ok(())
}

#[tokio::test]
async fn disconnecting_client_releases_its_compression_slot() -> TestResult {
    let stage = Stage::set(|builder| builder).await?;
    for transport in TRANSPORTS {
        let (mut client, mut endpoint) = stage.play(transport, &get("br")).await?;
        endpoint.send(CHUNKED).await?;
        client.read_until("\r\n\r\n").await?;
        assert_eq!(count(&stage.gateway, |worker| &worker.compressing), 1);
        drop(client);
        // The HTTP/2 adapter detects the disconnect only when it has data to forward.
        endpoint.send("5\r\nhello\r\n").await?;
        stage.gateway.wait_until(|gateway| count(gateway, |worker| &worker.compressing) == 0).await?;
    }
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn compression_metrics_count_input_output_and_sent_bytes() -> TestResult {
    let body = text(100_000);
    let (_backend, gateway) = gateway_to(answer("Content-Type: text/plain\r\n", &body)).await?;
    let mut sent = 0;
    for coding in ContentCoding::ALL {
        let mut client = connect(&gateway, Transport::Http).await?;
        let request = get(coding.name()).replace("Host: ", "Connection: close\r\nHost: ");
        let response = client.request(&request).await?;
        gateway.wait_until_idle().await?;
        let counted =
            |pick: fn(&sluicegate_proxy::counters::CompressedStats) -> &sluicegate_proxy::counters::Tally| {
                count(&gateway, |worker| pick(&worker.compressed[coding.index()]))
            };
        assert_eq!(counted(|counted| &counted.responses), 1, "{coding}");
        assert_eq!(counted(|counted| &counted.bytes_in), 100_000, "{coding}");
        assert_eq!(counted(|counted| &counted.bytes_out), response.body.len() as u64, "{coding}");
        let mut raw = connect(&gateway, Transport::Http).await?;
        raw.send(&request).await?;
        sent += 2 * raw.read_to_end().await?.len() as u64;
        gateway.wait_until_idle().await?;
    }
    let routes = gateway.proxy().registry().routes();
    let bytes_out: u64 = routes.iter().map(|(_, route)| route.shards().sum(|shard| &shard.bytes_out)).sum();
    // The size lines of the chunks may differ between two runs.
    assert!(bytes_out.abs_diff(sent) < 300, "{bytes_out} counted, {sent} sent");
    Ok(())
}

#[tokio::test]
async fn client_connections_stay_open_after_compressed_responses() -> TestResult {
    let by_path = |request: &sluicegate_testkit::backend::Request| match &*request.target {
        "/plain" => answer("Content-Type: image/png\r\n", "plain"),
        "/text" => answer("Content-Type: text/plain\r\n", &text(30_000)),
        _ => Behaviour::raw(format!("{CHUNKED}5\r\nhello\r\n0\r\n\r\n")),
    };
    let (backend, gateway) = gateway_to(Behaviour::choose(by_path)).await?;
    let mut client = connect(&gateway, Transport::Http).await?;
    for _ in 0..5 {
        for (path, length) in [("/plain", 5), ("/text", 30_000), ("/chunks", 5)] {
            let response: Response =
                client.request(get("zstd").replace("GET /", &format!("GET {path}"))).await?;
            assert_eq!(decoded(&response).len(), length, "{path}");
        }
    }
    assert_eq!(backend.accepted(), 1, "the endpoint's connection was used again too");
    Ok(())
}

const LARGE: usize = 60_000_000;

/// Serves each connection in its own thread, so that the endpoint is always ahead of the gateway: a large text at
/// `/large`, an image elsewhere.
fn serve_fast(listener: &std::net::TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            loop {
                match stream.read(&mut piece)? {
                    0 => return Ok(()),
                    read => request.extend_from_slice(&piece[..read]),
                }
                if request.ends_with(b"\r\n\r\n") {
                    let (media_type, length) = if request.starts_with(b"GET /large ") {
                        ("text/plain", LARGE)
                    } else {
                        ("image/png", 0)
                    };
                    let fields = format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n");
                    stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes())?;
                    stream.write_all(&vec![b'x'; length])?;
                    request.clear();
                }
            }
        });
    }
}

#[tokio::test]
async fn compression_of_a_large_body_does_not_delay_other_requests() -> TestResult {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let endpoint = listener.local_addr()?;
    std::thread::spawn(move || serve_fast(&listener));
    let gateway = Gateway::builder().endpoints([endpoint]).settings(all).workers(1).start().await?;
    let mut large = connect(&gateway, Transport::Http).await?;
    let mut small = connect(&gateway, Transport::Http).await?;
    small.request(get("gzip")).await?;
    large.send(get("gzip").replace("GET /", "GET /large")).await?;
    let compressed = || count(&gateway, |worker| &worker.compressed[ContentCoding::Gzip.index()].bytes_in);
    let mut least = u64::MAX;
    while compressed() < LARGE as u64 {
        let before = compressed();
        small.request(get("gzip")).await?;
        if before > 0 {
            least = least.min(compressed() - before);
        }
    }
    // A turn is 64 KiB, and a request takes two. A worker that polled its sockets only every 61 turns would compress 4
    // MB.
    assert!(least < 1_000_000, "{least} bytes were compressed during the quickest of the other requests");
    assert_eq!(decoded(&large.read_response().await?).len(), LARGE);
    Ok(())
}
