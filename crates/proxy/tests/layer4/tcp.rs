//! TCP.

use std::sync::Arc;

use sluicegate_model::{Layer4, Protocol, UpstreamLimits, WeightedUpstream};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::gateway::{LAYER4, layer4_key, layer4_route};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::{TestResult, accept, connect, echo, listen, read, read_to_end, tcp};

fn stream_key() -> sluicegate_model::UpstreamKey {
    layer4_key(LAYER4, Protocol::Tcp)
}

#[tokio::test]
async fn bytes_go_both_ways_and_each_side_ends_for_itself() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = tcp([address]).start().await?;
    let mut client = connect(&gateway).await?;
    let mut server = accept(&endpoint).await?;
    server.write_all(b"220 hello\r\n").await?;
    assert_eq!(read(&mut client, 11).await?, b"220 hello\r\n", "the endpoint may speak first");
    client.write_all(b"quit").await?;
    client.shutdown().await?;
    assert_eq!(read_to_end(&mut server).await?, b"quit");
    let large = vec![b'x'; 1 << 20];
    let (sent, received) = tokio::join!(
        async {
            server.write_all(&large).await?;
            server.shutdown().await
        },
        read_to_end(&mut client)
    );
    sent?;
    assert_eq!(received?, large, "a client that has said all still gets the answer");
    Ok(())
}

#[tokio::test]
async fn a_broken_connection_is_seen_as_broken_on_the_other_side() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = tcp([address]).start().await?;
    let (mut client, mut server) = (connect(&gateway).await?, accept(&endpoint).await?);
    server.write_all(b"half of").await?;
    assert_eq!(read(&mut client, 7).await?, b"half of");
    server.set_zero_linger()?;
    drop(server);
    let error = read_to_end(&mut client).await.expect_err("no proper end");
    assert!(error.to_string().contains("reset"), "{error}");

    let (client, mut server) = (connect(&gateway).await?, accept(&endpoint).await?);
    client.set_zero_linger()?;
    drop(client);
    let error = read_to_end(&mut server).await.expect_err("no proper end");
    assert!(error.to_string().contains("reset"), "{error}");
    Ok(())
}

#[tokio::test]
async fn who_refuses_or_dies_in_silence_is_not_noticed() -> TestResult {
    let dead = listen().await?.1;
    let (alive, _task) = echo("b").await?;
    let gateway = tcp([dead, alive]).start().await?;
    for _ in 0..20 {
        assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"b");
    }
    let upstream = gateway.proxy().telemetry().upstreams().remove(0);
    let suspects = upstream.endpoints().endpoints.iter().filter(|(of, _)| of.is_suspect()).count();
    assert_eq!(suspects, 1);
    Ok(())
}

#[tokio::test]
async fn a_removed_endpoint_gets_no_connection_and_keeps_those_it_has() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = tcp([one]).start().await?;
    let mut old = connect(&gateway).await?;
    assert_eq!(read(&mut old, 1).await?, b"1");
    gateway.set_addresses_of(stream_key(), [two]).await;
    for _ in 0..5 {
        assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"2");
    }
    old.write_all(b"still").await?;
    assert_eq!(read(&mut old, 5).await?, b"still");
    Ok(())
}

#[tokio::test]
async fn what_is_left_at_a_removed_endpoint_ends_with_its_drain_time() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway =
        tcp([one]).settings(|settings| settings.timeouts.drain = std::time::Duration::ZERO).start().await?;
    let mut old = connect(&gateway).await?;
    assert_eq!(read(&mut old, 1).await?, b"1");
    gateway.set_addresses_of(stream_key(), []).await;
    assert!(read_to_end(&mut old).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn silence_ends_a_connection_after_its_time() -> TestResult {
    let (one, _one) = echo("1").await?;
    let time = std::time::Duration::from_millis(100);
    let gateway = tcp([one]).settings(|settings| settings.timeouts.tunnel_idle = time).start().await?;
    assert_eq!(read_to_end(&mut connect(&gateway).await?).await?, b"1");
    Ok(())
}

#[tokio::test]
async fn without_an_endpoint_a_route_or_room_a_connection_is_reset() -> TestResult {
    let (one, _one) = echo("1").await?;
    let limits = UpstreamLimits { max_requests: Some(1), ..UpstreamLimits::default() };
    let gateway = tcp([one])
        .layer4_upstream(|upstream| upstream.limits = limits)
        .settings(|settings| settings.resilience.endpoint_wait = std::time::Duration::ZERO)
        .start()
        .await?;
    let mut first = connect(&gateway).await?;
    assert_eq!(read(&mut first, 1).await?, b"1");
    let is_reset = async || {
        // So soon that connecting may see it already.
        let ended = async { read_to_end(&mut connect(&gateway).await?).await };
        let error = ended.await.expect_err("no connection");
        assert!(error.to_string().contains("reset"), "{error}");
    };
    is_reset().await;
    let overloaded = &gateway.proxy().telemetry().upstreams()[0];
    assert_eq!(overloaded.shards().sum(|shard| &shard.failures[Failure::Overloaded.index()]), 1);
    drop(first);
    gateway.set_addresses_of(stream_key(), []).await;
    is_reset().await;
    gateway.configure(|config| config.listeners[0].serves = Layer4::Tcp(None)).await;
    is_reset().await;
    Ok(())
}

#[tokio::test]
async fn routes_are_weighted() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = tcp([one]).start().await?;
    gateway
        .configure(|config| {
            let key = layer4_key("other", Protocol::Tcp);
            let endpoints = [sluicegate_testkit::gateway::ready(two)].into();
            config.upstreams.insert(
                key.clone(),
                Arc::new(sluicegate_model::Upstream { endpoints, ..Default::default() }),
            );
            let mut route = layer4_route(LAYER4, Protocol::Tcp);
            route.backends[0].weight = 0;
            route.backends.push(WeightedUpstream { upstream: key, weight: 3 });
            config.listeners[0].serves = Layer4::Tcp(Some(route));
        })
        .await;
    for _ in 0..10 {
        assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"2");
    }
    Ok(())
}

#[tokio::test]
async fn listeners_come_and_go_and_touch_no_connection() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = tcp([one]).start().await?;
    let address = gateway.layer4_addr();
    let mut old = connect(&gateway).await?;
    assert_eq!(read(&mut old, 1).await?, b"1");
    let mut listeners = Vec::new();
    gateway.configure(|config| listeners = std::mem::take(&mut config.listeners)).await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    old.write_all(b"still").await?;
    assert_eq!(read(&mut old, 5).await?, b"still");
    listeners[0].address = address;
    gateway.configure(|config| config.listeners = listeners).await;
    assert_eq!(gateway.layer4_addr(), address);
    assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"1");
    Ok(())
}

#[tokio::test]
async fn a_port_of_somebody_else_is_said_and_taken_once_it_is_free() -> TestResult {
    let (one, _one) = echo("1").await?;
    let (taken, address) = listen().await?;
    let gateway = tcp([one]).start().await?;
    gateway.configure(|config| config.listeners[0].address = address).await;
    let state = || gateway.proxy().telemetry().listeners().remove(0).bound;
    assert!(state().expect_err("it is taken").contains("in use"));
    drop(taken);
    gateway.proxy().retry_listeners();
    assert_eq!(state(), Ok(address));
    assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"1");
    let http = gateway.addr();
    gateway.configure(|config| config.listeners[0].address = http).await;
    assert!(state().expect_err("it is served").contains("HTTP"));
    assert_eq!(sluicegate_testkit::client::get(http, "a", "/").await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn a_draining_gateway_lets_connections_end() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = Arc::new(tcp([one]).start().await?);
    let mut client = connect(&gateway).await?;
    assert_eq!(read(&mut client, 1).await?, b"1");
    let drain = sluicegate_proxy::Drain {
        grace: std::time::Duration::ZERO,
        idle: std::time::Duration::ZERO,
        timeout: crate::SOON,
    };
    let shutdown = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.proxy().shutdown(drain).await }
    });
    while TcpStream::connect(client.peer_addr()?).await.is_ok() {
        tokio::task::yield_now().await;
    }
    client.write_all(b"still").await?;
    assert_eq!(read(&mut client, 5).await?, b"still");
    client.shutdown().await?;
    assert!(read_to_end(&mut client).await?.is_empty());
    shutdown.await?;
    Ok(())
}

#[tokio::test]
async fn what_passes_is_counted() -> TestResult {
    let (one, _one) = echo("12345").await?;
    let gateway = tcp([one]).start().await?;
    let mut client = connect(&gateway).await?;
    client.write_all(b"123").await?;
    assert_eq!(read(&mut client, 8).await?, b"12345123");
    let (labels, stats) = gateway.proxy().telemetry().layer4().remove(0);
    assert_eq!((labels.protocol, &*labels.listener), ("TCP", "Gateway default/edge, listener test"));
    let count =
        |tally: fn(&sluicegate_proxy::telemetry::Layer4Shard) -> &sluicegate_proxy::telemetry::Tally| {
            stats.shards().sum(tally)
        };
    // The client may have its bytes before they are counted.
    while count(|of| &of.bytes_out) < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (count(|of| &of.opened), count(|of| &of.open), count(|of| &of.bytes_in), count(|of| &of.bytes_out)),
        (1, 1, 3, 8)
    );
    drop(client);
    while count(|of| &of.open) > 0 {
        tokio::task::yield_now().await;
    }
    Ok(())
}
