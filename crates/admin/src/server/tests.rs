use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::Build;
use sluicegate_proxy::{Options, Proxy};
use sluicegate_testkit::client::Client;
use tokio::time::{Instant, sleep};

use super::*;
use crate::{Hosts, LastChange, Problems, Readiness};

/// The timeout of a probe by the kubelet.
const PROBE: Duration = Duration::from_secs(1);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

const SMALL: Bounds =
    Bounds { connections: 3, reserve: 0, head: Duration::from_secs(20), age: Duration::from_secs(20) };

async fn start(bounds: Bounds) -> anyhow::Result<(SocketAddr, tokio::task::JoinHandle<io::Result<()>>)> {
    let proxy = Proxy::start(Options { workers: 1, ..Options::default() })?;
    let admin = Admin {
        build: Build::PLAIN,
        registry: proxy.registry().clone(),
        readiness: Readiness::new(),
        pod: None,
        namespace: None,
        planes: Arc::new(Default::default),
        analytics: None,
        audit: None,
        hosts: Hosts::Any,
        last_change: LastChange::new(),
        problems: Arc::new(|| Problems { errors: vec!["x".repeat(8_000_000)], warnings: vec![] }),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((address, tokio::spawn(serve(Pages::new(admin), listener, bounds))))
}

#[tokio::test]
async fn silent_connections_do_not_block_probes() -> anyhow::Result<()> {
    let (address, _) = start(BOUNDS).await?;
    let mut silent = VecDeque::new();
    for _ in 0..130 {
        silent.push_back(Client::connect(address).await?);
    }
    for _ in 0..8 {
        for path in ["/healthz", "/readyz"] {
            let mut probe = Client::connect(address).await?.with_limit(PROBE);
            let expected = if path == "/readyz" { 503 } else { 200 };
            assert_eq!(probe.request(get(path)).await?.status, expected, "{path}");
        }
        // The clients reopen the connections that the server closed.
        silent.drain(..65);
        while silent.len() < 130 {
            silent.push_back(Client::connect(address).await?);
        }
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_block_probes() -> anyhow::Result<()> {
    let (address, _) = start(Bounds { connections: 4, reserve: 2, ..BOUNDS }).await?;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(address).await?;
        client.send(get("/config")).await?;
        stuck.push(client);
    }
    for _ in 0..40 {
        let mut probe = Client::connect(address).await?.with_limit(PROBE);
        assert_eq!(probe.request(get("/healthz")).await?.status, 200);
    }
    let mut other = Client::connect(address).await?;
    let refused = other.request(get("/metrics")).await?;
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
    other.expect_end().await?;
    Ok(())
}

#[tokio::test]
async fn server_closes_a_connection_whose_request_head_is_late() -> anyhow::Result<()> {
    let (address, _) = start(Bounds { head: Duration::from_millis(100), ..SMALL }).await?;
    let mut silent = Client::connect(address).await?;
    silent.read_to_end().await?;
    let mut slow = Client::connect(address).await?;
    slow.send("GET / HTTP/1.1\r\n").await?;
    slow.read_to_end().await?;
    let mut idle = Client::connect(address).await?;
    assert_eq!(idle.request(GET).await?.status, 200);
    idle.read_to_end().await?;
    Ok(())
}

#[tokio::test]
async fn server_closes_a_busy_connection_at_its_maximum_age() -> anyhow::Result<()> {
    let (address, _) = start(Bounds { age: Duration::from_millis(200), ..SMALL }).await?;
    let mut client = Client::connect(address).await?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.request(GET).await.is_ok() {
        assert!(Instant::now() < deadline, "the connection stays open");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn server_closes_the_connection_of_a_client_that_does_not_read() -> anyhow::Result<()> {
    let (address, _) = start(Bounds { connections: 1, age: Duration::from_millis(200), ..SMALL }).await?;
    let mut stuck = Client::connect(address).await?;
    stuck.send("GET /config HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    let mut next = Client::connect(address).await?;
    assert_eq!(next.request(GET).await?.status, 200, "the place of the closed connection is free");
    Ok(())
}

#[tokio::test]
async fn aborted_server_closes_its_connections() -> anyhow::Result<()> {
    let (address, serving) = start(SMALL).await?;
    let mut client = Client::connect(address).await?;
    client.request(GET).await?;
    serving.abort();
    client.expect_end().await?;
    Ok(())
}
