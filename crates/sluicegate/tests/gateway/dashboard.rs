//! The dashboard of a gateway, and explanations of requests.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;

use crate::support::{LIMIT, Site, free_address, sluicegate, until};

type TestResult = anyhow::Result<()>;

const SHOP: &str = r#"
apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {name: keys}
spec:
  targetRefs: [{group: networking.k8s.io, kind: Ingress, name: web}]
  authentication: {apiKey: {}, basic: {secretRef: {name: users}}}
---
apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {name: mobile}
spec:
  groups: [gold]
  apiKeys: [{secretRef: {name: mobile}}]
---
apiVersion: v1
kind: Secret
metadata: {name: mobile}
stringData: {key: key-of-the-mobile-app-7d1f}
---
apiVersion: v1
kind: Secret
metadata: {name: users}
stringData: {auth: "ada:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="}
---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {name: pets}
spec:
  owner: Team Pets
  document:
    inline: |
      openapi: 3.1.0
      info: {title: Pets, version: "1"}
      paths: {/pets: {get: {summary: Lists pets}}}
  environments:
  - {name: production, hosts: [pets.test], backend: {service: web, port: http}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: wrong}
spec: {rules: [{host: wrong.test, http: {paths: [{path: a, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}
"#;

async fn document(at: SocketAddr, name: &str) -> anyhow::Result<Value> {
    let response = client::get(at, "localhost", &format!("/api/{name}")).await?;
    anyhow::ensure!(response.status == 200, "{name}: {} {}", response.status, response.text());
    Ok(serde_json::from_slice(&response.body)?)
}

#[tokio::test]
async fn dashboard_shows_what_the_gateway_serves_and_no_secret() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, at) = (Site::of([&backend])?, free_address()?);
    site.save("shop.yaml", SHOP)?;
    let _gateway = site.serve(&["--dashboard-address", &at.to_string()]).await?;
    assert_eq!(client::get(at, "localhost", "/").await?.status, 200);

    assert_eq!(document(at, "apis").await?["items"][0]["owner"], "Team Pets");
    let api = document(at, "api?namespace=default&name=pets").await?;
    assert_eq!(api["document"]["paths"]["/pets"]["get"]["summary"], "Lists pets");
    let problem = &document(at, "problems?search=wrong").await?["items"][0];
    assert!(problem["place"].as_str().is_some_and(|place| place.contains("shop.yaml:")), "{problem}");
    assert_eq!(problem["object"], "Ingress default/wrong");
    let upstream = &document(at, "upstreams?search=web").await?["items"][0];
    assert_eq!(
        (&upstream["ready"], &upstream["state"]["endpoints"][0]["health"]),
        (&1.into(), &"healthy".into())
    );
    assert_eq!(document(at, "analytics").await?["off"], true);

    let names =
        ["overview", "routes", "upstreams", "certificates", "policies", "consumers", "problems", "apis"];
    for name in names {
        let text = document(at, name).await?.to_string();
        for secret in ["key-of-the-mobile-app", "W6ph5Mm5Pz8", "{SHA}"] {
            assert!(!text.contains(secret), "{name} has {secret}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn dashboard_at_a_public_address_needs_a_token() -> TestResult {
    let (site, port) = (Site::new()?, free_address()?.port());
    let address = format!("0.0.0.0:{port}");
    let mut gateway = site.start(&["--dashboard-address", &address])?;
    assert!(!gateway.wait(LIMIT).await?.success());
    assert!(gateway.output().contains("set --dashboard-token-file"), "{}", gateway.output());

    site.save("token", "0123456789abcdef\n")?;
    let token = site.path().join("token");
    let options = ["--dashboard-address", &address, "--dashboard-token-file", &token.to_string_lossy()];
    let _gateway = site.serve(&options).await?;
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(client::get(at, "any.name", "/api/routes").await?.status, 401);
    assert_eq!(client::get(at, "any.name", "/").await?.status, 200);
    let mut client = client::Client::connect(at).await?;
    let lines = "Host: any.name\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
    assert_eq!(client.request(format!("GET /api/routes HTTP/1.1\r\n{lines}")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn dashboard_moves_to_the_gateway_that_takes_over() -> TestResult {
    let (site, at) = (Site::new()?, free_address()?);
    let address = at.to_string();
    let first = site.serve(&["--dashboard-address", &address]).await?;
    let _second = site.serve(&["--dashboard-address", &address]).await?;
    drop(first);
    tokio::time::timeout(LIMIT, async {
        while client::get(at, "localhost", "/").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await?;
    Ok(())
}

const SUBSCRIBERS: &str = r#"
apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {name: keys}
spec:
  targetRefs: [{group: sluicegate.dev, kind: Api, name: pets}]
  authentication: {apiKey: {}}
---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {name: pets}
spec:
  subscriptions: Required
  catalogue: {visibleTo: {groups: [partners]}}
  document:
    inline: |
      openapi: 3.1.0
      info: {title: Pets, version: "1"}
      paths: {/pets: {get: {summary: Lists pets}}}
  environments:
  - {name: production, hosts: [pets.test], backend: {service: web, port: http}}
---
apiVersion: sluicegate.dev/v1alpha1
kind: Plan
metadata: {name: gold}
spec:
  approval: Manual
  catalogue: {visibleTo: {groups: [partners]}}
  quotas: [{name: month, requests: 1000, calendar: Month}]
---
# The Consumer keeps no comment, but others do.
apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {name: bob}
spec: {}
"#;

const OPERATOR: &str = "token-of-the-operator";
const BOB: &str = "token-of-bob-0123456789";
const EVE: &str = "token-of-eve-0123456789";

/// A request with a token to the dashboard or to the portal.
async fn with_token(at: SocketAddr, token: &str, request: &str, body: &str) -> anyhow::Result<(u16, Value)> {
    let mut client = client::Client::connect(at).await?;
    let length = body.len();
    let lines = format!(
        "Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nX-Sluicegate-Change: 1\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let response = client.request(format!("{request} HTTP/1.1\r\n{lines}")).await?;
    Ok((response.status, serde_json::from_slice(&response.body)?))
}

#[tokio::test]
async fn user_of_the_portal_subscribes_and_calls_after_the_approval() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let (site, dashboard, portal) = (Site::of([&backend])?, free_address()?, free_address()?);
    site.save("pets.yaml", SUBSCRIBERS)?;
    let (operators, users) = (site.path().join("operators"), site.path().join("users"));
    std::fs::write(&operators, OPERATOR)?;
    std::fs::write(
        &users,
        format!(
            "users:\n- {{name: bob, groups: [partners], consumers: [default/bob], token: {BOB}}}\n\
             - {{name: eve, groups: [others], token: {EVE}}}\n"
        ),
    )?;
    let gateway = site
        .serve(&[
            "--dashboard-address",
            &dashboard.to_string(),
            "--dashboard-token-file",
            &operators.to_string_lossy(),
            "--dashboard-changes",
            "--portal-address",
            &portal.to_string(),
            "--portal-token-file",
            &users.to_string_lossy(),
        ])
        .await?;
    let change = async |at, token, body: &str| with_token(at, token, "POST /api/change", body).await;
    let get = async |at, token, path: &str| with_token(at, token, &format!("GET /api/{path}"), "").await;
    let state = async || {
        let (_, document) = get(portal, BOB, "subscriptions").await?;
        anyhow::Ok(document["items"][0]["state"].clone())
    };

    let subscribe =
        r#"{"change": "subscribe", "consumer": "default/bob", "api": "default/pets", "plan": "gold"}"#;
    assert_eq!(change(portal, EVE, subscribe).await?.0, 404, "of another group");
    assert_eq!(change(portal, BOB, subscribe).await?.0, 200);
    until(async || Ok(state().await? == "Pending")).await?;
    assert_eq!(change(portal, BOB, subscribe).await?.0, 409, "there is one already");

    let (status, issued) = change(portal, BOB, r#"{"change": "issue", "consumer": "default/bob"}"#).await?;
    let key = issued["key"]["value"].as_str().unwrap_or_default().to_owned();
    assert_eq!((status, key.starts_with("sgk_")), (200, true), "{issued}");
    let served = std::cell::Cell::new(0);
    let call = async || {
        let mut client = client::Client::connect(site.http).await?;
        let response = client
            .request(format!("GET /pets HTTP/1.1\r\nHost: pets.test\r\nX-API-Key: {key}\r\n\r\n"))
            .await?;
        served.set(served.get() + u64::from(response.status == 200));
        anyhow::Ok(response.status)
    };
    until(async || Ok(call().await? == 403)).await?;

    let (_, of) = get(dashboard, OPERATOR, "subscriptions").await?;
    let name = format!("default/{}", of["items"][0]["name"].as_str().unwrap_or_default());
    let approve = format!(r#"{{"change": "approve", "subscription": "{name}"}}"#);
    assert_eq!(change(portal, BOB, &approve).await?.0, 403, "users do not approve their own requests");
    assert_eq!(change(dashboard, OPERATOR, &approve).await?.0, 200);
    until(async || Ok(call().await? == 200)).await?;
    assert_eq!(state().await?, "Active");
    let (_, document) = get(portal, BOB, "subscriptions").await?;
    assert_eq!(document["items"][0]["quotas"][0]["used"], 1);
    assert_eq!(get(portal, EVE, "subscriptions").await?.1["total"], 0);

    // A cancellation ends the rights at once, and a new subscription has no new quota.
    let cancel = format!(r#"{{"change": "cancel", "subscription": "{name}"}}"#);
    assert_eq!(change(portal, EVE, &cancel).await?.0, 404, "of another user");
    assert_eq!(change(portal, BOB, &cancel).await?.0, 200);
    until(async || Ok(call().await? == 403 && get(portal, BOB, "subscriptions").await?.1["total"] == 0))
        .await?;
    assert_eq!(change(portal, BOB, subscribe).await?.0, 200);
    until(async || Ok(state().await? == "Pending")).await?;
    let decide = async |decision: &str| {
        let body = format!(r#"{{"change": "{decision}", "subscription": "{name}"}}"#);
        anyhow::Ok(change(dashboard, OPERATOR, &body).await?.0)
    };
    assert_eq!(decide("approve").await?, 200);
    until(async || Ok(call().await? == 200)).await?;
    let (_, document) = get(portal, BOB, "subscriptions").await?;
    assert_eq!(document["items"][0]["quotas"][0]["used"], served.get(), "the count continues");
    // The file has the decision before the portal shows it.
    assert_eq!(decide("reject").await?, 200);
    let (status, refused) = change(portal, BOB, &cancel).await?;
    assert_eq!(status, 409, "{refused}");
    assert!(
        refused["error"].as_str().is_some_and(|error| error.contains("rejected or suspended")),
        "{refused}"
    );

    let text = std::fs::read_to_string(site.path().join("pets.yaml"))?;
    assert!(text.contains("sha256") && !text.contains(&key), "{text}");
    assert!(!gateway.output().contains(&key), "the log has no key");
    for path in ["keys", "consumers", "subscriptions", "problems"] {
        assert!(!get(dashboard, OPERATOR, path).await?.1.to_string().contains(&key), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn explain_prints_the_route_of_a_request() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save("shop.yaml", SHOP)?;
    let _gateway = site.serve(&[]).await?;
    let explain = |arguments: &[&str]| {
        let mut command = sluicegate();
        command.args(["explain", "--admin", &site.admin.to_string()]).args(arguments);
        command.output()
    };
    let found = explain(&["http://localhost/a"])?;
    let text = String::from_utf8(found.stdout)?;
    for line in ["of Ingress default/web", "authentication", "denies    ", "refused, 401 (no_credentials)"] {
        assert!(text.contains(line), "{text}");
    }
    let found = explain(&["--method", "PUT", "http://pets.test/pets"])?;
    let text = String::from_utf8(found.stdout)?;
    assert!(text.lines().any(|line| line.starts_with("outcome   the gateway responds, 405.")), "{text}");
    let wrong = explain(&["pets.test"])?;
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8(wrong.stderr)?.contains("write http://HOST/PATH"));
    Ok(())
}
