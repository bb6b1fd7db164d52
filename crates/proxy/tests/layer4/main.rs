//! TCP, TLS, UDP and the PROXY protocol.

mod proxy_protocol;
mod relay;
mod tcp;
mod tls;
mod udp;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use sluicegate_model::{Protocol, Serves};
use sluicegate_testkit::gateway::{Builder, Gateway};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

type TestResult = anyhow::Result<()>;

/// Far longer than anything takes that these tests wait for.
const SOON: Duration = Duration::from_secs(10);

/// The builder of a gateway whose TCP listener has these endpoints.
fn tcp(endpoints: impl IntoIterator<Item = SocketAddr>) -> Builder {
    Gateway::builder().layer4(Protocol::Tcp, |route| Serves::Tcp(Some(route)), endpoints)
}

async fn connect(gateway: &Gateway) -> anyhow::Result<TcpStream> {
    Ok(TcpStream::connect(gateway.layer4_addr()).await?)
}

/// An address that no other test has used: gateways of finished tests may still probe the endpoints that they lost.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    ([127, 0, 77, NEXT.fetch_add(1, Ordering::Relaxed)], 0).into()
}

async fn listen() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(own_address()).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn accept(listener: &TcpListener) -> anyhow::Result<TcpStream> {
    Ok(timeout(SOON, listener.accept()).await.context("no connection came")??.0)
}

async fn read(stream: &mut TcpStream, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    timeout(SOON, stream.read_exact(&mut bytes)).await.context("not enough came")??;
    Ok(bytes)
}

/// Reads all bytes until the end.
async fn read_to_end(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    timeout(SOON, stream.read_to_end(&mut bytes)).await.context("it did not end")??;
    Ok(bytes)
}

/// Reads all bytes until the end, or until a reset.
async fn read_to_break(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut bytes)).await.context("it did not end")?;
    if let Err(error) = read {
        anyhow::ensure!(error.kind() == std::io::ErrorKind::ConnectionReset, "{error}");
    }
    Ok(bytes)
}

/// The endpoint sends its last bytes and closes with unread data, while the client sends. Returns the bytes that the
/// client receives.
async fn last_bytes(client: &mut TcpStream, mut server: TcpStream, last: &[u8]) -> anyhow::Result<Vec<u8>> {
    client.write_all(&[b'x'; 10_000]).await?;
    server.peek(&mut [0]).await?;
    server.write_all(last).await?;
    drop(server);
    for _ in 0..10 {
        // The gateway may have ended the connection.
        if client.write_all(&[b'x'; 10_000]).await.is_err() {
            break;
        }
    }
    read_to_break(client).await
}

/// An endpoint that echoes each message behind its name.
async fn echo(name: &'static str) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let (listener, address) = listen().await?;
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                to.write_all(name.as_bytes()).await?;
                tokio::io::copy(&mut from, &mut to).await?;
                to.shutdown().await
            });
        }
    });
    Ok((address, task))
}
