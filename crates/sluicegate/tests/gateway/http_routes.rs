//! A gateway process serves HTTPRoutes from a directory.

use std::net::SocketAddr;

use crate::support::{LIMIT, Site, free_address};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::load::Load;

type TestResult = anyhow::Result<()>;

/// The options that let Gateways listen on loopback alone.
pub(crate) const LOOPBACK: [&str; 2] = ["--gateway-address", "127.0.0.1"];

/// A Gateway with these listeners.
pub(crate) fn gateway(listeners: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec: {{gatewayClassName: sluicegate, listeners: [{listeners}]}}
"
    )
}

/// An HTTPRoute of the Gateway `edge`, or of one of its listeners.
pub(crate) fn route(name: &str, parent: &str, hostnames: &str, rules: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec: {{parentRefs: [{{name: edge{parent}}}], hostnames: [{hostnames}], rules: [{rules}]}}
"
    )
}

/// The status of a request of this method at this URL.
async fn status(addr: SocketAddr, method: &str, host: &str, path: &str, lines: &str) -> anyhow::Result<u16> {
    let mut client = Client::connect(addr).await?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: 0\r\n\r\n");
    Ok(client.request(request).await?.status)
}

/// A gateway with an HTTP listener for any host and these rules, and the address of the listener.
pub(crate) async fn serving(
    site: &Site,
    rules: &str,
) -> anyhow::Result<(sluicegate_netns::Process, SocketAddr)> {
    let listener = free_address()?;
    site.save(
        "gateway.yaml",
        &gateway(&format!("{{name: http, protocol: HTTP, port: {}}}", listener.port())),
    )?;
    site.save("route.yaml", &route("web", "", "", rules))?;
    let gateway = site.serve(&LOOPBACK).await?;
    // The listener opens with the first configuration.
    client::get(listener, "a.test", "/").await?;
    Ok((gateway, listener))
}

#[tokio::test]
async fn http_route_selects_rules_by_path_method_header_and_parameter() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let fixed = |code: u16| {
        format!(
            "filters: [{{type: RequestRedirect, requestRedirect: {{hostname: to.test, statusCode: {code}}}}}]"
        )
    };
    let rules = [
        format!("{{matches: [{{path: {{value: /shop}}}}], {}}}", fixed(301)),
        format!("{{matches: [{{path: {{value: /shop}}, method: POST}}], {}}}", fixed(302)),
        format!("{{matches: [{{path: {{value: /shop}}, headers: [{{name: X-V, value: two}}]}}], {}}}", fixed(303)),
        format!("{{matches: [{{path: {{value: /shop}}, queryParams: [{{name: v, value: two}}]}}], {}}}", fixed(307)),
        format!("{{matches: [{{path: {{type: Exact, value: /shop/exact}}}}], {}}}", fixed(308)),
        "{matches: [{path: {type: RegularExpression, value: \"/shop/[0-9]+\"}}], backendRefs: [{name: web, port: 80}]}"
            .to_owned(),
    ];
    let (_gateway, listener) = serving(&site, &rules.join(", ")).await?;
    for (method, path, lines, expected) in [
        ("GET", "/shop", "", 301),
        ("POST", "/shop", "", 302),
        ("POST", "/shop", "X-V: two\r\n", 302),
        ("GET", "/shop", "X-V: two\r\n", 303),
        ("GET", "/shop?v=two", "", 307),
        ("GET", "/shop/exact", "", 308),
        ("GET", "/shop/12", "", 200),
        ("GET", "/shop/12a", "", 301),
        ("GET", "/shopping", "", 404),
    ] {
        let found = status(listener, method, "a.test", path, lines).await?;
        assert_eq!(found, expected, "{method} {path} {lines:?}");
    }
    Ok(())
}

#[tokio::test]
async fn filters_of_an_http_route_change_requests_and_responses() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let rules = "{filters: [\
        {type: URLRewrite, urlRewrite: {hostname: in.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /v2}}}, \
        {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: a}], remove: [x-gone]}}, \
        {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x-served, value: b}]}}], \
        backendRefs: [{name: web, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: \
        {add: [{name: x-backend, value: c}]}}]}]}";
    let (_gateway, listener) = serving(&site, rules).await?;
    let mut client = Client::connect(listener).await?;
    let response =
        client.request("GET /a?q=1 HTTP/1.1\r\nHost: a.test\r\nX-Gone: 1\r\nX-Set: old\r\n\r\n").await?;
    assert_eq!((response.status, response.header("x-served")), (200, Some("b")));
    let seen = response.text().to_ascii_lowercase();
    assert!(seen.starts_with("get /v2/a?q=1 http/1.1\r\n"), "{seen}");
    for line in ["host: in.test", "x-set: a", "x-backend: c", "x-forwarded-host: a.test"] {
        assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line}: {seen}");
    }
    assert!(!seen.contains("x-gone") && !seen.contains("old"), "{seen}");
    Ok(())
}

#[tokio::test]
async fn session_persistence_of_an_http_route_leads_a_client_to_one_endpoint() -> TestResult {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let site = Site::of(&backends)?;
    let rules = "{backendRefs: [{name: web, port: 80}], sessionPersistence: {sessionName: shop}}";
    let (_gateway, listener) = serving(&site, rules).await?;
    let first = client::get(listener, "a.test", "/").await?;
    let pair = first.header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap_or_default();
    assert!(pair.starts_with("shop="), "{first:?}");
    let before: Vec<_> = backends.iter().map(Backend::requests).collect();
    for _ in 0..50 {
        assert_eq!(status(listener, "GET", "a.test", "/", &format!("Cookie: {pair}\r\n")).await?, 200);
    }
    let mut received: Vec<_> =
        backends.iter().zip(before).map(|(backend, before)| backend.requests() - before).collect();
    received.sort_unstable();
    assert_eq!(received, [0, 0, 50]);
    Ok(())
}

#[tokio::test]
async fn requests_for_an_invalid_backend_receive_500_and_requests_without_endpoints_503() -> TestResult {
    let site = Site::of([])?;
    let to = |path: &str, backend: &str| {
        format!("{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{backend}]}}")
    };
    let rules = [
        to("/endpoints", "{name: web, port: 80}"),
        to("/service", "{name: other, port: 80}"),
        to("/port", "{name: web, port: 81}"),
        to("/kind", "{name: web, port: 80, kind: Bucket, group: x.test}"),
        to("/granted", "{name: web, port: 80, namespace: other}"),
        to("/none", ""),
        "{matches: [{path: {value: /filter}}], filters: [{type: ExtensionRef, extensionRef: {group: x.test, kind: Other, \
         name: a}}], backendRefs: [{name: web, port: 80}]}"
            .to_owned(),
    ];
    let (_gateway, listener) = serving(&site, &rules.join(", ")).await?;
    assert_eq!(client::get(listener, "a.test", "/endpoints").await?.status, 503);
    for path in ["/service", "/port", "/kind", "/granted", "/none", "/filter"] {
        assert_eq!(client::get(listener, "a.test", path).await?.status, 500, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn requests_for_the_names_of_a_listener_never_reach_routes_of_another_listener() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let (own, http) = (free_address()?, site.http);
    site.save(
        "gateway.yaml",
        &gateway(&format!(
            "{{name: any, protocol: HTTP, port: {port}}}, {{name: some, protocol: HTTP, port: {port}, hostname: \
             \"*.example.com\"}}, {{name: shared, protocol: HTTP, port: {shared}}}",
            port = own.port(),
            shared = http.port()
        )),
    )?;
    let rule = |path: &str| {
        format!("{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}")
    };
    let routes = [
        route("any", ", sectionName: any", "", &rule("/any")),
        route("some", ", sectionName: some", "\"a.example.com\", \"*.example.com\"", &rule("/some")),
        route("deep", ", sectionName: some", "\"a.example.com\"", &rule("/deep")),
        route("shared", ", sectionName: shared", "", &rule("/shared")),
    ];
    site.save("routes.yaml", &routes.join("---"))?;
    site.save("ingress.yaml", &crate::support::ingress("web", "/ingress"))?;
    let _gateway = site.serve(&LOOPBACK).await?;
    for (addr, host, path, expected) in [
        (own, "other.test", "/any", 200),
        (own, "b.example.com", "/any", 404),
        (own, "a.b.example.com", "/some", 200),
        (own, "a.example.com", "/some", 200),
        (own, "a.example.com", "/deep", 200),
        (own, "b.example.com", "/deep", 404),
        (own, "other.test", "/ingress", 404),
        (own, "other.test", "/shared", 404),
        (http, "other.test", "/ingress", 200),
        (http, "other.test", "/shared", 200),
        (http, "other.test", "/any", 404),
    ] {
        assert_eq!(client::get(addr, host, path).await?.status, expected, "{host}{path} at {addr}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_routes_and_listeners_fail_no_request() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let rules = "{backendRefs: [{name: web, port: 80}]}";
    let (process, listener) = serving(&site, rules).await?;
    let load = Load::new(listener).connections(5).start()?;
    let mut served = 0;
    for change in 0..20 {
        let filter = format!(
            "{{filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-change, value: \
             \"{change}\"}}]}}}}], backendRefs: [{{name: web, port: 80}}]}}"
        );
        site.save("route.yaml", &route("web", "", "", &filter))?;
        let other = format!(
            "{{name: http, protocol: HTTP, port: {}}}, {{name: other, protocol: HTTP, port: {}, hostname: n{change}.test}}",
            listener.port(),
            listener.port()
        );
        site.save("gateway.yaml", &gateway(&other))?;
        let end = std::time::Instant::now() + LIMIT;
        loop {
            let response = client::get(listener, "a.test", "/").await?;
            if response.header("x-change") == Some(&change.to_string()) {
                break;
            }
            anyhow::ensure!(std::time::Instant::now() < end, "change {change} is not served: {response:?}");
        }
        served += 20;
        load.wait_for_ok(served, LIMIT).await?;
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", process.output());
    Ok(())
}
