//! The contents of a request's span.

use std::sync::Arc;

use aws_lc_rs::digest;
use sluicegate_model::ObjectId;
use sluicegate_model::feature::IpAccess;
use sluicegate_model::policy::{Consumer, KeyHash, Security};

use super::*;

#[tokio::test]
async fn span_attributes_follow_opentelemetry_conventions() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let tracing = Tracing { service_name: "edge".into(), ..to(collector.addr()) };
    let gateway = traced(&backend, tracing).start().await?;
    ask_by(&gateway, "/shop/cart?token=secret", &["User-Agent: test/1"], Transport::Http).await?;
    let spans = all(&gateway, &collector).await;
    let [span] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((&*span.name, span.kind, span.status, &*span.service), ("GET /", 2, 0, "edge"));
    assert!(span.start < span.end && span.end - span.start < 10_000_000_000, "{span:?}");
    let address = backend.addr().to_string();
    for (key, value) in [
        ("http.request.method", Some("GET")),
        ("url.path", Some("/shop/cart")),
        ("url.query", None),
        ("url.scheme", Some("http")),
        ("server.address", Some("localhost")),
        ("server.port", None),
        ("client.address", Some("127.0.0.1")),
        ("network.peer.address", Some("127.0.0.1")),
        ("http.response.status_code", Some("200")),
        ("http.route", Some("/")),
        ("network.protocol.version", Some("1.1")),
        ("user_agent.original", Some("test/1")),
        ("error.type", None),
        ("sluicegate.route", Some("Ingress default/backend")),
        ("sluicegate.upstream", Some("default/backend:80")),
        ("sluicegate.endpoint", Some(&*address)),
        ("sluicegate.attempts", Some("1")),
        ("sluicegate.consumer", None),
        ("sluicegate.policy", None),
    ] {
        assert_eq!(span.get(key), value, "{key}");
    }
    assert!(!format!("{spans:?}").contains("secret"));
    Ok(())
}

#[tokio::test]
async fn span_reports_scheme_and_protocol_version() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    ask_by(&gateway, "/", &[], Transport::Https).await?;
    ask_by(&gateway, "/", &[], Transport::Http2).await?;
    let spans = all(&gateway, &collector).await;
    let mut versions: Vec<_> =
        spans.iter().map(|span| (span.get("url.scheme"), span.get("network.protocol.version"))).collect();
    versions.sort_unstable();
    assert_eq!(versions, [(Some("https"), Some("1.1")), (Some("https"), Some("2"))]);
    Ok(())
}

#[tokio::test]
async fn span_has_status_error_only_for_server_failures() -> TestResult {
    let (backend, collector) =
        (Backend::start(Behaviour::choose(by_target)).await?, Collector::start().await?);
    let builder = traced(&backend, to(collector.addr())).route("gone.example", "/", "gone");
    let gateway = builder.settings(|settings| settings.resilience.endpoint_wait = Default::default()).start();
    let gateway = gateway.await?;
    ask(&gateway, "/missing", &[]).await?;
    ask(&gateway, "/broken", &[]).await?;
    ask(&gateway, "/reset", &[]).await?;
    let mut client = gateway.connect().await?;
    client.request("GET /none HTTP/1.1\r\nHost: gone.example\r\n\r\n").await?;
    let spans = all(&gateway, &collector).await;
    let of = |path: &str| {
        let span = spans.iter().find(|span| span.get("url.path") == Some(path)).unwrap();
        (span.get("http.response.status_code"), span.status, span.get("error.type"))
    };
    assert_eq!(of("/missing"), (Some("404"), 0, None));
    assert_eq!(of("/broken"), (Some("500"), 2, Some("500")));
    assert_eq!(of("/reset"), (Some("502"), 2, Some("reset")));
    assert_eq!(of("/none"), (Some("503"), 2, Some("no_endpoint")));
    let reset = spans.iter().find(|span| span.get("url.path") == Some("/reset")).unwrap();
    assert_eq!(reset.get("sluicegate.attempts"), Some("3"), "each sent what may be sent twice");
    Ok(())
}

fn by_target(request: &Request) -> Behaviour {
    match request.target.as_str() {
        "/missing" => Behaviour::status(404),
        "/broken" => Behaviour::status(500),
        _ => Behaviour::reset_on_request(),
    }
}

#[tokio::test]
async fn span_attributes_of_client_input_are_truncated_and_valid_utf8() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let gateway = traced(&backend, to(collector.addr())).start().await?;
    let (path, agent) = (format!("/{}", "a".repeat(5000)), "b".repeat(5000));
    let mut client = Client::connect_by(gateway.addr(), Transport::Http).await?;
    let mut request = format!("BREW {path} HTTP/1.1\r\nHost: LOCALHOST:1234\r\nUser-Agent: ").into_bytes();
    request.extend_from_slice(&[0xff, 0xfe, 0xc3]);
    request.extend_from_slice(format!("{agent}\r\n\r\n").as_bytes());
    client.request(request).await?;
    let spans = all(&gateway, &collector).await;
    let [span] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(span.name, "HTTP /");
    assert_eq!(span.get("http.request.method"), Some("_OTHER"));
    assert_eq!(span.get("http.request.method_original"), Some("BREW"));
    assert_eq!(span.get("url.path"), Some(&path[..1024]));
    assert_eq!((span.get("server.address"), span.get("server.port")), (Some("LOCALHOST"), Some("1234")));
    let agent = span.get("user_agent.original").unwrap();
    assert!(agent.starts_with('\u{fffd}') && agent.len() <= 3 * 256, "{agent}");
    Ok(())
}

#[tokio::test]
async fn span_contains_the_consumer_and_the_denying_policy_but_no_secrets() -> TestResult {
    let (backend, collector) = (Backend::start(Behaviour::ok()).await?, Collector::start().await?);
    let id = |kind, name: &str| ObjectId { kind, namespace: "default".into(), name: name.into() };
    let hash = digest::digest(&digest::SHA256, b"alice-key");
    let alice = Consumer {
        id: id("Consumer", "alice"),
        username: "alice".into(),
        groups: Vec::new(),
        keys: vec![KeyHash(hash.as_ref().try_into()?)],
        tokens: Vec::new(),
        users: Vec::new(),
        refused: false,
        terms: vec![],
    };
    let authentication = serde_json::from_value(serde_json::json!({"apiKey": {"from": [{"query": "key"}]}}))?;
    let security = Security {
        id: id("SecurityPolicy", "shop"),
        refuses: None,
        ip_access: IpAccess::default(),
        cors: None,
        authentication: Some(authentication),
        authorization: None,
        forward_overrides: false,
        inherits: Vec::new(),
        filters: Vec::new(),
        satisfies_any: false,
    };
    let mut builder = traced(&backend, to(collector.addr()));
    let config = builder.config_mut();
    config.consumers = vec![Arc::new(alice)];
    Arc::make_mut(&mut config.hosts[0]).rules[0].security = Some(Arc::new(security));
    let gateway = builder.start().await?;
    ask(&gateway, "/in?key=alice-key", &[]).await?;
    ask(&gateway, "/out?key=guessed-key", &[]).await?;
    let spans = all(&gateway, &collector).await;
    let of = |path: &str| spans.iter().find(|span| span.get("url.path") == Some(path)).unwrap();
    assert_eq!(of("/in").get("sluicegate.consumer"), Some("default/alice"));
    let out = of("/out");
    assert_eq!(out.get("sluicegate.policy"), Some("SecurityPolicy default/shop"));
    assert_eq!((out.get("error.type"), out.status), (Some("unknown_key"), 0));
    assert_eq!((out.get("sluicegate.upstream"), out.get("sluicegate.attempts")), (None, None));
    assert!(!format!("{spans:?}").contains("-key"), "{spans:?}");
    Ok(())
}
