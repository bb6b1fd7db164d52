//! TCP.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{Protocol, Serves, UpstreamLimits, WeightedUpstream};
use sluicegate_proxy::Drain;
use sluicegate_proxy::failure::Failure;
use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};
use sluicegate_testkit::gateway::{LAYER4, layer4_key, layer4_route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{SOON, TestResult, accept, connect, echo, last_bytes, listen, read, read_to_end, tcp};

fn stream_key() -> sluicegate_model::UpstreamKey {
    layer4_key(LAYER4, Protocol::Tcp)
}

#[tokio::test]
async fn tcp_bytes_are_forwarded_both_ways_and_directions_close_independently() -> TestResult {
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
async fn reset_by_client_or_endpoint_resets_the_other_connection() -> TestResult {
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
async fn client_receives_all_data_that_an_endpoint_sent_before_closing_with_unread_input() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = tcp([address]).start().await?;
    let last = vec![b'z'; 50_000];
    for round in 0..40 {
        let (mut client, server) = (connect(&gateway).await?, accept(&endpoint).await?);
        let received = last_bytes(&mut client, server, &last).await?;
        assert!(received == last, "round {round}: {} bytes", received.len());
    }
    Ok(())
}

#[tokio::test]
async fn client_that_reads_late_receives_the_last_bytes_and_then_a_reset() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = tcp([address]).start().await?;
    let last = vec![b'z'; 50_000];
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut client = socket.connect(gateway.layer4_addr()).await?;
    let mut server = accept(&endpoint).await?;
    client.write_all(b"unread").await?;
    server.peek(&mut [0]).await?;
    server.write_all(&last).await?;
    drop(server);
    // The gateway has read all of it, and the client has read almost nothing.
    let out = || gateway.proxy().registry().layer4()[0].1.shards().sum(|shard| &shard.bytes_out);
    gateway.wait_until(|_| out() == 50_000).await?;
    let mut received = Vec::new();
    let read = timeout(SOON, client.read_to_end(&mut received)).await?;
    assert!(received == last, "{} bytes", received.len());
    assert!(read.is_err(), "a proper end");
    Ok(())
}

#[tokio::test]
async fn client_that_still_sends_receives_the_last_bytes_and_close_of_the_endpoint() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = tcp([address]).start().await?;
    for _ in 0..40 {
        let (mut client, mut server) = (connect(&gateway).await?, accept(&endpoint).await?);
        server.write_all(b"221 bye\r\n").await?;
        drop(server);
        for _ in 0..10 {
            if client.write_all(&[b'x'; 1000]).await.is_err() {
                break;
            }
        }
        assert_eq!(read_to_end(&mut client).await?, b"221 bye\r\n");
    }
    Ok(())
}

#[tokio::test]
async fn tcp_connection_uses_another_endpoint_if_the_first_endpoint_refuses_it() -> TestResult {
    let dead = listen().await?.1;
    let (alive, _task) = echo("b").await?;
    let gateway = tcp([dead, alive]).start().await?;
    for _ in 0..20 {
        assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"b");
    }
    let upstream = gateway.proxy().registry().upstreams().remove(0);
    let unhealthy = upstream.endpoints().endpoints.iter().filter(|(of, _)| of.is_unhealthy()).count();
    assert_eq!(unhealthy, 1);
    Ok(())
}

#[tokio::test]
async fn removed_tcp_endpoint_keeps_open_connections_and_receives_no_new_connections() -> TestResult {
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
async fn connections_of_a_removed_endpoint_end_at_the_drain_timeout() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = tcp([one]).settings(|settings| settings.timeouts.drain = Duration::ZERO).start().await?;
    let mut old = connect(&gateway).await?;
    assert_eq!(read(&mut old, 1).await?, b"1");
    gateway.set_addresses_of(stream_key(), []).await;
    assert!(read_to_end(&mut old).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn idle_tcp_connection_ends_at_its_timeout() -> TestResult {
    let (one, _one) = echo("1").await?;
    let time = Duration::from_millis(100);
    let gateway = tcp([one]).settings(|settings| settings.timeouts.tunnel_idle = time).start().await?;
    assert_eq!(read_to_end(&mut connect(&gateway).await?).await?, b"1");
    Ok(())
}

#[tokio::test]
async fn tcp_connection_without_endpoint_route_or_capacity_is_reset() -> TestResult {
    let (one, _one) = echo("1").await?;
    let limits = UpstreamLimits { max_requests: Some(1), ..UpstreamLimits::default() };
    let gateway = tcp([one])
        .layer4_upstream(|upstream| upstream.limits = limits)
        .settings(|settings| settings.resilience.endpoint_wait = Duration::ZERO)
        .start()
        .await?;
    let mut first = connect(&gateway).await?;
    assert_eq!(read(&mut first, 1).await?, b"1");
    let is_reset = async || {
        // The gateway resets so early that the client may see the reset while it connects.
        let ended = async { read_to_end(&mut connect(&gateway).await?).await };
        let error = ended.await.expect_err("no connection");
        assert!(error.to_string().contains("reset"), "{error}");
    };
    is_reset().await;
    let overloaded = &gateway.proxy().registry().upstreams()[0];
    assert_eq!(overloaded.shards().sum(|shard| &shard.failures[Failure::Overloaded.index()]), 1);
    drop(first);
    gateway.set_addresses_of(stream_key(), []).await;
    is_reset().await;
    gateway.configure(|config| config.listeners[0].serves = Serves::Tcp(None)).await;
    is_reset().await;
    Ok(())
}

#[tokio::test]
async fn endpoint_with_consecutive_resets_becomes_unhealthy() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway =
        tcp([address]).workers(1).settings(|settings| settings.resilience.attempts = 1).start().await?;
    let is_unhealthy = || gateway.proxy().registry().upstreams()[0].endpoints().endpoints[0].0.is_unhealthy();
    let breaks = async || {
        let mut client = connect(&gateway).await?;
        let mut server = accept(&endpoint).await?;
        // Until the endpoint has received a byte, a reset may count as a failed connect.
        client.write_all(b"1").await?;
        assert_eq!(read(&mut server, 1).await?, b"1");
        server.set_zero_linger()?;
        drop(server);
        assert!(read_to_end(&mut client).await.is_err());
        anyhow::Ok(())
    };
    for _ in 0..4 {
        breaks().await?;
        breaks().await?;
        let mut client = connect(&gateway).await?;
        let mut server = accept(&endpoint).await?;
        server.write_all(b"1").await?;
        assert_eq!(read(&mut client, 1).await?, b"1");
        assert!(!is_unhealthy(), "it answers now and then");
    }
    for _ in 0..3 {
        breaks().await?;
    }
    assert!(is_unhealthy());
    Ok(())
}

#[tokio::test]
async fn tcp_route_weights_select_the_upstream() -> TestResult {
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
            config.listeners[0].serves = Serves::Tcp(Some(route));
        })
        .await;
    for _ in 0..10 {
        assert_eq!(read(&mut connect(&gateway).await?, 1).await?, b"2");
    }
    Ok(())
}

#[tokio::test]
async fn added_and_removed_listeners_leave_tcp_connections_open() -> TestResult {
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
async fn gateway_reports_an_occupied_port_and_binds_it_once_free() -> TestResult {
    let (one, _one) = echo("1").await?;
    let (taken, address) = listen().await?;
    let gateway = tcp([one]).start().await?;
    gateway.configure(|config| config.listeners[0].address = address).await;
    let state = || gateway.proxy().registry().listeners().remove(0).bound;
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
async fn draining_gateway_waits_for_tcp_connections_to_finish() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = Arc::new(tcp([one]).start().await?);
    let mut client = connect(&gateway).await?;
    assert_eq!(read(&mut client, 1).await?, b"1");
    let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: SOON };
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
async fn takeover_of_listening_sockets_loses_no_connection() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let old = tcp([one]).start().await?;
    let address = old.layer4_addr();
    // The old process ends no connection: only its clients do.
    let mut open = connect(&old).await?;
    assert_eq!(read(&mut open, 1).await?, b"1");
    let inherited = old.proxy().sockets()?;
    let mut builder = tcp([two]).options(|options| options.inherited = inherited);
    builder.config_mut().listeners[0].address = address;
    let new = builder.start().await?;
    let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: SOON };
    let (ended, connecting) = tokio::join!(old.proxy().shutdown(drain), async {
        for nth in 0..200 {
            let name = read(&mut TcpStream::connect(address).await?, 1).await?;
            assert!(name == b"1" || name == b"2", "{nth}");
        }
        open.write_all(b"still").await?;
        assert_eq!(read(&mut open, 5).await?, b"still");
        drop(open);
        anyhow::Ok(())
    });
    connecting?;
    let () = ended;
    assert_eq!(new.layer4_addr(), address);
    assert_eq!(read(&mut TcpStream::connect(address).await?, 1).await?, b"2");
    Ok(())
}

#[tokio::test]
async fn connection_queued_at_an_inherited_socket_is_served() -> TestResult {
    let (one, _one) = echo("1").await?;
    let old = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = old.local_addr()?;
    let mut waiting = TcpStream::connect(address).await?;
    let mut builder = tcp([one]).workers(1).options(|options| options.inherited = vec![old.into()]);
    builder.config_mut().listeners[0].address = address;
    let gateway = builder.start().await?;
    assert_eq!(read(&mut waiting, 1).await?, b"1");
    assert_eq!(gateway.layer4_addr(), address);
    Ok(())
}

#[tokio::test]
async fn access_log_contains_every_tcp_connection_with_its_result() -> TestResult {
    let (one, _one) = echo("12345").await?;
    let directory = tempfile::tempdir()?;
    for (format, file) in [(LogFormat::Json, "json"), (LogFormat::Combined, "combined")] {
        let path = directory.path().join(file);
        let log = AccessLog::open(format, Some(&path))?;
        let gateway = tcp([one]).options(|options| options.access_log = Some(log)).start().await?;
        let mut client = connect(&gateway).await?;
        client.write_all(b"123").await?;
        client.shutdown().await?;
        assert_eq!(read_to_end(&mut client).await?, b"12345123");
        gateway.set_addresses_of(stream_key(), []).await;
        assert!(read_to_end(&mut connect(&gateway).await?).await.is_err());
        gateway.stop().await;
        let text = std::fs::read_to_string(path)?;
        let [served, failed] = text.lines().collect::<Vec<_>>()[..] else { anyhow::bail!("{text}") };
        if format == LogFormat::Combined {
            assert!(served.starts_with("[127.0.0.1] [") && served.contains("] TCP 200 8 3 0."), "{served}");
            assert!(failed.contains("] TCP 503 0 0 "), "{failed}");
            continue;
        }
        let [served, failed] = [served, failed].map(serde_json::from_str::<serde_json::Value>);
        let (served, failed) = (served?, failed?);
        for (field, value) in [
            ("remote_addr", serde_json::json!("127.0.0.1")),
            ("protocol", "TCP".into()),
            ("status", 200.into()),
            ("bytes_received", 3.into()),
            ("bytes_sent", 8.into()),
            ("route", "TCPRoute default/stream".into()),
            ("upstream", "default/stream:80 (tcp)".into()),
            ("upstream_addr", one.to_string().into()),
            ("attempts", 1.into()),
        ] {
            assert_eq!(served[field], value, "{field}");
        }
        assert_eq!((&failed["status"], &failed["reason"]), (&503.into(), &"no_endpoint".into()));
    }
    Ok(())
}

#[tokio::test]
async fn tcp_connections_and_bytes_are_counted() -> TestResult {
    let (one, _one) = echo("12345").await?;
    let gateway = tcp([one]).start().await?;
    let mut client = connect(&gateway).await?;
    client.write_all(b"123").await?;
    assert_eq!(read(&mut client, 8).await?, b"12345123");
    let (labels, stats) = gateway.proxy().registry().layer4().remove(0);
    assert_eq!((labels.protocol, &*labels.listener), ("TCP", "Gateway default/edge, listener test"));
    let count =
        |tally: fn(&sluicegate_proxy::counters::Layer4Shard) -> &sluicegate_proxy::counters::Tally| {
            stats.shards().sum(tally)
        };
    // The client may receive its bytes before the gateway counts them.
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
