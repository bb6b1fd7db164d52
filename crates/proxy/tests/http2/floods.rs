//! Clients that cause work without any request, beside a client that behaves.

use std::time::Duration;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{TestResult, ask, before, connect, get};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame (RFC 9113, 4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The head of `GET / HTTP/2` for `a`, in HPACK without its tables.
fn head() -> Vec<u8> {
    vec![0x82, 0x84, 0x86, 0x41, 0x01, b'a']
}

/// Sends these bytes over and over until the gateway ends the connection; fails if the gateway never does.
async fn is_ended(gateway: &Gateway, bytes: &[u8]) -> TestResult {
    let mut stream = TcpStream::connect(gateway.addr()).await?;
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    let (mut reader, mut writer) = stream.split();
    let flood = async { while writer.write_all(bytes).await.is_ok() {} };
    let drain = async {
        let mut sink = vec![0; 65536];
        while let Ok(1..) = reader.read(&mut sink).await {}
    };
    let ended = async {
        tokio::select! { () = flood => {}, () = drain => {} }
    };
    timeout(Duration::from_secs(20), ended).await?;
    Ok(())
}

async fn serving() -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().workers(1).backends([&backend]).start().await?;
    Ok((backend, gateway))
}

/// Streams that are opened and reset at once (CVE-2023-44487).
fn rapid_resets() -> Vec<u8> {
    let mut bytes = Vec::new();
    for stream in (1..40_000).step_by(2) {
        bytes.extend(frame(1, 5, stream, &head()));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    bytes
}

#[tokio::test]
async fn connection_with_a_frame_flood_is_closed_while_other_clients_are_served() -> TestResult {
    let (_backend, gateway) = serving().await?;
    let huge = [&[0x40, 0x01, b'x', 0x7f, 0xff, 0xff, 0x03][..], &[b'y'; 16_000]].concat();
    let mut endless = frame(1, 1, 1, &head());
    endless.extend(frame(9, 0, 1, &huge));
    let floods: [(&str, Vec<u8>); 7] = [
        ("PING", frame(6, 0, 0, &[0; 8]).repeat(1000)),
        ("SETTINGS", frame(4, 0, 0, &[]).repeat(1000)),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 0]).repeat(1000)),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1]).repeat(1000)),
        ("rapid resets", rapid_resets()),
        ("CONTINUATION", endless),
        ("unknown frames", frame(0xbe, 0, 0, &[0; 64]).repeat(1000)),
    ];
    for (kind, bytes) in floods {
        let mut client = Client::connect(gateway.addr()).await?;
        let flood = is_ended(&gateway, &bytes);
        let behave = async {
            for _ in 0..50 {
                let response = client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
                anyhow::ensure!(response.status == 200, "{kind}");
            }
            anyhow::Ok(())
        };
        let (flood, behaved) = tokio::join!(flood, behave);
        flood.map_err(|error| error.context(kind))?;
        behaved?;
    }
    gateway.wait_until_idle().await
}

/// Sends at most `most` of these bytes. Returns whether the gateway still serves the connection afterwards.
async fn borne(gateway: &Gateway, bytes: &[u8], most: usize) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect(gateway.addr()).await?;
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    let (mut reader, mut writer) = stream.split();
    let flood = async {
        for _ in 0..most / bytes.len() {
            writer.write_all(bytes).await?;
        }
        // A gateway that has not ended the connection echoes this PING.
        writer.write_all(&frame(6, 0, 0, b"the end!")).await
    };
    let answers = async {
        let (mut all, mut piece) = (Vec::new(), vec![0; 65536]);
        while let Ok(read @ 1..) = reader.read(&mut piece).await {
            all.extend_from_slice(&piece[..read]);
            if all.windows(8).any(|window| window == b"the end!") {
                return true;
            }
        }
        false
    };
    // A write may fail when the gateway has ended the connection.
    let (_, is_borne) = timeout(Duration::from_secs(20), async { tokio::join!(flood, answers) }).await?;
    Ok(is_borne)
}

#[tokio::test]
async fn up_to_64_kib_of_http2_control_frames_are_tolerated() -> TestResult {
    let (_backend, gateway) = serving().await?;
    for (kind, bytes) in [
        ("PING", frame(6, 0, 0, &[0; 8]).repeat(10)),
        ("SETTINGS", frame(4, 0, 0, &[]).repeat(10)),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1]).repeat(10)),
        ("unknown frames", frame(0xbe, 0, 0, &[0; 64]).repeat(10)),
    ] {
        assert!(borne(&gateway, &bytes, 50_000).await?, "{kind}: a few are none too many");
        assert!(!borne(&gateway, &bytes, 200_000).await?, "{kind}");
    }
    Ok(())
}

/// A client that enlarges the window for each message separately.
#[tokio::test]
async fn client_that_sends_window_update_for_every_small_message_is_tolerated() -> TestResult {
    let backend = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = before([backend.addr()]).await?;
    let mut stream = TcpStream::connect(gateway.addr()).await?;
    stream.set_nodelay(true)?;
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(4, 0, 0, &[])).await?;
    // POST / over http for `a`, whose body has not ended.
    stream.write_all(&frame(1, 4, 1, &[0x83, 0x84, 0x86, 0x41, 0x01, b'a'])).await?;
    let (mut reader, mut writer) = stream.split();
    // A message, and a window update for its echo. Both go in one write: Nagle's algorithm would delay a second write
    // until the first is acknowledged, which may take the gateway's kernel 40 ms each time.
    let message =
        [frame(0, 0, 1, b"!"), frame(8, 0, 0, &1_u32.to_be_bytes()), frame(8, 0, 1, &1_u32.to_be_bytes())]
            .concat();
    let talk = async {
        let mut piece = vec![0; 65536];
        for sent in 0..10_000 {
            writer.write_all(&message).await?;
            // The echo, or a frame that the gateway sent before the echo.
            anyhow::ensure!(reader.read(&mut piece).await? > 0, "ended at message {sent}");
        }
        anyhow::Ok(())
    };
    timeout(Duration::from_secs(60), talk).await?
}

#[tokio::test]
async fn connection_of_a_client_that_resets_many_requests_is_closed() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Gateway::builder().workers(1).backends([&backend]).start().await?;
    let (requests, connection) = connect(&gateway).await?;
    for _ in 0..300 {
        let Ok(mut ready) = requests.clone().ready().await else { break };
        let Ok((response, mut sink)) = ready.send_request(get("/"), false) else { break };
        // The request is in flight, and not just waiting to be accepted.
        let seen = backend.requests();
        if backend.wait_until(|backend| backend.requests() > seen || connection.is_finished()).await.is_err()
        {
            break;
        }
        sink.send_reset(h2::Reason::CANCEL);
        drop(response);
    }
    // The error is ENHANCE_YOUR_CALM, if the client reads it while it sends.
    timeout(Duration::from_secs(10), connection).await??.expect_err("the gateway has had enough");
    drop(requests);
    Ok(())
}

#[tokio::test]
async fn well_behaved_client_is_never_mistaken_for_a_flood() -> TestResult {
    let (backend, gateway) = serving().await?;
    let (requests, connection) = connect(&gateway).await?;
    // Many small requests, a large upload in small pieces, a large download with small windows.
    for _ in 0..2000 {
        assert_eq!(ask(&requests, get("/"), b"", &[]).await?.head.status(), 200);
    }
    let (response, mut sink) =
        requests.clone().ready().await?.send_request(http::Request::post("http://a/").body(())?, false)?;
    for sent in 0..30_000 {
        if sent % 100 == 0 {
            // A pause, as a normal client makes: other clients get their turn.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sink.reserve_capacity(40);
        while sink.capacity() < 40 {
            std::future::poll_fn(|cx| sink.poll_capacity(cx)).await.expect("a stream")?;
        }
        sink.send_data([b'x'; 40][..].to_vec().into(), false)?;
    }
    sink.send_data(bytes::Bytes::new(), true)?;
    assert_eq!(response.await?.status(), 200);
    backend.set(Behaviour::sized(20_000_000));
    assert_eq!(ask(&requests, get("/"), b"", &[]).await?.body.len(), 20_000_000);
    // Uploads that the endpoint does not read.
    gateway.configure(|config| config.settings.limits.request_body = Some(10)).await;
    for _ in 0..20 {
        let refused = ask(&requests, http::Request::post("http://a/").body(())?, &[0; 60_000], &[]).await;
        assert!(refused.is_err() || refused.is_ok_and(|answer| answer.head.status() == 413));
    }
    assert!(!connection.is_finished());
    Ok(())
}
