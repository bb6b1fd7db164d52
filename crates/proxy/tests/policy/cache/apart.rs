//! Stored responses never leak to requests that must not receive them.

use sluicegate_model::Tracing;
use sluicegate_model::feature::BackendFeatures;

use super::*;

#[tokio::test]
async fn cached_response_for_one_caller_is_not_served_to_another() -> TestResult {
    // The response echoes the credential, the host, the path and the headers of the request.
    let echo = |lines: &'static str| {
        by_request(move |request| {
            let header = |name| request.header(name).unwrap_or("-").to_owned();
            let names =
                ["authorization", "cookie", "x-user", "host", "x-forwarded-host", "x-http-method-override"];
            let body = names.map(header).join("|") + "|" + &request.target;
            ok(lines, &body)
        })
    };
    let public = "Cache-Control: max-age=60\r\n";
    for (response, first, second) in [
        // RFC 9111, 3.5, both ways.
        (public, vec!["Authorization: Bearer a"], vec!["Authorization: Bearer b"]),
        (public, vec!["Authorization: Bearer a"], vec![]),
        (public, vec![], vec!["Authorization: Bearer a"]),
        (public, vec!["Proxy-Authorization: Basic YTpi"], vec![]),
        (
            "Cache-Control: max-age=60\r\nVary: Authorization\r\n",
            vec!["Authorization: a"],
            vec!["Authorization: b"],
        ),
        (
            "Cache-Control: public, max-age=60\r\nVary: Authorization\r\n",
            vec!["Authorization: a"],
            vec!["Authorization: b"],
        ),
        ("Cache-Control: max-age=60\r\nVary: Cookie\r\n", vec!["Cookie: s=a"], vec!["Cookie: s=b"]),
        ("Cache-Control: max-age=60\r\nVary: cookie\r\n", vec!["Cookie: s=a"], vec![]),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", vec!["X-User: a"], vec!["X-User: b"]),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", vec!["X-User: a"], vec!["X-User:"]),
        (
            "Cache-Control: max-age=60\r\nVary: X-User\r\n",
            vec!["X-User: a", "X-User: b"],
            vec!["X-User: a, b"],
        ),
        // Headers that Connection names do not reach the endpoint, so they do not count.
        (
            "Cache-Control: max-age=60\r\nVary: X-User\r\n",
            vec!["X-User: a", "Connection: X-User"],
            vec!["X-User: a"],
        ),
        (
            "Cache-Control: max-age=60\r\nVary: Accept\r\nVary: X-User\r\n",
            vec!["X-User: a"],
            vec!["X-User: b"],
        ),
        // A request whose header overrides its method or target.
        (public, vec!["X-HTTP-Method-Override: DELETE"], vec![]),
        (public, vec!["X-Original-URL: /admin"], vec![]),
    ] {
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(echo(response), rules()).await?;
            let has_connection = first.iter().any(|line| line.starts_with("Connection"));
            if has_connection && transport == Transport::Http2 {
                continue;
            }
            let one = ask_by(&gateway, "GET", "/", &first, transport).await?;
            let other = ask_by(&gateway, "GET", "/", &second, transport).await?;
            assert_eq!(
                backend.requests(),
                2,
                "{response} {first:?} {second:?}: {} {}",
                said(&one),
                said(&other)
            );
        }
    }
    // A response may allow the cache to share it between authenticated callers. Requests with equal headers count as
    // equal.
    for (response, first, second) in [
        ("Cache-Control: public, max-age=60\r\n", "Authorization: a", "Authorization: b"),
        ("Cache-Control: s-maxage=60\r\n", "Authorization: a", "Authorization: b"),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", "X-User: a", "x-user:  a "),
        ("Cache-Control: max-age=60\r\n", "Cookie: a=b", "Cookie: a=c"),
    ] {
        let (backend, gateway) = gateway(echo(response), rules()).await?;
        for line in [first, second] {
            ask(&gateway, "/", &[line]).await?;
        }
        assert_eq!(backend.requests(), 1, "{response} {first}");
    }
    Ok(())
}

#[tokio::test]
async fn hosts_paths_and_queries_have_separate_cache_entries() -> TestResult {
    let body =
        |request: &Request| format!("{} {}", request.header("host").unwrap_or_default(), request.target);
    let echo = by_request(move |request| ok("Cache-Control: max-age=60\r\n", &body(request)));
    let (backend, gateway) = gateway(echo, rules()).await?;
    let mut asked = 0;
    for (target, host, is_new) in [
        ("/a?x=1&y=2", "one.example", true),
        // The endpoint receives this spelling, while other clients ask in lower case.
        ("/a?x=1&y=2", "ONE.example", true),
        ("/a?y=2&x=1", "one.example", true),
        ("/a?x=1&y=2", "two.example", true),
        ("/a?x=1&y=2", "one.example:8080", true),
        ("/a?x=1&y=2", "one.example.", true),
        ("http://one.example/a?x=1&y=2", "two.example", false),
        ("http://three.example/a?x=1&y=2", "one.example", true),
        ("/A?x=1&y=2", "one.example", true),
        ("/b/../a?x=1&y=2", "one.example", false),
        ("/%61?x=1&y=2", "one.example", false),
        ("/a%3fx=1&y=2", "one.example", true),
        ("/a;?x=1&y=2", "one.example", true),
        ("/a?x=1&y=2#", "one.example", true),
    ] {
        let mut client = gateway.connect().await?;
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: evil.example\r\n\r\n");
        let response = client.request(request).await?;
        if response.status == 400 {
            continue;
        }
        asked += u64::from(is_new);
        assert_eq!(backend.requests(), asked, "{target} {host}: {}", response.text());
        if is_new {
            assert_eq!(response.text(), body(&backend.last_request().unwrap()));
        }
    }
    Ok(())
}

#[tokio::test]
async fn requests_with_override_headers_bypass_the_cache() -> TestResult {
    let seen = |request: &Request| format!("{:?}", request.header("accept_language"));
    let echo = by_request(move |request| {
        ok("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", &seen(request))
    });
    let (_backend, gateway) = gateway(echo, rules()).await?;
    gateway.configure(|config| config.settings.underscores_in_headers = true).await;
    for line in [
        "X-HTTP-Method-Override: x",
        "X_HTTP_Method_Override: x",
        "X_Original_URL: x",
        "Front_End_Https: on",
        "CF-Visitor: x",
        "X-Real-Host: x",
        "X-ARR-SSL: x",
        "X-Proto: x",
        "X-Envoy-Original-Path: /x",
        "If_Match: x",
    ] {
        assert_eq!(said(&ask(&gateway, "/", &[line]).await?), "sluicegate; fwd=bypass", "{line}");
    }
    for (lines, is_kept) in [
        (&["X-Path-Of-Mine: x", "X-Hostname: x"][..], false),
        (&["Accept_Language: evil"], false),
        (&["Accept-Language: en", "Accept_Language: evil"], false),
        (&["Accept-Language: en"], false),
        (&["Accept-Language: en"], true),
        (&["Accept_Language: evil"], true),
        (&[], true),
    ] {
        let response = ask(&gateway, "/", lines).await?;
        let expected = lines.iter().find_map(|line| line.strip_prefix("Accept_Language: "));
        assert_eq!(response.text(), format!("{expected:?}"), "{lines:?}");
        assert_eq!(said(&response).starts_with("sluicegate; hit"), is_kept, "{lines:?}");
    }
    Ok(())
}

#[tokio::test]
async fn flood_of_variants_does_not_evict_a_frequently_used_variant() -> TestResult {
    let (_backend, gateway) =
        gateway(answer("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n"), rules()).await?;
    ask(&gateway, "/", &["Accept-Language: en"]).await?;
    for n in 0..200 {
        if n % 5 == 0 {
            let wanted = ask(&gateway, "/", &["Accept-Language: en"]).await?;
            assert!(said(&wanted).starts_with("sluicegate; hit"), "{n}: {}", said(&wanted));
        }
        ask(&gateway, "/", &[&format!("Accept-Language: x{n}")]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn responses_of_authenticated_routes_are_not_stored() -> TestResult {
    let lines = "Cache-Control: public, s-maxage=60\r\nCDN-Cache-Control: public, max-age=60\r\n";
    let backend = Backend::start(answer(lines)).await?;
    let mut builder = before(&backend, keeping(rules()));
    set_security(builder.config_mut(), Some(asking(api_key("x-api-key"))));
    builder.config_mut().consumers =
        [consumer("alice", "one"), consumer("bob", "two")].into_iter().map(Arc::new).collect();
    let gateway = builder.start().await?;
    for (key, body) in [("one", "0"), ("two", "1"), ("one", "2")] {
        let response = ask(&gateway, "/", &[&format!("X-API-Key: {key}")]).await?;
        assert_eq!((&*response.text(), said(&response)), (body, "sluicegate; fwd=bypass"));
    }
    let by_query = ask(&gateway, "/?key=one", &[]).await?;
    assert_eq!((by_query.status, said(&by_query)), (200, "sluicegate; fwd=bypass"));
    assert_eq!((kept(&gateway).entries, counted(&gateway, |shard| &shard.cache_bypassed)), (0, 4));
    // Without the policy the response is stored. With the policy again, no caller that the policy rejects receives the
    // stored response.
    gateway.configure(|config| set_security(config, None)).await;
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "4");
    }
    let mut closed = open();
    closed.ip_access = written(json!({"deny": ["127.0.0.0/8"]}));
    gateway.configure(|config| set_security(config, Some(closed))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    gateway.configure(|config| set_security(config, Some(asking(api_key("x-api-key"))))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn configured_key_headers_separate_cache_entries() -> TestResult {
    let cache = cache_of(json!({"key": {"headers": ["x-tenant"]}}));
    let (_backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), cache).await?;
    for (lines, body) in [
        (vec!["X-Tenant: a"], "0"),
        (vec!["X-Tenant: b"], "1"),
        (vec!["x-tenant: a"], "0"),
        (vec![], "2"),
        (vec!["X-Tenant: a", "X-Tenant: b"], "3"),
    ] {
        assert_eq!(ask(&gateway, "/", &lines).await?.text(), body, "{lines:?}");
    }
    Ok(())
}

#[tokio::test]
async fn trace_headers_do_not_separate_cache_entries() -> TestResult {
    let (backend, gateway) = gateway_of(1, answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    // No collector has to accept the spans.
    let tracing = Tracing::to("http://127.0.0.1:9".parse().unwrap());
    gateway.configure(|config| config.settings.tracing = Some(tracing)).await;
    for number in 1..=40 {
        let line = format!("traceparent: 00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01");
        assert_eq!(&*ask(&gateway, "/", &[&line]).await?.text(), "0");
    }
    assert_eq!((backend.requests(), kept(&gateway).entries), (1, 1));
    Ok(())
}

#[tokio::test]
async fn upstreams_have_separate_cache_entries() -> TestResult {
    use sluicegate_testkit::gateway::{key, ready};
    let [stable, canary] = [
        Backend::start(answer("Cache-Control: max-age=60\r\n")).await?,
        Backend::start(Behaviour::raw(ok("Cache-Control: max-age=60\r\n", "canary"))).await?,
    ];
    let canary_fields =
        json!({"serviceRef": {"name": "canary", "port": 80}, "match": [{"header": "x-canary"}]});
    let traffic = traffic::traffic(json!({"cache": {}, "split": {"backends": [canary_fields]}}));
    let mut builder = before(&stable, Traffic::clone(&traffic));
    let upstream =
        sluicegate_model::Upstream { endpoints: [ready(canary.addr())].into(), ..Default::default() };
    builder.config_mut().upstreams.insert(key("canary"), Arc::new(upstream));
    let gateway = builder.start().await?;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
        assert_eq!(ask(&gateway, "/", &["X-Canary: 1"]).await?.text(), "canary");
    }
    assert_eq!((stable.requests(), canary.requests()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn stored_response_is_served_only_in_a_coding_that_the_client_accepts() -> TestResult {
    let body = "text ".repeat(1000);
    let response = ok("Cache-Control: max-age=60\r\nContent-Type: text/html\r\nETag: \"a\"\r\n", &body);
    let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
    gateway.configure(|config| config.settings.compression.codings = "gzip".parse().expect("codings")).await;
    for transport in TRANSPORTS {
        for (line, coding) in [("Accept-Encoding: gzip", Some("gzip")), ("Accept-Encoding: identity", None)] {
            for _ in 0..2 {
                let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
                assert_eq!(response.header("content-encoding"), coding, "{line}");
                assert_eq!(response.body == body.as_bytes(), coding.is_none());
                assert_eq!(response.header("vary"), Some("Accept-Encoding"));
            }
        }
        let known = ["Accept-Encoding: gzip", "If-None-Match: W/\"a\""];
        assert_eq!(ask_by(&gateway, "GET", "/", &known, transport).await?.status, 304);
    }
    assert_eq!(backend.requests(), 2, "once for http, once for https");
    Ok(())
}

#[tokio::test]
async fn forwarding_headers_separate_cache_entries_only_for_trusted_proxies() -> TestResult {
    let link = |request: &Request| request.header("x-forwarded-host").unwrap_or("-").to_owned();
    let behaviour = || by_request(move |request| ok("Cache-Control: max-age=60\r\n", &link(request)));
    for (is_trusted, requests, first) in [(true, 3, "evil.example"), (false, 1, "localhost")] {
        let (backend, gateway) = gateway(behaviour(), rules()).await?;
        if is_trusted {
            let networks = vec!["127.0.0.0/8".parse()?];
            gateway.configure(|config| config.settings.trusted_proxies = networks).await;
        }
        let evil = ask(&gateway, "/", &["X-Forwarded-Host: evil.example"]).await?;
        assert_eq!(evil.text(), first);
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "localhost");
        ask(&gateway, "/", &["X-Forwarded-User: root"]).await?;
        ask(&gateway, "/", &["X-Forwarded-For: 192.0.2.1"]).await?;
        assert_eq!(backend.requests(), requests, "{is_trusted}");
    }
    Ok(())
}

#[tokio::test]
async fn cached_response_for_one_rewritten_host_is_not_served_for_another() -> TestResult {
    let host =
        by_request(|request| ok("Cache-Control: max-age=60\r\n", request.header("host").unwrap_or("-")));
    let (backend, gateway) = gateway(host, rules()).await?;
    for (hostname, requests) in [("a.internal", 1), ("b.internal", 2), ("a.internal", 2)] {
        gateway
            .configure(|config| {
                routes(config, |rule| {
                    let features = BackendFeatures {
                        url_rewrite: serde_json::from_value(json!({"hostname": hostname}))
                            .unwrap_or_default(),
                        ..BackendFeatures::default()
                    };
                    rule.backends[0].features = Some(Box::new(features));
                });
            })
            .await;
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), hostname);
        assert_eq!(backend.requests(), requests);
    }
    Ok(())
}
