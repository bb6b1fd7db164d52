//! Traffic features of routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use sluicegate_model::Upstream;
use sluicegate_model::feature::Mirror;
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::{Entries, Percent};
use sluicegate_proxy::counters::{Tally, TrafficShard};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::gateway::{add_route, key, ready};
use sluicegate_testkit::hole::Hole;

use super::*;

/// A policy with these features, in the fields of a TrafficPolicy.
pub(crate) fn traffic(features: Value) -> Arc<Traffic> {
    let mut traffic = Traffic::new(id("TrafficPolicy", "ways"));
    traffic.features = serde_json::from_value(features).expect("the features are valid");
    for upstream in traffic.features.upstreams_mut() {
        *upstream = key(&upstream.service);
    }
    Arc::new(traffic)
}

/// A gateway with this policy on all routes: `/` leads to backends, and so does `/shop`.
async fn governed<'b>(
    backends: impl IntoIterator<Item = &'b Backend>,
    features: Value,
) -> anyhow::Result<Gateway> {
    let mut builder = Gateway::builder().backends(backends);
    add_route(builder.config_mut(), "*", "/shop", "backend");
    let traffic = traffic(features);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    builder.start().await
}

async fn echo(features: Value) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = governed([&backend], features).await?;
    Ok((backend, gateway))
}

/// Adds an upstream to the configuration.
pub(crate) fn add_upstream(config: &mut Config, name: &str, addresses: &[SocketAddr]) {
    let endpoints = addresses.iter().copied().map(ready).collect();
    config.upstreams.insert(key(name), Arc::new(Upstream { endpoints, ..Upstream::default() }));
}

fn counted(gateway: &Gateway, tally: fn(&TrafficShard) -> &Tally) -> u64 {
    gateway.proxy().registry().traffic_policies().iter().map(|policy| policy.stats.sum(tally)).sum()
}

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Http2];

#[tokio::test]
async fn request_and_response_headers_are_set_added_and_removed() -> TestResult {
    let (backend, gateway) = echo(json!({
        "requestHeaders": {
            "set": [{"name": "X-Set", "value": "ours"}, {"name": "Accept", "value": "text/plain"}],
            "add": [{"name": "X-Add", "value": "ours"}],
            "remove": ["x-Remove", "user-agent"],
        },
        "responseHeaders": {
            "set": [{"name": "X-Frame-Options", "value": "DENY"}],
            "add": [{"name": "X-Add", "value": "ours"}],
            "remove": ["server"],
        },
    }))
    .await?;
    let said =
        ["x-set: theirs", "X-SET: theirs", "x-add: theirs", "X-Remove: a", "User-Agent: b", "Accept: */*"];
    for transport in TRANSPORTS {
        let echoed = ask_by(&gateway, "GET", "/", &said, transport).await?;
        let request = echoed.text().to_ascii_lowercase();
        for (line, times) in
            [("x-set: ours", 1), ("x-add: theirs", 1), ("x-add: ours", 1), ("accept: text/plain", 1)]
        {
            assert_eq!(request.matches(line).count(), times, "{line}: {request}");
        }
        for line in ["x-set: theirs", "x-remove", "user-agent", "*/*"] {
            assert!(!request.contains(line), "{line}: {request}");
        }
        assert_eq!(echoed.headers_named("x-frame-options"), ["DENY"]);
    }
    let answer = "HTTP/1.1 200 OK\r\nServer: secret\r\nX-Frame-Options: ALLOW\r\nx-add: theirs\r\nContent-Length: 0\r\n\r\n";
    backend.set(Behaviour::raw(answer));
    for transport in TRANSPORTS {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!(response.headers_named("server"), [""; 0]);
        assert_eq!(response.headers_named("x-frame-options"), ["DENY"]);
        assert_eq!(response.headers_named("x-add"), ["theirs", "ours"]);
    }
    // Headers for browsers also appear in the gateway's own responses.
    gateway.set_addresses([]).await;
    gateway.configure(|config| config.settings.resilience.endpoint_wait = Duration::ZERO).await;
    let failed = ask(&gateway, "/", &[]).await?;
    assert_eq!((failed.status, failed.header("x-frame-options")), (503, Some("DENY")));
    Ok(())
}

#[tokio::test]
async fn removed_request_headers_are_also_removed_from_trailers() -> TestResult {
    for (edits, is_passed) in [(json!({}), true), (json!({"remove": ["x-debug"]}), false)] {
        let (_backend, gateway) = echo(json!({"requestHeaders": edits})).await?;
        let request = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Debug: 1\r\n\r\n";
        let text = gateway.connect().await?.request(request).await?.text();
        assert_eq!(text.to_ascii_lowercase().contains("x-debug"), is_passed, "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn path_and_host_are_rewritten_and_the_query_is_unchanged() -> TestResult {
    let (_backend, gateway) = echo(json!({"urlRewrite": {
        "path": {"type": "ReplacePrefixMatch", "value": "/app"}, "hostname": "inner.example",
    }}))
    .await?;
    for (target, expected) in [
        ("/shop/cart?a=/shop/b", "/app/cart?a=/shop/b"),
        ("/shop", "/app"),
        ("/shopping", "/app/shopping"),
        ("/./shop//x%2fy", "/app/x%2Fy"),
    ] {
        for transport in TRANSPORTS {
            // The endpoint responds with the request.
            let request = ask_by(&gateway, "GET", target, &[], transport).await?.text().to_lowercase();
            let line = format!("GET {expected} HTTP/1.1\r\n").to_lowercase();
            assert!(request.starts_with(&line), "{target}: {request}");
            for header in ["host: inner.example", "x-forwarded-host: localhost"] {
                assert!(request.contains(&format!("\r\n{header}\r\n")), "{target}: {request}");
            }
        }
    }
    let full = traffic(json!({"urlRewrite": {"path": {"type": "ReplaceFullPath", "value": "/one"}}}));
    gateway.configure(|config| routes(config, |route| route.traffic = Some(full.clone()))).await;
    assert!(ask(&gateway, "/shop/cart?a=b", &[]).await?.text().starts_with("GET /one?a=b HTTP/1.1\r\n"));
    Ok(())
}

#[tokio::test]
async fn rewrite_that_would_create_dot_segments_returns_400() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let config = builder.config_mut();
    let rewrite =
        traffic(json!({"urlRewrite": {"path": {"type": "ReplacePrefixMatch", "value": "/static/"}}}));
    routes(config, |route| {
        route.matches =
            vec![sluicegate_model::RuleMatch::path(sluicegate_model::PathPattern::Starts("/img".into()))];
        route.traffic = Some(rewrite.clone());
    });
    config.settings.allow_encoded_dot_segments = true;
    let gateway = builder.start().await?;
    for (target, expected) in [
        ("/img/a", Some("/static/a")),
        ("/imga..b/c", Some("/static/a..b/c")),
        ("/img..a/c%2Fd", Some("/static/..a/c%2Fd")),
        // The request's path has these segments already, and no policy guards them.
        ("/img/..%2Fx", Some("/static/..%2Fx")),
        ("/imga/x%25252541", Some("/static/a/x%25252541")),
        ("/img../admin/x", None),
        ("/img../admin/..%2Fx", None),
        ("/img../admin/x%25252541", None),
        ("/img%2e%2e/admin/x", None),
        ("/img..", None),
        ("/img./x", None),
        ("/img..%2Fadmin", None),
        ("/img..;/admin", None),
    ] {
        let response = ask(&gateway, target, &[]).await?;
        match expected {
            Some(path) => assert!(
                response.text().starts_with(&format!("GET {path} HTTP/1.1\r\n")),
                "{target}: {}",
                response.text()
            ),
            None => assert_eq!(response.status, 400, "{target}"),
        }
    }
    Ok(())
}

#[tokio::test]
async fn redirect_may_replace_scheme_host_port_and_path() -> TestResult {
    for (redirect, host_header, status, expected) in [
        (json!({"scheme": "https"}), "a.example:8080", 302, "https://a.example/shop/x?q=1"),
        (json!({"hostname": "new.example"}), "a.example:8080", 302, "http://new.example:8080/shop/x?q=1"),
        (json!({"port": 444, "statusCode": 308}), "a.example", 308, "http://a.example:444/shop/x?q=1"),
        (json!({"scheme": "https", "port": 443}), "[::1]:80", 302, "https://[::1]/shop/x?q=1"),
        (
            json!({"path": {"type": "ReplacePrefixMatch", "value": "/new"}, "statusCode": 301}),
            "a.example",
            301,
            "http://a.example/new/x?q=1",
        ),
        (
            json!({
                "hostname": "new.example", "path": {"type": "ReplaceFullPath", "value": "/"}, "statusCode": 307,
            }),
            "a.example",
            307,
            "http://new.example/?q=1",
        ),
    ] {
        let headers = json!({"set": [{"name": "x-ours", "value": "1"}]});
        let (backend, gateway) = echo(json!({"redirect": redirect, "responseHeaders": headers})).await?;
        let mut client = gateway.connect().await?;
        let asked = format!("GET /shop/x?q=1 HTTP/1.1\r\nHost: {host_header}\r\n\r\n");
        let response = client.request(&asked).await?;
        assert_eq!((response.status, response.header("location")), (status, Some(expected)));
        assert_eq!(response.header("x-ours"), Some("1"));
        assert_eq!(client.request(&asked).await?.status, status, "the connection goes on");
        assert_eq!((backend.requests(), counted(&gateway, |shard| &shard.answered)), (0, 2));
    }
    Ok(())
}

#[tokio::test]
async fn redirect_to_the_requested_url_itself_is_skipped() -> TestResult {
    let to_https = json!({"scheme": "https", "statusCode": 301});
    let to_host = json!({"hostname": "new.example", "statusCode": 301});
    let to_host_and_https = json!({"scheme": "https", "hostname": "new.example", "statusCode": 301});
    let to_path = json!({"path": {"type": "ReplaceFullPath", "value": "/new"}, "statusCode": 301});
    for (redirect, transport, target, lines, status) in [
        (&to_https, Transport::Http, "/", "Host: a.example", 301),
        // A client without a host can be redirected only to a path.
        (&to_https, Transport::Http, "/", "", 400),
        (&to_https, Transport::Https, "/", "Host: a.example", 200),
        (&to_https, Transport::Https, "/", "Host: a.example:8443", 301),
        (&to_https, Transport::Http, "/", "Host: a.example\r\nX-Forwarded-Proto: https", 200),
        (&to_host, Transport::Http, "/", "Host: New.example", 200),
        (&to_host_and_https, Transport::Http, "/", "Host: new.example", 301),
        (&to_path, Transport::Http, "/new?a=b", "Host: a.example", 200),
        (&to_path, Transport::Http, "/new/", "Host: a.example", 301),
    ] {
        let (_backend, gateway) = echo(json!({"redirect": redirect})).await?;
        gateway
            .configure(|config| config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()])
            .await;
        let address = gateway.addr_of(transport);
        let mut client = sluicegate_testkit::client::Client::connect_by(address, transport).await?;
        let version = if lines.is_empty() { "1.0" } else { "1.1" };
        let line = if lines.is_empty() { String::new() } else { format!("{lines}\r\n") };
        let response = client.request(format!("GET {target} HTTP/{version}\r\n{line}\r\n")).await?;
        assert_eq!(response.status, status, "{redirect:?} {target} {lines}");
    }
    Ok(())
}

#[tokio::test]
async fn fixed_response_contacts_no_endpoint() -> TestResult {
    let fixed = json!({"statusCode": 503, "contentType": "text/html", "body": "<h1>Back soon</h1>"});
    let (backend, gateway) = echo(json!({"directResponse": fixed})).await?;
    for transport in TRANSPORTS {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((response.status, response.header("content-type")), (503, Some("text/html")));
        assert_eq!(response.text(), "<h1>Back soon</h1>");
        let head = ask_by(&gateway, "HEAD", "/", &[], transport).await?;
        assert_eq!((head.status, head.header("content-length"), &*head.text()), (503, Some("18"), ""));
    }
    let policy = traffic(json!({"directResponse": {"statusCode": 204}}));
    gateway.configure(|config| routes(config, |route| route.traffic = Some(policy.clone()))).await;
    for transport in TRANSPORTS {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((response.status, response.header("content-length")), (204, None));
    }
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn request_body_limit_of_the_route_overrides_the_settings() -> TestResult {
    let (_backend, gateway) = echo(json!({"limits": {"requestBody": "10"}})).await?;
    gateway.configure(|config| config.settings.limits.request_body = Some(5)).await;
    let post =
        |body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(gateway.connect().await?.request(post("0123456789")).await?.status, 200);
    assert_eq!(gateway.connect().await?.request(post("0123456789a")).await?.status, 413);
    let chunked =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n";
    assert_eq!(gateway.connect().await?.request(chunked).await?.status, 413);
    let unlimited = traffic(json!({"limits": {"requestBody": "0"}}));
    gateway.configure(|config| routes(config, |route| route.traffic = Some(unlimited.clone()))).await;
    assert_eq!(gateway.connect().await?.request(post(&"x".repeat(100_000))).await?.status, 200);
    gateway.configure(|config| routes(config, |route| route.traffic = None)).await;
    assert_eq!(gateway.connect().await?.request(post("0123456")).await?.status, 413);
    Ok(())
}

#[tokio::test]
async fn response_body_over_the_route_limit_returns_502_or_is_truncated() -> TestResult {
    let (backend, gateway) = echo(json!({"limits": {"responseBody": "1000"}})).await?;
    for transport in TRANSPORTS {
        backend.set(Behaviour::sized(1000));
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
        backend.set(Behaviour::sized(1001));
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 502);
        let chunks = |size: usize| Behaviour::chunked(vec![vec![b'x'; size]; 2], Duration::ZERO, &[]);
        backend.set(chunks(400));
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.body.len(), 800);
        backend.set(chunks(100_000));
        let broken = ask_by(&gateway, "GET", "/", &[], transport).await;
        assert!(broken.is_err() || broken.is_ok_and(|response| response.status == 502));
    }
    Ok(())
}

#[tokio::test]
async fn changed_settings_apply_to_routes_with_a_traffic_policy() -> TestResult {
    let (_backend, gateway) = echo(json!({"timeouts": {"request": "1m"}})).await?;
    assert_eq!(ask(&gateway, "/", &["X_y: 1"]).await?.status, 200);
    gateway.configure(|config| config.settings.limits.request_body = Some(1)).await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    assert_eq!(gateway.connect().await?.request(post).await?.status, 413);
    Ok(())
}

#[tokio::test]
async fn each_timeout_of_a_route_ends_the_request() -> TestResult {
    let silent = Backend::start(Behaviour::silent()).await?;
    for timeout in ["request", "backendRequest", "response"] {
        let gateway = governed([&silent], json!({"timeouts": {timeout: "50ms"}})).await?;
        for transport in TRANSPORTS {
            assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 504, "{timeout}");
        }
    }
    // The timeout also ends a connect without a response.
    let hole = Hole::start().await?;
    let gateway = governed([], json!({"timeouts": {"request": "50ms"}})).await?;
    gateway.set_addresses([hole.addr()]).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 504);
    // The timeout also ends the delay of a fault.
    let gateway =
        governed([&silent], json!({"timeouts": {"request": "50ms"}, "fault": {"delay": {"time": "1h"}}}))
            .await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 504);
    let gateway = governed([&silent], json!({"timeouts": {"requestBody": "50ms"}})).await?;
    let unfinished = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
    assert_eq!(gateway.connect().await?.request(unfinished).await?.status, 408);
    Ok(())
}

/// Two endpoints: the first behaves like `bad`, the second responds with 200.
async fn two(bad: Behaviour) -> anyhow::Result<(Backend, Backend)> {
    Ok((Backend::start(bad).await?, Backend::start(Behaviour::ok()).await?))
}

#[tokio::test]
async fn idempotent_request_is_retried_on_another_endpoint_after_configured_statuses() -> TestResult {
    let (bad, good) = two(Behaviour::status(503)).await?;
    let gateway = governed(
        [&bad, &good],
        json!({"loadBalancing": {"algorithm": "RoundRobin"}, "retries": {"codes": [502, 503]}}),
    )
    .await?;
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert!(bad.requests() > 0, "it was asked");
    let mut statuses = BTreeMap::new();
    for _ in 0..20 {
        let post = gateway
            .connect()
            .await?
            .request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na")
            .await?;
        *statuses.entry(post.status).or_insert(0) += 1;
    }
    assert!(statuses[&503] > 0, "a POST is answered once: {statuses:?}");
    // If all endpoints respond so, the client receives their response.
    good.set(Behaviour::status(503));
    let asked = bad.requests() + good.requests();
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!((response.status, bad.requests() + good.requests() - asked), (503, 3));
    Ok(())
}

#[tokio::test]
async fn attempt_beyond_its_timeout_is_retried() -> TestResult {
    let (slow, good) = two(Behaviour::silent()).await?;
    let gateway = governed(
        [&slow, &good],
        json!({"loadBalancing": {"algorithm": "RoundRobin"}, "timeouts": {"backendRequest": "300ms"}}),
    )
    .await?;
    for _ in 0..6 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert!(slow.requests() > 0);
    // The last attempt has the same timeout.
    for backend in [&slow, &good] {
        backend.set(Behaviour::silent());
    }
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 504);
    Ok(())
}

#[tokio::test]
async fn retry_waits_for_the_backoff_within_the_request_timeout() -> TestResult {
    let bad = Backend::start(Behaviour::status(503)).await?;
    let retries = |backoff: &str| json!({"attempts": 1, "codes": [503], "backoff": backoff});
    let gateway = governed([&bad], json!({"retries": retries("300ms")})).await?;
    let asked = std::time::Instant::now();
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    assert!(asked.elapsed() >= Duration::from_millis(300), "{:?}", asked.elapsed());
    assert_eq!(bad.requests(), 2);
    // The request's own timeout ends the wait.
    let timeouts = json!({"request": "100ms"});
    let gateway = governed([&bad], json!({"retries": retries("1m"), "timeouts": timeouts})).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 504);
    assert_eq!(bad.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn gateway_stops_retrying_at_the_retry_budget() -> TestResult {
    let (bad, worse) =
        (Backend::start(Behaviour::status(500)).await?, Backend::start(Behaviour::status(500)).await?);
    let gateway = governed(
        [&bad, &worse],
        json!({"retries": {
            "attempts": 1, "codes": [500], "budget": {"percent": 20, "minPerSecond": 0},
        }}),
    )
    .await?;
    for _ in 0..50 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 500);
    }
    let extra = bad.requests() + worse.requests() - 50;
    assert!((8..=10).contains(&extra), "{extra} of 50");
    assert_eq!(counted(&gateway, |shard| &shard.over_budget), 50 - extra);
    Ok(())
}

#[tokio::test]
async fn endless_response_is_aborted_at_the_request_or_attempt_timeout() -> TestResult {
    let backend = Backend::start(Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")).await?;
    for timeout in ["request", "backendRequest"] {
        let gateway = governed([&backend], json!({"timeouts": {timeout: "300ms"}})).await?;
        for transport in TRANSPORTS {
            let cut = ask_by(&gateway, "GET", "/", &[], transport).await;
            assert!(cut.is_err(), "{timeout}, {transport:?}: {cut:?}");
        }
        let failures = gateway.count(|shard| &shard.failures[Failure::ResponseTimeout.index()]);
        assert_eq!(failures, 2, "{timeout}");
        backend.set(Behaviour::ok());
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
        backend.set(Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"));
    }
    Ok(())
}

#[tokio::test]
async fn faults_are_injected_into_the_configured_percentage_of_requests() -> TestResult {
    let (backend, gateway) =
        echo(json!({"fault": {"abort": {"percent": 50, "statusCode": 418}, "delay": {"time": "1ms"}}}))
            .await?;
    let mut client = gateway.connect().await?;
    let mut aborted = 0;
    for _ in 0..200 {
        aborted += u64::from(client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?.status == 418);
    }
    assert!((50..150).contains(&aborted), "{aborted} of 200");
    assert_eq!(backend.requests(), 200 - aborted);
    assert_eq!(counted(&gateway, |shard| &shard.aborted), aborted);
    assert_eq!(counted(&gateway, |shard| &shard.delayed), 200);
    drop(client);
    // If the client disconnects during the delay, the gateway drops the request.
    let forever = traffic(json!({"fault": {"delay": {"time": "1h"}}}));
    gateway.configure(|config| routes(config, |route| route.traffic = Some(forever.clone()))).await;
    let mut client = gateway.connect().await?;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    gateway.wait_until(|gateway| counted(gateway, |shard| &shard.delayed) > 200).await?;
    drop(client);
    gateway.wait_until_idle().await
}

/// A split between `backend` and `canary`, of which `canary` has these fields.
pub(crate) fn to_canary(weight: u32, mut canary: Value) -> Arc<Traffic> {
    canary["serviceRef"] = json!({"name": "canary", "port": 80});
    traffic(json!({"split": {"weight": weight, "backends": [canary]}}))
}

async fn split(canary_fields: Value) -> anyhow::Result<(Backend, Backend, Gateway)> {
    let (stable, canary) = (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?);
    let mut builder = Gateway::builder().backends([&stable]);
    add_upstream(builder.config_mut(), "canary", &[canary.addr()]);
    let policy = to_canary(75, canary_fields);
    routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
    Ok((stable, canary, builder.start().await?))
}

#[tokio::test]
async fn canary_receives_requests_by_weight_and_by_match() -> TestResult {
    let (stable, canary, gateway) = split(json!({
        "weight": 25,
        "match": [{"header": "x-canary", "value": "always"}, {"cookie": "beta"}],
        "exclude": [{"header": "x-canary", "value": "never"}],
    }))
    .await?;
    for _ in 0..400 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert!((50..160).contains(&canary.requests()), "{} of 400", canary.requests());
    assert_eq!(counted(&gateway, |shard| &shard.diverted), canary.requests());
    let (before, stable_before) = (canary.requests(), stable.requests());
    for _ in 0..10 {
        ask(&gateway, "/", &["X-Canary: always"]).await?;
        ask(&gateway, "/", &["Cookie: a=b; beta=1"]).await?;
    }
    assert_eq!(canary.requests(), before + 20);
    for _ in 0..20 {
        ask(&gateway, "/", &["X-Canary: never"]).await?;
    }
    assert_eq!((canary.requests(), stable.requests()), (before + 20, stable_before + 20));
    // The canary is added and removed without a lost request.
    let load = gateway.load().connections(4).start()?;
    for _ in 0..20 {
        gateway
            .configure(|config| {
                config.upstreams.remove(&key("canary"));
                routes(config, |route| route.traffic = None);
            })
            .await;
        gateway
            .configure(|config| {
                add_upstream(config, "canary", &[canary.addr()]);
                let policy = to_canary(1, json!({"weight": 1}));
                routes(config, |route| route.traffic = Some(policy.clone()));
            })
            .await;
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report:?}");
    Ok(())
}

#[tokio::test]
async fn consistent_hashing_selects_a_stable_endpoint_for_each_key() -> TestResult {
    let backends = Backend::group(4, Behaviour::ok()).await?;
    let gateway = governed(
        &backends,
        json!({"loadBalancing": {
            "algorithm": "ConsistentHash", "hash": [{"type": "Header", "name": "X-User"}, {"type": "Query", "name": "q"}],
        }}),
    )
    .await?;
    let served = || backends.iter().map(Backend::requests).collect::<Vec<_>>();
    for user in 0..12 {
        let before = served();
        for _ in 0..5 {
            ask(&gateway, "/?q=1", &[&format!("X-User: {user}")]).await?;
        }
        let now = served();
        let by: Vec<_> =
            now.iter().zip(before).map(|(now, before)| now - before).filter(|count| *count > 0).collect();
        assert_eq!(by, [5], "user {user}");
    }
    assert!(served().iter().filter(|count| **count > 0).count() > 1, "{:?}", served());
    Ok(())
}

#[tokio::test]
async fn affinity_cookie_has_the_secure_attribute_behind_a_tls_load_balancer() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = governed([&backend], json!({"loadBalancing": {"affinity": {"cookie": "route"}}})).await?;
    gateway.configure(|config| config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]).await;
    let response = ask(&gateway, "/", &["X-Forwarded-Proto: https"]).await?;
    let cookie = response.header("set-cookie").unwrap_or_default();
    assert!(cookie.ends_with("; HttpOnly; Secure; SameSite=None"), "{cookie}");
    Ok(())
}

#[tokio::test]
async fn affinity_cookie_selects_its_endpoint_while_healthy() -> TestResult {
    let mut backends = Backend::group(3, Behaviour::ok()).await?;
    let gateway = governed(
        &backends,
        json!({"loadBalancing": {"algorithm": "RoundRobin", "affinity": {"cookie": "route", "maxAge": "1m"}}}),
    )
    .await?;
    let first = ask(&gateway, "/", &[]).await?;
    let cookie = first.header("set-cookie").unwrap().to_owned();
    assert!(cookie.ends_with("; Path=/; HttpOnly; Max-Age=60; SameSite=Lax"), "{cookie}");
    let pair = format!("Cookie: other=1; {}", cookie.split(';').next().unwrap());
    let mine = backends.iter().position(|backend| backend.requests() == 1).unwrap();
    for transport in [Transport::Http, Transport::Http2].repeat(5) {
        let again = ask_by(&gateway, "GET", "/", &[&pair], transport).await?;
        assert_eq!((again.status, again.header("set-cookie")), (200, None));
    }
    assert_eq!(backends[mine].requests(), 11);
    backends[mine].kill().await;
    let moved = ask(&gateway, "/", &[&pair]).await?;
    assert_eq!(moved.status, 200);
    assert!(moved.header("set-cookie").is_some_and(|new| new != cookie), "it has another endpoint now");
    for forged in ["route=", "route=zz", "route=0000000000000000", "route=1; route=2"] {
        assert_eq!(ask(&gateway, "/", &[&format!("Cookie: {forged}")]).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn mirrored_requests_never_delay_the_original_request() -> TestResult {
    let (backend, shadow) =
        (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::echo()).await?);
    let mut builder = Gateway::builder().backends([&backend]);
    add_upstream(builder.config_mut(), "shadow", &[shadow.addr()]);
    let policy = traffic(json!({"mirror": {"serviceRef": {"name": "shadow", "port": 80}}}));
    routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
    let gateway = builder.start().await?;
    for transport in TRANSPORTS {
        let lines = ["X-Id: 7", "Content-Length: 5"];
        let mut client =
            sluicegate_testkit::client::Client::connect_by(gateway.addr_of(transport), transport).await?;
        let head = format!("POST /a?b HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\nhello", lines.join("\r\n"));
        assert_eq!(client.request(head).await?.status, 200);
    }
    shadow.wait_until(|shadow| shadow.requests() == 2).await?;
    let (original, copy) = (backend.last_request().unwrap(), shadow.last_request().unwrap());
    assert_eq!((copy.head, copy.body), (original.head, original.body));
    gateway.wait_until(|gateway| counted(gateway, |shard| &shard.mirrored) == 2).await?;
    // A mirror that never responds delays no request, and the gateway starts no more than the maximum of mirrored
    // requests.
    shadow.set(Behaviour::silent());
    for _ in 0..200 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    assert!(counted(&gateway, |shard| &shard.mirror_failures) >= 200 - 2 * 64);
    let long = "x".repeat(300_000);
    let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n{long}");
    assert_eq!(gateway.connect().await?.request(post).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn each_mirror_of_a_route_receives_a_copy_of_the_request() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let shadows = [Backend::start(Behaviour::silent()).await?, Backend::start(Behaviour::ok()).await?];
    let mut builder = Gateway::builder().backends([&backend]);
    add_upstream(builder.config_mut(), "one", &[shadows[0].addr()]);
    add_upstream(builder.config_mut(), "two", &[shadows[1].addr()]);
    let mirror = |name: &str| Mirror { upstream: key(name), percent: Percent::of(100), form: None };
    let mut policy = traffic(json!({}));
    let mirrors = Entries::new(vec![mirror("one"), mirror("two")]);
    Arc::make_mut(&mut policy).features.mirrors = mirrors.expect("two mirrors");
    routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
    let gateway = builder.start().await?;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(gateway.connect().await?.request(post).await?.status, 200);
    for shadow in &shadows {
        shadow.wait_until(|shadow| shadow.requests() == 1).await?;
        assert_eq!(shadow.last_request().map(|copy| copy.body), Some(b"hello".to_vec()));
    }
    gateway.wait_until(|gateway| counted(gateway, |shard| &shard.mirrored) == 1).await?;
    Ok(())
}
