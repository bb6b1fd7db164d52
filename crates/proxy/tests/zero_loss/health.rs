//! Z8: the gateway avoids an endpoint at once when it cannot connect, probes the endpoint, and readmits it gradually.

use std::time::Duration;

use sluicegate_model::{Balance, Settings};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Builder, Gateway, add_route};

use super::{GET, NEVER, TestResult, connect_failures};

/// A gateway with one worker that uses these backends in turn.
fn in_turn(backends: &[Backend]) -> Builder {
    let builder = Gateway::builder().backends(backends).workers(1);
    builder.upstream(|upstream| upstream.balance = Balance::RoundRobin)
}

fn never_probe(settings: &mut Settings) {
    settings.resilience.probe_interval = NEVER;
}

fn refused(gateway: &Gateway) -> u64 {
    connect_failures(gateway, Failure::ConnectRefused)
}

async fn gets(client: &mut Client, count: usize) -> TestResult {
    for _ in 0..count {
        assert_eq!(client.request(GET).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn failed_connect_marks_an_endpoint_unhealthy_and_a_probe_readmits_it() -> TestResult {
    let mut backends = super::backends(2, Behaviour::ok()).await?;
    let gateway = in_turn(&backends).settings(|s| s.resilience.slow_start = Duration::ZERO).start().await?;
    let mut client = gateway.connect().await?;
    backends[0].kill().await;
    gets(&mut client, 40).await?;
    assert!(gateway.endpoint(backends[0].addr()).is_unhealthy());
    assert_eq!((refused(&gateway), gateway.count(|upstream| &upstream.ejections)), (1, 1));

    backends[0].restart().await?;
    // No request arrives meanwhile: only the probe can find out.
    gateway.wait_until(|gateway| !gateway.endpoint(backends[0].addr()).is_unhealthy()).await?;
    assert_eq!(gateway.count(|upstream| &upstream.readmissions), 1);
    gets(&mut client, 20).await?;
    assert_eq!(backends[0].requests(), 10, "it has its full share again");
    Ok(())
}

#[tokio::test]
async fn workers_share_the_health_of_endpoints() -> TestResult {
    let mut backends = super::backends(2, Behaviour::ok()).await?;
    let gateway = in_turn(&backends).workers(4).settings(never_probe).start().await?;
    backends[0].kill().await;
    for _ in 0..16 {
        let mut client = gateway.connect().await?;
        gets(&mut client, 4).await?;
    }
    assert_eq!(refused(&gateway), 1, "one of four workers found out for all");
    Ok(())
}

#[tokio::test]
async fn endpoint_health_survives_changes_of_routes_and_other_endpoints() -> TestResult {
    let mut backends = super::backends(3, Behaviour::ok()).await?;
    let gateway = in_turn(&backends[..2]).settings(never_probe).start().await?;
    let mut client = gateway.connect().await?;
    backends[0].kill().await;
    gets(&mut client, 4).await?;
    gateway.configure(|config| add_route(config, "b", "/", "backend")).await;
    gets(&mut client, 20).await?;
    gateway.set_addresses(backends.iter().map(Backend::addr)).await;
    gets(&mut client, 20).await?;
    assert!(gateway.endpoint(backends[0].addr()).is_unhealthy());
    assert_eq!(refused(&gateway), 1);

    // An address that was removed and added again is a new endpoint without history.
    gateway.set_addresses([backends[1].addr()]).await;
    backends[0].restart().await?;
    gateway.set_addresses(backends.iter().map(Backend::addr)).await;
    assert!(!gateway.endpoint(backends[0].addr()).is_unhealthy());
    Ok(())
}

#[tokio::test]
async fn unhealthy_endpoints_receive_requests_if_all_endpoints_are_unhealthy() -> TestResult {
    let mut backends = super::backends(2, Behaviour::ok()).await?;
    let gateway = in_turn(&backends)
        .settings(never_probe)
        .settings(|settings| {
            settings.resilience.endpoint_wait = Duration::ZERO;
            settings.resilience.slow_start = Duration::ZERO;
        })
        .start()
        .await?;
    backends[0].kill().await;
    backends[1].kill().await;
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 502);
    let unhealthy =
        || backends.iter().filter(|backend| gateway.endpoint(backend.addr()).is_unhealthy()).count();
    assert_eq!(unhealthy(), 2);
    backends[0].restart().await?;
    gets(&mut client, 1).await?;
    let unhealthy =
        || backends.iter().filter(|backend| gateway.endpoint(backend.addr()).is_unhealthy()).count();
    assert_eq!(unhealthy(), 1, "one answered");
    Ok(())
}

#[tokio::test]
async fn readmitted_endpoint_receives_less_traffic_during_slow_start() -> TestResult {
    let mut backends = super::backends(2, Behaviour::ok()).await?;
    let gateway = in_turn(&backends).settings(|s| s.resilience.slow_start = NEVER).start().await?;
    let mut client = gateway.connect().await?;
    backends[0].kill().await;
    gets(&mut client, 4).await?;
    backends[0].restart().await?;
    gateway.wait_until(|gateway| !gateway.endpoint(backends[0].addr()).is_unhealthy()).await?;
    let before = backends[0].requests();
    gets(&mut client, 400).await?;
    let share = backends[0].requests() - before;
    assert!((1..=100).contains(&share), "{share} of 400 where half would be a full share");
    Ok(())
}

#[tokio::test]
async fn below_the_panic_threshold_endpoint_health_is_ignored() -> TestResult {
    for (percent, ignored) in [(0, false), (50, true)] {
        let mut backends = super::backends(4, Behaviour::ok()).await?;
        let gateway = in_turn(&backends)
            .settings(never_probe)
            .settings(|settings| settings.resilience.panic_threshold_percent = percent)
            .start()
            .await?;
        for backend in &mut backends[1..] {
            backend.kill().await;
        }
        let mut client = gateway.connect().await?;
        gets(&mut client, 20).await?;
        assert_eq!(refused(&gateway) > 3, ignored, "{percent} %: {} refused", refused(&gateway));
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_that_closes_every_connection_becomes_unhealthy() -> TestResult {
    let backends =
        [Backend::start(Behaviour::close_on_accept()).await?, Backend::start(Behaviour::ok()).await?];
    let gateway = in_turn(&backends).settings(never_probe).start().await?;
    let mut client = gateway.connect().await?;
    gets(&mut client, 40).await?;
    assert!(gateway.endpoint(backends[0].addr()).is_unhealthy());
    assert_eq!(super::retries(&gateway, Failure::Reset), 3);
    Ok(())
}

#[tokio::test]
async fn latency_estimate_of_an_endpoint_excludes_failed_attempts_at_another_endpoint() -> TestResult {
    let lost = Duration::from_millis(300);
    let hangs = Behaviour::raw("").then_close().delay(lost);
    let backends = [Backend::start(hangs).await?, Backend::start(Behaviour::ok()).await?];
    let gateway = in_turn(&backends).start().await?;
    let mut client = gateway.connect().await?;
    gets(&mut client, 2).await?;
    assert!(super::retries(&gateway, Failure::Reset) >= 1);
    let estimate = gateway.endpoint(backends[1].addr()).shards().sum(|endpoint| &endpoint.ewma_micros);
    assert!(u128::from(estimate) < lost.as_micros(), "{estimate} us");
    Ok(())
}
