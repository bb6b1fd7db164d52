//! Endpoints that accept connections but are unhealthy.

use serde_json::{Value, json};
use sluicegate_model::value::Span;
use sluicegate_model::{Health, Upstream};
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};

use super::*;

fn set_health(config: &mut Config, health: Option<Health>) {
    for upstream in config.upstreams.values_mut() {
        Arc::make_mut(upstream).health = health.clone().map(Arc::new);
    }
}

/// A health check, from the fields of a TrafficPolicy.
fn check(mut fields: Value) -> Health {
    for (field, value) in
        [("interval", json!("100ms")), ("timeout", json!("2s")), ("unhealthyThreshold", json!(2))]
    {
        fields[field] = value;
    }
    Health { ejection: None, check: Some(serde_json::from_value(fields).expect("the check is valid")) }
}

fn http(path: &str) -> Health {
    check(json!({"type": "HTTP", "path": path, "hostname": "checked.example", "codes": "200-299"}))
}

async fn checked(backends: &[Backend], health: Health) -> anyhow::Result<Gateway> {
    let mut builder = Gateway::builder().backends(backends);
    set_health(builder.config_mut(), Some(health));
    builder.start().await
}

/// A backend that responds to `/healthz` with this status, and to all else with 200.
fn healthy(status: u16) -> Behaviour {
    Behaviour::choose(move |request| match request.target.as_str() {
        "/healthz?deep=1" => Behaviour::status(status),
        _ => Behaviour::ok(),
    })
}

fn is_avoided(gateway: &Gateway, backend: &Backend) -> bool {
    gateway.endpoint(backend.addr()).is_unhealthy()
}

#[tokio::test]
async fn endpoint_with_failing_health_checks_is_avoided_until_checks_pass() -> TestResult {
    let backends = Backend::group(2, healthy(200)).await?;
    let gateway = checked(&backends, http("/healthz?deep=1")).await?;
    backends[0].wait_until(|backend| backend.requests() >= 3).await?;
    let last = backends[0].last_request().unwrap();
    assert_eq!((&*last.target, last.header("host")), ("/healthz?deep=1", Some("checked.example")));
    assert!(!is_avoided(&gateway, &backends[0]));
    backends[0].set(healthy(503));
    gateway.wait_until(|gateway| is_avoided(gateway, &backends[0])).await?;
    for _ in 0..20 {
        ask(&gateway, "/", &["X-Id: mine"]).await?;
    }
    assert!(!backends[0].ids().iter().any(|id| id == "mine"), "requests went to who fails its checks");
    // The endpoint responds well to requests; only the health check counts.
    assert!(is_avoided(&gateway, &backends[0]));
    // If all endpoints fail, all serve.
    backends[1].set(healthy(503));
    gateway.wait_until(|gateway| is_avoided(gateway, &backends[1])).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    backends[0].set(healthy(200));
    gateway.wait_until(|gateway| !is_avoided(gateway, &backends[0])).await?;
    // An endpoint that is no longer checked is healthy, whatever it responded before.
    gateway.configure(|config| set_health(config, None)).await;
    gateway.wait_until(|gateway| !is_avoided(gateway, &backends[1])).await
}

#[tokio::test]
async fn health_check_without_a_valid_response_fails() -> TestResult {
    for bad in
        [Behaviour::silent(), Behaviour::garbage(), Behaviour::close_on_accept(), Behaviour::status(301)]
    {
        let backends = [Backend::start(bad).await?, Backend::start(Behaviour::ok()).await?];
        let mut health = http("/");
        if let Some(check) = &mut health.check {
            check.timeout = Span::of_millis(500);
        }
        let gateway = checked(&backends, health).await?;
        gateway.wait_until(|gateway| is_avoided(gateway, &backends[0])).await?;
        assert!(!is_avoided(&gateway, &backends[1]));
        let failed = gateway.count(|shard| &shard.checks_failed);
        assert!(failed >= 2 && failed < gateway.count(|shard| &shard.checks), "{failed}");
    }
    Ok(())
}

#[tokio::test]
async fn tcp_health_check_passes_if_a_connection_is_accepted() -> TestResult {
    let mut backends = Backend::group(2, Behaviour::silent()).await?;
    let gateway = checked(&backends, check(json!({"type": "TCP"}))).await?;
    gateway.wait_until(|gateway| gateway.count(|shard| &shard.checks) > 6).await?;
    assert!(!is_avoided(&gateway, &backends[0]));
    backends[0].kill().await;
    gateway.wait_until(|gateway| gateway.endpoint(backends[0].addr()).is_failing()).await?;
    backends[0].restart().await?;
    gateway.wait_until(|gateway| !is_avoided(gateway, &backends[0])).await
}

#[tokio::test]
async fn grpc_health_check_uses_the_grpc_health_checking_protocol() -> TestResult {
    let backend = Http2Backend::start(Manner::GrpcHealth(true), 100).await?;
    let mut builder = Gateway::builder().http2_endpoints([backend.addr()]);
    let health = check(json!({"type": "GRPC", "service": "shop.Orders"}));
    set_health(builder.config_mut(), Some(health));
    let gateway = builder.start().await?;
    let upstream = gateway.proxy().registry().upstreams().into_iter().next().unwrap();
    let endpoint = upstream.endpoints().endpoints[0].0.clone();
    gateway.wait_until(|_| upstream.shards().sum(|shard| &shard.checks) > 3).await?;
    assert!(!endpoint.is_unhealthy());
    let asked = backend.last();
    assert_eq!((&asked["content-type"], &asked["te"]), (&"application/grpc".parse()?, &"trailers".parse()?));
    backend.set(Manner::GrpcHealth(false));
    gateway.wait_until(|_| endpoint.is_failing()).await?;
    backend.set(Manner::GrpcHealth(true));
    gateway.wait_until(|_| !endpoint.is_unhealthy()).await?;
    backend.set(Manner::GrpcStatus(12));
    gateway.wait_until(|_| endpoint.is_failing()).await
}

#[tokio::test]
async fn health_checks_start_with_new_endpoints_and_end_with_their_upstream() -> TestResult {
    let backends = Backend::group(2, Behaviour::ok()).await?;
    let gateway = checked(&backends[..1], http("/")).await?;
    backends[0].wait_until(|backend| backend.requests() > 2).await?;
    gateway.set_addresses([backends[1].addr()]).await;
    backends[1].wait_until(|backend| backend.requests() > 2).await?;
    let asked = backends[0].requests();
    backends[1].wait_until(|backend| backend.requests() > 10).await?;
    assert!(backends[0].requests() <= asked + 1, "who is removed is asked no more");
    gateway
        .configure(|config| {
            config.hosts.clear();
            config.upstreams.clear();
        })
        .await;
    backends[1].wait_until(|backend| backend.open() == 0).await?;
    Ok(())
}

#[tokio::test]
async fn endpoint_with_consecutive_errors_is_ejected_for_the_configured_time() -> TestResult {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let ejection = json!({"consecutiveErrors": 3, "time": "2s"});
    let ejection = Some(serde_json::from_value(ejection).expect("the ejection is valid"));
    let mut builder = Gateway::builder().backends(&backends).workers(1).settings(|settings| {
        settings.resilience.slow_start = Duration::ZERO;
        settings.resilience.probe_interval = Duration::from_millis(10);
    });
    for upstream in builder.config_mut().upstreams.values_mut() {
        let upstream: &mut Upstream = Arc::make_mut(upstream);
        upstream.balance = sluicegate_model::Balance::RoundRobin;
        upstream.health = Some(Arc::new(Health { ejection, check: None }));
    }
    let gateway = builder.start().await?;
    backends[0].set(Behaviour::status(500));
    backends[1].set(Behaviour::status(500));
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(ask(&gateway, "/", &[]).await?.status);
    }
    // One of three endpoints may be ejected; a second one would exceed the limit.
    let avoided = backends.iter().filter(|backend| is_avoided(&gateway, backend)).count();
    assert_eq!(avoided, 1, "{statuses:?}");
    let ejected = backends.iter().find(|backend| is_avoided(&gateway, backend)).unwrap();
    let asked = ejected.requests();
    assert!(asked <= 4, "{asked}");
    // The ejection has ended: the endpoint receives requests again, and is ejected again.
    let others = backends.iter().filter(|backend| backend.addr() != ejected.addr());
    others.for_each(|backend| backend.set(Behaviour::ok()));
    gateway.wait_until(|gateway| !is_avoided(gateway, ejected)).await?;
    for _ in 0..20 {
        ask(&gateway, "/", &[]).await?;
    }
    assert!(is_avoided(&gateway, ejected) && ejected.requests() > asked);
    // An endpoint that responds well is no longer ejected.
    backends.iter().for_each(|backend| backend.set(Behaviour::ok()));
    gateway.wait_until(|gateway| !is_avoided(gateway, ejected)).await?;
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    }
    Ok(())
}
