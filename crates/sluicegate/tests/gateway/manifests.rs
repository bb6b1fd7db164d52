//! A gateway process follows its manifests, and no invalid manifest removes a working route (Z1 and Z12).

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{LIMIT, Site, ingress, sluicegate};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;
use sluicegate_testkit::load::Load;

type TestResult = anyhow::Result<()>;

#[tokio::test]
async fn created_and_removed_manifests_add_and_remove_routes() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", &ingress("web", "/a"))?;
    let _gateway = site.serve(&[]).await?;
    assert_eq!((site.status("/a").await?, site.status("/b").await?), (200, 404));
    site.save("other.yaml", &ingress("other", "/b"))?;
    site.wait_for_status("/b", 200).await?;
    std::fs::remove_file(site.path().join("other.yaml"))?;
    site.wait_for_status("/b", 404).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_manifest_is_reported_and_the_last_valid_version_stays_in_service() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let gateway = site.serve(&[]).await?;
    let load = Load::new(site.http).connections(5).start()?;
    for (file, broken) in [
        ("ingress.yaml", "kind: Ingress\nspec: ["),
        ("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: 80}\n"),
        (
            "slices.yaml",
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-0}\nports: 7\n",
        ),
    ] {
        site.save(file, broken)?;
        wait_for_problem(&site, file).await?;
    }
    load.wait_for_ok(200, LIMIT).await?;
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", gateway.output());
    // Valid manifests clear the problems.
    site.save_all([&backend])?;
    let end = std::time::Instant::now() + LIMIT;
    while !client::get(site.admin, "localhost", "/metrics")
        .await?
        .text()
        .contains("\nsluicegate_config_problems{severity=\"error\"} 0\n")
    {
        anyhow::ensure!(std::time::Instant::now() < end, "the problems stay");
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test]
async fn metrics_count_manifest_errors_and_warnings_and_show_the_last_change() -> TestResult {
    let site = Site::of([])?;
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let _gateway = site.serve(&[]).await?;
    site.save("wrong.yaml", &ingress("wrong", "a//b"))?;
    site.save("odd.yaml", &ingress("odd", "/odd").replace("pathType", "pathtype"))?;
    wait_for_problem(&site, "wrong.yaml").await?;
    wait_for_problem(&site, "odd.yaml").await?;
    let metrics = client::get(site.admin, "localhost", "/metrics").await?.text();
    let value = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        line.and_then(|value| value.trim().parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{series}:\n{metrics}"))
    };
    let document = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(value("sluicegate_config_problems{severity=\"error\"}") > 0, "{document}");
    assert!(value("sluicegate_config_problems{severity=\"warning\"}") > 0, "{document}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    assert!((before..=now).contains(&value("sluicegate_config_last_change_timestamp_seconds")));
    Ok(())
}

#[tokio::test]
async fn gateway_continues_to_serve_while_its_manifests_are_missing() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&[]).await?;
    let moved = site.path().with_extension("moved");
    std::fs::rename(site.path(), &moved)?;
    for _ in 0..50 {
        assert_eq!(site.status("/").await?, 200);
    }
    std::fs::rename(&moved, site.path())?;
    site.save("other.yaml", &ingress("other", "/"))?;
    std::fs::remove_file(site.path().join("ingress.yaml"))?;
    assert_eq!(site.status("/").await?, 200);
    assert!(gateway.is_running(), "{}", gateway.output());
    Ok(())
}

#[tokio::test]
async fn check_command_reports_each_problem_with_its_file_and_line() -> TestResult {
    let site = Site::of([])?;
    let check = |arguments: &[&str]| {
        let output =
            sluicegate().arg("check").args(arguments).arg(site.path()).stdin(Stdio::null()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        anyhow::Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
    };
    let (code, routes, problems) = check(&[])?;
    assert_eq!(code, Some(0), "{problems}");
    assert!(routes.contains("default/web:http"), "{routes}");
    site.save("wrong.yaml", &ingress("wrong", "a//b"))?;
    let (code, _, problems) = check(&[])?;
    assert_eq!(code, Some(1));
    assert!(
        problems.contains("wrong.yaml:9: Ingress default/wrong: spec.rules[0].http.paths[0].path: "),
        "{problems}"
    );
    let (code, ..) = check(&["--strict"])?;
    assert_eq!(code, Some(1));
    Ok(())
}

#[tokio::test]
async fn routes_and_upstreams_commands_print_tables_of_a_running_gateway() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let _gateway = site.serve(&[]).await?;
    assert_eq!(site.status("/").await?, 200);
    for (table, expected) in
        [("routes", "Ingress default/web".to_owned()), ("upstreams", backend.addr().to_string())]
    {
        let output = sluicegate().args([table, "--admin", &site.admin.to_string()]).output()?;
        assert!(String::from_utf8_lossy(&output.stdout).contains(&expected), "{output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn check_and_routes_commands_print_tcp_routes() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let port = crate::support::free_address()?.port();
    site.save(
        "edge.yaml",
        &format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec: {{gatewayClassName: gold, listeners: [{{name: web, protocol: TCP, port: {port}}}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {{name: web}}
spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}
"
        ),
    )?;
    let options = ["--gateway-class", "gold", "--gateway-address", "127.0.0.1"];
    let _gateway = site.serve(&options).await?;
    for command in [
        sluicegate().arg("check").args(options).arg(site.path()),
        sluicegate().args(["routes", "--admin", &site.admin.to_string()]),
    ] {
        let output = command.output()?;
        let table = String::from_utf8_lossy(&output.stdout);
        let row = table.lines().find(|row| row.ends_with("TCPRoute default/web")).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        let address = format!("127.0.0.1:{port}");
        assert_eq!(cells[..5], ["*", &address, "TCP", "default/web:http", "(tcp)"], "{output:?}");
    }
    Ok(())
}

async fn wait_for_problem(site: &Site, file: &str) -> TestResult {
    let end = std::time::Instant::now() + LIMIT;
    while !client::get(site.admin, "localhost", "/config").await?.text().contains(&format!("{file}:")) {
        anyhow::ensure!(std::time::Instant::now() < end, "no problem of {file}");
        tokio::task::yield_now().await;
    }
    Ok(())
}
