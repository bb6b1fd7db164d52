//! Z9: the gateway drops an idle connection to an endpoint when the peer closes it, and before the peer would close it.

use std::time::Duration;

use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{GET, NEVER, POST, TestResult, fill_pools, retries, unused};

fn slow() -> Behaviour {
    Behaviour::ok().delay(Duration::from_millis(30))
}

#[tokio::test]
async fn gateway_drops_an_idle_connection_as_soon_as_the_endpoint_closes() -> TestResult {
    for reset in [false, true] {
        let mut backend = Backend::start(slow()).await?;
        let gateway = Gateway::of([&backend]).await?;
        let mut clients = fill_pools(&gateway, 6).await?;
        gateway.wait_until(|gateway| unused(gateway, backend.addr()) == 6).await?;
        match reset {
            true => backend.kill_with_reset().await,
            false => backend.kill().await,
        }
        // No request arrives that could find out.
        gateway.wait_until(|gateway| unused(gateway, backend.addr()) == 0).await?;
        assert_eq!(gateway.count(|upstream| &upstream.pool_closed), 6);
        backend.restart().await?;
        for client in &mut clients {
            assert_eq!(client.request(POST).await?.status, 200, "not even a POST notices");
        }
        assert_eq!(retries(&gateway, Failure::Stale), 0);
    }
    Ok(())
}

#[tokio::test]
async fn gateway_respects_the_keep_alive_timeout_announced_by_the_endpoint() -> TestResult {
    // The margin is one second, so a timeout of one second leaves no time for reuse.
    for seconds in [1, 2] {
        let head = format!("HTTP/1.1 200 OK\r\nKeep-Alive: timeout={seconds}\r\nContent-Length: 2\r\n\r\nok");
        let backend = Backend::start(Behaviour::raw(head)).await?;
        let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
        let mut client = gateway.connect().await?;
        assert_eq!(client.request(GET).await?.status, 200);
        assert_eq!(client.request(GET).await?.status, 200);
        assert_eq!(backend.accepted(), if seconds == 1 { 2 } else { 1 });
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn idle_connection_is_closed_at_its_timeout() -> TestResult {
    let backend = Backend::start(slow()).await?;
    let builder = Gateway::builder().backends([&backend]);
    let soon = Duration::from_millis(100);
    let gateway = builder.settings(|settings| settings.timeouts.pool_idle = soon).start().await?;
    let _clients = fill_pools(&gateway, 6).await?;
    backend.wait_until(|backend| backend.open() == 0).await?;
    assert_eq!(gateway.count(|upstream| &upstream.pool_closed), 0, "by the gateway, not by its peer");
    Ok(())
}

#[tokio::test]
async fn idle_connections_are_limited_per_endpoint() -> TestResult {
    let backend = Backend::start(slow()).await?;
    let gateway = Gateway::builder()
        .backends([&backend])
        .workers(1)
        .settings(|settings| {
            settings.limits.pool_per_endpoint = 2;
            settings.timeouts.pool_idle = NEVER;
        })
        .start()
        .await?;
    let _clients = fill_pools(&gateway, 6).await?;
    backend.wait_until(|backend| backend.open() == 2).await?;
    assert_eq!(unused(&gateway, backend.addr()), 2);
    Ok(())
}

#[tokio::test]
async fn connection_with_excess_bytes_after_a_response_is_not_reused() -> TestResult {
    let backend = Backend::start(Behaviour::too_much(100)).await?;
    let gateway = Gateway::builder().backends([&backend]).workers(1).start().await?;
    let mut client = gateway.connect().await?;
    for _ in 0..5 {
        let response = client.request(GET).await?;
        assert_eq!((response.status, response.text()), (200, "body".to_owned()));
    }
    assert_eq!(backend.accepted(), 5, "such a connection is not used again");
    Ok(())
}
