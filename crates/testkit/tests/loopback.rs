//! Tests of the backends, the client and the load against each other.

use std::time::Duration;

use sluicegate_testkit::backend::{Backend, Behaviour, repeated_ids};
use sluicegate_testkit::client::{self, Client, Error};
use sluicegate_testkit::hole::Hole;
use sluicegate_testkit::load::{Failure, Kind, Load};

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn backend_of_behaviour_ok_describes_the_server_and_the_request() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let response = client::get(backend.addr(), "a", "/path?q=1").await?;
    assert_eq!(response.status, 200);
    assert!((1000..1200).contains(&response.body.len()));
    assert!(response.text().contains("URI: /path?q=1"));
    assert!(response.text().contains(&backend.addr().to_string()));
    Ok(())
}

#[tokio::test]
async fn backend_of_behaviour_echo_returns_the_bytes_of_the_request() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let request =
        "POST / HTTP/1.1\r\nhOsT:  a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: u\r\n\r\n";
    let mut client = Client::connect(backend.addr()).await?;
    client.send_slowly(request, 1, Duration::ZERO).await?;
    assert_eq!(client.read_response().await?.text(), request);
    let seen = backend.last_request().unwrap();
    assert_eq!((&seen.body[..], seen.header("HOST")), (&b"abc"[..], Some("a")));
    Ok(())
}

#[tokio::test]
async fn backend_serves_pipelined_requests_and_head_requests() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::sized(3)).await?;
    let mut client = Client::connect(backend.addr()).await?;
    client.send(format!("{GET}{GET}")).await?;
    assert_eq!(client.read_response().await?.body, b"xxx");
    assert_eq!(client.read_response().await?.body, b"xxx");
    let head = client.request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    assert_eq!((head.header("content-length"), head.body.len()), (Some("3"), 0));
    assert_eq!((backend.accepted(), backend.requests()), (1, 3));
    Ok(())
}

#[tokio::test]
async fn test_client_reads_chunks_trailers_and_interim_responses() -> anyhow::Result<()> {
    let behaviour = Behaviour::chunked(["one", "two"], Duration::from_millis(1), &[("Sum", "6")])
        .interim("HTTP/1.1 103 Early Hints\r\n\r\n");
    let backend = Backend::start(behaviour).await?;
    let response = Client::connect(backend.addr()).await?.request(GET).await?;
    assert_eq!(response.text(), "onetwo");
    assert_eq!(response.trailers, [("Sum".to_owned(), "6".to_owned())]);
    assert_eq!(response.interim, [103]);
    Ok(())
}

#[tokio::test]
async fn backend_sends_100_continue_for_a_body() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let mut client = Client::connect(backend.addr()).await?;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").await?;
    assert_eq!(client.read_interim().await?, 100);
    client.send("hi").await?;
    assert!(client.read_response().await?.text().ends_with("\r\n\r\nhi"));
    Ok(())
}

#[tokio::test]
async fn backend_echoes_bytes_on_an_upgraded_connection() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::upgrade()).await?;
    let mut client = Client::connect(backend.addr()).await?;
    let ask = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly";
    assert_eq!(client.request(ask).await?.status, 101);
    client.send("late").await?;
    assert_eq!(client.read_exact(9).await?, b"earlylate");
    client.half_close().await?;
    client.expect_end().await?;
    Ok(())
}

#[tokio::test]
async fn client_recognizes_each_misbehaviour_of_a_backend() -> anyhow::Result<()> {
    let cases = [
        (Behaviour::close_on_accept(), "closed"),
        (Behaviour::close_on_request(), "closed"),
        (Behaviour::reset_on_request(), "closed"),
        (Behaviour::too_little(5), "closed"),
        (Behaviour::garbage(), "malformed"),
        (Behaviour::silent(), "timeout"),
        (Behaviour::hold_on_accept(), "timeout"),
    ];
    let backend = Backend::start(Behaviour::ok()).await?;
    for (behaviour, expected) in cases {
        let name = format!("{behaviour:?}");
        backend.set(behaviour);
        let mut client = Client::connect(backend.addr()).await?.with_limit(Duration::from_millis(100));
        let seen = match client.request(GET).await {
            Err(Error::Closed { .. }) => "closed",
            Err(Error::Malformed(_)) => "malformed",
            Err(Error::Timeout(_)) => "timeout",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(seen, expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn backend_selects_its_behaviour_for_each_request() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::choose(|request| match request.nth {
        1 => Behaviour::echo(),
        _ => Behaviour::status(503),
    }))
    .await?;
    let mut client = Client::connect(backend.addr()).await?;
    assert_eq!(client.request(GET).await?.text(), GET);
    assert_eq!(client.request(GET).await?.status, 503);
    Ok(())
}

#[tokio::test]
async fn killed_backend_closes_its_connections_and_restarts() -> anyhow::Result<()> {
    let mut backend = Backend::start(Behaviour::silent()).await?;
    let mut closed = Client::connect(backend.addr()).await?;
    closed.send(GET).await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    backend.kill().await;
    assert_eq!(backend.open(), 0);
    closed.expect_end().await?;
    assert!(Client::connect(backend.addr()).await.is_err());

    backend.restart().await?;
    backend.set(Behaviour::ok());
    assert_eq!(client::get(backend.addr(), "a", "/").await?.status, 200);
    let mut reset = Client::connect(backend.addr()).await?;
    backend.wait_until(|backend| backend.open() == 1).await?;
    backend.kill_with_reset().await;
    reset.expect_end().await?;
    Ok(())
}

#[tokio::test]
async fn backends_of_a_group_share_a_port() -> anyhow::Result<()> {
    let group = Backend::group(5, Behaviour::ok()).await?;
    assert!(group.iter().all(|backend| backend.addr().port() == group[0].addr().port()));
    assert_eq!(group[4].ip().to_string(), "127.0.1.5");
    Ok(())
}

#[tokio::test]
async fn load_and_backend_count_the_same_requests() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let load = Load::new(backend.addr()).connections(4).posts(0.3, 100).expect_own_id();
    let report = load.run(Duration::from_millis(300)).await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.ok > 100, "{report}");
    assert_eq!((backend.requests(), backend.accepted(), report.reconnects), (report.ok, 4, 0));
    assert!(repeated_ids([&backend]).is_empty());
    Ok(())
}

#[tokio::test]
async fn load_reconnects_after_an_announced_close_and_counts_any_other_close_as_a_failure()
-> anyhow::Result<()> {
    let polite = Behaviour::raw("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let backend = Backend::start(polite.then_close()).await?;
    let load = Load::new(backend.addr()).connections(2);
    let report = load.clone().run(Duration::from_millis(100)).await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.reconnects > 0, "{report}");

    backend.set(Behaviour::choose(|request| match request.nth {
        3 => Behaviour::close_on_request(),
        _ => Behaviour::ok(),
    }));
    let report = load.run(Duration::from_millis(100)).await?;
    assert!(report.failures_by(Failure::Read) > 0, "{report}");
    assert_eq!(report.failures(), report.failures_by(Failure::Read), "{report}");
    assert_eq!(report.failures_of(Kind::Post), 0);
    Ok(())
}

#[tokio::test]
async fn load_does_not_count_the_close_of_an_idle_connection_as_a_failure() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok().close_after(1)).await?;
    let load = Load::new(backend.addr()).connections(4).rate(200.0);
    let report = load.run(Duration::from_millis(500)).await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.reconnects > 50, "{report}");
    Ok(())
}

#[tokio::test]
async fn load_with_a_constant_rate_counts_latency_from_the_due_time() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let running = Load::new(backend.addr()).connections(2).rate(500.0).start()?;
    running.wait_for_ok(100, Duration::from_secs(5)).await?;
    backend.set(Behaviour::ok().delay(Duration::from_millis(300)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    backend.set(Behaviour::ok());
    let before = running.snapshot().ok;
    running.wait_for_ok(before + 200, Duration::from_secs(5)).await?;
    let report = running.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");
    // Both connections stalled for 300 ms. About 150 requests became due in this time, and each of them waited.
    let late = report.latency.count_between(100_000, 10_000_000);
    assert!(late >= 50, "{late} late: {report}");
    Ok(())
}

#[tokio::test]
async fn load_counts_failures_by_reason() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::status(502)).await?;
    let load = Load::new(backend.addr()).connections(1).rate(100.0).timeout(Duration::from_millis(50));
    let cases = [
        (Behaviour::status(502), Failure::Status(502)),
        (Behaviour::sized(5), Failure::Body),
        (Behaviour::silent(), Failure::Timeout),
        (Behaviour::garbage(), Failure::Malformed),
        (Behaviour::too_much(5), Failure::Malformed),
        (Behaviour::reset_on_request(), Failure::Read),
    ];
    for (behaviour, expected) in cases {
        backend.set(behaviour);
        let report = load.clone().expect_body("right").run(Duration::from_millis(150)).await?;
        assert!(report.failures_by(expected) > 0, "{expected}: {report}");
        assert_eq!(report.failures_by(expected), report.requests(), "{expected}: {report}");
    }
    let mut backend = backend;
    backend.kill().await;
    let report = load.run(Duration::from_millis(50)).await?;
    assert!(report.failures_by(Failure::Connect) > 0, "{report}");
    Ok(())
}

#[tokio::test]
async fn black_hole_ignores_connection_attempts_until_it_is_opened() -> anyhow::Result<()> {
    let hole = Hole::start().await?;
    let addr = hole.addr();
    let patience = Duration::from_millis(200);
    assert!(tokio::time::timeout(patience, Client::connect(addr)).await.is_err(), "the connect hangs");
    let backend = Backend::start_on(hole.open()?, Behaviour::ok())?;
    assert_eq!(client::get(backend.addr(), "a", "/").await?.status, 200);
    Ok(())
}
