//! Tests of `/config`, `/routes` and `/upstreams`, and of their client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_admin::state::{Health, ServedRoute, UpstreamState};
use sluicegate_admin::table::routes_table;
use sluicegate_admin::{FetchError, fetch};
use sluicegate_model::{
    Balance, Change, Conditions, Config, Endpoint, HostPattern, Layer4Route, Listener, ListenerId, ObjectId,
    PathPattern, Planes, Protocol, ProxyHeader, Rule, RuleMatch, Serves, Tls, TlsRoute, Transport,
    UpstreamKey, UpstreamLimits, VirtualHost, WeightedUpstream,
};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client, LIMIT};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::gateway::{Gateway, config, key, ready, route, upstream};

const HOST: &str = "shop.example.com";

/// Fetches `/upstreams` until the first upstream meets the condition.
async fn upstreams_until(
    gateway: &Gateway,
    condition: impl Fn(&UpstreamState) -> bool,
) -> anyhow::Result<Vec<UpstreamState>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let upstreams: Vec<UpstreamState> = fetch(gateway.admin, "/upstreams").await?;
        if condition(&upstreams[0]) {
            return Ok(upstreams);
        }
        assert!(Instant::now() < deadline, "waited in vain: {upstreams:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn admin_path_config_shows_the_model_with_its_current_endpoints() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    assert_eq!(fetch::<Value>(gateway.admin, "/config").await?, json!({"config": null, "problems": []}));

    let mut config = config(&[("/", "web", &[ready(([127, 0, 0, 1], 1).into())])]);
    gateway.apply(config.clone()).await;
    gateway.set_problems(&["web.yaml:7: Ingress shop/web: spec.rules[0]: is odd"], &["a.yaml: may be odd"]);
    let document: Value = fetch(gateway.admin, "/config").await?;
    assert_eq!(document["config"], serde_json::to_value(&config)?);
    assert_eq!(
        document["problems"],
        json!(["web.yaml:7: Ingress shop/web: spec.rules[0]: is odd", "a.yaml: may be odd"])
    );

    let endpoints = [ready(([127, 0, 0, 1], 2).into()), ready(([127, 0, 0, 1], 3).into())];
    gateway
        .proxy
        .apply(Change::Endpoints { upstream: key("web"), endpoints: endpoints.clone().into() })
        .await;
    config.upstreams.insert(key("web"), upstream(&endpoints).into());
    let document: Value = fetch(gateway.admin, "/config").await?;
    assert_eq!(document["config"], serde_json::to_value(&config)?);
    Ok(())
}

#[tokio::test]
async fn routes_of_the_running_gateway_equal_the_routes_of_its_model() -> anyhow::Result<()> {
    let address = ([127, 0, 0, 1], 1).into();
    let leaving = Endpoint { address: ([127, 0, 0, 1], 2).into(), conditions: Conditions::TERMINATING };
    let mut config = config(&[("/", "web", &[ready(address), leaving]), ("/cart", "cart", &[])]);
    let routes = &mut Arc::make_mut(&mut config.hosts[0]).rules;
    routes.push(Rule {
        matches: vec![RuleMatch::path(PathPattern::Exact("/cart".into()))],
        ..route("/cart", "web")
    });
    let wildcard = HostPattern::Wildcard("example.com".into());
    let other = VirtualHost { fallback: Some(route("/", "cart")), ..VirtualHost::new(wildcard, vec![]) };
    config.hosts.insert(0, other.into());
    config.default_rule = Some(route("/", "web"));
    let gateway = Gateway::serving(config.clone()).await?;
    let fetched: Vec<ServedRoute> = fetch(gateway.admin, "/routes").await?;
    assert_eq!(fetched, ServedRoute::all(&config));
    assert_eq!(
        routes_table(&fetched, false),
        "\
HOST               PATH    TYPE             UPSTREAM         ENDPOINTS   FROM
shop.example.com   /       Prefix           shop/web:http    1/2         Ingress shop/web
shop.example.com   /cart   Exact            shop/web:http    1/2         Ingress shop/web
shop.example.com   /cart   Prefix           shop/cart:http   0/0         Ingress shop/cart
*.example.com      *       DefaultBackend   shop/cart:http   0/0         Ingress shop/cart
*                  *       DefaultBackend   shop/web:http    1/2         Ingress shop/web
"
    );
    Ok(())
}

#[test]
fn admin_path_routes_lists_layer4_routes_with_their_listeners() -> anyhow::Result<()> {
    let protocol = |service: &str, protocol| UpstreamKey {
        transport: Transport { protocol, ..Transport::default() },
        ..key(service)
    };
    let leads_to = |kind, upstreams: &[(&UpstreamKey, u32)]| Layer4Route {
        id: ObjectId { kind, namespace: "shop".into(), name: "web".into() },
        backends: upstreams
            .iter()
            .map(|(upstream, weight)| WeightedUpstream { upstream: (*upstream).clone(), weight: *weight })
            .collect(),
    };
    let listener = |address: &str, serves| {
        let object = ObjectId { kind: "Gateway", namespace: "shop".into(), name: "edge".into() };
        let id = ListenerId { object, name: "x".into() };
        anyhow::Ok(Listener {
            id,
            address: address.parse()?,
            serves,
            planes: Planes::Shared,
            proxy_header: ProxyHeader::ByPeer,
            client_port: None,
        })
    };
    let tls_route = |host: HostPattern, route| TlsRoute::new(host, route);
    let (db, new, dns) =
        (protocol("db", Protocol::Tcp), protocol("new", Protocol::Tcp), protocol("dns", Protocol::Udp));
    let mut config = config(&[("/", "web", &[])]);
    for key in [&db, &new, &dns] {
        let address = ([127, 0, 0, 1], 1).into();
        config.upstreams.insert(key.clone(), upstream(&[ready(address)]).into());
    }
    let tls = |route: Layer4Route| {
        let (exact, suffix) = (HostPattern::Exact("a.test".into()), HostPattern::Suffix("test".into()));
        vec![tls_route(exact, route.clone()), tls_route(suffix, route)]
    };
    config.listeners = vec![
        listener("[::1]:8444", Serves::Tls(tls(leads_to("TLSRoute", &[(&db, 1)]))))?,
        listener("10.0.0.1:5432", Serves::Tcp(Some(leads_to("TCPRoute", &[(&db, 9), (&new, 0)]))))?,
        listener("0.0.0.0:5432", Serves::Udp(Some(leads_to("UDPRoute", &[(&dns, 1)]))))?,
        listener("0.0.0.0:1", Serves::Tcp(None))?,
    ];
    let passed = tls_route(HostPattern::Any, leads_to("Ingress", &[(&db, 1)]));
    config.tls = Tls { passthrough: vec![passed], ..Tls::default() }.into();
    let shown = ServedRoute::all(&config);
    assert_eq!(
        routes_table(&shown, false),
        "\
HOST               PATH            TYPE          UPSTREAM                        ENDPOINTS   FROM
shop.example.com   /               Prefix        shop/web:http                   0/0         Ingress shop/web
*                  *               Passthrough   shop/db:http (tcp)              1/1         Ingress shop/web
*                  10.0.0.1:5432   TCP           shop/db:http (tcp), weight 9    1/1         TCPRoute shop/web
*                  10.0.0.1:5432   TCP           shop/new:http (tcp), weight 0   1/1         TCPRoute shop/web
*                  :5432           UDP           shop/dns:http (udp)             1/1         UDPRoute shop/web
a.test             [::1]:8444      TLS           shop/db:http (tcp)              1/1         TLSRoute shop/web
*.test             [::1]:8444      TLS           shop/db:http (tcp)              1/1         TLSRoute shop/web
"
    );
    assert_eq!(serde_json::from_value::<Vec<ServedRoute>>(serde_json::to_value(&shown)?)?, shown);
    Ok(())
}

#[tokio::test]
async fn admin_path_upstreams_shows_health_load_and_counters_of_endpoints() -> anyhow::Result<()> {
    let alive = Backend::start(Behaviour::ok().delay(Duration::from_millis(2))).await?;
    let dead = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let mut config = config(&[("/", "web", &[ready(alive.addr()), ready(dead)])]);
    let mut web = upstream(&[ready(alive.addr()), ready(dead)]);
    web.balance = Balance::RoundRobin;
    web.limits = UpstreamLimits { max_requests: Some(100), max_requests_per_endpoint: None };
    config.upstreams.insert(key("web"), web.into());
    let gateway = Gateway::serving(config).await?;
    for _ in 0..10 {
        assert_eq!(client::get(gateway.http, HOST, "/").await?.status, 200);
    }
    // The connection becomes idle shortly after its client has received the last byte.
    let upstreams = upstreams_until(&gateway, |web| web.endpoints[0].idle == alive.open()).await?;
    let [web] = &upstreams[..] else { panic!("one upstream: {upstreams:?}") };
    assert_eq!((web.upstream.as_str(), &*web.balance), ("shop/web:http", "RoundRobin"));
    assert_eq!((web.max_requests, web.max_requests_per_endpoint), (Some(100), None));
    assert_eq!((web.counters.attempts, web.counters.ejections), (10, 1));
    assert!(web.counters.connect_failures.0["connect_refused"] >= 1);
    let [first, second] = &web.endpoints[..] else { panic!("two endpoints: {:?}", web.endpoints) };
    assert_eq!((first.address, first.health, first.attempts), (alive.addr(), Health::Healthy, 10));
    assert_eq!((first.ready, first.serving, first.terminating), (true, true, false));
    assert!((1..=2).contains(&first.ewma_ms.len()), "one estimate for each worker that used it");
    assert!(first.ewma_ms.iter().all(|ms| (2.0..5000.0).contains(ms)), "{:?}", first.ewma_ms);
    assert!(first.idle >= 1);
    assert!((first.share - 1.0).abs() < f64::EPSILON);
    assert_eq!((second.address, second.health, second.attempts), (dead, Health::Unhealthy, 0));
    assert!(second.unhealthy_for.is_some_and(|seconds| seconds < 60.0) && second.failures >= 1);

    // The share of a new endpoint grows slowly.
    let late = Backend::start(Behaviour::ok()).await?;
    let endpoints = [ready(alive.addr()), ready(late.addr())].into();
    gateway.proxy.apply(Change::Endpoints { upstream: key("web"), endpoints }).await;
    let upstreams: Vec<UpstreamState> = fetch(gateway.admin, "/upstreams").await?;
    let shares: Vec<_> = upstreams[0].endpoints.iter().map(|endpoint| endpoint.share).collect();
    assert!(shares[0] > 0.99 && (0.1..0.9).contains(&shares[1]), "{shares:?}");
    Ok(())
}

#[tokio::test]
async fn admin_path_upstreams_shows_requests_in_flight() -> anyhow::Result<()> {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Gateway::serving(config(&[("/", "web", &[ready(backend.addr())])])).await?;
    let mut client = Client::connect(gateway.http).await?;
    client.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    let upstreams: Vec<UpstreamState> = fetch(gateway.admin, "/upstreams").await?;
    assert_eq!(upstreams[0].counters.requests_in_flight, 1);
    assert_eq!(upstreams[0].endpoints[0].requests_in_flight, 1);
    Ok(())
}

#[tokio::test]
async fn gateway_without_configuration_lists_no_routes_and_upstreams() -> anyhow::Result<()> {
    let gateway = Gateway::start().await?;
    assert_eq!(fetch::<Vec<ServedRoute>>(gateway.admin, "/routes").await?, []);
    assert_eq!(fetch::<Vec<UpstreamState>>(gateway.admin, "/upstreams").await?, []);
    assert_eq!(ServedRoute::all(&Config::default()), []);
    Ok(())
}

#[tokio::test]
async fn error_of_a_failed_fetch_names_the_address_and_the_remedy() -> anyhow::Result<()> {
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let refused = fetch::<Value>(closed, "/routes").await.expect_err("no listener");
    assert!(matches!(refused, FetchError::Connect { .. }));
    let other = Backend::start(Behaviour::ok()).await?;
    let not_json = fetch::<Value>(other.addr(), "/routes").await.expect_err("not JSON");
    other.set(Behaviour::status(404));
    let missing = fetch::<Value>(other.addr(), "/routes").await.expect_err("404");
    other.set(Behaviour::too_little(10));
    let cut = fetch::<Value>(other.addr(), "/routes").await.expect_err("cut off");
    for (address, error) in
        [(closed, &refused), (other.addr(), &not_json), (other.addr(), &missing), (other.addr(), &cut)]
    {
        let message = error.to_string();
        assert!(message.contains(&address.to_string()) && message.contains("--admin"), "{message}");
    }
    assert!(refused.to_string().contains("start the gateway, or name"), "{refused}");
    assert!(missing.to_string().contains("404"), "{missing}");
    Ok(())
}
