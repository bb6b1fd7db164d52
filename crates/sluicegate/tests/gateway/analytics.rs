//! Analytics: requests are counted once, whatever ends in the meantime.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::load::Load;

use crate::planes::Planes;
use crate::support::{LIMIT, Site, sluicegate};

type TestResult = anyhow::Result<()>;

/// A gateway with analytics in a database.
async fn serve(site: &Site, database: &Path, more: &[&str]) -> anyhow::Result<Process> {
    let mut command = sluicegate();
    command.args(["serve", "--manifests"]).arg(site.path());
    command.args(["--listen", &site.http.to_string(), "--admin", &site.admin.to_string()]);
    command.args(["--workers", "2", "--no-takeover", "--shutdown-grace", "0s", "--shutdown-idle", "100ms"]);
    command.args(["--analytics", "--analytics-database", &format!("sqlite:{}", database.display())]);
    command.args(more);
    let mut process = Process::start(command)?;
    process.wait_for_ok(site.admin, "/readyz", LIMIT).await?;
    Ok(process)
}

async fn query(admin: std::net::SocketAddr, query: &str) -> anyhow::Result<Value> {
    let response = client::get(admin, "localhost", &format!("/analytics?{query}")).await?;
    anyhow::ensure!(response.status == 200, "{query}: {} {}", response.status, response.text());
    Ok(serde_json::from_str(&response.text())?)
}

/// The requests of each group.
async fn counts(
    admin: std::net::SocketAddr,
    by: &str,
    conditions: &str,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let document = query(admin, &format!("since=1h&by={by}&limit=1000{conditions}")).await?;
    let groups = document["groups"].as_array().into_iter().flatten();
    Ok(groups
        .map(|group| {
            let of = &group["of"][by];
            let of = of.as_str().map_or_else(|| of.to_string(), str::to_owned);
            (of, group["total"]["requests"].as_u64().unwrap_or_default())
        })
        .collect())
}

/// Waits until the database has this number of requests.
async fn wait_for_requests(admin: std::net::SocketAddr, conditions: &str, expected: u64) -> TestResult {
    let end = Instant::now() + LIMIT;
    loop {
        let document = query(admin, &format!("since=1h{conditions}")).await?;
        let found = document["groups"][0]["total"]["requests"].as_u64().unwrap_or_default();
        if found == expected {
            return Ok(());
        }
        anyhow::ensure!(found < expected && Instant::now() < end, "{found} requests instead of {expected}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const API: &str = r"
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {name: orders}
spec:
  document:
    inline: |
      openapi: 3.1.0
      info: {title: Orders, version: 1.2.0}
      servers: [{url: https://api.example.com/v1}]
      paths:
        /orders:
          get: {operationId: listOrders}
          post: {operationId: createOrder}
        /orders/{id}:
          parameters: [{name: id, in: path, required: true}]
          get: {operationId: getOrder}
  environments:
  - name: production
    hosts: [api.example.com]
    backend: {service: web, port: http}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_counted_by_operation_status_and_route_and_survive_a_restart() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    site.save("api.yaml", API)?;
    let dir = tempfile::tempdir()?;
    let database = dir.path().join("analytics.db");
    let mut gateway = serve(&site, &database, &[]).await?;
    site.wait_for_status("/", 200).await?;
    let others = counts(site.admin, "route", "").await;
    anyhow::ensure!(others.is_ok(), "{others:?}");
    for (method, path, times) in [
        ("GET", "/v1/orders", 7),
        ("POST", "/v1/orders", 3),
        ("GET", "/v1/orders/secret-4711", 5),
        ("GET", "/v1/nothing?token=secret-4711", 2),
        ("DELETE", "/v1/orders", 1),
    ] {
        let mut client = Client::connect(site.http).await?;
        for _ in 0..times {
            let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
            client
                .request(format!("{method} {path} HTTP/1.1\r\nHost: api.example.com\r\n{length}\r\n"))
                .await?;
        }
    }
    let of_api = "&where=api:default/orders";
    wait_for_requests(site.admin, of_api, 18).await?;
    let expected = [("listOrders", 7), ("createOrder", 3), ("getOrder", 5), ("", 3)];
    let expected: BTreeMap<_, _> = expected.map(|(name, count)| (name.to_owned(), count)).into();
    assert_eq!(counts(site.admin, "operation", of_api).await?, expected);
    let statuses = [("200", 15), ("404", 2), ("405", 1)].map(|(status, count)| (status.to_owned(), count));
    assert_eq!(counts(site.admin, "status", of_api).await?, statuses.into());
    let versions = counts(site.admin, "version", of_api).await?;
    assert_eq!(versions, [("1.2.0".to_owned(), 18)].into());
    assert_eq!(counts(site.admin, "environment", of_api).await?, [("production".to_owned(), 18)].into());
    let endpoints = counts(site.admin, "endpoint", of_api).await?;
    assert_eq!(endpoints.get(&backend.addr().to_string()), Some(&15), "{endpoints:?}");
    let document = query(site.admin, &format!("since=1h{of_api}&where=operation:listOrders")).await?;
    let total = &document["groups"][0]["total"];
    let millis = ["latency_ms", "upstream_ms"].map(|of| total[of]["p50"].as_f64().unwrap_or_default());
    assert!(millis[0] > 0.0 && millis[1] > 0.0 && millis[1] <= 1.2 * millis[0], "{total}");
    assert!(total["request_bytes"].as_u64() > Some(7 * 40) && total["errors"] == 0, "{total}");
    // The path of a request is in no name.
    gateway.terminate()?;
    gateway.wait(LIMIT).await?;
    for file in dir.path().read_dir()? {
        let bytes = std::fs::read(file?.path())?;
        assert!(!bytes.windows(11).any(|window| window == b"secret-4711"));
    }
    let mut gateway = serve(&site, &database, &[]).await?;
    assert_eq!(counts(site.admin, "operation", of_api).await?, expected);
    // The last sums are stored at the end of the process.
    let mut client = Client::connect(site.http).await?;
    client.request("GET /v1/orders HTTP/1.1\r\nHost: api.example.com\r\n\r\n").await?;
    drop(client);
    gateway.terminate()?;
    gateway.wait(LIMIT).await?;
    let _gateway = serve(&site, &database, &[]).await?;
    assert_eq!(counts(site.admin, "operation", of_api).await?.get("listOrders"), Some(&8));
    for (command, part) in [
        (["apis", "--since", "1h"].as_slice(), "default/orders   1.2.0     19 "),
        (&["top", "--once"], "REQUESTS/s"),
    ] {
        let output = sluicegate().args(command).args(["--admin", &site.admin.to_string()]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(part), "{text}");
    }
    let csv = client::get(site.admin, "localhost", "/analytics?by=api&format=csv").await?;
    assert!(csv.text().starts_with("api,time,requests,"), "{}", csv.text());
    let wrong = client::get(site.admin, "localhost", "/analytics?by=colour").await?;
    assert_eq!((wrong.status, wrong.text().contains("the dimensions are api, version")), (400, true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_while_the_control_plane_is_away_are_counted_once() -> TestResult {
    let backends = Backend::group(2, Behaviour::ok()).await?;
    let mut planes = Planes::of(&backends)?;
    let database = planes.dir().join("analytics.db");
    planes.store_analytics(&database);
    let mut control_plane = planes.control_plane().await?;
    let mut data_plane = planes.data_plane().await?;
    let load = Load::new(planes.site.http).connections(5).start()?;
    load.wait_for_ok(200, LIMIT).await?;
    wait_for_some(&planes).await?;
    for _ in 0..2 {
        control_plane.kill()?;
        let before = load.snapshot().ok;
        load.wait_for_ok(before + 2000, LIMIT).await?;
        // At least one hand-over of the workers while the control plane is away.
        tokio::time::sleep(Duration::from_secs(7)).await;
        control_plane = planes.control_plane().await?;
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", data_plane.output());
    data_plane.terminate()?;
    data_plane.wait(LIMIT).await?;
    let served: u64 = backends.iter().map(Backend::requests).sum();
    let counted = counts(planes.control_plane_admin, "endpoint", "&where=status:200").await?;
    let counted: u64 = counted.values().sum();
    assert_eq!(counted, served, "{}", data_plane.output());
    drop(control_plane);
    Ok(())
}

/// Waits until the control plane has some requests.
async fn wait_for_some(planes: &Planes) -> TestResult {
    let end = Instant::now() + LIMIT;
    while counts(planes.control_plane_admin, "route", "").await?.is_empty() {
        anyhow::ensure!(Instant::now() < end, "the control plane receives no sums");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
