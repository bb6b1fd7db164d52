//! Authorization by HTTP services.
//!
//! | module | contents |
//! |---|---|
//! | `auth_request` | `auth-url` of ingress-nginx |
//! | `filter`, `authz` | the filter `ExternalAuth` of Gateway API, and a server for its protocol over gRPC |
//! | `hostile` | services that misbehave |
//! | `remembered` | cached verdicts, and the callers they apply to |
//! | `service` | authorization services that are Services of the cluster |

mod auth_request;
mod authz;
mod filter;
mod hostile;
mod remembered;
mod service;

use sluicegate_model::feature::ExtAuth;
use sluicegate_model::feature::authentication::ext_auth::{ExtAuthCache, ExtAuthMethod, KeyPart};
use sluicegate_model::policy::Traffic;
use sluicegate_proxy::counters::Check;

use super::*;

/// A service at this address.
fn service(server: &Backend) -> ExtAuth {
    written(json!({"url": format!("http://{}/check?a=b", server.addr())}))
}

fn ext_auth(service: ExtAuth) -> Authentication {
    Authentication { ext_auth: Some(Arc::new(service)), ..Authentication::default() }
}

fn by(service: ExtAuth) -> Security {
    asking(ext_auth(service))
}

fn header(name: &str) -> KeyPart {
    written(json!({"type": "Header", "name": name}))
}

fn cache(key: Vec<KeyPart>) -> ExtAuthCache {
    let key = Entries::new(key).unwrap();
    ExtAuthCache { key, ..written(json!({"key": [{"type": "Path"}], "admitted": "10m", "refused": "10m"})) }
}

/// A response with these lines and without a body.
fn says(status: u16, lines: &[&str]) -> Behaviour {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    Behaviour::raw(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{lines}\r\n"))
}

/// A service that accepts the names of Alice and Bob as tokens.
fn directory() -> Behaviour {
    Behaviour::choose(|request| match request.header("authorization") {
        Some(name @ ("alice" | "bob")) => says(200, &[&format!("X-User: {name}")]),
        Some("eve") => says(403, &[]),
        _ => says(401, &["WWW-Authenticate: Custom realm=\"x\""]),
    })
}

/// A gateway with one worker, so that the tests know which worker asks and caches.
async fn of_one_worker(external: ExtAuth) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]).workers(1);
    set_security(builder.config_mut(), Some(by(external)));
    Ok((backend, builder.start().await?))
}

fn checks(gateway: &Gateway, check: Check) -> u64 {
    let policies = gateway.proxy().registry().policies();
    policies.iter().map(|policy| policy.stats.sum(|shard| &shard.checks[check as usize])).sum()
}

#[tokio::test]
async fn authorization_service_admits_or_denies_requests_and_sets_identity_headers() -> TestResult {
    let server = Backend::start(directory()).await?;
    let external = ExtAuth { response_headers: written(json!(["x-user"])), ..service(&server) };
    let (backend, gateway) = of_one_worker(external).await?;
    assert_eq!(ask(&gateway, "/", &["Authorization: alice", "X-User: root"]).await?.status, 200);
    let seen = backend.last_request().unwrap();
    let users: Vec<_> = seen.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-user")).collect();
    assert_eq!(users, [&("X-User".to_owned(), "alice".to_owned())]);
    let refused = ask(&gateway, "/", &[]).await?;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Custom realm=\"x\"")));
    assert_eq!(ask(&gateway, "/", &["Authorization: eve"]).await?.status, 403);
    assert_eq!(backend.requests(), 1);
    assert_eq!(denied(&gateway, Denial::CheckUnauthorized), 1);
    assert_eq!(denied(&gateway, Denial::CheckForbidden), 1);
    assert_eq!((checks(&gateway, Check::Admitted), checks(&gateway, Check::Refused)), (1, 2));
    assert_eq!(server.accepted(), 1, "the connection is kept");
    Ok(())
}

#[tokio::test]
async fn authorization_check_ends_at_the_request_timeout() -> TestResult {
    let server = Backend::start(Behaviour::silent()).await?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let external = ExtAuth { timeout: written(json!("60s")), ..service(&server) };
    set_security(builder.config_mut(), Some(by(external)));
    let mut traffic = Traffic::new(id("TrafficPolicy", "ways"));
    traffic.features.timeouts.request = Some(sluicegate_model::value::Timeout::of_millis(50));
    let traffic = Arc::new(traffic);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    let gateway = builder.start().await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 504);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn authorization_service_receives_sanitized_headers_without_the_body() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (_backend, gateway) = guarded(by(service(&server))).await?;
    let lines = [
        "Authorization: alice",
        "Cookie: a=b",
        "X-Original-URL: http://forged/",
        "X-Forwarded-For: 1.2.3.4",
        "X-Consumer-Username: root",
        "X-Hop: 1",
        "Connection: X-Hop",
        "Content-Type: text/plain",
        "If-None-Match: \"x\"",
        "Content-Length: 4",
        "Expect: 100-continue",
    ];
    let mut client = gateway.connect().await?;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("POST /x/../a%20b?c=d HTTP/1.1\r\nHost: localhost\r\n{lines}\r\nbody");
    assert_eq!(client.request(head).await?.status, 200);
    let asked = server.last_request().unwrap();
    assert_eq!((&*asked.method, &*asked.target), ("GET", "/check?a=b"));
    let mut names: Vec<_> = asked.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "cookie",
        "host",
        "x-auth-request-redirect",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-scheme",
        "x-original-method",
        "x-original-url",
        "x-real-ip",
        "x-request-id",
        "x-scheme",
    ];
    assert_eq!(names, expected);
    assert_eq!(asked.header("host"), Some(&*server.addr().to_string()));
    assert_eq!(asked.header("x-original-url"), Some("http://localhost/a%20b?c=d"));
    assert_eq!(asked.header("x-original-method"), Some("POST"));
    assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));
    Ok(())
}

#[tokio::test]
async fn override_headers_are_dropped_if_the_authorization_service_decides_by_the_path() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let lines = ["X-Rewrite-URL: /admin", "X-HTTP-Method-Override: DELETE"];
    let names = |backend: &Backend| {
        let seen = backend.last_request().unwrap();
        lines.map(|line| seen.header(line.split(':').next().unwrap()).is_some())
    };
    let by_token = cache(vec![header("authorization")]);
    for (external, passes) in [
        (service(&server), false),
        (ExtAuth { request_headers: written(json!(["x-rewrite-url"])), ..service(&server) }, false),
        (ExtAuth { cache: Some(by_token), ..service(&server) }, true),
    ] {
        let (backend, gateway) = of_one_worker(external).await?;
        assert_eq!(ask(&gateway, "/", &lines).await?.status, 200);
        assert_eq!((names(&server), names(&backend)), ([false; 2], [passes; 2]));
    }
    Ok(())
}

#[tokio::test]
async fn authorization_service_receives_only_the_configured_request_headers() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let request_headers = written(json!(["authorization", "x-a"]));
    let external = ExtAuth { request_headers, method: ExtAuthMethod::Post, ..service(&server) };
    let (_backend, gateway) = of_one_worker(external).await?;
    let lines = ["Authorization: alice", "X-A: 1", "X-A: 2", "X-B: 3", "Cookie: a=b", "User-Agent: me"];
    assert_eq!(ask(&gateway, "/", &lines).await?.status, 200);
    let asked = server.last_request().unwrap();
    let values = |name: &str| -> Vec<_> {
        let named = asked.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!((values("authorization"), values("x-a")), (vec!["alice"], vec!["1", "2"]));
    assert_eq!((values("x-b").len(), values("cookie").len(), values("user-agent").len()), (0, 0, 0));
    assert_eq!((&*asked.method, values("content-length")), ("POST", vec!["0"]));
    assert_eq!(values("x-original-url"), ["http://localhost/"]);
    Ok(())
}

#[tokio::test]
async fn only_configured_headers_of_the_authorization_response_are_forwarded() -> TestResult {
    let answer = [
        "Set-Cookie: a=b",
        "Set-Cookie: c=d",
        "X-User: alice",
        "X-Other: secret",
        "Location: http://evil/",
        "Connection: X-User-2",
        "X-User-2: hop",
        "Content-Security-Policy: none",
    ];
    let server = Backend::start(says(200, &answer)).await?;
    let response_headers = written(json!(["x-user", "x-user-2", "x-missing"]));
    let (backend, gateway) = of_one_worker(ExtAuth { response_headers, ..service(&server) }).await?;
    for transport in [Transport::Http, Transport::Http2] {
        let forged = ["X-Missing: forged", "X-User-2: forged"];
        let response = ask_by(&gateway, "GET", "/", &forged, transport).await?;
        assert_eq!(response.headers_named("set-cookie"), ["a=b", "c=d"]);
        for name in ["x-user", "x-other", "location", "content-security-policy"] {
            assert_eq!(response.header(name), None, "{name}");
        }
        let seen = backend.last_request().unwrap();
        assert_eq!(seen.header("x-user"), Some("alice"));
        for name in ["x-user-2", "x-missing", "x-other", "set-cookie", "location"] {
            assert_eq!(seen.header(name), None, "{name}");
        }
        server.set(says(403, &answer));
        let refused = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((refused.status, refused.text()), (403, "403 Forbidden\n".to_owned()));
        assert_eq!(refused.headers_named("set-cookie"), ["a=b", "c=d"]);
        assert_eq!((refused.header("location"), refused.header("x-user")), (None, None));
        server.set(says(200, &answer));
    }
    Ok(())
}

#[tokio::test]
async fn response_401_of_the_authorization_service_becomes_a_sign_in_redirect() -> TestResult {
    let server = Backend::start(says(401, &["Set-Cookie: csrf=1", "WWW-Authenticate: Basic"])).await?;
    let wanted = "%2Fa%2520b%3Fc%3Dd%26e%3D%2522";
    for (url, expected) in [
        ("https://login.example/start?x=1", "https://login.example/start?x=1&rd=SCHEME%3A%2F%2Flocalhost"),
        ("/oauth2/start", "/oauth2/start?rd="),
    ] {
        let sign_in = Some(written(json!({"url": url})));
        let (backend, gateway) = of_one_worker(ExtAuth { sign_in, ..service(&server) }).await?;
        for (transport, scheme) in [(Transport::Http, "http"), (Transport::Http2, "https")] {
            let response = ask_by(&gateway, "GET", "/a%20b?c=d&e=%22", &[], transport).await?;
            let location = format!("{}{wanted}", expected.replace("SCHEME", scheme));
            assert_eq!((response.status, response.header("location")), (302, Some(&*location)));
            assert_eq!(response.header("set-cookie"), Some("csrf=1"));
            assert_eq!(response.header("www-authenticate"), None);
        }
        assert_eq!((backend.requests(), denied(&gateway, Denial::SignIn)), (0, 2));
        server.set(says(403, &[]));
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 403, "who signed in may still not do everything");
        server.set(says(401, &["Set-Cookie: csrf=1", "WWW-Authenticate: Basic"]));
    }
    Ok(())
}

#[tokio::test]
async fn gateway_calls_the_authorization_service_last_and_only_if_needed() -> TestResult {
    let server = Backend::start(directory()).await?;
    for requires_all in [false, true] {
        let before = server.requests();
        let combined = if requires_all { all } else { either };
        let authentication = combined(api_key("x-api-key"), ext_auth(service(&server)));
        let (backend, gateway) = with(|config| {
            set_security(config, Some(asking(authentication)));
            config.consumers = vec![Arc::new(consumer("alice", "alice-key"))];
        })
        .await?;
        let status = async |lines: &[&str]| anyhow::Ok(ask(&gateway, "/", lines).await?.status);
        let (key, token) = ("X-API-Key: alice-key", "Authorization: alice");
        let (wrong, nobody) = ("X-API-Key: wrong-key", "Authorization: nobody");
        let asked = async |lines: &[&str], expected: u16, questions: u64| {
            let before = server.requests();
            assert_eq!(status(lines).await?, expected, "{lines:?}");
            assert_eq!(server.requests() - before, questions, "{lines:?}");
            anyhow::Ok(())
        };
        if requires_all {
            asked(&[], 401, 0).await?;
            asked(&[token], 401, 0).await?;
            asked(&[wrong, token], 401, 0).await?;
            asked(&[key, nobody], 401, 1).await?;
            asked(&[key, token], 200, 1).await?;
            assert_eq!(backend.last_request().unwrap().header("x-consumer-username"), Some("alice"));
        } else {
            asked(&[key], 200, 0).await?;
            asked(&[key, nobody], 200, 0).await?;
            asked(&[wrong, token], 200, 1).await?;
            asked(&[token], 200, 1).await?;
            asked(&[], 401, 1).await?;
            asked(&["X-API-Key: a", "X-API-Key: b", token], 400, 0).await?;
        }
        assert!(server.requests() > before);
    }
    Ok(())
}

#[tokio::test]
async fn gateway_verifies_the_certificate_of_the_authorization_service() -> TestResult {
    use sluicegate_testkit::terminator::Terminator;
    use sluicegate_testkit::tls::Authority;
    let authority = Authority::new();
    let server = Backend::start(says(200, &[])).await?;
    let secure = Terminator::start(server.addr(), &authority.issue(&["localhost"]), None).await?;
    for (host, authorities, is_good) in [
        ("localhost", vec![authority.certificate()], true),
        ("localhost", vec![Authority::new().certificate()], false),
        ("localhost", Vec::new(), false),
        ("127.0.0.1", vec![authority.certificate()], false),
    ] {
        let url = written(json!(format!("https://{host}:{}/", secure.addr().port())));
        let ca_certificate_ref = certificates(authorities);
        let (_backend, gateway) =
            of_one_worker(ExtAuth { url, ca_certificate_ref, ..service(&server) }).await?;
        for _ in 0..3 {
            assert_eq!(ask(&gateway, "/", &[]).await?.status, if is_good { 200 } else { 500 }, "{host}");
        }
        assert_eq!(denied(&gateway, Denial::CheckUnreachable), if is_good { 0 } else { 3 });
    }
    assert_eq!((server.requests(), server.accepted()), (3, 1), "the connection is kept");
    Ok(())
}

#[tokio::test]
async fn changes_of_an_external_authorization_policy_under_load_lose_no_request() -> TestResult {
    let servers = [Backend::start(says(200, &[])).await?, Backend::start(says(200, &[])).await?];
    let (_backend, gateway) = guarded(by(service(&servers[0]))).await?;
    let load = gateway.load().connections(8).posts(0.3, 100).start()?;
    for change in 0..30 {
        let mut external = service(&servers[change % 2]);
        external.cache = (change % 3 == 0).then(|| cache(vec![KeyPart::Path]));
        let policy = if change % 5 == 0 { open() } else { by(external) };
        gateway.configure(|config| set_security(config, Some(policy))).await;
        load.wait_for_ok(load.snapshot().ok + 20, Duration::from_secs(10)).await?;
    }
    let report = load.stop().await?;
    assert_eq!((report.failures(), report.reconnects), (0, 0), "{report}");
    assert!(servers.iter().all(|server| server.requests() > 20));
    // The gateway closes its connections to a service that no policy names.
    gateway.configure(|config| set_security(config, None)).await;
    for server in &servers {
        server.wait_until(|server| server.open() == 0).await?;
    }
    Ok(())
}
