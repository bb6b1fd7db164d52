//! `sluicegate status` and `sluicegate top` tell what a running gateway does, in each format.

use std::process::Output;

use serde_json::Value;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::load::Load;

use crate::support::{Site, ingress, sluicegate};

type TestResult = anyhow::Result<()>;

fn run(site: &Site, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(sluicegate().args(arguments).args(["--admin", &site.admin.to_string()]).output()?)
}

fn json(output: &Output) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_has_the_rates_of_each_dimension_without_analytics() -> TestResult {
    let backends = Backend::group(2, Behaviour::ok()).await?;
    let site = Site::of(&backends)?;
    let _gateway = site.serve(&[]).await?;
    let load = Load::new(site.http).connections(5).start()?;
    for (by, name, value) in [
        ("route", "from", "Ingress default/web".to_owned()),
        ("host", "host", "*".to_owned()),
        ("upstream", "upstream", "default/web:http".to_owned()),
        ("endpoint", "endpoint", backends[0].addr().to_string()),
    ] {
        let found = json(&run(&site, &["top", "--by", by, "--interval", "300ms", "-o", "json"])?)?;
        let lines = found["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
        let line = lines.iter().find(|line| line["of"][name] == *value);
        let line = line.ok_or_else(|| anyhow::anyhow!("no {value} by {by}: {found}"))?;
        assert!(line["per_second"].as_f64() > Some(1.0) && line["error_share"] == 0.0, "{found}");
        assert_eq!(line["p99_ms"].as_f64() > Some(0.0), by != "endpoint", "{found}");
    }
    load.stop().await?;

    for by in ["error", "consumer"] {
        let text = run(&site, &["top", "--by", by, "--once", "--interval", "100ms"])?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert_eq!(text.lines().count(), 3, "no line: {text}");
    }
    let missing = run(&site, &["top", "--by", "api"])?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("with --analytics"), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn errors_of_a_gateway_have_their_reasons() -> TestResult {
    let site = Site::of(&[])?;
    let _gateway = site.serve(&[]).await?;
    assert_eq!(site.status("/").await?, 503);
    let found = json(&run(&site, &["top", "--by", "error", "--interval", "100ms", "-o", "json"])?)?;
    let line = &found["lines"][0];
    assert_eq!((&line["of"]["reason"], &line["total"]), (&"no_endpoint".into(), &1.0.into()), "{found}");
    Ok(())
}

#[tokio::test]
async fn status_names_the_problems_and_tells_by_its_exit_status() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let _gateway = site.serve(&[]).await?;
    let well = run(&site, &["status"])?;
    assert_eq!(well.status.code(), Some(0), "{well:?}");
    let text = String::from_utf8_lossy(&well.stdout).into_owned();
    assert!(text.contains(" 1/1 ") && text.contains(" none"), "{text}");

    site.save("other.yaml", &ingress("other", "no-slash"))?;
    let wait = || async {
        loop {
            let found = run(&site, &["status", "-o", "json"])?;
            if found.status.code() == Some(1) {
                return json(&found);
            }
            tokio::task::yield_now().await;
        }
    };
    let found = tokio::time::timeout(crate::support::LIMIT, wait()).await??;
    assert_eq!(found["gateways"][0]["ready"], true);
    assert!(
        found["problems"]["errors"][0].as_str().is_some_and(|error| error.contains("default/other")),
        "{found}"
    );
    let wide = run(&site, &["status", "-o", "wide"])?;
    let wide = String::from_utf8_lossy(&wide.stdout).into_owned();
    assert!(wide.contains("MEMORY") && wide.contains("\nerror: "), "{wide}");
    let yaml = run(&site, &["routes", "-o", "yaml"])?;
    assert!(String::from_utf8_lossy(&yaml.stdout).contains("path: /\n"), "{yaml:?}");
    Ok(())
}

#[tokio::test]
async fn options_of_a_cluster_need_a_cluster() -> TestResult {
    let site = Site::of(&[])?;
    for command in [
        &["check", "--context=x"][..],
        &["serve", "--kubeconfig=x", "--manifests"],
        &["migrate", "report", "--context=x"],
    ] {
        let output = sluicegate().args(command).arg(site.path()).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && text.contains("--kubeconfig and --context need --kubernetes"),
            "{text}"
        );
    }
    Ok(())
}
