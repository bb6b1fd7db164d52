//! Tests that compare `/metrics` with the sent requests.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{
    Change, Conditions, Config, Endpoint, HostPattern, KeyKind, PathPattern, Protocol, Tls, TlsHost,
};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::tls::Authority;
use tokio::net::TcpListener;

use crate::exposition::Exposition;
use crate::gateway::{Gateway, WORKERS, config, key, ready, route, upstream};

const HOST: &str = "shop.example.com";
const WEB: (&str, &str) = ("upstream", "shop/web:http");

/// Sends the requests over one connection. Returns the number of received bytes.
async fn send(gateway: &Gateway, count: usize, method: &str, path: &str, status: u16) -> anyhow::Result<u64> {
    let mut client = Client::connect(gateway.http).await?;
    let mut bytes = 0;
    for _ in 0..count {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n");
        let response = client.request(request).await?;
        assert_eq!(response.status, status, "{method} {path}");
        bytes += (response.head.len() + response.body.len()) as u64;
    }
    Ok(bytes)
}

/// An address without a listener.
async fn closed_address() -> anyhow::Result<std::net::SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}

#[tokio::test]
async fn metrics_count_each_request_once_by_route_and_status() -> anyhow::Result<()> {
    let by_path = |request: &sluicegate_testkit::backend::Request| match request.target.as_str() {
        "/web/missing" => Behaviour::status(404),
        "/web/broken" => Behaviour::status(500),
        "/web/moved" => Behaviour::status(301),
        _ => Behaviour::sized(1000),
    };
    let (web, api) =
        (Backend::start(Behaviour::choose(by_path)).await?, Backend::start(Behaviour::ok()).await?);
    let gateway = Gateway::serving(config(&[
        ("/web", "web", &[ready(web.addr())]),
        ("/api", "api", &[ready(api.addr())]),
    ]))
    .await?;
    let mut bytes = send(&gateway, 7, "GET", "/web", 200).await?;
    bytes += send(&gateway, 3, "GET", "/web/missing", 404).await?;
    bytes += send(&gateway, 2, "POST", "/web/broken", 500).await?;
    bytes += send(&gateway, 1, "GET", "/web/moved", 301).await?;
    send(&gateway, 5, "GET", "/api/x", 200).await?;
    send(&gateway, 4, "GET", "/nowhere", 404).await?;

    let all = "18 requests are counted";
    let exposition =
        gateway.scrape_until(all, |now| now.sum("sluicegate_requests_total", &[]) >= 18.0).await?;
    let labels =
        [("kind", "Ingress"), ("namespace", "shop"), ("name", "web"), ("host", HOST), ("path", "/web"), WEB];
    for (code, count) in [("1xx", 0.0), ("2xx", 7.0), ("3xx", 1.0), ("4xx", 3.0), ("5xx", 2.0)] {
        let labels = [&labels[..], &[("code", code)]].concat();
        assert_eq!(exposition.value("sluicegate_requests_total", &labels), Some(count), "{code}");
    }
    assert_eq!(exposition.value("sluicegate_requests_aborted_total", &labels), Some(0.0));
    assert_eq!(exposition.value("sluicegate_request_duration_seconds_count", &labels), Some(13.0));
    assert_eq!(exposition.value("sluicegate_response_bytes_total", &labels), Some(bytes as f64));
    let seconds = exposition.value("sluicegate_request_duration_seconds_sum", &labels).unwrap_or_default();
    assert!(seconds > 0.0 && seconds < 13.0, "{seconds}");
    let of_endpoint =
        exposition.value("sluicegate_request_endpoint_seconds_total", &labels).unwrap_or_default();
    assert!(of_endpoint > 0.0 && of_endpoint < seconds, "{of_endpoint} of {seconds}");
    assert_eq!(exposition.sum("sluicegate_requests_total", &[("name", "api")]), 5.0);
    assert_eq!(exposition.value("sluicegate_requests_unrouted_total", &[]), Some(4.0));

    assert_eq!(exposition.value("sluicegate_upstream_attempts_total", &[WEB]), Some(13.0));
    assert_eq!(exposition.value("sluicegate_upstream_duration_seconds_count", &[WEB]), Some(13.0));
    let opened = exposition.sum("sluicegate_upstream_connections_opened_total", &[WEB]);
    let reused = exposition.sum("sluicegate_upstream_connections_reused_total", &[WEB]);
    assert_eq!((opened, opened + reused), (web.accepted() as f64, 13.0));
    Ok(())
}

#[tokio::test]
async fn metrics_count_connections_and_requests_in_flight_by_worker() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Gateway::serving(config(&[("/", "web", &[ready(backend.addr())])])).await?;
    let mut clients = vec![Client::connect(gateway.http).await?];
    for _ in 0..4 {
        let mut client = Client::connect(gateway.http).await?;
        client.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await?;
        clients.push(client);
    }
    let exposition = gateway
        .scrape_until("4 requests are in flight", |now| {
            // A scrape reads the families one after another, not at one instant.
            now.sum("sluicegate_requests_in_flight", &[]) == 4.0
                && now.sum("sluicegate_upstream_requests_in_flight", &[WEB]) == 4.0
                && now.sum("sluicegate_upstream_attempts_total", &[WEB]) == 4.0
        })
        .await?;
    for (name, count) in [
        ("sluicegate_requests_in_flight", 4.0),
        ("sluicegate_connections_open", 5.0),
        ("sluicegate_connections_accepted_total", 5.0),
    ] {
        assert_eq!(exposition.count(name), WORKERS);
        assert_eq!(exposition.sum(name, &[]), count, "{name}");
    }
    assert_eq!(exposition.label_values("sluicegate_connections_open", "worker"), ["0", "1"].into());

    drop(clients);
    let exposition = gateway
        .scrape_until("all connections are closed", |now| now.sum("sluicegate_connections_open", &[]) == 0.0)
        .await?;
    assert_eq!(exposition.sum("sluicegate_requests_in_flight", &[]), 0.0);
    assert_eq!(exposition.sum("sluicegate_upstream_requests_in_flight", &[WEB]), 0.0);
    assert_eq!(exposition.sum("sluicegate_requests_aborted_total", &[("name", "web")]), 4.0);
    assert_eq!(exposition.value("sluicegate_client_faults_total", &[("reason", "client_closed")]), Some(4.0));
    Ok(())
}

#[tokio::test]
async fn metrics_show_a_dead_endpoint_as_unhealthy_and_its_failures_by_reason() -> anyhow::Result<()> {
    let (alive, dead) = (Backend::start(Behaviour::ok()).await?, closed_address().await?);
    let leaving = Endpoint { address: closed_address().await?, conditions: Conditions::TERMINATING };
    let unready = Conditions { ready: false, serving: false, terminating: false };
    let starting = Endpoint { address: closed_address().await?, conditions: unready };
    let endpoints = [ready(alive.addr()), ready(dead), leaving, starting];
    let gateway = Gateway::serving(config(&[("/", "web", &endpoints)])).await?;
    // The backend closes each connection, so each request selects one of both endpoints.
    alive.set(Behaviour::ok().close_after(1));
    let exposition = loop {
        send(&gateway, 1, "GET", "/", 200).await?;
        let exposition = gateway.scrape().await?;
        if exposition.sum("sluicegate_upstream_ejections_total", &[WEB]) > 0.0 {
            break exposition;
        }
    };
    let refused = [WEB, ("reason", "connect_refused")];
    assert!(exposition.value("sluicegate_upstream_connect_failures_total", &refused) >= Some(1.0));
    for state in ["ready", "unhealthy", "failing", "terminating", "not_ready"] {
        let count = exposition.value("sluicegate_upstream_endpoints", &[WEB, ("state", state)]);
        // The upstream has no health checks.
        let expected = if state == "failing" { 0.0 } else { 1.0 };
        assert_eq!(count, Some(expected), "{state}");
    }
    assert_eq!(exposition.count("sluicegate_upstream_failures_total"), 0, "no request failed");
    Ok(())
}

#[tokio::test]
async fn metrics_count_failed_requests_by_reason() -> anyhow::Result<()> {
    let mut config = config(&[("/", "web", &[])]);
    config.settings.resilience.endpoint_wait = Duration::ZERO;
    let gateway = Gateway::serving(config).await?;
    send(&gateway, 3, "GET", "/", 503).await?;
    let exposition = gateway
        .scrape_until("3 requests are counted", |now| {
            now.sum("sluicegate_requests_total", &[("code", "5xx")]) == 3.0
        })
        .await?;
    let none = [WEB, ("reason", "no_endpoint")];
    assert_eq!(exposition.value("sluicegate_upstream_failures_total", &none), Some(3.0));
    assert_eq!(exposition.count("sluicegate_upstream_failures_total"), 1);
    Ok(())
}

#[tokio::test]
async fn metrics_count_rejected_requests_in_a_series_for_each_reason() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let response =
        Client::connect(gateway.http).await?.request("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await?;
    assert_eq!(response.status, 400);
    let exposition = gateway.scrape().await?;
    let value = |reason| exposition.value("sluicegate_requests_rejected_total", &[("reason", reason)]);
    assert_eq!((value("duplicate_host"), value("bare_lf")), (Some(1.0), Some(0.0)));
    assert_eq!(exposition.sum("sluicegate_requests_rejected_total", &[]), 1.0);
    assert_eq!(
        exposition.count("sluicegate_requests_rejected_total"),
        sluicegate_http1::Rejection::ALL.len()
    );
    assert_eq!(
        exposition.count("sluicegate_client_faults_total"),
        sluicegate_proxy::failure::ClientFault::ALL.len()
    );
    Ok(())
}

#[tokio::test]
async fn metrics_have_series_only_for_configured_routes_that_received_requests() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let endpoints = [ready(backend.addr())];
    let both = config(&[("/", "web", &endpoints), ("/idle", "idle", &endpoints)]);
    let gateway = Gateway::serving(both).await?;
    for path in 0..50 {
        send(&gateway, 1, "GET", &format!("/{path}"), 200).await?;
    }
    let exposition = gateway
        .scrape_until("50 requests are counted", |now| now.sum("sluicegate_requests_total", &[]) == 50.0)
        .await?;
    assert_eq!(exposition.label_values("sluicegate_requests_total", "path"), ["/"].into());
    assert_eq!(exposition.count("sluicegate_requests_total"), 5);
    assert_eq!(exposition.count("sluicegate_request_duration_seconds_bucket"), 16);
    assert_eq!(exposition.count("sluicegate_upstream_attempts_total"), 1);
    let upstreams = ["shop/idle:http", "shop/web:http"].into();
    assert_eq!(exposition.label_values("sluicegate_upstream_endpoints", "upstream"), upstreams);

    gateway.apply(config(&[("/idle", "idle", &endpoints)])).await;
    let exposition = gateway.scrape().await?;
    assert_eq!(exposition.count("sluicegate_requests_total"), 0, "a removed route has no series");
    assert_eq!(
        exposition.label_values("sluicegate_upstream_endpoints", "upstream"),
        ["shop/idle:http"].into()
    );
    Ok(())
}

#[tokio::test]
async fn metrics_escape_quotes_and_line_breaks_in_names() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let name = "we\"ird\\name\n";
    let gateway = Gateway::serving(config(&[("/", name, &[ready(backend.addr())])])).await?;
    send(&gateway, 1, "GET", "/", 200).await?;
    gateway
        .scrape_until("the request is counted", |now| {
            now.sum("sluicegate_requests_total", &[("name", name), ("code", "2xx")]) == 1.0
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn metrics_report_configuration_changes_problems_and_resource_use_of_the_process() -> anyhow::Result<()>
{
    let gateway = Gateway::serving(Config::default()).await?;
    let empty = upstream(&[]);
    let mut config = Config { default_rule: Some(route("/", "web")), ..Config::default() };
    config.upstreams.insert(key("web"), empty.into());
    gateway.apply(config).await;
    let endpoints = [ready(closed_address().await?)].into();
    gateway.proxy.apply(Change::Endpoints { upstream: key("web"), endpoints }).await;
    gateway.set_problems(&["a.yaml:1: no", "b.yaml:2: no"], &["c.yaml:3: hm"]);
    let exposition = gateway.scrape().await?;
    assert_eq!(exposition.value("sluicegate_propagation_seconds_count", &[]), Some(3.0));
    let problems = |severity| exposition.value("sluicegate_config_problems", &[("severity", severity)]);
    assert_eq!((problems("error"), problems("warning")), (Some(2.0), Some(1.0)));
    assert_eq!(exposition.value("sluicegate_upstream_endpoints", &[WEB, ("state", "ready")]), Some(1.0));
    let version = [("version", env!("CARGO_PKG_VERSION")), ("commit", "3f141bea")];
    assert_eq!(exposition.value("sluicegate_build_info", &version), Some(1.0));
    assert!(exposition.sum("process_cpu_seconds_total", &[]) > 0.0);
    assert!(exposition.sum("process_resident_memory_bytes", &[]) > 1e6);
    assert!(exposition.sum("process_open_fds", &[]) > 5.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
    let changed = exposition.sum("sluicegate_config_last_change_timestamp_seconds", &[]);
    assert!((-2.0..600.0).contains(&(now - changed)), "the configuration changed at {changed}, now is {now}");
    let age = now - exposition.sum("process_start_time_seconds", &[]);
    assert!((-2.0..600.0).contains(&age), "the process started {age} s ago");
    Ok(())
}

#[tokio::test]
async fn prometheus_text_format_is_the_default() -> anyhow::Result<()> {
    let gateway = Gateway::serving(Config::default()).await?;
    let mut client = Client::connect(gateway.admin).await?;
    let mut scrape = async |accept: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        let response = client.request(head).await?;
        let content_type = response.header("content-type").unwrap_or_default().to_owned();
        anyhow::Ok((content_type, response.text()))
    };
    let (content_type, text) = scrape("text/plain;version=0.0.4").await?;
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    assert!(text.contains("# TYPE sluicegate_build_info gauge\nsluicegate_build_info{version="), "{text}");
    assert!(text.contains("\n# TYPE sluicegate_requests_unrouted_total counter\n"), "{text}");
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");

    let (content_type, open) = scrape("application/openmetrics-text;version=1.0.0,*/*;q=0.1").await?;
    assert_eq!(content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.ends_with("# EOF\n"), "{open}");
    let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples(&text), samples(&open));
    Ok(())
}

#[tokio::test]
async fn metrics_contain_each_documented_family() -> anyhow::Result<()> {
    let exposition = Gateway::serving(Config::default()).await?.scrape().await?;
    let mut families: Vec<_> = exposition.families().collect();
    families.retain(|family| family.starts_with("sluicegate_"));
    let expected = [
        "sluicegate_accept_errors",
        "sluicegate_access_log_dropped",
        "sluicegate_admin_connections_closed",
        "sluicegate_admin_requests_refused",
        "sluicegate_analytics_over_limit",
        "sluicegate_api_invalid",
        "sluicegate_api_mocked",
        "sluicegate_api_not_validated",
        "sluicegate_build",
        "sluicegate_cache_bypassed",
        "sluicegate_cache_entries",
        "sluicegate_cache_evicted",
        "sluicegate_cache_hits",
        "sluicegate_cache_misses",
        "sluicegate_cache_refresh_failures",
        "sluicegate_cache_refreshes",
        "sluicegate_cache_revalidated",
        "sluicegate_cache_stale",
        "sluicegate_cache_stored",
        "sluicegate_cache_used_bytes",
        "sluicegate_certificate_not_after_seconds",
        "sluicegate_client_faults",
        "sluicegate_compressed_responses",
        "sluicegate_compression_in_bytes",
        "sluicegate_compression_out_bytes",
        "sluicegate_compressions_failed",
        "sluicegate_compressions_in_flight",
        "sluicegate_compressions_passed_over",
        "sluicegate_config_last_change_timestamp_seconds",
        "sluicegate_config_problems",
        "sluicegate_connections_accepted",
        "sluicegate_connections_handed_over",
        "sluicegate_connections_open",
        "sluicegate_consumer_endpoint_seconds",
        "sluicegate_consumer_request_seconds",
        "sluicegate_consumer_requests",
        "sluicegate_consumer_requests_aborted",
        "sluicegate_consumer_response_bytes",
        "sluicegate_datagrams_dropped",
        "sluicegate_http2_floods",
        "sluicegate_http3_connections",
        "sluicegate_http3_early_requests",
        "sluicegate_http3_errors",
        "sluicegate_http3_floods",
        "sluicegate_http3_handshakes_in_progress",
        "sluicegate_http3_malformed_requests",
        "sluicegate_http3_refused",
        "sluicegate_http3_retries",
        "sluicegate_jwks_fetches",
        "sluicegate_jwks_keys",
        "sluicegate_layer4_connections",
        "sluicegate_layer4_connections_open",
        "sluicegate_layer4_failures",
        "sluicegate_layer4_received_bytes",
        "sluicegate_layer4_sent_bytes",
        "sluicegate_leader",
        "sluicegate_listener_up",
        "sluicegate_oidc_provider_fetches",
        "sluicegate_oidc_provider_known",
        "sluicegate_planes_connected",
        "sluicegate_policy_admitted",
        "sluicegate_policy_checks",
        "sluicegate_policy_denied",
        "sluicegate_policy_dry_runs",
        "sluicegate_policy_limit_reached",
        "sluicegate_policy_preflights",
        "sluicegate_policy_sessions",
        "sluicegate_policy_unusable",
        "sluicegate_propagation_seconds",
        "sluicegate_proxy_header_failures",
        "sluicegate_quic_datagrams_dropped",
        "sluicegate_quic_datagrams_passed",
        "sluicegate_rate_limit_shared_exchanges",
        "sluicegate_rate_limit_shared_up",
        "sluicegate_ready",
        "sluicegate_request_duration_seconds",
        "sluicegate_request_endpoint_seconds",
        "sluicegate_request_headers_dropped",
        "sluicegate_requests",
        "sluicegate_requests_aborted",
        "sluicegate_requests_in_flight",
        "sluicegate_requests_rejected",
        "sluicegate_requests_unrouted",
        "sluicegate_response_bytes",
        "sluicegate_spans_dropped",
        "sluicegate_spans_exported",
        "sluicegate_tls_handshake_failures",
        "sluicegate_tls_handshakes",
        "sluicegate_traffic_aborted",
        "sluicegate_traffic_answered",
        "sluicegate_traffic_delayed",
        "sluicegate_traffic_diverted",
        "sluicegate_traffic_error_page_failures",
        "sluicegate_traffic_error_pages",
        "sluicegate_traffic_mirror_failures",
        "sluicegate_traffic_mirrored",
        "sluicegate_traffic_over_budget",
        "sluicegate_traffic_requests",
        "sluicegate_udp_flows",
        "sluicegate_upstream_attempts",
        "sluicegate_upstream_connect_failures",
        "sluicegate_upstream_connections_opened",
        "sluicegate_upstream_connections_reused",
        "sluicegate_upstream_duration_seconds",
        "sluicegate_upstream_ejections",
        "sluicegate_upstream_endpoints",
        "sluicegate_upstream_failures",
        "sluicegate_upstream_health_checks",
        "sluicegate_upstream_health_checks_failed",
        "sluicegate_upstream_hedges",
        "sluicegate_upstream_idle_closed",
        "sluicegate_upstream_not_repeated",
        "sluicegate_upstream_readmissions",
        "sluicegate_upstream_requests_in_flight",
        "sluicegate_upstream_retries",
    ];
    assert_eq!(families, expected);
    Ok(())
}

#[tokio::test]
async fn metrics_count_compressed_responses_and_bytes_by_coding() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::sized(1000)).await?;
    let mut config = config(&[("/", "web", &[ready(backend.addr())])]);
    config.settings.compression.codings = "br, gzip".parse()?;
    config.settings.limits.compressions_per_worker = 1;
    let gateway = Gateway::serving(config.clone()).await?;
    let mut client = Client::connect(gateway.http).await?;
    let get = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip\r\n\r\n");
    let mut bytes = 0;
    for _ in 0..3 {
        bytes += client.request(&get).await?.body.len();
    }
    let of = |coding| [("coding", coding)];
    let is_idle = |now: &Exposition| now.sum("sluicegate_compressions_in_flight", &[]) == 0.0;
    let exposition = gateway.scrape_until("all compressions have ended", is_idle).await?;
    assert_eq!(exposition.value("sluicegate_compressed_responses_total", &of("gzip")), Some(3.0));
    assert_eq!(exposition.value("sluicegate_compression_in_bytes_total", &of("gzip")), Some(3000.0));
    assert_eq!(exposition.value("sluicegate_compression_out_bytes_total", &of("gzip")), Some(bytes as f64));
    assert_eq!(exposition.value("sluicegate_compressed_responses_total", &of("br")), Some(0.0));
    assert_eq!(exposition.value("sluicegate_compressed_responses_total", &of("zstd")), Some(0.0));
    assert_eq!(exposition.value("sluicegate_compressions_passed_over_total", &[]), Some(0.0));
    assert_eq!(exposition.value("sluicegate_compressions_failed_total", &[]), Some(0.0));
    config.settings.limits.compressions_per_worker = 0;
    gateway.apply(config).await;
    assert_eq!(client.request(&get).await?.header("Content-Encoding"), None);
    let exposition = gateway.scrape().await?;
    assert_eq!(exposition.value("sluicegate_compressions_passed_over_total", &[]), Some(1.0));
    Ok(())
}

#[tokio::test]
async fn exact_and_prefix_routes_with_the_same_path_share_a_metric_series() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut config = config(&[("/a", "web", &[ready(backend.addr())])]);
    let exact = sluicegate_model::Rule {
        matches: vec![sluicegate_model::RuleMatch::path(PathPattern::Exact("/a".into()))],
        ..route("/a", "web")
    };
    Arc::make_mut(&mut config.hosts[0]).rules.push(exact);
    let gateway = Gateway::serving(config).await?;
    assert_eq!(client::get(gateway.http, HOST, "/a").await?.status, 200);
    assert_eq!(client::get(gateway.http, HOST, "/a/b").await?.status, 200);
    gateway
        .scrape_until("both requests are counted", |now| {
            now.sum("sluicegate_requests_total", &[("path", "/a"), ("code", "2xx")]) == 2.0
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn metrics_count_layer4_connections_by_listener_and_route() -> anyhow::Result<()> {
    use sluicegate_model::Serves;
    use sluicegate_testkit::gateway::{Gateway as Builder, layer4_key};

    let backend = Backend::start(Behaviour::ok()).await?;
    let config = Builder::builder()
        .layer4(Protocol::Tcp, |route| Serves::Tcp(Some(route)), [backend.addr()])
        .into_config();
    let gateway = Gateway::serving(config).await?;
    let bound = gateway.proxy.registry().listeners()[0].bound.clone().expect("a bound listener");
    assert_eq!(client::get(bound, HOST, "/").await?.status, 200);
    let route = [
        ("listener", "Gateway default/edge, listener test"),
        ("protocol", "TCP"),
        ("host", "*"),
        ("kind", "TCPRoute"),
        ("namespace", "default"),
        ("name", "stream"),
    ];
    let exposition = gateway
        .scrape_until("the connection is closed", |now| {
            now.value("sluicegate_layer4_connections_open", &route) == Some(0.0)
        })
        .await?;
    let address = bound.to_string();
    let listener = [("listener", route[0].1), ("address", &address), ("protocol", "TCP")];
    assert_eq!(exposition.value("sluicegate_listener_up", &listener), Some(1.0));
    assert_eq!(exposition.value("sluicegate_layer4_connections_total", &route), Some(1.0));
    for bytes in ["sluicegate_layer4_received_bytes_total", "sluicegate_layer4_sent_bytes_total"] {
        assert!(exposition.value(bytes, &route).is_some_and(|bytes| bytes > 20.0), "{bytes}");
    }
    gateway
        .proxy
        .apply(Change::Endpoints { upstream: layer4_key("stream", Protocol::Tcp), endpoints: [].into() })
        .await;
    assert!(client::get(bound, HOST, "/").await.is_err());
    let failed = [&route[..], &[("reason", "no_endpoint")]].concat();
    gateway
        .scrape_until("the failure is counted", |now| {
            now.value("sluicegate_layer4_failures_total", &failed) == Some(1.0)
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn metrics_report_the_expiry_time_of_certificates_by_key_type() -> anyhow::Result<()> {
    use std::time::{Duration, SystemTime};

    let authority = Authority::of_process();
    let end = SystemTime::now() + Duration::from_secs(7 * 24 * 3600);
    let certificates = [KeyKind::Ecdsa, KeyKind::Rsa]
        .map(|kind| authority.issue_with(&["a.test"], kind, end).certificate)
        .to_vec();
    let host = TlsHost::new(HostPattern::Exact("a.test".into()), certificates);
    let tls = Tls { hosts: vec![host.into()], ..Tls::default() };
    let gateway = Gateway::serving(Config { tls: tls.into(), ..Config::default() }).await?;
    let exposition = gateway.scrape_until("the first scrape", |_| true).await?;
    let seconds = end.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    for key in ["ECDSA", "RSA"] {
        let labels = [("source", "test a.test"), ("key", key)];
        let expiry = exposition.sum("sluicegate_certificate_not_after_seconds", &labels);
        assert!((expiry - seconds as f64).abs() < 1.0, "{expiry}");
    }
    Ok(())
}
