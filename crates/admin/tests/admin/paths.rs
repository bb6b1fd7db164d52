//! Tests of paths, methods, readiness and misbehaving clients.

use std::time::Duration;

use sluicegate_admin::Phase;
use sluicegate_model::Config;
use sluicegate_testkit::client::{Client, Error};
use tokio::time::timeout;

use crate::gateway::Gateway;

#[tokio::test]
async fn readyz_succeeds_from_the_first_configuration_to_the_drain() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    let readyz = async || anyhow::Ok(gateway.ask("/readyz").await?).map(|ready| (ready.status, ready.text()));
    assert_eq!(
        readyz().await?,
        (503, "not ready: starting, and waiting for the first configuration\n".into())
    );
    assert_eq!(gateway.scrape().await?.value("sluicegate_ready", &[]), Some(0.0));
    gateway.readiness.set(Phase::Ready);
    assert_eq!(readyz().await?, (200, "ready\n".into()));
    assert_eq!(gateway.scrape().await?.value("sluicegate_ready", &[]), Some(1.0));
    gateway.readiness.set(Phase::Draining);
    assert_eq!(
        readyz().await?,
        (503, "not ready: draining, and ending once the requests in flight are done\n".into())
    );
    assert_eq!(gateway.ask("/healthz").await?.status, 200, "a draining process is alive");
    Ok(())
}

#[tokio::test]
async fn readyz_with_the_name_of_another_pod_responds_with_503() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    gateway.readiness.set(Phase::Ready);
    assert_eq!(gateway.ask("/readyz?pod=gateway-1").await?.status, 200);
    let other = gateway.ask("/readyz?pod=gateway-2").await?;
    assert_eq!((other.status, other.text()), (503, "not ready: this is gateway-1, not gateway-2\n".into()));
    Ok(())
}

#[tokio::test]
async fn admin_paths_planes_and_metrics_report_the_connected_planes() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    assert_eq!(gateway.ask("/planes").await?.text(), "{\"version\":7}\n");
    assert_eq!(gateway.scrape().await?.value("sluicegate_planes_connected", &[]), Some(3.0));
    Ok(())
}

#[tokio::test]
async fn server_serves_only_the_paths_listed_at_the_root() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    gateway.readiness.set(Phase::Ready);
    let list = gateway.ask("/").await?.text();
    let paths: Vec<_> =
        list.lines().filter_map(|line| line.split(' ').next()).filter(|p| p.starts_with('/')).collect();
    assert_eq!(
        paths,
        [
            "/",
            "/healthz",
            "/readyz",
            "/metrics",
            "/config",
            "/problems",
            "/routes",
            "/upstreams",
            "/analytics",
            "/audit",
            "/audit/head",
            "/explain",
            "/refused",
            "/planes"
        ]
    );
    for path in paths {
        let response = gateway.ask(&format!("{path}?query")).await?;
        let status = match path {
            // There is no store, no audit trail, and the query describes no request.
            "/analytics" | "/audit" | "/audit/head" => 404,
            "/explain" | "/refused" => 400,
            _ => 200,
        };
        assert_eq!((response.status, response.body.is_empty()), (status, false), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    for path in ["/metric", "/metrics/", "//", "/%2e", "/config/x"] {
        let response = gateway.ask(path).await?;
        assert_eq!(response.status, 404, "{path}");
        assert!(response.text().contains("/upstreams"), "the response lists the paths");
    }
    Ok(())
}

#[tokio::test]
async fn request_with_a_foreign_host_is_rejected_on_every_path() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let mut client = Client::connect(gateway.admin).await?;
    for path in ["/config", "/metrics", "/healthz", "/nothing"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example:9901\r\n\r\n");
        let response = client.request(request).await?;
        assert_eq!(response.status, 403, "{path}");
        assert!(
            response.text().contains("\"evil.example:9901\"") && response.text().contains("--admin-host")
        );
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", gateway.admin);
        assert_ne!(client.request(request).await?.status, 403, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn methods_other_than_get_and_head_are_rejected() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let mut client = Client::connect(gateway.admin).await?;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request = format!("{method} /config HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}");
        let response = client.request(request).await?;
        assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn head_response_has_the_headers_of_get() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let mut client = Client::connect(gateway.admin).await?;
    for (path, content_type) in [
        ("/healthz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/config", "application/json"),
    ] {
        let get = client.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await?;
        let head = client.request(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await?;
        assert_eq!((get.status, get.header("content-type")), (200, Some(content_type)));
        assert_eq!((head.status, head.header("content-type")), (200, Some(content_type)));
        assert_eq!(head.header("content-length"), get.header("content-length"), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn slow_clients_do_not_delay_other_clients() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let long = "x".repeat(1000);
    gateway.set_problems(&vec![long.as_str(); 8000], &[]);
    let mut slow = Vec::new();
    for request in [
        "GET /config HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /config HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHo",
        "",
    ] {
        let mut client = Client::connect(gateway.admin).await?;
        client.send(request).await?;
        slow.push(client);
    }
    let quick = async {
        for _ in 0..2 {
            assert_eq!(gateway.ask("/healthz").await?.status, 200);
            assert!(gateway.ask("/config").await?.body.len() > 8_000_000);
            gateway.scrape().await?;
        }
        anyhow::Ok(())
    };
    timeout(Duration::from_secs(30), quick).await??;
    assert!(
        slow[0].read_response().await?.body.len() > 8_000_000,
        "a slow reader receives the whole document"
    );
    Ok(())
}

#[tokio::test]
async fn malformed_and_oversized_requests_are_rejected() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    let mut client = Client::connect(gateway.admin).await?;
    assert_eq!(client.request("hello\r\n\r\n").await?.status, 400);
    client.expect_end().await?;
    let mut client = Client::connect(gateway.admin).await?;
    let filler = "x".repeat(64 * 1024);
    // The server closes before it has read the whole request, so a reset may destroy the response.
    let sent = client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {filler}\r\n\r\n")).await;
    match client.read_response().await {
        Ok(response) => assert_eq!(response.status, 431, "{sent:?}"),
        Err(error) => assert!(matches!(error, Error::Closed { .. }), "{error}"),
    }
    Ok(())
}

#[tokio::test]
async fn requests_without_exactly_one_valid_host_are_rejected() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
    ] {
        let request = format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n");
        let response = Client::connect(gateway.admin).await?.request(request).await?;
        assert_eq!((response.status, response.header("connection")), (400, Some("close")), "{hosts:?}");
    }
    let old = Client::connect(gateway.admin).await?.request("GET /healthz HTTP/1.0\r\n\r\n").await?;
    assert_eq!(old.status, 200, "HTTP/1.0 has no Host");
    Ok(())
}
