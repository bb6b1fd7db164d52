//! Tests of the metrics of ingress-nginx.

use std::time::{Duration, SystemTime};

use sluicegate_model::feature::{Split, SplitBackend};
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::{Entries, Weight};
use sluicegate_model::{Config, HostPattern, KeyKind, Settings, Tls, TlsHost, VirtualHost};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::tls::Authority;

use crate::exposition::Exposition;
use crate::gateway::{Gateway, config, key, ready, route, upstream};

const HOST: &str = "shop.example.com";

/// The controller's labels, which almost every metric has.
const CONTROLLER: [&str; 3] = ["controller_class", "controller_namespace", "controller_pod"];

/// The metrics and labels of ingress-nginx that its two Grafana dashboards and the alert rules of its chart select or group by.
/// Labels that Prometheus adds to a target are left out.
const EXPRESSIONS: &[(&str, &[&str])] = &[
    // Dashboard "NGINX Ingress controller".
    ("config_last_reload_successful_timestamp_seconds", &["controller_class"]),
    ("requests", &["controller_pod", "controller_class", "controller_namespace", "namespace", "status"]),
    ("requests", &["ingress", "namespace"]),
    ("nginx_process_connections", &["controller_pod", "controller_class", "controller_namespace", "state"]),
    ("success", &CONTROLLER),
    ("config_last_reload_successful", &["controller_pod", "controller_namespace"]),
    ("request_size_sum", &["controller_pod", "controller_class", "controller_namespace", "ingress"]),
    ("response_size_sum", &["controller_pod", "controller_class", "controller_namespace", "ingress"]),
    ("nginx_process_resident_memory_bytes", &CONTROLLER),
    ("nginx_process_cpu_seconds_total", &CONTROLLER),
    ("request_duration_seconds_bucket", &["ingress", "controller_pod", "controller_class", "le"]),
    ("ssl_expire_time_seconds", &["namespace", "host"]),
    ("config_hash", &CONTROLLER),
    // Dashboard "Request Handling Performance".
    ("request_duration_seconds_bucket", &["ingress", "path", "host", "method", "le"]),
    ("request_duration_seconds_count", &["ingress", "path", "status"]),
    ("response_duration_seconds_bucket", &["ingress", "path", "le"]),
    ("response_duration_seconds_sum", &["ingress", "path"]),
    ("header_duration_seconds_bucket", &["ingress", "path", "le"]),
    ("connect_duration_seconds_bucket", &["ingress", "path", "le"]),
    ("connect_duration_seconds_sum", &["ingress", "service", "canary"]),
    ("response_size_sum", &["ingress", "path"]),
    ("response_size_count", &["ingress", "path"]),
    ("response_size_bucket", &["ingress", "le"]),
    ("ingress_upstream_latency_seconds_sum", &["ingress", "namespace", "service", "canary"]),
    ("ingress_upstream_latency_seconds_count", &["ingress"]),
    // Alerts of the chart, and metrics of older dashboards.
    ("requests", &["status", "host", "path", "method", "service", "canary"]),
    ("ssl_expire_time_seconds", &["host", "secret_name", "class"]),
    ("ssl_certificate_info", &["host", "secret_name", "serial_number", "issuer_common_name", "identifier"]),
    ("bytes_sent_sum", &["ingress", "namespace", "service"]),
    ("nginx_process_connections_total", &["state"]),
    ("nginx_process_requests_total", &CONTROLLER),
    ("nginx_process_oldest_start_time_seconds", &CONTROLLER),
    ("build_info", &["controller_pod", "release", "build", "repository"]),
    ("leader_election_status", &["name", "controller_pod"]),
    ("orphan_ingress", &["namespace", "ingress", "type"]),
];

fn compatible(config: Config) -> Config {
    let settings = Settings { nginx_controller: Some("k8s.io/ingress-nginx".into()), ..Settings::default() };
    Config { settings, ..config }
}

async fn get(gateway: &Gateway, path: &str) -> anyhow::Result<u16> {
    Ok(client::get(gateway.http, HOST, path).await?.status)
}

/// Scrapes once this many requests are counted, under both names: a worker may count a request in the middle of a scrape.
async fn scrape(gateway: &Gateway, requests: f64) -> anyhow::Result<Exposition> {
    const NAMES: [&str; 2] = ["nginx_ingress_controller_requests", "sluicegate_requests_total"];
    let all = |now: &Exposition| NAMES.iter().all(|name| now.sum(name, &[]) >= requests);
    gateway.scrape_until("all requests are counted", all).await
}

#[tokio::test]
async fn dashboards_and_alerts_of_ingress_nginx_find_every_metric_and_label() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let end = SystemTime::now() + Duration::from_secs(24 * 3600);
    let certificate = Authority::of_process().issue_with(&[HOST], KeyKind::Ecdsa, end).certificate;
    let host = TlsHost::new(HostPattern::Exact(HOST.into()), vec![certificate]);
    let tls = Tls { hosts: vec![host.into()], ..Tls::default() };
    let shop = config(&[("/", "web", &[ready(backend.addr())])]);
    let gateway = Gateway::serving(compatible(Config { tls: tls.into(), ..shop })).await?;
    assert_eq!(get(&gateway, "/").await?, 200);
    let exposition = scrape(&gateway, 1.0).await?;
    for (metric, labels) in EXPRESSIONS {
        let name = format!("nginx_ingress_controller_{metric}");
        assert!(exposition.count(&name) > 0, "{name} is absent");
        for label in *labels {
            assert!(!exposition.label_values(&name, label).is_empty(), "{name} has no label {label}");
        }
    }
    assert_eq!(exposition.sum("nginx_ingress_controller_config_last_reload_successful", &[]), 1.0);
    assert_eq!(exposition.sum("nginx_ingress_controller_success", &[]), 1.0);
    let of_host = [("host", HOST), ("class", "k8s.io/ingress-nginx")];
    let expiry = exposition.sum("nginx_ingress_controller_ssl_expire_time_seconds", &of_host);
    assert!((expiry - end.duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64()).abs() < 2.0, "{expiry}");
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_once_for_both_names_by_method_status_and_canary() -> anyhow::Result<()> {
    let by_path = |request: &sluicegate_testkit::backend::Request| match request.target.as_str() {
        "/broken" => Behaviour::status(500),
        _ => Behaviour::sized(1000),
    };
    let (web, next) =
        (Backend::start(Behaviour::choose(by_path)).await?, Backend::start(Behaviour::ok()).await?);
    let shop = config(&[("/", "web", &[ready(web.addr())])]);
    let gateway = Gateway::serving(compatible(shop.clone())).await?;
    for path in ["/", "/a", "/broken"] {
        get(&gateway, path).await?;
    }
    let unknown = format!("BREW / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    Client::connect(gateway.http).await?.request(unknown).await?;
    // From here on, a canary receives all requests, and the counters of the route stay.
    let mut rule = route("/", "web");
    let mut traffic = Traffic::new(rule.id.clone());
    let branch = SplitBackend {
        upstream: key("next"),
        weight: Weight::of(100),
        matches: Entries::default(),
        exclude: Entries::default(),
    };
    let backends = Entries::new(vec![branch]).unwrap_or_default();
    traffic.features.split = Some(Split { weight: Weight::of(0), backends, skips_empty: true });
    rule.traffic = Some(traffic.into());
    let host = VirtualHost::new(HostPattern::Exact(HOST.into()), vec![rule]);
    let mut upstreams = shop.upstreams.clone();
    upstreams.insert(key("next"), upstream(&[ready(next.addr())]).into());
    gateway.apply(compatible(Config { hosts: vec![host.into()], upstreams, ..shop })).await;
    get(&gateway, "/").await?;

    let exposition = scrape(&gateway, 5.0).await?;
    let requests = |labels: &[(&str, &str)]| {
        let of_route = [
            ("host", HOST),
            ("ingress", "web"),
            ("namespace", "shop"),
            ("path", "/"),
            ("service", "web"),
            ("controller_class", "k8s.io/ingress-nginx"),
            ("controller_namespace", "gateways"),
            ("controller_pod", "gateway-1"),
        ];
        exposition.value("nginx_ingress_controller_requests", &[&of_route[..], labels].concat())
    };
    let get = |status, canary| [("method", "GET"), ("status", status), ("canary", canary)];
    assert_eq!(requests(&get("200", "")), Some(2.0));
    assert_eq!(requests(&get("500", "")), Some(1.0));
    assert_eq!(requests(&get("200", "shop-next-http")), Some(1.0));
    assert_eq!(requests(&[("method", "OTHER"), ("status", "200"), ("canary", "")]), Some(1.0));
    for (code, count) in [("2xx", 4.0), ("5xx", 1.0), ("4xx", 0.0)] {
        assert_eq!(exposition.sum("sluicegate_requests_total", &[("code", code)]), count, "{code}");
    }
    let count = |name: &str| exposition.sum(name, &[]);
    assert_eq!(count("nginx_ingress_controller_nginx_process_requests_total"), 5.0);
    for name in ["request_duration_seconds", "connect_duration_seconds", "header_duration_seconds"] {
        assert_eq!(count(&format!("nginx_ingress_controller_{name}_count")), 5.0, "{name}");
    }
    assert_eq!(count("sluicegate_request_duration_seconds_count"), 5.0);
    assert_eq!(
        count("nginx_ingress_controller_response_size_sum"),
        count("sluicegate_response_bytes_total"),
        "both names have one source"
    );
    let sent = [("le", "10000.0"), ("status", "200"), ("method", "GET"), ("canary", "")];
    assert_eq!(exposition.sum("nginx_ingress_controller_bytes_sent_bucket", &sent), 2.0);
    let short = [("le", "100.0"), ("status", "200"), ("method", "GET"), ("canary", "")];
    assert_eq!(exposition.sum("nginx_ingress_controller_response_size_bucket", &short), 0.0);
    Ok(())
}

#[tokio::test]
async fn gateway_without_ingress_nginx_compatibility_has_no_metric_of_ingress_nginx() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::serving(config(&[("/", "web", &[ready(backend.addr())])])).await?;
    get(&gateway, "/").await?;
    let exposition = gateway.scrape().await?;
    assert!(!exposition.families().any(|family| family.starts_with("nginx_")));
    Ok(())
}

#[tokio::test]
async fn prometheus_text_format_has_counters_of_ingress_nginx_without_a_suffix() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::serving(compatible(config(&[("/", "web", &[ready(backend.addr())])]))).await?;
    get(&gateway, "/").await?;
    scrape(&gateway, 1.0).await?;
    let text = gateway.ask("/metrics").await?.text();
    assert!(text.contains("# TYPE nginx_ingress_controller_requests counter\n"));
    assert!(text.contains("\nnginx_ingress_controller_requests{controller_class=\"k8s.io/ingress-nginx\","));
    Ok(())
}

#[tokio::test]
async fn ingress_without_endpoints_is_an_orphan_and_a_change_of_routes_changes_the_hash() -> anyhow::Result<()>
{
    let backend = Backend::start(Behaviour::ok()).await?;
    let endpoint = [ready(backend.addr())];
    let gateway =
        Gateway::serving(compatible(config(&[("/", "web", &endpoint), ("/api", "api", &[])]))).await?;
    let exposition = gateway.scrape().await?;
    let orphan = |exposition: &Exposition, ingress| {
        exposition.sum("nginx_ingress_controller_orphan_ingress", &[("ingress", ingress)])
    };
    assert_eq!((orphan(&exposition, "web"), orphan(&exposition, "api")), (0.0, 1.0));
    let hash = |exposition: &Exposition| exposition.sum("nginx_ingress_controller_config_hash", &[]);
    let before = hash(&exposition);
    gateway.apply(compatible(config(&[("/", "web", &[]), ("/api", "api", &endpoint)]))).await;
    let same = gateway.scrape().await?;
    assert_eq!((hash(&same), orphan(&same, "web"), orphan(&same, "api")), (before, 1.0, 0.0));
    gateway.apply(compatible(config(&[("/v2", "web", &endpoint)]))).await;
    let changed = gateway.scrape().await?;
    assert_ne!(hash(&changed), before);
    assert_eq!(changed.sum("nginx_ingress_controller_success", &[]), 3.0);
    Ok(())
}
