//! Z10: shutdown and takeover of the gateway lose nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_proxy::Drain;
use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::load::Load;
use sluicegate_testkit::stream::Transport;
use tokio::task::JoinHandle;

use super::{GET, TestResult, backends};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

fn shut_down(gateway: &Arc<Gateway>, drain: Drain) -> JoinHandle<()> {
    let gateway = gateway.clone();
    tokio::spawn(async move { gateway.proxy().shutdown(drain).await })
}

fn announces_its_end(response: &Response) -> bool {
    response.header("Connection") == Some("close")
}

/// Waits until no process accepts connections at this address.
async fn refuses(addr: SocketAddr) {
    while Client::connect(addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn shutdown_completes_requests_in_flight() -> TestResult {
    let body = Behaviour::chunked(["chunk"; 10], Duration::from_millis(30), &[]);
    for behaviour in [Behaviour::ok().delay(Duration::from_millis(300)), body] {
        let backend = Backend::start(behaviour).await?;
        let gateway = Arc::new(Gateway::of([&backend]).await?);
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        backend.wait_until(|backend| backend.requests() == 1).await?;
        let end = shut_down(&gateway, Drain { grace: Duration::ZERO, idle: SHORT, timeout: LONG });
        assert_eq!(client.read_response().await?.status, 200);
        client.expect_end().await?;
        end.await?;
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn responses_during_the_shutdown_grace_period_have_connection_close() -> TestResult {
    if Transport::of_environment().has_streams() {
        // HTTP/2 and HTTP/3 announce the end by GOAWAY: see tests/http2 and tests/http3.
        return Ok(());
    }
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let mut kept_alive = gateway.connect().await?;
    assert!(!announces_its_end(&kept_alive.request(GET).await?));
    let grace = Duration::from_secs(2);
    let end = shut_down(&gateway, Drain { grace, idle: SHORT, timeout: LONG });
    loop {
        let response = gateway.connect().await?.request(GET).await?;
        assert_eq!(response.status, 200);
        if announces_its_end(&response) {
            break;
        }
    }
    assert!(announces_its_end(&kept_alive.request(GET).await?));
    kept_alive.expect_end().await?;
    let mut another = gateway.connect().await?;
    assert!(announces_its_end(&another.request(GET).await?));
    end.await?;
    refuses(gateway.addr()).await;
    Ok(())
}

#[tokio::test]
async fn request_on_an_idle_connection_during_shutdown_is_served() -> TestResult {
    if Transport::of_environment().has_streams() {
        // An idle client receives GOAWAY at once: see tests/http2 and tests/http3.
        return Ok(());
    }
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let mut client = gateway.connect().await?;
    client.request(GET).await?;
    let end = shut_down(&gateway, Drain { grace: Duration::ZERO, idle: LONG, timeout: LONG });
    refuses(gateway.addr()).await;
    let response = client.request(GET).await?;
    assert_eq!(response.status, 200);
    assert!(announces_its_end(&response));
    // No client is left: the shutdown does not wait for its timeouts.
    tokio::time::timeout(LONG / 2, end).await??;
    Ok(())
}

#[tokio::test]
async fn draining_gateway_closes_idle_connections_at_the_drain_idle_timeout() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let (mut used, mut unused) = (gateway.connect().await?, gateway.connect().await?);
    used.request(GET).await?;
    let end = shut_down(&gateway, Drain { grace: Duration::ZERO, idle: SHORT, timeout: LONG });
    used.expect_end().await?;
    unused.expect_end().await?;
    tokio::time::timeout(LONG / 2, end).await??;
    Ok(())
}

#[tokio::test]
async fn late_request_on_a_new_connection_during_shutdown_is_served() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let mut client = gateway.connect().await?;
    gateway
        .wait_until(|gateway| gateway.proxy().registry().counters().workers().sum(|worker| &worker.open) == 1)
        .await?;
    let end = shut_down(&gateway, Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: LONG });
    refuses(gateway.addr()).await;
    tokio::time::sleep(SHORT).await;
    assert_eq!(client.request(GET).await?.status, 200);
    end.await?;
    Ok(())
}

#[tokio::test]
async fn requests_aborted_by_shutdown_are_logged() -> TestResult {
    const CLIENTS: usize = 200;
    let backend = Backend::start(Behaviour::silent()).await?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    let log = AccessLog::open(LogFormat::Json, Some(&path))?;
    let builder = Gateway::builder().backends([&backend]).options(|options| options.access_log = Some(log));
    let gateway = Arc::new(builder.start().await?);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = gateway.connect().await?;
        client.send(GET).await?;
        clients.push(client);
    }
    backend.wait_until(|backend| backend.requests() == CLIENTS as u64).await?;
    shut_down(&gateway, Drain { grace: Duration::ZERO, idle: SHORT, timeout: SHORT }).await?;
    assert_eq!(std::fs::read_to_string(path)?.lines().count(), CLIENTS);
    Ok(())
}

#[tokio::test]
async fn requests_in_flight_end_at_the_shutdown_timeout() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let mut client = gateway.connect().await?;
    client.send(GET).await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    shut_down(&gateway, Drain { grace: Duration::ZERO, idle: SHORT, timeout: 4 * SHORT }).await?;
    client.expect_end().await?;
    backend.wait_until(|backend| backend.open() == 0).await?;
    Ok(())
}

#[tokio::test]
async fn gateway_takeover_under_load_loses_no_request() -> TestResult {
    let backends = backends(3, Behaviour::ok()).await?;
    let mut gateway = Gateway::of(&backends).await?;
    let addr = gateway.addr();
    let load = Load::new(addr).connections(8).posts(0.3, 100).expect_own_id().start()?;
    for _ in 0..3 {
        load.wait_for_ok(load.snapshot().ok + 200, LONG).await?;
        let inherited = gateway.proxy().sockets()?;
        let builder = Gateway::builder().backends(&backends).options(|options| {
            options.http = vec![addr];
            options.inherited = inherited;
        });
        let next = builder.start().await?;
        let grace = Duration::from_millis(200);
        gateway.proxy().shutdown(Drain { grace, idle: Duration::from_secs(5), timeout: LONG }).await;
        gateway = next;
    }
    let before = load.snapshot().ok;
    load.wait_for_ok(before + 200, LONG).await?;
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.reconnects >= 3 * 8, "every connection moved each time: {report}");
    Ok(())
}
