//! Unary calls of gRPC: over TLS and HTTP/2, many at a time on few connections, each checked to its last trailer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use rustls::{ClientConfig, RootCertStore};
use sluicegate_testkit::tls::Authority;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::gateway::{MESSAGE, RSA, SERVICE};
use crate::measure::Made;

/// As the load of the other HTTP/2: how many connections, and how many calls at a time on each.
const CONNECTIONS: usize = 20;
const AT_ONCE: usize = 10;

/// A message of gRPC: not compressed, 7 bytes, field 1, the string `hello`.
const REQUEST: &[u8] = b"\0\0\0\0\x07\x0a\x05hello";

/// In front of the string in an answer: what gRPC says, and the field with its length.
const ANSWER_HEAD: usize = 5 + 3;

/// Makes calls for this long. A call without status 0 is an error.
pub(crate) async fn make(addr: SocketAddr, duration: Duration) -> anyhow::Result<Made> {
    let connector = TlsConnector::from(Arc::new(config()?));
    let start = Instant::now();
    let end = start + duration;
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let requests = connect(addr, &connector).await?;
        for _ in 0..AT_ONCE {
            let requests = requests.clone();
            tasks.spawn(async move {
                let mut times = Vec::new();
                while Instant::now() < end {
                    let begin = Instant::now();
                    call(requests.clone()).await?;
                    times.push(begin.elapsed());
                }
                anyhow::Ok(times)
            });
        }
    }
    Made::of(tasks, start).await
}

async fn connect(addr: SocketAddr, connector: &TlsConnector) -> anyhow::Result<SendRequest<Bytes>> {
    let tcp = TcpStream::connect(addr).await?;
    tcp.set_nodelay(true)?;
    let secured = connector.connect(RSA.try_into()?, tcp).await?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    let (requests, connection) = builder.handshake(secured).await?;
    // The calls tell what goes wrong with it.
    tokio::spawn(connection);
    Ok(requests)
}

async fn call(requests: SendRequest<Bytes>) -> anyhow::Result<()> {
    let request = Request::post(format!("https://{RSA}{SERVICE}/Call"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut sink) = requests.ready().await?.send_request(request, false)?;
    sink.send_data(Bytes::from_static(REQUEST), true)?;
    let response = response.await?;
    ensure!(response.status() == 200, "the answer is {}", response.status());
    is_good(response.headers().get("grpc-status").is_none(), response.headers())?;
    let mut body = response.into_body();
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        message.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?.context("there are no trailers")?;
    is_good(trailers.get("grpc-status").is_some_and(|status| status == "0"), &trailers)?;
    ensure!(message.len() == ANSWER_HEAD + MESSAGE, "the message has {} bytes", message.len());
    Ok(())
}

fn is_good(is_good: bool, told: &HeaderMap) -> anyhow::Result<()> {
    ensure!(is_good, "the call failed: {told:?}");
    Ok(())
}

fn config() -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(Authority::of_process().certificate())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
