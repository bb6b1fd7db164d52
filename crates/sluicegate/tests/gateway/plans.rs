//! Plans, subscriptions and the keys of Consumers.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};

use crate::planes::Planes;
use crate::support::Site;

type TestResult = anyhow::Result<()>;

const API: &str = "---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {name: pets}
spec:
  document:
    inline: |
      openapi: 3.1.0
      info: {title: Pets, version: '1'}
      paths:
        /pets:
          get: {operationId: listPets}
          post: {operationId: createPet}
  environments:
  - name: production
    hosts: [pets.test]
    backend: {service: web, port: http}
  operationSets: [{name: changes, methods: [POST]}]
  subscriptions: Required
---
apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {name: keys}
spec:
  targetRefs: [{group: sluicegate.dev, kind: Api, name: pets}]
  authentication: {apiKey: {from: [{header: {name: x-api-key}}]}}
";

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: sluicegate.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

/// A Consumer with a key for each entry: the key, and further fields.
fn consumer(name: &str, keys: &[(&str, &str)]) -> String {
    let entry = |(key, more): &(&str, &str)| {
        let hash = digest(&SHA256, key.as_bytes());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{{sha256: \"{hash}\"{more}}}")
    };
    let keys: Vec<String> = keys.iter().map(entry).collect();
    object("Consumer", name, &format!("{{apiKeys: [{}]}}", keys.join(", ")))
}

fn subscription(name: &str, consumer: &str, more: &str) -> String {
    let spec =
        format!("{{consumerRef: {{name: {consumer}}}, planRef: {{name: gold}}, apis: [{{name: pets{more}");
    object("Subscription", name, &spec)
}

async fn call(site: &Site, method: &str, key: &str) -> anyhow::Result<Response> {
    let request = format!(
        "{method} /pets HTTP/1.1\r\nHost: pets.test\r\nContent-Length: 0\r\nX-API-Key: {key}\r\n\r\n"
    );
    Ok(Client::connect(site.http).await?.request(request).await?)
}

fn problem(response: &Response) -> anyhow::Result<serde_json::Value> {
    anyhow::ensure!(response.header("content-type") == Some("application/problem+json"), "{response:?}");
    Ok(serde_json::from_slice(&response.body)?)
}

/// A gateway with the API and these objects.
async fn serve(site: &Site, objects: &[String]) -> anyhow::Result<sluicegate_netns::Process> {
    site.save("ingress.yaml", &format!("{API}{}", objects.concat()))?;
    site.serve(&[]).await
}

#[tokio::test]
async fn quota_of_a_plan_ends_the_requests_of_its_subscription_alone() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let plan =
        "{quotas: [{name: year, requests: 3, calendar: Year, timeZone: Europe/Berlin}], xHeaders: true}";
    let _gateway = serve(
        &site,
        &[
            object("Plan", "gold", plan),
            consumer("alice", &[("key-of-alice-123456", "")]),
            consumer("bob", &[("key-of-bob-12345678", "")]),
            subscription("a", "alice", "}]}"),
            subscription("b", "bob", "}]}"),
        ],
    )
    .await?;
    for left in [2, 1, 0] {
        let response = call(&site, "GET", "key-of-alice-123456").await?;
        assert_eq!(response.status, 200);
        let limit = response.header("ratelimit").unwrap_or_default().to_owned();
        assert!(limit.starts_with(&format!("\"year\";r={left};t=")), "{limit}");
        assert_eq!(response.header("x-ratelimit-remaining"), Some(&*left.to_string()));
        assert_eq!(response.header("x-ratelimit-limit"), Some("3"));
        let policy = response.header("ratelimit-policy").unwrap_or_default();
        assert!(policy.starts_with("\"year\";q=3;w=31"), "{policy}");
    }
    let response = call(&site, "GET", "key-of-alice-123456").await?;
    assert_eq!(response.status, 429);
    assert!(
        response.header("retry-after").is_some_and(|after| after.parse().is_ok_and(|after: u64| after > 0))
    );
    let problem = problem(&response)?;
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["violated-policies"], serde_json::json!(["year"]));
    assert_eq!(call(&site, "GET", "key-of-bob-12345678").await?.status, 200, "bob has a quota of his own");
    assert_eq!(backend.requests(), 4);
    // A change of the plan keeps the count: one more request than before is one request.
    let changed = plan.replace("requests: 3", "requests: 4");
    let text = std::fs::read_to_string(site.path().join("ingress.yaml"))?.replace(plan, &changed);
    site.save("ingress.yaml", &text)?;
    let end = SystemTime::now() + crate::support::LIMIT;
    while call(&site, "GET", "key-of-alice-123456").await?.status != 200 {
        anyhow::ensure!(SystemTime::now() < end, "the new quota does not apply");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(call(&site, "GET", "key-of-alice-123456").await?.status, 429);
    Ok(())
}

#[tokio::test]
async fn limits_of_a_plan_count_each_subscription_by_itself() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let plan =
        "{limits: [{name: hour, requests: 2, per: 1h}], quotas: [{name: day, requests: 9, calendar: Day}]}";
    let _gateway = serve(
        &site,
        &[
            object("Plan", "gold", plan),
            consumer("alice", &[("key-of-alice-123456", "")]),
            consumer("bob", &[("key-of-bob-12345678", "")]),
            subscription("a", "alice", "}]}"),
            subscription("b", "bob", "}]}"),
        ],
    )
    .await?;
    for key in ["key-of-alice-123456", "key-of-bob-12345678"] {
        for left in [1, 0] {
            let response = call(&site, "GET", key).await?;
            assert_eq!(response.status, 200);
            let limits = response.header("ratelimit").unwrap_or_default();
            assert!(limits.starts_with(&format!("\"hour\";r={left};t=")), "{limits}");
            assert!(limits.contains(&format!(", \"day\";r={}", 7 + left)), "{limits}");
        }
        let response = call(&site, "GET", key).await?;
        assert_eq!(response.status, 429);
        assert_eq!(problem(&response)?["violated-policies"], serde_json::json!(["hour"]));
    }
    Ok(())
}

#[tokio::test]
async fn unknown_expired_and_revoked_keys_receive_different_problems() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let keys = [
        ("key-that-is-valid-1", ", name: first"),
        ("key-that-expires-12", ", expires: '2999-01-01T00:00:00Z'"),
        ("key-that-expired-12", ", expires: '2026-01-01T00:00:00Z'"),
        ("key-that-is-revoked", ", revoked: true"),
    ];
    let objects = [object("Plan", "gold", "{}"), consumer("alice", &keys), subscription("a", "alice", "}]}")];
    let _gateway = serve(&site, &objects).await?;
    for (key, status, detail) in [
        ("key-that-is-valid-1", 200, ""),
        ("key-that-expires-12", 200, ""),
        ("key-that-expired-12", 401, "The API key has expired."),
        ("key-that-is-revoked", 401, "The API key is revoked."),
        ("key-that-is-unknown", 401, "The API key is unknown."),
        ("", 401, "There are no credentials."),
    ] {
        let response = call(&site, "GET", key).await?;
        assert_eq!(response.status, status, "{key}");
        if status != 200 {
            assert_eq!(problem(&response)?["detail"], detail, "{key}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn callers_without_an_active_subscription_receive_403() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let names = ["none", "pending", "approved", "rejected", "suspended", "planless", "partly"];
    let mut objects: Vec<String> =
        names.iter().map(|name| consumer(name, &[(&format!("key-of-{name}-123456"), "")])).collect();
    objects.push(object("Plan", "gold", "{approval: Manual}"));
    for (name, more) in [
        ("pending", "}]}"),
        ("approved", "}], approval: Approved}"),
        ("rejected", "}], approval: Rejected}"),
        ("suspended", "}], approval: Approved, suspended: true}"),
        ("planless", "}], approval: Approved}"),
        ("partly", ", operationSets: [changes]}], approval: Approved}"),
    ] {
        let subscription = subscription(name, name, more);
        objects.push(match name {
            "planless" => subscription.replace("name: gold", "name: tin"),
            _ => subscription,
        });
    }
    let _gateway = serve(&site, &objects).await?;
    for (name, get, post, detail) in [
        ("none", 403, 403, "The caller has no subscription to the operation."),
        ("pending", 403, 403, "The subscription of the caller is not approved yet."),
        ("approved", 200, 200, ""),
        ("rejected", 403, 403, "The subscription of the caller is not active."),
        ("suspended", 403, 403, "The subscription of the caller is not active."),
        ("planless", 403, 403, "The subscription of the caller is not active."),
        ("partly", 403, 200, "The caller has no subscription to the operation."),
    ] {
        let key = format!("key-of-{name}-123456");
        let response = call(&site, "GET", &key).await?;
        assert_eq!(response.status, get, "{name}");
        if get != 200 {
            assert_eq!(problem(&response)?["detail"], detail, "{name}");
        }
        assert_eq!(call(&site, "POST", &key).await?.status, post, "{name}");
    }
    // The gateway's own responses need a key, but no subscription.
    assert_eq!(call(&site, "PUT", "key-of-none-123456").await?.status, 405);
    Ok(())
}

#[tokio::test]
async fn quota_of_bytes_counts_requests_and_responses_when_they_end() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let plan = "{quotas: [{name: traffic, bytes: \"300\", period: 24h}]}";
    let objects = [
        object("Plan", "gold", plan),
        consumer("alice", &[("key-of-alice-123456", "")]),
        subscription("a", "alice", "}]}"),
    ];
    let _gateway = serve(&site, &objects).await?;
    let first = call(&site, "GET", "key-of-alice-123456").await?;
    assert_eq!(first.status, 200);
    let policy = first.header("ratelimit-policy").unwrap_or_default();
    assert_eq!(policy, "\"traffic\";q=300;w=86400;qu=\"content-bytes\"");
    let mut status = 200;
    for _ in 0..4 {
        status = call(&site, "GET", "key-of-alice-123456").await?.status;
    }
    assert_eq!(status, 429, "five requests have more than 300 bytes");
    assert!(backend.requests() < 5);
    Ok(())
}

/// Calls until the quota is used up. Returns the number of calls before.
async fn use_up(site: &Site) -> anyhow::Result<usize> {
    let mut calls = 0;
    while call(site, "GET", "key-of-alice-123456").await?.status == 200 {
        calls += 1;
        anyhow::ensure!(calls <= 200, "the quota is never used up");
        // Longer than a request: the gateway learns the total once a second.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(calls)
}

/// Objects whose only subscription has 100 requests a year.
fn hundred_a_year() -> [String; 3] {
    [
        object("Plan", "gold", "{quotas: [{name: year, requests: 100, calendar: Year}]}"),
        consumer("alice", &[("key-of-alice-123456", "")]),
        subscription("a", "alice", "}]}"),
    ]
}

async fn use_ninety(site: &Site) -> TestResult {
    for _ in 0..90 {
        assert_eq!(call(site, "GET", "key-of-alice-123456").await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn used_quota_survives_a_restart_in_a_database() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", &format!("{API}{}", hundred_a_year().concat()))?;
    let dir = tempfile::tempdir()?;
    let database = format!("sqlite:{}", dir.path().join("quotas.db").display());
    let options = ["--analytics-database", &*database];
    let mut gateway = site.serve(&options).await?;
    use_ninety(&site).await?;
    gateway.terminate()?;
    gateway.wait(crate::support::LIMIT).await?;
    let _gateway = site.serve(&options).await?;
    assert_eq!(use_up(&site).await?, 10, "calls after the restart");
    Ok(())
}

#[tokio::test]
async fn control_plane_counts_quotas_and_learns_them_again_after_its_restart() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let planes = Planes::of([&backend])?;
    let site = &planes.site;
    site.save("ingress.yaml", &format!("{API}{}", hundred_a_year().concat()))?;
    let mut control_plane = planes.control_plane().await?;
    let mut data_plane = planes.data_plane().await?;
    use_ninety(site).await?;
    // The new control plane has no counts, and learns them with the next request.
    control_plane.kill()?;
    let _control_plane = planes.control_plane().await?;
    assert_eq!(call(site, "GET", "key-of-alice-123456").await?.status, 200);
    data_plane.terminate()?;
    data_plane.wait(crate::support::LIMIT).await?;
    let _data_plane = planes.data_plane().await?;
    assert_eq!(use_up(site).await?, 9, "calls after the restart");
    Ok(())
}
