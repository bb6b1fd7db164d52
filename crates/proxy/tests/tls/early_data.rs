//! Early data that the gateway rejects (RFC 8446, 4.2.10).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection};
use sluicegate_model::{ClientAuth, ClientAuthMode};
use sluicegate_proxy::failure::TlsFault;
use sluicegate_testkit::client::LIMIT;
use sluicegate_testkit::tls::{Authority, ClientOptions};
use tokio::task::spawn_blocking;

use crate::{TestResult, failed, get, server_config, serving, set_host, trusting, with_names};

/// A client that holds another server's ticket for this much early data.
fn with_ticket(
    options: &ClientOptions,
    most: u32,
    fragment: Option<usize>,
) -> anyhow::Result<Arc<ClientConfig>> {
    let mut config = ClientConfig::clone(&options.config());
    config.enable_early_data = true;
    config.max_fragment_size = fragment;
    let config = Arc::new(config);
    let mut foreign = server_config("a.test")?;
    foreign.max_early_data_size = most;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept()?;
        let mut tls = rustls::ServerConnection::new(Arc::new(foreign)).map_err(io::Error::other)?;
        rustls::Stream::new(&mut tls, &mut tcp).write_all(b"hello")
    });
    let mut tcp = TcpStream::connect(address)?;
    let mut tls = ClientConnection::new(config.clone(), "a.test".try_into()?)?;
    rustls::Stream::new(&mut tls, &mut tcp).read_exact(&mut [0; 5])?;
    server.join().expect("a server that does not panic")?;
    Ok(config)
}

/// Sends early data of this size in records of 1,200 bytes, in segments of this size, and then a request. Returns the
/// first line of the response.
fn ask(
    gateway: SocketAddr,
    config: Arc<ClientConfig>,
    early: usize,
    segment: usize,
) -> anyhow::Result<String> {
    let mut tcp = TcpStream::connect(gateway)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(LIMIT))?;
    let mut tls = ClientConnection::new(config, "a.test".try_into()?)?;
    for piece in vec![b'e'; early].chunks(1200) {
        tls.early_data().expect("a ticket for early data").write_all(piece)?;
    }
    let mut records = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut records)?;
    }
    anyhow::ensure!(records.len() > early, "{} bytes", records.len());
    for piece in records.chunks(segment) {
        tcp.write_all(piece)?;
        std::thread::yield_now();
    }
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    anyhow::ensure!(!tls.is_early_data_accepted(), "early data can be replayed");
    let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
    stream.write_all(get("a.test").as_bytes())?;
    let mut answer = [0; 15];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8(answer.to_vec())?)
}

#[tokio::test]
async fn rejected_early_data_up_to_the_limit_is_skipped() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let address = gateway.https_addr();
    for early in [1, 5_000, 9_000, 12_000, 15_000] {
        for segment in [100_000, 1300, 300] {
            let config = with_ticket(&trusting(), 1 << 14, None)?;
            let asked = spawn_blocking(move || ask(address, config, early, segment)).await?;
            let answer =
                asked.map_err(|error| error.context(format!("{early} bytes, segments of {segment}")))?;
            assert_eq!(answer, "HTTP/1.1 200 OK");
        }
    }
    Ok(())
}

#[tokio::test]
async fn rejected_early_data_over_the_limit_ends_the_handshake() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let (address, config) = (gateway.https_addr(), with_ticket(&trusting(), 1 << 17, None)?);
    let asked = spawn_blocking(move || ask(address, config, 20_000, 100_000)).await?;
    let error = asked.expect_err("more than a server skips");
    assert!(format!("{error:#}").contains("BadRecordMac"), "{error:#}");
    failed(&gateway, TlsFault::Protocol, 1).await
}

#[tokio::test]
async fn fragmented_handshake_after_rejected_early_data_succeeds() -> TestResult {
    let backend =
        sluicegate_testkit::backend::Backend::start(sluicegate_testkit::backend::Behaviour::echo()).await?;
    let roots = vec![Authority::of_process().certificate()];
    let mode = ClientAuthMode::Required;
    let policy = ClientAuth {
        source: "test".into(),
        roots,
        crls: Vec::new(),
        mode,
        forward: false,
        at_requests: None,
    };
    let gateway = with_names(&["a.test"])
        .tls(|tls| {
            set_host(tls, "a.test", &[crate::certificate(&["a.test"])]);
            Arc::make_mut(tls.hosts.last_mut().expect("a host")).client_auth = Some(Arc::new(policy));
        })
        .backends([&backend])
        .start()
        .await?;
    let address = gateway.https_addr();
    let options = trusting().identity(&Authority::of_process().issue(&["alice"]));
    for early in [1, 12_000] {
        for segment in [100_000, 300] {
            let config = with_ticket(&options, 1 << 14, Some(64))?;
            let asked = spawn_blocking(move || ask(address, config, early, segment)).await?;
            let answer =
                asked.map_err(|error| error.context(format!("{early} bytes, segments of {segment}")))?;
            assert_eq!(answer, "HTTP/1.1 200 OK");
        }
    }
    Ok(())
}
