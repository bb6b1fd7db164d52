//! Z5: connecting never stalls a request. The gateway skips endpoints that refuse, and races endpoints that do not
//! respond.

use std::time::Duration;

use sluicegate_model::Balance;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour, repeated_ids};
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::hole::Hole;

use super::{GET, NEVER, POST, TestResult, connect_failures, failures, refusing, retries};

/// A gateway that uses its endpoints in turn. It neither probes them nor ends a connect during a test, so a request
/// that succeeds was served by another endpoint.
fn patient() -> Builder {
    let builder = Gateway::builder().workers(1).settings(|settings| {
        settings.timeouts.connect = NEVER;
        settings.resilience.probe_interval = NEVER;
    });
    builder.upstream(|upstream| upstream.balance = Balance::RoundRobin)
}

#[tokio::test]
async fn refused_connect_is_retried_on_another_endpoint_for_any_method() -> TestResult {
    for request in [GET, POST] {
        let backend = Backend::start(Behaviour::ok()).await?;
        let endpoints = [refusing()?, refusing()?, refusing()?, backend.addr()];
        let gateway = patient().endpoints(endpoints).start().await?;
        let mut client = gateway.connect().await?;
        for _ in 0..8 {
            assert_eq!(client.request(request).await?.status, 200);
        }
        assert_eq!(backend.requests(), 8);
        // On a busy machine the result of a connect arrives after the connect lost the race.
        gateway.wait_until(|gateway| connect_failures(gateway, Failure::ConnectRefused) >= 3).await?;
        assert_eq!(connect_failures(&gateway, Failure::ConnectRefused), 3, "each refused once");
    }
    Ok(())
}

#[tokio::test]
async fn connect_to_a_blackholed_endpoint_is_hedged_and_the_endpoint_is_avoided_afterwards() -> TestResult {
    for request in [GET, POST] {
        let (hole, backend) = (Hole::start().await?, Backend::start(Behaviour::ok()).await?);
        let gateway = patient().endpoints([hole.addr(), backend.addr()]).start().await?;
        let mut client = gateway.connect().await?;
        // The endpoints take turns, so one of the two requests meets the silent address.
        for _ in 0..2 {
            assert_eq!(client.request(request).await?.status, 200);
        }
        let hedges = || gateway.count(|upstream| &upstream.hedges);
        assert!(hedges() >= 1);
        gateway.wait_until(|gateway| gateway.endpoint(hole.addr()).is_unhealthy()).await?;
        assert_eq!(connect_failures(&gateway, Failure::ConnectTimeout), 1);
        let before = hedges();
        for _ in 0..20 {
            assert_eq!(client.request(request).await?.status, 200);
        }
        assert_eq!(connect_failures(&gateway, Failure::ConnectTimeout), 1);
        assert_eq!((hedges(), backend.requests()), (before, 22), "nobody went there again");
        if request == POST {
            assert_eq!(backend.ids().len(), 22, "no race sends a request twice");
        }
    }
    Ok(())
}

#[tokio::test]
async fn connect_hedging_finds_the_only_endpoint_that_is_not_blackholed() -> TestResult {
    let (one, two, three) = (Hole::start().await?, Hole::start().await?, Hole::start().await?);
    let backend = Backend::start(Behaviour::ok()).await?;
    let endpoints = [one.addr(), two.addr(), three.addr(), backend.addr()];
    let gateway = patient().endpoints(endpoints).start().await?;
    let mut client = gateway.connect().await?;
    for _ in 0..8 {
        assert_eq!(client.request(POST).await?.status, 200);
    }
    assert_eq!(backend.requests(), 8);
    Ok(())
}

#[tokio::test]
async fn request_with_only_blackholed_endpoints_returns_504() -> TestResult {
    let holes = [Hole::start().await?, Hole::start().await?, Hole::start().await?, Hole::start().await?];
    let holes = holes.each_ref().map(Hole::addr);
    let refuses = refusing()?;
    for (endpoints, hedge) in [(&holes[..], 20), (&[holes[0], holes[1], refuses][..], 20), (&holes[..], 0)] {
        let builder = patient().endpoints(endpoints.iter().copied()).settings(|settings| {
            settings.timeouts.connect = Duration::from_millis(300);
            settings.resilience.connect_hedge = Duration::from_millis(hedge);
            settings.resilience.endpoint_wait = Duration::from_millis(300);
        });
        let gateway = builder.start().await?;
        let mut client = gateway.connect().await?;
        assert_eq!(client.request(GET).await?.status, 504, "{endpoints:?}");
        drop(client);
        gateway.wait_until_idle().await?;
    }
    Ok(())
}

#[tokio::test]
async fn client_disconnect_cancels_a_pending_connect() -> TestResult {
    let hole = Hole::start().await?;
    let gateway = patient().endpoints([hole.addr()]).start().await?;
    for request in [GET, POST] {
        let mut client = gateway.connect().await?;
        client.send(request).await?;
        let connecting = |gateway: &Gateway| gateway.endpoint(hole.addr()).shards().sum(|e| &e.in_flight);
        gateway.wait_until(|gateway| connecting(gateway) == 1).await?;
        drop(client);
        gateway.wait_until_idle().await?;
        assert_eq!(connecting(&gateway), 0);
    }
    Ok(())
}

#[tokio::test]
async fn request_is_retried_after_a_reset_of_its_endpoint_while_other_connects_wait() -> TestResult {
    let flaky = Behaviour::choose(|request| match request.connection {
        1 => Behaviour::reset_on_request(),
        _ => Behaviour::ok(),
    });
    let (hole, backend) = (Hole::start().await?, Backend::start(flaky).await?);
    let gateway = patient().endpoints([hole.addr(), backend.addr()]).start().await?;
    let mut client = gateway.connect().await?;
    for _ in 0..2 {
        assert_eq!(client.request(GET).await?.status, 200);
    }
    assert_eq!(retries(&gateway, Failure::Reset), 1);
    Ok(())
}

#[tokio::test]
async fn connect_timeout_triggers_the_retry_if_hedging_is_off() -> TestResult {
    let (hole, backend) = (Hole::start().await?, Backend::start(Behaviour::ok()).await?);
    let builder = patient().endpoints([hole.addr(), backend.addr()]).settings(|settings| {
        settings.resilience.connect_hedge = Duration::ZERO;
        settings.timeouts.connect = Duration::from_millis(100);
    });
    let gateway = builder.start().await?;
    let mut client = gateway.connect().await?;
    for _ in 0..4 {
        assert_eq!(client.request(POST).await?.status, 200);
    }
    assert_eq!(gateway.count(|upstream| &upstream.hedges), 0);
    assert_eq!(connect_failures(&gateway, Failure::ConnectTimeout), 1, "unhealthy after the first");
    Ok(())
}

#[tokio::test]
async fn removal_of_an_endpoint_cancels_pending_connects_to_the_endpoint() -> TestResult {
    let (hole, backend) = (Hole::start().await?, Backend::start(Behaviour::ok()).await?);
    let gateway = patient().endpoints([hole.addr()]).start().await?;
    let mut client = gateway.connect().await?;
    client.send(POST).await?;
    let connecting = |gateway: &Gateway| gateway.endpoint(hole.addr()).shards().sum(|e| &e.in_flight);
    gateway.wait_until(|gateway| connecting(gateway) == 1).await?;
    // Its only endpoint is replaced: the request does not wait for the connect to end.
    gateway.set_addresses([backend.addr()]).await;
    assert_eq!(client.read_response().await?.status, 200);
    assert_eq!(backend.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn pending_connect_is_hedged_by_an_endpoint_added_later() -> TestResult {
    let (hole, backend) = (Hole::start().await?, Backend::start(Behaviour::ok()).await?);
    let gateway = patient().endpoints([hole.addr()]).start().await?;
    let mut client = gateway.connect().await?;
    client.send(POST).await?;
    let connecting = |gateway: &Gateway| gateway.endpoint(hole.addr()).shards().sum(|e| &e.in_flight);
    gateway.wait_until(|gateway| connecting(gateway) == 1).await?;
    // Long enough for the race to find no other endpoint yet.
    tokio::time::sleep(Duration::from_millis(150)).await;
    gateway.set_addresses([hole.addr(), backend.addr()]).await;
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn request_waits_until_an_unreachable_endpoint_returns() -> TestResult {
    let mut backends = super::backends(2, Behaviour::ok()).await?;
    let gateway =
        patient().backends(&backends).settings(|s| s.resilience.endpoint_wait = NEVER).start().await?;
    backends[0].kill().await;
    backends[1].kill().await;
    let mut client = gateway.connect().await?;
    client.send(POST).await?;
    gateway.wait_until(|gateway| connect_failures(gateway, Failure::ConnectRefused) >= 2).await?;
    backends[1].restart().await?;
    assert_eq!(client.read_response().await?.status, 200);
    assert!(repeated_ids(&backends).is_empty());
    Ok(())
}

#[tokio::test]
async fn waiting_request_uses_the_first_available_endpoint() -> TestResult {
    let (first, second) = (refusing()?, Backend::start(Behaviour::ok()).await?);
    for (endpoints, status) in [(vec![first], 502), (vec![], 503)] {
        let wait = |settings: &mut sluicegate_model::Settings| settings.resilience.endpoint_wait = NEVER;
        let gateway = patient().endpoints([first]).settings(wait).start().await?;
        gateway.set_addresses(endpoints).await;
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        gateway.wait_until(|gateway| gateway.count(|upstream| &upstream.in_flight) == 1).await?;
        gateway.set_addresses([second.addr()]).await;
        assert_eq!(client.read_response().await?.status, 200);

        // If no endpoint is added, the wait is bounded.
        let soon = Duration::from_millis(50);
        gateway.configure(|config| config.settings.resilience.endpoint_wait = soon).await;
        gateway.set_addresses(if status == 502 { vec![first] } else { vec![] }).await;
        assert_eq!(client.request(GET).await?.status, status);
        let failure = if status == 502 { Failure::ConnectRefused } else { Failure::NoEndpoint };
        assert_eq!(failures(&gateway, failure), 1);
    }
    Ok(())
}
