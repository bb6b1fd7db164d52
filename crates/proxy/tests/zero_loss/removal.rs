//! Z4: a removed endpoint receives no new request, and its idle connections are closed. Requests in flight run to their
//! end, bounded by the drain time.

use std::time::Duration;

use sluicegate_model::Config;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour, Request};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

use super::{GET, POST, TestResult, failures, fill_pools, unused};

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// Ten chunks within a third of a second.
fn streaming() -> Behaviour {
    Behaviour::chunked(["chunk"; 10], Duration::from_millis(30), &[])
}

#[tokio::test]
async fn idle_connections_to_a_removed_endpoint_are_closed_at_once() -> TestResult {
    let backends = super::backends(2, Behaviour::ok().delay(Duration::from_millis(30))).await?;
    let gateway = Gateway::of(&backends).await?;
    let _clients = fill_pools(&gateway, 12).await?;
    let [removed, kept] = [&backends[0], &backends[1]];
    gateway
        .wait_until(|gateway| unused(gateway, kept.addr()) + unused(gateway, removed.addr()) == 12)
        .await?;
    let (of_removed, of_kept) = (removed.open(), kept.open());
    assert!(of_removed > 0, "there is something to close");
    gateway.set_addresses([kept.addr()]).await;
    removed.wait_until(|removed| removed.open() == 0).await?;
    assert_eq!(kept.open(), of_kept, "the other endpoint keeps its own");
    Ok(())
}

#[tokio::test]
async fn removed_endpoint_loses_its_idle_connections_despite_requests_in_flight() -> TestResult {
    let hangs =
        |request: &Request| if request.target == "/hang" { Behaviour::silent() } else { Behaviour::ok() };
    let removed = Backend::start(Behaviour::choose(hangs)).await?;
    let gateway = Gateway::builder().backends([&removed]).workers(1).start().await?;
    let (mut hanging, mut other) = (gateway.connect().await?, gateway.connect().await?);
    hanging.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    removed.wait_until(|removed| removed.requests() == 1).await?;
    assert_eq!(other.request(GET).await?.status, 200);
    gateway.wait_until(|gateway| unused(gateway, removed.addr()) == 1).await?;
    gateway.set_addresses([]).await;
    removed.wait_until(|removed| removed.open() == 1).await?;
    Ok(())
}

#[tokio::test]
async fn requests_in_flight_at_a_removed_endpoint_complete() -> TestResult {
    for behaviour in [streaming(), Behaviour::ok().delay(Duration::from_millis(300))] {
        let (removed, kept) = (Backend::start(behaviour).await?, Backend::start(Behaviour::ok()).await?);
        let gateway = Gateway::of([&removed]).await?;
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        removed.wait_until(|removed| removed.requests() == 1).await?;
        gateway.set_addresses([kept.addr()]).await;
        assert_eq!(client.read_response().await?.status, 200);
        assert_eq!((removed.requests(), kept.requests()), (1, 0), "it was answered by the one that had it");
        removed.wait_until(|removed| removed.open() == 0).await?;
        assert_eq!(client.request(GET).await?.status, 200);
        assert_eq!((removed.requests(), kept.requests()), (1, 1));
    }
    Ok(())
}

async fn tunnel(gateway: &Gateway) -> anyhow::Result<Client> {
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(UPGRADE).await?.status, 101);
    echoes(&mut client).await?;
    Ok(client)
}

async fn echoes(client: &mut Client) -> TestResult {
    client.send("ping").await?;
    assert_eq!(client.read_exact(4).await?, b"ping");
    Ok(())
}

#[tokio::test]
async fn tunnel_survives_removal_of_its_endpoint_and_route() -> TestResult {
    if Transport::of_environment() == Transport::Http3 {
        // The client of these tests has no tunnels over HTTP/3: see tests/http3.
        return Ok(());
    }
    let (removed, kept) =
        (Backend::start(Behaviour::upgrade()).await?, Backend::start(Behaviour::ok()).await?);
    let gateway = Gateway::of([&removed]).await?;
    let mut client = tunnel(&gateway).await?;
    gateway.set_addresses([kept.addr()]).await;
    echoes(&mut client).await?;
    let mut other = gateway.connect().await?;
    assert_eq!(other.request(GET).await?.status, 200);
    assert_eq!(kept.requests(), 1, "new requests go elsewhere");
    gateway.configure(|config| *config = Config::default()).await;
    assert_eq!(other.request(GET).await?.status, 404);
    echoes(&mut client).await?;
    Ok(())
}

/// A gateway that gives requests in flight at a removed endpoint little time.
async fn hasty(backend: &Backend) -> anyhow::Result<Gateway> {
    let builder = Gateway::builder().backends([backend]);
    builder.settings(|settings| settings.timeouts.drain = Duration::from_millis(500)).start().await
}

#[tokio::test]
async fn tunnels_and_responses_of_a_removed_endpoint_end_at_the_drain_timeout() -> TestResult {
    if Transport::of_environment() == Transport::Http3 {
        // The client of these tests has no tunnels over HTTP/3: see tests/http3.
        return Ok(());
    }
    let endless = Behaviour::chunked(vec!["x"; 3_000], Duration::from_millis(10), &[]);
    for behaviour in [Behaviour::upgrade(), endless] {
        let backend = Backend::start(behaviour).await?;
        let gateway = hasty(&backend).await?;
        let mut client = gateway.connect().await?;
        client.send(UPGRADE).await?;
        backend.wait_until(|backend| backend.requests() == 1).await?;
        gateway.set_addresses([]).await;
        client.read_to_end().await?;
        assert_eq!(failures(&gateway, Failure::Drained), 1, "it was ended, and by the gateway");
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn get_without_a_response_at_the_drain_timeout_is_retried_at_another_endpoint() -> TestResult {
    for (request, status) in [(GET, 200), (POST, 502)] {
        let (removed, kept) =
            (Backend::start(Behaviour::silent()).await?, Backend::start(Behaviour::ok()).await?);
        let gateway = hasty(&removed).await?;
        let mut client = gateway.connect().await?;
        client.send(request).await?;
        removed.wait_until(|removed| removed.requests() == 1).await?;
        gateway.set_addresses([kept.addr()]).await;
        assert_eq!(client.read_response().await?.status, status);
        let not_repeated = gateway.count(|upstream| &upstream.not_repeated);
        assert_eq!((kept.requests(), not_repeated), if request == GET { (1, 0) } else { (0, 1) });
    }
    Ok(())
}

#[tokio::test]
async fn endless_upload_to_a_removed_endpoint_ends_at_the_drain_timeout() -> TestResult {
    let (removed, kept) = (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?);
    let gateway = hasty(&removed).await?;
    let mut client = gateway.connect().await?;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await?;
    removed.wait_until(|removed| removed.requests() == 1).await?;
    gateway.set_addresses([kept.addr()]).await;
    let trickle = async {
        while client.send("x").await.is_ok() && failures(&gateway, Failure::Drained) == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), trickle).await?;
    removed.wait_until(|removed| removed.open() == 0).await?;
    assert_eq!(kept.requests(), 0, "a POST is not sent twice");
    Ok(())
}

#[tokio::test]
async fn request_in_flight_is_served_after_removal_of_its_route() -> TestResult {
    let mut first = Backend::start(Behaviour::silent()).await?;
    let second = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&first, &second]).workers(1).start().await?;
    let mut client = gateway.connect().await?;
    let mut sent = 0;
    while first.requests() == 0 {
        sent += 1;
        client.send(GET).await?;
        first.wait_until(|first| first.requests() + second.requests() == sent).await?;
        if first.requests() == 0 {
            client.read_response().await?;
        }
    }
    gateway.configure(|config| *config = Config::default()).await;
    first.kill().await;
    assert_eq!(client.read_response().await?.status, 200, "the other endpoint still serves it");
    assert_eq!(client.request(GET).await?.status, 404, "the route is gone for the next one");
    Ok(())
}

#[tokio::test]
async fn readded_endpoint_receives_requests_again() -> TestResult {
    let backends = super::backends(2, Behaviour::ok()).await?;
    let builder = Gateway::builder().backends(&backends);
    let gateway =
        builder.settings(|settings| settings.resilience.slow_start = Duration::ZERO).start().await?;
    let mut client = gateway.connect().await?;
    for round in 0..3 {
        gateway.set_addresses([backends[0].addr()]).await;
        gateway.set_addresses(backends.iter().map(Backend::addr)).await;
        let before = backends[1].requests();
        for _ in 0..100 {
            assert_eq!(client.request(GET).await?.status, 200);
        }
        assert!(backends[1].requests() > before, "round {round}");
    }
    Ok(())
}
