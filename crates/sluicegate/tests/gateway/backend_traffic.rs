//! A gateway process applies an XBackendTrafficPolicy from a directory.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};

use crate::http_routes::serving;
use crate::support::Site;

type TestResult = anyhow::Result<()>;

/// An XBackendTrafficPolicy for the Service `web`.
fn policy(parts: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackendTrafficPolicy
metadata: {{name: web}}
spec: {{targetRefs: [{{group: \"\", kind: Service, name: web}}], {parts}}}
"
    )
}

#[tokio::test]
async fn retries_at_a_service_stop_at_its_retry_constraint() -> TestResult {
    let backends = Backend::group(2, Behaviour::status(503)).await?;
    let site = Site::of(&backends)?;
    let constraint = "retryConstraint: {budget: {percent: 0}, minRetryRate: {count: 3, interval: 1h}}";
    site.save("policy.yaml", &policy(constraint))?;
    let rules = "{backendRefs: [{name: web, port: 80}], retry: {attempts: 1, codes: [503]}}";
    let (_gateway, listener) = serving(&site, rules).await?;
    let before: u64 = backends.iter().map(Backend::requests).sum();
    for _ in 0..20 {
        assert_eq!(client::get(listener, "a.test", "/").await?.status, 503);
    }
    let received = backends.iter().map(Backend::requests).sum::<u64>() - before;
    assert!((20..=23).contains(&received), "{received}");
    Ok(())
}

#[tokio::test]
async fn session_persistence_of_a_service_leads_a_client_to_one_endpoint() -> TestResult {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let site = Site::of(&backends)?;
    site.save("policy.yaml", &policy("sessionPersistence: {cookie: {name: shop}}"))?;
    let (_gateway, listener) = serving(&site, "{backendRefs: [{name: web, port: 80}]}").await?;
    let first = client::get(listener, "a.test", "/").await?;
    let pair = first.header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap_or_default();
    assert!(pair.starts_with("shop="), "{first:?}");
    let before: Vec<_> = backends.iter().map(Backend::requests).collect();
    let mut client = Client::connect(listener).await?;
    for _ in 0..50 {
        let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\nCookie: {pair}\r\n\r\n");
        assert_eq!(client.request(request).await?.status, 200);
    }
    let mut received: Vec<_> =
        backends.iter().zip(before).map(|(backend, before)| backend.requests() - before).collect();
    received.sort_unstable();
    assert_eq!(received, [0, 0, 50]);
    Ok(())
}
