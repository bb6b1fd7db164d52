//! A gateway process serves GRPCRoutes from a directory.

use std::net::SocketAddr;

use crate::http_routes::{LOOPBACK, gateway};
use crate::support::{SERVICE, Site, free_address, slices};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};

type TestResult = anyhow::Result<()>;

/// A gateway with an HTTP listener and a GRPCRoute with these rules, the address of the listener, and the backend of the
/// Service `web`, which speaks only HTTP/2.
async fn serving(
    site: &Site,
    rules: &[String],
) -> anyhow::Result<(sluicegate_netns::Process, SocketAddr, Http2Backend)> {
    let (listener, backend) = (free_address()?, Http2Backend::start(Manner::GrpcStatus(0), 100).await?);
    site.save("service.yaml", SERVICE)?;
    site.save("slices.yaml", &slices([backend.addr()]))?;
    site.save(
        "gateway.yaml",
        &gateway(&format!("{{name: http, protocol: HTTP, port: {}}}", listener.port())),
    )?;
    let route = format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {{name: grpc}}
spec: {{parentRefs: [{{name: edge}}], rules: [{}]}}
",
        rules.join(", ")
    );
    site.save("route.yaml", &route)?;
    let process = site.serve(&LOOPBACK).await?;
    Ok((process, listener, backend))
}

/// A gRPC call of this method with these header lines.
async fn call(addr: SocketAddr, path: &str, lines: &str) -> anyhow::Result<Response> {
    let mut client = Client::connect_http2(addr).await?;
    let head = "Content-Type: application/grpc\r\nTE: trailers\r\nContent-Length: 5\r\n";
    let request = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\n{head}{lines}\r\n\0\0\0\0\0");
    Ok(client.request(request).await?)
}

#[tokio::test]
async fn grpc_route_selects_rules_by_service_method_and_header() -> TestResult {
    let site = Site::new()?;
    let rule = |name: &str, of: &str| {
        let filter = format!(
            "{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-rule, value: {name}}}]}}}}"
        );
        format!("{{matches: [{of}], filters: [{filter}], backendRefs: [{{name: web, port: 80}}]}}")
    };
    let rules = [
        rule("header", "{headers: [{name: x-v, value: two}]}"),
        rule("service", "{method: {service: shop.Cart}}"),
        rule("method", "{method: {service: shop.Cart, method: Add}}"),
        rule("expression", "{method: {type: RegularExpression, service: \"shop[.].*\", method: Add}}"),
        rule("every", "{method: {method: Check}}"),
    ];
    let (_gateway, listener, backend) = serving(&site, &rules).await?;
    for (path, lines, expected) in [
        ("/shop.Cart/Add", "", Some("method")),
        ("/shop.Cart/Adder", "", Some("service")),
        ("/shop.Cart/Remove", "X-V: two\r\n", Some("service")),
        ("/shop.Order/Add", "", Some("expression")),
        ("/pre.shop.Order/Add", "", None),
        ("/shop.Cart2/Remove", "", None),
        ("/grpc.health.v1.Health/Check", "", Some("every")),
        ("/grpc.health.v1.Health/Watch", "X-V: two\r\n", Some("header")),
    ] {
        let response = call(listener, path, lines).await?;
        let found = (response.status, response.header("x-rule"), response.header("grpc-status"));
        let code = if expected.is_some() { "0" } else { "12" };
        assert_eq!(found, (200, expected, Some(code)), "{path} {lines:?}");
    }
    assert_eq!(backend.requests(), 6);
    Ok(())
}

#[tokio::test]
async fn calls_without_a_valid_backend_or_endpoint_receive_unavailable() -> TestResult {
    let site = Site::new()?;
    let to = |service: &str, rest: &str| format!("{{matches: [{{method: {{service: {service}}}}}], {rest}}}");
    let rules = [
        to("missing", "backendRefs: [{name: other, port: 80}]"),
        to("none", "backendRefs: []"),
        to("endpoints", "backendRefs: [{name: empty, port: 80}]"),
        to("filter", "filters: [{type: ExtensionRef}], backendRefs: [{name: web, port: 80}]"),
    ];
    site.save("empty.yaml", &SERVICE.replace("web", "empty"))?;
    let (_gateway, listener, backend) = serving(&site, &rules).await?;
    for service in ["missing", "none", "endpoints"] {
        let response = call(listener, &format!("/{service}/A"), "").await?;
        assert_eq!((response.status, response.header("grpc-status")), (200, Some("14")), "{service}");
    }
    assert_eq!(call(listener, "/filter/A", "").await?.status, 500, "no filter is skipped");
    assert_eq!(backend.requests(), 0);
    Ok(())
}
