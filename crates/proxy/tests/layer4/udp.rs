//! Datagrams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sluicegate_model::{Protocol, Serves, UpstreamKey};
use sluicegate_proxy::Drain;
use sluicegate_proxy::counters::DroppedDatagram;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::gateway::{Builder, Gateway, LAYER4, layer4_key};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{SOON, TestResult, own_address};

fn udp(endpoints: impl IntoIterator<Item = SocketAddr>) -> Builder {
    Gateway::builder().layer4(Protocol::Udp, |route| Serves::Udp(Some(route)), endpoints)
}

fn datagram_key() -> UpstreamKey {
    layer4_key(LAYER4, Protocol::Udp)
}

/// An endpoint that echoes each datagram behind its name.
async fn echo(name: &'static str) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let socket = UdpSocket::bind(own_address()).await?;
    let address = socket.local_addr()?;
    let task = tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let answer = [name.as_bytes(), &buffer[..length]].concat();
            // A client that has gone needs no reply.
            let _ = socket.send_to(&answer, peer).await;
        }
    });
    Ok((address, task))
}

/// A new client with its own socket.
async fn client(address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    socket.connect(address).await?;
    Ok(socket)
}

async fn ask(client: &UdpSocket, datagram: &[u8]) -> anyhow::Result<Vec<u8>> {
    client.send(datagram).await?;
    receive(client).await
}

async fn receive(client: &UdpSocket) -> anyhow::Result<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let length = timeout(SOON, client.recv(&mut buffer)).await.context("no answer came")??;
    buffer.truncate(length);
    Ok(buffer)
}

fn dropped(gateway: &Gateway, why: DroppedDatagram) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.datagrams_dropped[why as usize])
}

fn flows(gateway: &Gateway) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.udp_flows)
}

async fn until(condition: impl Fn() -> bool) -> TestResult {
    let awaited = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, awaited).await.context("it did not come to that")
}

#[tokio::test]
async fn datagrams_of_a_udp_client_go_to_the_same_endpoint() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = udp([one, two]).start().await?;
    let (mut met, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let client = client(gateway.layer4_addr()).await?;
        let first = ask(&client, b"a").await?;
        for _ in 0..3 {
            assert_eq!(ask(&client, b"a").await?, first, "it stays with its endpoint");
        }
        met.push(first);
        // The client stays open: another socket with the same port would be the same client.
        clients.push(client);
    }
    met.sort();
    met.dedup();
    assert_eq!(met, [b"1a", b"2a"], "clients are spread over the endpoints");
    let (labels, stats) = gateway.proxy().registry().layer4().remove(0);
    let count =
        |tally: fn(&sluicegate_proxy::counters::Layer4Shard) -> &sluicegate_proxy::counters::Tally| {
            stats.shards().sum(tally)
        };
    assert_eq!((labels.protocol, count(|of| &of.opened), count(|of| &of.bytes_in)), ("UDP", 20, 80));
    // The client may receive the reply before the gateway counts it.
    until(|| count(|of| &of.bytes_out) == 160).await
}

#[tokio::test]
async fn datagrams_of_any_size_are_forwarded() -> TestResult {
    let (one, _one) = echo("").await?;
    let gateway = udp([one]).start().await?;
    let client = client(gateway.layer4_addr()).await?;
    for length in [0, 1, 1472, 9000, 65_000] {
        let datagram: Vec<u8> = (0..length).map(|nth: u32| nth.to_le_bytes()[0]).collect();
        assert_eq!(ask(&client, &datagram).await?, datagram, "{length}");
    }
    // The gateway separates datagrams that the kernel has coalesced.
    for round in 0..50_u8 {
        client.send(&[round; 100]).await?;
    }
    for round in 0..50_u8 {
        assert_eq!(receive(&client).await?, [round; 100]);
    }
    Ok(())
}

#[tokio::test]
async fn udp_responses_come_from_the_address_of_the_request() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = udp([one]).start().await?;
    gateway.configure(|config| config.listeners[0].address = ([0, 0, 0, 0], 0).into()).await;
    let port = gateway.layer4_addr().port();
    // A connected socket receives datagrams from its peer's address alone.
    let client = client(([127, 9, 8, 7], port).into()).await?;
    assert_eq!(ask(&client, b"a").await?, b"1a");
    Ok(())
}

#[tokio::test]
async fn datagram_that_an_endpoint_refuses_is_sent_to_another_endpoint() -> TestResult {
    // The socket is connected to itself, so it receives nothing from the gateway.
    let dead = UdpSocket::bind(own_address()).await?;
    dead.connect(dead.local_addr()?).await?;
    let (alive, _alive) = echo("b").await?;
    let gateway = udp([dead.local_addr()?, alive]).start().await?;
    for _ in 0..20 {
        assert_eq!(ask(&client(gateway.layer4_addr()).await?, b"a").await?, b"ba");
    }
    let upstream = gateway.proxy().registry().upstreams().remove(0);
    assert_eq!(upstream.endpoints().endpoints.iter().filter(|(of, _)| of.is_unhealthy()).count(), 1);
    let refused = Failure::ConnectRefused.index();
    let (retries, failures) = (
        upstream.shards().sum(|shard| &shard.retries[refused]),
        upstream.shards().sum(|shard| &shard.failures[refused]),
    );
    assert!(retries > 0 && failures == 0, "{retries} repeated, {failures} failed");
    assert_eq!(flows(&gateway), 20, "what was left behind is over");
    Ok(())
}

#[tokio::test]
async fn unhealthy_udp_endpoint_is_readmitted_after_the_probe_interval() -> TestResult {
    let dead = UdpSocket::bind(own_address()).await?;
    dead.connect(dead.local_addr()?).await?;
    let (alive, _alive) = echo("b").await?;
    let gateway = udp([dead.local_addr()?, alive])
        .settings(|settings| settings.resilience.probe_interval_max = Duration::from_millis(20))
        .start()
        .await?;
    let upstream = gateway.proxy().registry().upstreams().remove(0);
    let readmitted = || upstream.shards().sum(|shard| &shard.readmissions);
    while readmitted() < 2 {
        assert_eq!(ask(&client(gateway.layer4_addr()).await?, b"a").await?, b"ba");
    }
    Ok(())
}

#[tokio::test]
async fn datagram_queued_at_an_inherited_socket_is_forwarded() -> TestResult {
    let (one, _one) = echo("1").await?;
    let old = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let address = old.local_addr()?;
    let client = client(address).await?;
    client.send(b"a").await?;
    let mut builder = udp([one]).workers(1).options(|options| options.inherited = vec![old.into()]);
    builder.config_mut().listeners[0].address = address;
    let _gateway = builder.start().await?;
    assert_eq!(receive(&client).await?, b"1a");
    Ok(())
}

#[tokio::test]
async fn udp_flow_moves_from_a_dead_endpoint_to_another_endpoint() -> TestResult {
    let ((one, task), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = udp([one]).start().await?;
    let client = client(gateway.layer4_addr()).await?;
    assert_eq!(ask(&client, b"a").await?, b"1a");
    gateway.set_addresses_of(datagram_key(), [one, two]).await;
    task.abort();
    assert!(task.await.is_err());
    assert_eq!(ask(&client, b"b").await?, b"2b", "what was refused is sent to the other");
    Ok(())
}

#[tokio::test]
async fn removed_udp_endpoint_receives_no_further_datagrams() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = udp([one]).start().await?;
    let client = client(gateway.layer4_addr()).await?;
    assert_eq!(ask(&client, b"a").await?, b"1a");
    gateway.set_addresses_of(datagram_key(), [two]).await;
    assert_eq!(ask(&client, b"a").await?, b"2a");
    Ok(())
}

#[tokio::test]
async fn idle_udp_flow_ends_at_its_timeout() -> TestResult {
    let (one, _one) = echo("1").await?;
    let idle = Duration::from_millis(50);
    let gateway = udp([one]).settings(|settings| settings.timeouts.udp_idle = idle).start().await?;
    let client = client(gateway.layer4_addr()).await?;
    assert_eq!(ask(&client, b"a").await?, b"1a");
    until(|| flows(&gateway) == 0).await?;
    assert_eq!(ask(&client, b"a").await?, b"1a", "and another begins");
    Ok(())
}

#[tokio::test]
async fn datagrams_over_the_flow_limit_or_without_a_route_are_dropped_and_counted() -> TestResult {
    let (one, _one) = echo("1").await?;
    let limit = |settings: &mut sluicegate_model::Settings| settings.limits.udp_flows_per_worker = 1;
    let gateway = udp([one]).workers(1).settings(limit).start().await?;
    let (first, second) = (client(gateway.layer4_addr()).await?, client(gateway.layer4_addr()).await?);
    assert_eq!(ask(&first, b"a").await?, b"1a");
    second.send(b"a").await?;
    until(|| dropped(&gateway, DroppedDatagram::TooManyFlows) == 1).await?;
    assert_eq!(ask(&first, b"a").await?, b"1a", "who is there stays");
    gateway.configure(|config| config.listeners[0].serves = Serves::Udp(None)).await;
    second.send(b"a").await?;
    until(|| dropped(&gateway, DroppedDatagram::NoRoute) == 1).await?;
    Ok(())
}

#[tokio::test]
async fn removed_udp_listener_releases_its_port_at_once() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = udp([one]).start().await?;
    let address = gateway.layer4_addr();
    for _ in 0..8 {
        assert_eq!(ask(&client(address).await?, b"a").await?, b"1a");
    }
    let mut listeners = Vec::new();
    gateway.configure(|config| listeners = std::mem::take(&mut config.listeners)).await;
    until(|| flows(&gateway) == 0).await?;
    let theirs = UdpSocket::bind(address).await.context("nobody has the port any more")?;
    drop(theirs);
    listeners[0].address = address;
    gateway.configure(|config| config.listeners = listeners).await;
    for _ in 0..8 {
        assert_eq!(ask(&client(address).await?, b"a").await?, b"1a");
    }
    Ok(())
}

#[tokio::test]
async fn shutdown_waits_for_udp_responses() -> TestResult {
    let silent = UdpSocket::bind("127.0.0.1:0").await?;
    let gateway = Arc::new(udp([silent.local_addr()?]).start().await?);
    let client = client(gateway.layer4_addr()).await?;
    client.send(b"a").await?;
    let mut buffer = [0; 8];
    let (_, peer) = timeout(SOON, silent.recv_from(&mut buffer)).await??;
    let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: SOON };
    let shutdown = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.proxy().shutdown(drain).await }
    });
    until(|| gateway.proxy().sockets().is_ok_and(|sockets| sockets.is_empty())).await?;
    silent.send_to(b"late", peer).await?;
    assert_eq!(receive(&client).await?, b"late");
    shutdown.await?;
    assert_eq!(flows(&gateway), 0);
    Ok(())
}
