//! Limits, load balancing, slow start, and the balance of connections between workers.

use std::time::Duration;

use sluicegate_model::Balance;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

use super::{GET, NEVER, TestResult, backends, failures, unused};

async fn after(gateway: &Gateway, backends: &[Backend], requests: usize) -> anyhow::Result<Vec<u64>> {
    let before: Vec<_> = backends.iter().map(Backend::requests).collect();
    let mut client = gateway.connect().await?;
    for _ in 0..requests {
        assert_eq!(client.request(GET).await?.status, 200);
    }
    Ok(backends.iter().zip(before).map(|(backend, before)| backend.requests() - before).collect())
}

#[tokio::test]
async fn round_robin_selects_endpoints_in_turn_over_one_connection_each() -> TestResult {
    for count in 2..=5 {
        let backends = backends(count, Behaviour::ok()).await?;
        let builder = Gateway::builder().backends(&backends).workers(1);
        let gateway = builder.upstream(|upstream| upstream.balance = Balance::RoundRobin).start().await?;
        assert_eq!(after(&gateway, &backends, 20 * count).await?, vec![20; count]);
        let accepted: Vec<_> = backends.iter().map(Backend::accepted).collect();
        assert_eq!(accepted, vec![1; count], "connections are used again");
    }
    Ok(())
}

#[tokio::test]
async fn ewma_sends_fewer_requests_to_a_slow_endpoint() -> TestResult {
    let backends = backends(3, Behaviour::ok()).await?;
    backends[0].set(Behaviour::ok().delay(Duration::from_millis(40)));
    let gateway = Gateway::builder().backends(&backends).workers(1).start().await?;
    let shares = after(&gateway, &backends, 300).await?;
    assert!(shares[0] >= 1 && shares[0] <= 60, "{shares:?}");
    Ok(())
}

#[tokio::test]
async fn least_request_sends_fewer_requests_to_a_busy_endpoint() -> TestResult {
    let backends = backends(3, Behaviour::ok()).await?;
    backends[0].set(Behaviour::ok().delay(Duration::from_millis(200)));
    let builder = Gateway::builder().backends(&backends).workers(1);
    let gateway = builder.upstream(|upstream| upstream.balance = Balance::LeastRequest).start().await?;
    let report = gateway.load().connections(6).run(Duration::from_secs(1)).await?;
    assert_eq!(report.failures(), 0, "{report}");
    let shares: Vec<_> = backends.iter().map(Backend::requests).collect();
    assert!(shares[0] * 4 < report.ok, "{shares:?}");
    Ok(())
}

#[tokio::test]
async fn new_endpoint_receives_fewer_requests_during_slow_start() -> TestResult {
    for (slow_start, expected) in [(NEVER, 1..=80), (Duration::ZERO, 100..=100)] {
        let backends = backends(3, Behaviour::ok()).await?;
        let gateway = Gateway::builder()
            .backends(&backends[..2])
            .workers(1)
            .upstream(|upstream| upstream.balance = Balance::RoundRobin)
            .settings(|settings| settings.resilience.slow_start = slow_start)
            .start()
            .await?;
        gateway.set_addresses(backends.iter().map(Backend::addr)).await;
        let shares = after(&gateway, &backends, 300).await?;
        assert!(expected.contains(&shares[2]), "{slow_start:?}: {shares:?}");
    }
    Ok(())
}

#[tokio::test]
async fn requests_over_the_request_limit_of_the_upstream_return_503() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let builder = Gateway::builder().backends([&backend]);
    let gateway = builder.upstream(|upstream| upstream.limits.max_requests = Some(2)).start().await?;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        waiting.push(client);
    }
    backend.wait_until(|backend| backend.requests() == 2).await?;
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 503);
    assert_eq!(failures(&gateway, Failure::Overloaded), 1);
    drop(waiting);
    gateway.wait_until(|gateway| gateway.count(|upstream| &upstream.in_flight) == 0).await?;
    backend.set(Behaviour::ok());
    assert_eq!(client.request(GET).await?.status, 200, "their places are free again");
    Ok(())
}

#[tokio::test]
async fn full_endpoint_is_skipped_and_503_is_returned_if_every_endpoint_is_full() -> TestResult {
    let backends = backends(2, Behaviour::silent()).await?;
    let builder = Gateway::builder().backends(&backends);
    let gateway =
        builder.upstream(|upstream| upstream.limits.max_requests_per_endpoint = Some(1)).start().await?;
    let mut waiting = Vec::new();
    for sent in 1..=2 {
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        backends[0].wait_until(|first| first.requests() + backends[1].requests() == sent).await?;
        waiting.push(client);
    }
    assert_eq!((backends[0].requests(), backends[1].requests()), (1, 1));
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 503);
    drop(waiting);
    gateway.wait_until(|gateway| gateway.count(|upstream| &upstream.in_flight) == 0).await?;
    backends.iter().for_each(|backend| backend.set(Behaviour::ok()));
    assert_eq!(client.request(GET).await?.status, 200);
    Ok(())
}

/// The lowest and the highest number of open connections among the workers.
fn open(gateway: &Gateway) -> (u64, u64) {
    let workers = gateway.proxy().registry().counters().workers();
    let open: Vec<_> = workers.iter().map(|worker| worker.open.get()).collect();
    (open.iter().copied().min().unwrap_or(0), open.iter().copied().max().unwrap_or(0))
}

// The kernel's hash alone gives one worker twice as many connections as another.
#[tokio::test]
async fn connections_are_spread_evenly_over_the_workers() -> TestResult {
    if Transport::of_environment() == Transport::Http3 {
        // The kernel distributes the connections of QUIC.
        return Ok(());
    }
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(8).start().await?;
    let mut clients = Vec::new();
    for _ in 0..80 {
        let mut client = gateway.connect().await?;
        assert_eq!(client.request(GET).await?.status, 200);
        clients.push(client);
    }
    let (fewest, most) = open(&gateway);
    assert!(most - fewest <= 2, "{fewest} to {most}");
    gateway.wait_until(|gateway| unused(gateway, backend.addr()) == 8).await?;
    Ok(())
}

#[tokio::test]
async fn simultaneous_connections_are_spread_evenly_over_the_workers() -> TestResult {
    if Transport::of_environment() == Transport::Http3 {
        // The kernel distributes the connections of QUIC.
        return Ok(());
    }
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(8).start().await?;
    let load = gateway.load().connections(80).start()?;
    let workers = gateway.proxy().registry().counters().workers();
    gateway.wait_until(|_| workers.sum(|worker| &worker.open) == 80).await?;
    let (fewest, most) = open(&gateway);
    println!("80 connections at once over 8 workers: {fewest} to {most}");
    assert!(most - fewest <= 4, "{fewest} to {most}");
    assert_eq!(load.stop().await?.failures(), 0);
    Ok(())
}
