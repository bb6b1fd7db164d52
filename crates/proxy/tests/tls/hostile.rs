use std::time::Duration;

use sluicegate_proxy::failure::TlsFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::tls::ClientOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::{TestResult, failed, failures, get, serving, trusting};

/// The ClientHello of a real client.
async fn hello() -> anyhow::Result<Vec<u8>> {
    hello_of(trusting()).await
}

/// The ClientHello of a real client with these options.
pub(crate) async fn hello_of(options: ClientOptions) -> anyhow::Result<Vec<u8>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let client = tokio::spawn(async move { Client::connect_tls(addr, &options, "a.test").await.map(drop) });
    let (mut socket, _) = listener.accept().await?;
    let mut header = [0; 5];
    socket.read_exact(&mut header).await?;
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    socket.read_exact(&mut body).await?;
    client.abort();
    Ok([&header[..], &body].concat())
}

/// Sends these bytes and returns all bytes that arrive until the gateway closes.
async fn send(gateway: &Gateway, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut client = Client::over(TcpStream::connect(gateway.https_addr()).await?)?;
    client.send(bytes).await?;
    client.half_close().await?;
    Ok(client.read_to_end().await?)
}

async fn is_well(gateway: &Gateway) -> TestResult {
    let mut client = gateway.connect_tls(&trusting(), "a.test").await?;
    assert_eq!(client.request(get("a.test")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn gateway_serves_other_clients_after_a_truncated_or_corrupted_client_hello() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let hello = hello().await?;
    for at in (0..hello.len()).step_by(7) {
        send(&gateway, &hello[..at]).await?;
        let mut changed = hello.clone();
        changed[at] ^= 0xff;
        send(&gateway, &changed).await?;
    }
    is_well(&gateway).await?;
    drop(gateway.wait_until_idle().await);
    Ok(())
}

#[tokio::test]
async fn client_hello_that_arrives_in_single_bytes_or_small_records_is_accepted() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let hello = hello().await?;
    let mut socket = TcpStream::connect(gateway.https_addr()).await?;
    socket.set_nodelay(true)?;
    for byte in &hello {
        socket.write_all(&[*byte]).await?;
    }
    assert_eq!(socket.read_u8().await?, 22, "a handshake record answers");
    // RFC 8446, 5.1: a message may be split into records of any size.
    let mut socket = TcpStream::connect(gateway.https_addr()).await?;
    for piece in hello[5..].chunks(50) {
        let header = [22, 3, 1, 0, u8::try_from(piece.len())?];
        socket.write_all(&[&header, piece].concat()).await?;
    }
    assert_eq!(socket.read_u8().await?, 22);
    Ok(())
}

/// A ClientHello in one record, padded to this length by an extension (RFC 7685).
fn padded(hello: &[u8], length: usize) -> anyhow::Result<Vec<u8>> {
    let mut message = hello[5..].to_vec();
    let padding = length - message.len() - 4;
    // Type, length, version and random come ahead of the session, the cipher suites and the compression methods.
    let mut at = 1 + 3 + 2 + 32;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    let extensions = u16::try_from(message.len() - at - 2 + 4 + padding)?;
    message[at..at + 2].copy_from_slice(&extensions.to_be_bytes());
    message.extend([0, 21]);
    message.extend(u16::try_from(padding)?.to_be_bytes());
    message.resize(length, 0);
    message[1..4].copy_from_slice(&u32::try_from(length - 4)?.to_be_bytes()[1..]);
    Ok(message)
}

#[tokio::test]
async fn client_hello_of_16_kib_is_accepted_by_default() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let message = padded(&hello().await?, 1 << 14)?;
    for fragment in [1 << 14, 1000, 10] {
        let mut socket = TcpStream::connect(gateway.https_addr()).await?;
        let mut records = Vec::new();
        for piece in message.chunks(fragment) {
            records.extend([22, 3, 1]);
            records.extend(u16::try_from(piece.len())?.to_be_bytes());
            records.extend(piece);
        }
        socket.write_all(&records).await?;
        assert_eq!(socket.read_u8().await?, 22, "fragments of {fragment}: a handshake record answers");
    }
    Ok(())
}

#[tokio::test]
async fn plain_http_on_the_https_port_returns_400() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let answer = send(&gateway, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await?;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("this port speaks HTTPS"), "{answer}");
    failed(&gateway, TlsFault::ClearText, 1).await?;
    is_well(&gateway).await
}

#[tokio::test]
async fn handshake_flood_does_not_starve_open_connections() -> TestResult {
    const MANY: usize = 500;
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().workers(1).backends([&backend]).start().await?;
    let mut client = Client::connect(gateway.addr()).await?;
    let hello = hello().await?;
    // The machine may run other processes, so one good round is enough.
    let mut meanwhile = MANY;
    for _ in 0..5 {
        let mut waiting = Vec::new();
        for _ in 0..MANY {
            waiting.push(std::net::TcpStream::connect(gateway.https_addr())?);
        }
        for socket in &mut waiting {
            std::io::Write::write_all(socket, &hello)?;
            socket.set_nonblocking(true)?;
        }
        let answered = || waiting.iter().filter(|socket| socket.peek(&mut [0]).is_ok()).count();
        let before = answered();
        assert_eq!(client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?.status, 200);
        meanwhile = meanwhile.min(answered() - before);
        // All clients receive a response.
        let all = async {
            while answered() < MANY {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), all).await?;
    }
    assert!(meanwhile < 100, "{meanwhile} handshakes before one request");
    Ok(())
}

#[tokio::test]
async fn gateway_closes_stalled_handshakes_at_the_timeout() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    gateway.configure(|config| config.settings.timeouts.tls_handshake = Duration::from_millis(100)).await;
    let hello = hello().await?;
    let mut waiting = Vec::new();
    for sent in [&[][..], &hello[..1], &hello[..hello.len() - 1], &hello] {
        let mut client = Client::over(TcpStream::connect(gateway.https_addr()).await?)?;
        client.send(sent).await?;
        waiting.push(client);
    }
    for mut client in waiting {
        client.read_to_end().await?;
    }
    failed(&gateway, TlsFault::Timeout, 4).await?;
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn incomplete_handshakes_do_not_block_new_clients() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let hello = hello().await?;
    let mut half_open = Vec::new();
    for index in 0..400 {
        let mut socket = TcpStream::connect(gateway.https_addr()).await?;
        socket.write_all(&hello[..hello.len() * (index % 3) / 2]).await?;
        half_open.push(socket);
    }
    for _ in 0..10 {
        is_well(&gateway).await?;
    }
    drop(half_open);
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn gateway_closes_a_connection_with_undecryptable_records() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let hello = hello().await?;
    for junk in [&[23, 3, 3, 0, 40][..], &[20, 3, 3, 0, 1, 2], &[21, 3, 3, 0, 2, 2, 40], &[99, 3, 3, 0, 1, 1]]
    {
        let mut bytes = hello.clone();
        bytes.extend_from_slice(junk);
        bytes.resize(bytes.len() + 40, 7);
        let answer = send(&gateway, &bytes).await?;
        assert!(answer.windows(2).any(|bytes| bytes == [22, 3]), "the server's part of the handshake");
    }
    assert!(failures(&gateway, TlsFault::Protocol) + failures(&gateway, TlsFault::Refused) >= 3);
    is_well(&gateway).await
}
