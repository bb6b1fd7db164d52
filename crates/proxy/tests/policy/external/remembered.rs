//! Cached verdicts, and the callers they apply to.

use super::*;

fn cookie(name: &str) -> KeyPart {
    written(json!({"type": "Cookie", "name": name}))
}

fn query(name: &str) -> KeyPart {
    written(json!({"type": "Query", "name": name}))
}

/// A gateway with one worker that caches the verdicts of this server by this key.
async fn remembering(server: &Backend, key: Vec<KeyPart>) -> anyhow::Result<(Backend, Gateway)> {
    let response_headers = written(json!(["x-user"]));
    of_one_worker(ExtAuth { cache: Some(cache(key)), response_headers, ..service(server) }).await
}

#[tokio::test]
async fn cached_decision_applies_only_to_its_own_caller() -> TestResult {
    let server = Backend::start(directory()).await?;
    let (backend, gateway) = remembering(&server, vec![header("authorization")]).await?;
    let asked = async |lines: &[&str], status: u16, user: Option<&str>, questions: u64| {
        let before = (server.requests(), backend.requests());
        assert_eq!(ask(&gateway, "/a?b=c", lines).await?.status, status, "{lines:?}");
        assert_eq!(server.requests() - before.0, questions, "{lines:?}");
        if backend.requests() > before.1 {
            assert_eq!(backend.last_request().unwrap().header("x-user"), user, "{lines:?}");
        }
        anyhow::Ok(())
    };
    for round in 0..3 {
        let first = u64::from(round == 0);
        asked(&["Authorization: alice"], 200, Some("alice"), first).await?;
        asked(&["Authorization: bob"], 200, Some("bob"), first).await?;
        asked(&["Authorization: eve"], 403, None, first).await?;
        asked(&["Authorization: mallory"], 401, None, first).await?;
        asked(&["Authorization: alice", "X-User: root"], 200, Some("alice"), 0).await?;
        // The key is case-sensitive. A request with the header twice has no usable key.
        asked(&["Authorization: Alice"], 401, None, first).await?;
        asked(&["Authorization: alice", "Authorization: bob"], 400, None, 0).await?;
        // Without the part, the verdict has no cache key.
        asked(&[], 401, None, 1).await?;
        asked(&["Authorization:"], 401, None, 1).await?;
    }
    assert_eq!(checks(&gateway, Check::Remembered), 3 + 5 * 2);
    Ok(())
}

#[tokio::test]
async fn authorization_service_receives_only_the_cache_key() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let lines = ["Authorization: alice", "Cookie: a=1; s=2; b=3", "X-Real-IP: 1.2.3.4", "User-Agent: me"];
    for (key, expected) in [
        (vec![header("authorization")], &["authorization: alice"][..]),
        (vec![cookie("s")], &["cookie: s=2"]),
        (vec![cookie("b"), cookie("a")], &["cookie: b=3; a=1"]),
        (vec![query("t")], &["x-original-url: /?t=1%262"]),
        (vec![KeyPart::Path, KeyPart::Method], &["x-original-method: GET", "x-original-url: /p"]),
        (
            vec![KeyPart::Host, KeyPart::Path, query("t")],
            &[
                "x-forwarded-host: localhost",
                "x-forwarded-proto: http",
                "x-original-url: http://localhost/p?t=1%262",
            ],
        ),
        (vec![KeyPart::Address], &["x-forwarded-for: 127.0.0.1", "x-real-ip: 127.0.0.1"]),
    ] {
        let (_backend, gateway) = remembering(&server, key).await?;
        assert_eq!(ask(&gateway, "/p?t=%31%262&u=3", &lines).await?.status, 200);
        let asked = server.last_request().unwrap();
        let mut told: Vec<_> = asked
            .headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            .collect();
        told.sort_unstable();
        assert_eq!(told, expected);
        // Another spelling of the same value is the same check; another value is not.
        let before = server.requests();
        assert_eq!(ask(&gateway, "/p?u=4&t=1%26%32", &lines).await?.status, 200);
        assert_eq!(server.requests(), before);
    }
    Ok(())
}

#[tokio::test]
async fn each_part_of_the_cache_key_separates_cached_decisions() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    for (key, differs) in [
        (
            vec![KeyPart::Path, KeyPart::Method, KeyPart::Host],
            [("GET", "/b", "localhost"), ("HEAD", "/a", "localhost"), ("GET", "/a", "other")],
        ),
        (
            vec![KeyPart::Path, query("t")],
            [
                ("GET", "/a?t=2", "localhost"),
                ("GET", "/b?t=1", "localhost"),
                ("GET", "/a%3Ft=1?t=1", "localhost"),
            ],
        ),
    ] {
        let (_backend, gateway) = remembering(&server, key).await?;
        let send = async |(method, target, host): (&str, &str, &str)| {
            let mut client = gateway.connect().await?;
            let response =
                client.request(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
            anyhow::ensure!(response.status == 200, "{}", response.status);
            anyhow::Ok(())
        };
        let before = server.requests();
        for _ in 0..2 {
            send(("GET", "/a?t=1", "localhost")).await?;
        }
        // Another spelling of the same path is the same path. The service receives the path as endpoints receive it.
        send(("GET", "/x/../%61?t=1", "localhost")).await?;
        assert_eq!(server.requests() - before, 1);
        for (questions, other) in differs.into_iter().enumerate() {
            send(other).await?;
            assert_eq!(server.requests() - before, questions as u64 + 2, "{other:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn concurrent_requests_with_the_same_key_share_an_authorization_check() -> TestResult {
    let server = Backend::start(Behaviour::choose(|request| {
        let user = request.header("authorization").unwrap_or_default();
        says(200, &[&format!("X-User: {user}")]).delay(Duration::from_millis(300))
    }))
    .await?;
    let (backend, gateway) = remembering(&server, vec![header("authorization")]).await?;
    let mut asking = tokio::task::JoinSet::new();
    let gateway = Arc::new(gateway);
    for number in 0..200 {
        let gateway = gateway.clone();
        let line = ["Authorization: alice", "Authorization: bob"][number % 2];
        asking.spawn(async move { anyhow::Ok(ask(&gateway, "/", &[line]).await?.status) });
    }
    while let Some(status) = asking.join_next().await {
        assert_eq!(status??, 200);
    }
    assert_eq!((server.requests(), backend.requests()), (2, 200));
    let (shared, remembered) = (checks(&gateway, Check::Shared), checks(&gateway, Check::Remembered));
    assert_eq!((shared + remembered, checks(&gateway, Check::Admitted)), (198, 2));
    Ok(())
}

#[tokio::test]
async fn shared_authorization_check_continues_after_its_first_client_disconnects() -> TestResult {
    let server = Backend::start(says(200, &[]).delay(Duration::from_millis(500))).await?;
    let (_backend, gateway) = remembering(&server, vec![header("authorization")]).await?;
    let mut first = gateway.connect().await?;
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: alice\r\n\r\n").await?;
    server.wait_until(|server| server.requests() == 1).await?;
    drop(first);
    gateway.wait_until_idle().await?;
    assert_eq!(ask(&gateway, "/", &["Authorization: alice"]).await?.status, 200);
    assert_eq!(server.requests(), 1);
    // Every waiting request receives the failure, and the failure is not cached.
    server.set(says(500, &[]));
    assert_eq!(ask(&gateway, "/", &["Authorization: bob"]).await?.status, 500);
    server.set(says(200, &[]));
    assert_eq!(ask(&gateway, "/", &["Authorization: bob"]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn authorization_decision_with_a_cookie_is_neither_shared_nor_cached() -> TestResult {
    let server = Backend::start(Behaviour::choose(|request| {
        let cookie = format!("Set-Cookie: id={}-{}", request.connection, request.nth);
        says(200, &[&cookie]).delay(Duration::from_millis(50))
    }))
    .await?;
    let (_backend, gateway) = remembering(&server, vec![header("authorization")]).await?;
    let gateway = Arc::new(gateway);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let gateway = gateway.clone();
        asking.spawn(async move {
            let response = ask(&gateway, "/", &["Authorization: alice"]).await?;
            anyhow::Ok(response.header("set-cookie").map(str::to_owned))
        });
    }
    let mut cookies = std::collections::BTreeSet::new();
    while let Some(cookie) = asking.join_next().await {
        assert!(cookies.insert(cookie??.expect("each has one")));
    }
    ask(&gateway, "/", &["Authorization: alice"]).await?;
    assert_eq!((server.requests(), checks(&gateway, Check::Remembered)), (31, 0));
    Ok(())
}

#[tokio::test]
async fn changed_policy_discards_cached_decisions() -> TestResult {
    let server = Backend::start(directory()).await?;
    let (_backend, gateway) = remembering(&server, vec![header("authorization")]).await?;
    let alice = &["Authorization: alice"][..];
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", alice).await?.status, 200);
    }
    assert_eq!(server.requests(), 1);
    // Other changes of the configuration keep the cache.
    gateway.configure(|config| config.consumers = vec![Arc::new(consumer("bob", "bob-key"))]).await;
    assert_eq!(ask(&gateway, "/", alice).await?.status, 200);
    assert_eq!(server.requests(), 1);
    server.set(says(401, &[]));
    let ip_access = written(json!({"deny": ["10.0.0.0/8"]}));
    let external = ExtAuth { cache: Some(cache(vec![header("authorization")])), ..service(&server) };
    gateway
        .configure(|config| set_security(config, Some(Security { ip_access, ..by(external.clone()) })))
        .await;
    assert_eq!(ask(&gateway, "/", alice).await?.status, 401);
    assert_eq!(server.requests(), 2);
    // A service that is removed and added again also starts with an empty cache.
    server.set(directory());
    gateway.configure(|config| set_security(config, None)).await;
    gateway.configure(|config| set_security(config, Some(by(external)))).await;
    assert_eq!(ask(&gateway, "/", alice).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn cached_decision_expires_after_the_configured_time() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let short = ExtAuthCache {
        admitted: written(json!("100ms")),
        refused: written(json!("0s")),
        ..cache(vec![header("authorization")])
    };
    let (_backend, gateway) = of_one_worker(ExtAuth { cache: Some(short), ..service(&server) }).await?;
    let alice = &["Authorization: alice"][..];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while server.requests() < 3 || checks(&gateway, Check::Remembered) == 0 {
        assert_eq!(ask(&gateway, "/", alice).await?.status, 200);
        assert!(tokio::time::Instant::now() < deadline, "it was remembered for ever, or not at all");
    }
    let before = server.requests();
    server.set(says(403, &[]));
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &["Authorization: bob"]).await?.status, 403);
    }
    assert_eq!(server.requests(), before + 2);
    Ok(())
}
