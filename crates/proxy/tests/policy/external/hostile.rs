//! Authorization services that misbehave.

use super::*;

/// A service whose responses name the user.
fn naming(server: &Backend) -> ExtAuth {
    ExtAuth { response_headers: written(json!(["x-user"])), ..service(server) }
}

fn raw(text: impl Into<Vec<u8>>) -> Behaviour {
    Behaviour::raw(text)
}

#[tokio::test]
async fn invalid_authorization_response_denies_the_request() -> TestResult {
    use Denial::{CheckAnswer, CheckTimeout, CheckUnreachable};
    let elsewhere = Backend::start(says(200, &[])).await?;
    let location = format!("Location: http://{}/", elsewhere.addr());
    let early = b"HTTP/1.1 103 Early Hints\r\nX-A: 1234567890\r\n\r\n";
    let lines: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    for (behaviour, denial) in [
        (Behaviour::silent(), CheckTimeout),
        (Behaviour::hold_on_accept(), CheckTimeout),
        (says(200, &[]).delay(Duration::from_secs(60)), CheckTimeout),
        (raw("HTTP/1.1 200 OK\r\nX-A: "), CheckTimeout),
        (raw("HTTP/1.1 100 Continue\r\n\r\n"), CheckTimeout),
        (Behaviour::close_on_accept(), CheckUnreachable),
        (Behaviour::close_on_request(), CheckUnreachable),
        (Behaviour::reset_on_request(), CheckUnreachable),
        (raw("HTTP/1.1 200 OK\r\nX-A: ").then_close(), CheckUnreachable),
        (Behaviour::garbage(), CheckAnswer),
        (says(302, &[&location]), CheckAnswer),
        (says(307, &[&location]), CheckAnswer),
        (says(304, &[]), CheckAnswer),
        (says(404, &[]), CheckAnswer),
        (says(407, &[]), CheckAnswer),
        (says(500, &[]), CheckAnswer),
        (says(999, &[]), CheckAnswer),
        (raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), CheckAnswer),
        (raw(early.repeat(1000)), CheckAnswer),
        (raw(format!("HTTP/1.1 200 OK\r\nX-User: {}\r\n\r\n", "x".repeat(100_000))), CheckAnswer),
        (raw(format!("HTTP/1.1 200 OK\r\n{lines}\r\n")), CheckAnswer),
        // Responses that servers and gateways are known to parse differently.
        (raw("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), CheckAnswer),
        (raw("HTTP/1.1 200 OK\r\nX-User : a\r\n\r\n"), CheckAnswer),
        (raw("HTTP/1.1 200 OK\r\nX-User: a\r\n b\r\n\r\n"), CheckAnswer),
        (raw("HTTP/1.1 200 OK\r\nX-User: a\rX-Admin: b\r\n\r\n"), CheckAnswer),
        (raw("HTTP/1.1 200 OK\r\nX-User: a\0\r\n\r\n"), CheckAnswer),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), CheckAnswer),
        (raw("HTTP/2 200 OK\r\n\r\n"), CheckAnswer),
        (raw("200 OK\r\n\r\n"), CheckAnswer),
    ] {
        let shown = format!("{behaviour:?}");
        let server = Backend::start(behaviour).await?;
        let timeout = written(json!(if denial == CheckTimeout { "300ms" } else { "60s" }));
        let (backend, gateway) = of_one_worker(ExtAuth { timeout, ..naming(&server) }).await?;
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!(
            (response.status, response.text()),
            (500, "500 Internal Server Error\n".to_owned()),
            "{shown}"
        );
        assert_eq!(denied(&gateway, denial), 1, "{shown}");
        assert_eq!((checks(&gateway, Check::Failed), backend.requests()), (1, 0), "{shown}");
        server.set(says(200, &["X-User: alice"]));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while ask(&gateway, "/", &[]).await?.status != 200 {
            assert!(tokio::time::Instant::now() < deadline, "it came to its senses: {shown}");
        }
        assert_eq!(backend.last_request().unwrap().header("x-user"), Some("alice"), "{shown}");
        assert_eq!(elsewhere.requests(), 0, "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn unreachable_authorization_service_denies_requests_with_a_logged_reason() -> TestResult {
    use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("access.log");
    let log = AccessLog::open(LogFormat::Json, Some(&path))?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut server = Backend::start(says(200, &[])).await?;
    let mut builder =
        Gateway::builder().backends([&backend]).options(|options| options.access_log = Some(log));
    set_security(builder.config_mut(), Some(by(service(&server))));
    let gateway = builder.start().await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    server.kill().await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 500);
    assert_eq!(denied(&gateway, Denial::CheckUnreachable), 1);
    server.restart().await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    gateway.stop().await;
    let log = std::fs::read_to_string(path)?;
    let line = log.lines().find(|line| line.contains("\"status\":500")).unwrap();
    let line: Value = serde_json::from_str(line)?;
    assert_eq!((&line["reason"], &line["status"]), (&json!("check_unreachable"), &json!(500)), "{line}");
    Ok(())
}

/// A service that ends the connections of the next `times` checks without a response, and responds to the others.
fn dying(times: u64, how: Behaviour) -> Behaviour {
    let asked = std::sync::atomic::AtomicU64::new(0);
    Behaviour::choose(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        before if before < times => how.clone(),
        _ => says(200, &[]),
    })
}

#[tokio::test]
async fn authorization_check_without_a_response_is_retried_if_idempotent() -> TestResult {
    for how in [Behaviour::close_on_request(), Behaviour::reset_on_request()] {
        for (method, expected) in
            [(ExtAuthMethod::Get, 200), (ExtAuthMethod::Head, 200), (ExtAuthMethod::Post, 500)]
        {
            let server = Backend::start(dying(2, how.clone())).await?;
            let external = ExtAuth { method, ..service(&server) };
            let (_backend, gateway) = of_one_worker(external).await?;
            assert_eq!(ask(&gateway, "/", &[]).await?.status, expected, "{method:?}");
            assert_eq!(server.requests(), if expected == 200 { 3 } else { 1 }, "{method:?}");
            assert_eq!(checks(&gateway, Check::Failed), u64::from(expected != 200), "{method:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn authorization_check_with_method_post_is_not_retried_after_a_reused_connection_fails() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let external = ExtAuth { method: ExtAuthMethod::Post, ..service(&server) };
    let (_backend, gateway) = of_one_worker(external).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    // The service has read the check by then.
    server.set(Behaviour::close_on_request().delay(Duration::from_millis(300)));
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 500);
    assert_eq!((server.accepted(), server.requests()), (1, 2));
    Ok(())
}

#[tokio::test]
async fn authorization_check_survives_a_brief_restart_of_the_service() -> TestResult {
    let mut server = Backend::start(says(200, &[])).await?;
    let (_backend, gateway) = of_one_worker(service(&server)).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    server.kill().await;
    let restarting = async {
        // Waits until the first attempts have failed. No counter shows them.
        tokio::time::sleep(Duration::from_millis(60)).await;
        server.restart().await
    };
    let (response, restarted) = tokio::join!(ask(&gateway, "/", &[]), restarting);
    restarted?;
    assert_eq!(response?.status, 200);
    Ok(())
}

#[tokio::test]
async fn unresolvable_authorization_url_denies_requests() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let url = written(json!("http://nobody.invalid/"));
    let (_backend, gateway) = of_one_worker(ExtAuth { url, ..service(&server) }).await?;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 500);
    }
    Ok(())
}

#[tokio::test]
async fn authorization_connection_is_reused_only_after_a_complete_response() -> TestResult {
    let trailers = [("X-User", "root")];
    let second = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-User: root\r\n\r\n";
    let chunk = |length: usize| [vec![b'x'; length]];
    let long = |length: usize| {
        raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length)))
    };
    for (behaviour, is_kept) in [
        (Behaviour::chunked(chunk(100), Duration::ZERO, &trailers), true),
        (Behaviour::chunked(chunk(50_000), Duration::ZERO, &[]), true),
        (Behaviour::chunked(chunk(200_000), Duration::ZERO, &[]), false),
        (long(60_000), true),
        (long(200_000), false),
        // Bytes after a body are not the response to the next check.
        (raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{second}")), false),
        (raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody{second}")), false),
        (raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"), false),
        (raw("HTTP/1.1 200 OK\r\n\r\nuntil the close"), false),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), false),
        // The verdict does not wait for the rest.
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnever the rest"), false),
    ] {
        let shown = format!("{behaviour:?}");
        let server = Backend::start(behaviour).await?;
        let (backend, gateway) = of_one_worker(service(&server)).await?;
        for _ in 0..3 {
            assert_eq!(ask(&gateway, "/", &[]).await?.status, 200, "{shown}");
            assert_eq!(backend.last_request().unwrap().header("x-user"), None, "{shown}");
        }
        // The rest of a long body arrives after the verdict, so the next check may find no idle connection yet.
        let mut keeps = false;
        for _ in 0..if is_kept { 100 } else { 3 } {
            let before = server.accepted();
            assert_eq!(ask(&gateway, "/", &[]).await?.status, 200, "{shown}");
            keeps |= server.accepted() == before;
        }
        assert_eq!(keeps, is_kept, "{shown}");
        server.set(says(403, &[]));
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 403, "{shown}");
        assert_eq!(checks(&gateway, Check::Failed), 0, "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn connection_that_the_authorization_service_closes_causes_no_failed_request() -> TestResult {
    let server = Backend::start(says(200, &[]).close_after(2)).await?;
    let (_backend, gateway) = of_one_worker(service(&server)).await?;
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert_eq!(checks(&gateway, Check::Failed), 0);
    // The service closes the connection only when the next check arrives: the gateway sends the check once more.
    server.set(Behaviour::choose(|request| match request.nth {
        1 => says(200, &[]),
        _ => Behaviour::close_on_request(),
    }));
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert_eq!(checks(&gateway, Check::Failed), 0);
    Ok(())
}

#[tokio::test]
async fn gateway_ignores_interim_responses_of_the_authorization_service() -> TestResult {
    let early = "HTTP/1.1 103 Early Hints\r\nX-User: root\r\nSet-Cookie: a=b\r\n\r\n";
    let server = Backend::start(says(200, &["X-User: alice"]).interim(early)).await?;
    let (backend, gateway) = of_one_worker(naming(&server)).await?;
    for _ in 0..3 {
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!((response.status, response.header("set-cookie")), (200, None));
        assert_eq!(backend.last_request().unwrap().header("x-user"), Some("alice"));
    }
    server.set(says(401, &[]).interim(early));
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    assert_eq!(server.accepted(), 1);
    Ok(())
}

#[tokio::test]
async fn client_disconnect_cancels_the_authorization_check() -> TestResult {
    let server = Backend::start(Behaviour::silent()).await?;
    let external = ExtAuth { timeout: written(json!("60s")), ..service(&server) };
    let (_backend, gateway) = of_one_worker(external).await?;
    for transport in [Transport::Http, Transport::Http2] {
        let (before, addr) = (server.requests(), gateway.addr_of(transport));
        let mut client = sluicegate_testkit::client::Client::connect_by(addr, transport).await?;
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        server.wait_until(|server| server.requests() > before).await?;
        drop(client);
        gateway.wait_until_idle().await?;
        server.wait_until(|server| server.open() == 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn authorization_service_receives_no_forged_headers() -> TestResult {
    let server = Backend::start(Behaviour::choose(|request| {
        // A service that trusts the gateway's headers.
        match (request.header("x-original-url"), request.header("x-forwarded-for")) {
            (Some("http://localhost/admin"), Some("127.0.0.1")) => says(403, &[]),
            (Some(_), Some("127.0.0.1")) => says(200, &[]),
            _ => says(500, &[]),
        }
    }))
    .await?;
    let (_backend, gateway) = of_one_worker(service(&server)).await?;
    for (target, lines) in [
        ("/admin", &["X-Original-URL: http://localhost/", "x-original-uri: /"][..]),
        ("/public/../admin", &[]),
        ("/%61dmin", &[]),
        ("//admin", &[]),
        ("/admin", &["X-Forwarded-For: 1.2.3.4", "X-Real-IP: 1.2.3.4", "X-Auth-Request-Redirect: /"]),
        ("/admin", &["Content-Length: 5"]),
        ("/admin", &["Connection: X-Original-URL, X-Original-Method", "X-Original-URL: http://localhost/"]),
    ] {
        let mut client = gateway.connect().await?;
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await?;
        assert_eq!(client.read_response().await?.status, 403, "{target} {lines}");
        let asked = server.last_request().unwrap();
        let is_gone = |name: &str| asked.header(name).is_none();
        assert!(is_gone("content-length") && is_gone("x-original-uri") && asked.body.is_empty());
    }
    Ok(())
}
