//! Authorization services that are Services of the cluster.

use std::net::SocketAddr;

use sluicegate_testkit::gateway::key;

use super::super::traffic::add_upstream;
use super::*;

/// A policy that asks the Service `authz`. Its name cannot be resolved here.
fn of_service() -> Security {
    let service = json!({"url": "http://authz.default.svc/check", "responseHeaders": ["x-user"]});
    by(ExtAuth { upstream: Some(key("authz")), ..written(service) })
}

/// A gateway with one worker that asks the Service with these servers.
async fn asking_servers(servers: &[Backend]) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]).workers(1);
    let addresses: Vec<_> = servers.iter().map(Backend::addr).collect();
    add_upstream(builder.config_mut(), "authz", &addresses);
    set_security(builder.config_mut(), Some(of_service()));
    Ok((backend, builder.start().await?))
}

fn addresses(servers: &[Backend]) -> impl Iterator<Item = SocketAddr> {
    servers.iter().map(Backend::addr)
}

#[tokio::test]
async fn authorization_checks_are_spread_over_the_endpoints_of_the_service() -> TestResult {
    let servers = Backend::group(3, directory()).await?;
    let (backend, gateway) = asking_servers(&servers).await?;
    for _ in 0..60 {
        assert_eq!(ask(&gateway, "/", &["Authorization: alice"]).await?.status, 200);
    }
    assert_eq!(backend.last_request().unwrap().header("x-user"), Some("alice"));
    assert_eq!(ask(&gateway, "/", &["Authorization: eve"]).await?.status, 403);
    assert!(servers.iter().all(|server| server.requests() > 0));
    // A connection that is idle serves the next check.
    assert!(servers.iter().map(Backend::accepted).sum::<u64>() <= 6);
    let asked = servers.iter().find_map(Backend::last_request).unwrap();
    assert_eq!((asked.header("host"), &*asked.target), (Some("authz.default.svc"), "/check"));
    Ok(())
}

#[tokio::test]
async fn changed_and_killed_endpoints_of_the_authorization_service_lose_no_request() -> TestResult {
    let mut servers = Backend::group(4, says(200, &[])).await?;
    let (_backend, gateway) = asking_servers(&servers).await?;
    let load = gateway.load().connections(8).start()?;
    for round in 0..12 {
        // The killed server is an endpoint for a while, as in a cluster.
        servers[round % 4].kill().await;
        load.wait_for_ok(load.snapshot().ok + 50, Duration::from_secs(10)).await?;
        let left = (0..4).filter(|index| *index != round % 4).map(|index| servers[index].addr());
        gateway.set_addresses_of(key("authz"), left.collect::<Vec<_>>()).await;
        load.wait_for_ok(load.snapshot().ok + 50, Duration::from_secs(10)).await?;
        servers[round % 4].restart().await?;
        gateway.set_addresses_of(key("authz"), addresses(&servers)).await;
    }
    let report = load.stop().await?;
    assert_eq!((report.failures(), report.reconnects), (0, 0), "{report}");
    assert!(servers.iter().all(|server| server.requests() > 20));
    // Removed endpoints lose their connections.
    gateway.set_addresses_of(key("authz"), addresses(&servers[..1])).await;
    for server in &servers[1..] {
        server.wait_until(|server| server.open() == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn authorization_check_waits_until_the_service_has_an_endpoint() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) = asking_servers(&[]).await?;
    let appearing = async {
        gateway.wait_until(|gateway| gateway.proxy().registry().upstreams().len() == 2).await?;
        assert_eq!(backend.requests(), 0);
        gateway.set_addresses_of(key("authz"), [server.addr()]).await;
        anyhow::Ok(())
    };
    let (response, appeared) = tokio::join!(ask(&gateway, "/", &[]), appearing);
    appeared?;
    assert_eq!((response?.status, server.requests()), (200, 1));
    Ok(())
}

#[tokio::test]
async fn authorization_check_goes_to_the_host_of_the_url_while_the_service_has_no_upstream() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let missing = ExtAuth { upstream: Some(key("missing")), ..service(&server) };
    let (_backend, gateway) = of_one_worker(missing).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    // The Service appears, and its slot is known at once.
    let other = Backend::start(says(403, &[])).await?;
    gateway.configure(|config| add_upstream(config, "missing", &[other.addr()])).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    assert_eq!((server.requests(), other.requests()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn request_that_waits_for_authorization_while_its_route_changes_reaches_the_service_of_its_route()
-> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) = asking_servers(&[]).await?;
    let other = Backend::start(Behaviour::status(418)).await?;
    let changing = async {
        gateway
            .wait_until(|gateway| {
                gateway.proxy().registry().counters().workers().sum(|worker| &worker.in_flight) == 1
            })
            .await?;
        // The upstream of another Service takes the place of the removed upstream.
        gateway
            .configure(|config| {
                config.upstreams.remove(&key("backend"));
                add_upstream(config, "other", &[other.addr()]);
            })
            .await;
        gateway.set_addresses_of(key("authz"), [server.addr()]).await;
        anyhow::Ok(())
    };
    let (response, changed) = tokio::join!(ask(&gateway, "/", &[]), changing);
    changed?;
    assert_eq!((response?.status, backend.requests(), other.requests()), (200, 1, 0));
    Ok(())
}
