//! A gateway process serves ListenerSets from a directory.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;
use sluicegate_testkit::load::Load;

use crate::http_routes::{LOOPBACK, gateway};
use crate::support::{LIMIT, Site, free_address};

type TestResult = anyhow::Result<()>;

/// A ListenerSet of the Gateway `edge` with a listener at this port, and its HTTPRoute, whose responses have the name of
/// the set.
fn set(name: &str, port: u16) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: {name}}}
spec: {{parentRef: {{name: edge}}, listeners: [{{name: web, protocol: HTTP, port: {port}}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{kind: ListenerSet, name: {name}}}]
  rules:
  - filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-set, value: {name}}}]}}}}]
    backendRefs: [{{name: web, port: 80}}]
"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_set_takes_over_from_a_deleted_set_and_no_request_fails() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let listener = free_address()?;
    let port = listener.port();
    let own = gateway(&format!("{{name: web, protocol: HTTP, port: {port}, hostname: edge.test}}"))
        .replace("listeners:", "allowedListeners: {namespaces: {from: Same}}, listeners:");
    site.save("gateway.yaml", &own)?;
    site.save("first.yaml", &set("first", port))?;
    site.save("second.yaml", &set("second", port))?;
    let process = site.serve(&LOOPBACK).await?;
    // The listeners conflict, and the first set keeps the port.
    let response = client::get(listener, "a.test", "/").await?;
    assert_eq!((response.status, response.header("x-set")), (200, Some("first")));
    assert_eq!(
        client::get(listener, "edge.test", "/").await?.status,
        404,
        "no set has routes of the Gateway"
    );
    let load = Load::new(listener).connections(5).start()?;
    load.wait_for_ok(20, LIMIT).await?;
    std::fs::remove_file(site.path().join("first.yaml"))?;
    let end = std::time::Instant::now() + LIMIT;
    while client::get(listener, "a.test", "/").await?.header("x-set") != Some("second") {
        anyhow::ensure!(
            std::time::Instant::now() < end,
            "the second set is not served: {}",
            process.output()
        );
    }
    load.wait_for_ok(100, LIMIT).await?;
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", process.output());
    Ok(())
}
