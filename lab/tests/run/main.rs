//! `sluicegate-lab run` with the byte forwarder, a gateway that needs no installation and follows no change. Tests with
//! network namespaces need root. Without root they print a notice and pass, unless `SLUICEGATE_NETNS=require` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use sluicegate_netns::Namespace;
use tempfile::TempDir;

/// Runs the lab in a folder.
fn lab(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate-lab"));
    command.args(arguments).current_dir(folder);
    command.output().context("running the lab")
}

/// Writes an experiment, runs it with these further arguments, and reads its results.
fn run(folder: &Path, experiment: &str, arguments: &[&str]) -> anyhow::Result<(Output, PathBuf, Value)> {
    fs::write(folder.join("try.yaml"), format!("title: A try\nabout: It is tried.\n{experiment}"))?;
    let output = lab(folder, &[&["run", "try.yaml", "--gateways", "floor"], arguments].concat())?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = fs::read_dir(folder.join("results")).with_context(|| printed.clone())?.next();
    let directory = found.context("no results")??.path();
    let results = fs::read_to_string(directory.join("results.json")).with_context(|| printed)?;
    Ok((output, directory, serde_json::from_str(&results)?))
}

const LOAD: &str = "load: {tls: false, connections: 8, rate: 200, duration: 3s}\n";

#[test]
fn run_without_changes_loses_no_request_and_writes_a_report() -> anyhow::Result<()> {
    if Namespace::for_test()?.is_none() {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let (output, directory, results) =
        run(folder.path(), &format!("{LOAD}pods: {{count: 2}}"), &["--fail-on-errors", "floor"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = &results["gateways"][0]["runs"][0];
    assert_eq!((&run["load"]["requests"]["sent"], &run["is_baseline"]), (&600.into(), &true.into()));
    let page = fs::read_to_string(directory.join("report.html"))?;
    ensure!(page.contains("<h1>A try</h1>") && page.contains("<svg"));
    ensure!(directory.join("report.md").is_file() && directory.join("percentiles.svg").is_file());
    Ok(())
}

#[test]
fn run_counts_requests_lost_at_a_blackholed_pod_and_fails_with_fail_on_errors() -> anyhow::Result<()> {
    if Namespace::for_test()?.is_none() {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let experiment = format!(
        "{LOAD}pods: {{count: 2}}\ntimeline: [{{sleep: 1s}}, {{blackhole: 1}}, {{sleep: 1s}}, {{scale: 1}}]"
    );
    let (output, _, results) =
        run(folder.path(), &experiment, &["--fail-on-errors", "floor", "--timeout", "500ms"])?;
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let run = &results["gateways"][0]["runs"][0];
    // Half of the connections lead to the pod whose address drops packets.
    ensure!(run["load"]["errors"]["timeout"].as_u64() > Some(0), "{}", run["load"]["errors"]);
    let events: Vec<&str> =
        run["events"].as_array().into_iter().flatten().filter_map(|event| event["kind"].as_str()).collect();
    // The forwarder accepts no change of endpoints, and the report states this.
    ensure!(events.starts_with(&["blackhole", "scale", "untold"]), "{events:?}");
    Ok(())
}

#[test]
fn run_counts_each_delivered_post_once() -> anyhow::Result<()> {
    if Namespace::for_test()?.is_none() {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let load = LOAD.replace("duration: 3s", "duration: 2s, posts: 50");
    let (_, _, results) = run(folder.path(), &format!("{load}pods: {{count: 2}}"), &[])?;
    let deliveries = &results["gateways"][0]["runs"][0]["deliveries"];
    let count = |name: &str| deliveries[name].as_u64().unwrap_or_default();
    // A forwarder retries nothing.
    assert_eq!((count("delivered"), count("duplicated")), (count("sent"), 0), "{deliveries}");
    ensure!((180..=220).contains(&count("sent")), "{deliveries}");
    Ok(())
}

#[test]
fn run_compares_costs_without_a_network_namespace() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let experiment =
        "compare: [{works: [http, tls-p256], turns: 2, duration: 1s, connections: 4, limits: true}]";
    let (output, _, results) = run(folder.path(), experiment, &["--fail-on-errors", "floor"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let points = results["gateways"][0]["points"].as_array().cloned().unwrap_or_default();
    let works: Vec<&str> = points.iter().filter_map(|point| point["work"].as_str()).collect();
    assert_eq!(works, ["HTTP", "HTTP", "signature, P-256", "signature, P-256"]);
    ensure!(points.iter().all(|point| point["cpu_us_per_request"].as_f64() > Some(0.0)), "{points:?}");
    Ok(())
}

#[test]
fn run_measures_the_latency_that_a_gateway_adds_to_single_requests() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let experiment = "compare: [{works: [single], sizes: [0, 20k], turns: 2, requests: 5}]";
    let (output, directory, results) = run(folder.path(), experiment, &["--fail-on-errors", "floor"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let points = results["gateways"][0]["points"].as_array().cloned().unwrap_or_default();
    let works: Vec<&str> = points.iter().filter_map(|point| point["work"].as_str()).collect();
    let names = ["One request, 0 KB", "One request, 20 KB"];
    assert_eq!(works, [names, names].concat());
    for point in &points {
        let through = point["p50_ms"].as_f64().unwrap_or_default();
        ensure!(through > 0.0 && point["added"]["straight_ms"].as_f64() > Some(0.0), "{point}");
        ensure!(point["cpu_us_per_request"].as_f64() > Some(0.0) && point["requests"] == 5, "{point}");
    }
    let report = fs::read_to_string(directory.join("report.md"))?;
    ensure!(report.contains("One request, 20 KB: latency that a gateway adds"), "{report}");
    Ok(())
}

#[test]
fn invalid_experiment_is_rejected_before_the_run_starts() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    fs::write(folder.path().join("wrong.yaml"), "title: a\nabout: b.\ntimeline: [{explode: 1}]\n")?;
    for (arguments, words) in [
        (&["dynamics"][..], "no such experiment"),
        (&["missing.yaml"], "missing.yaml"),
        (&["wrong.yaml"], "explode"),
        (&["static", "--gateways", "apache"], "apache: no such gateway"),
        (&["static", "--rate", "0"], "over 0"),
        (&["static", "--duration", "0s"], "from 1s to 24h"),
        (&["static", "--gateways", "floor", "--option", "nginx=-q"], "nginx takes no part"),
        (&["static", "--workers", "0"], "from 1 to 1024"),
    ] {
        let output = lab(folder.path(), &[&["run"], arguments].concat())?;
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {printed}");
        ensure!(printed.contains(words), "{arguments:?}: {printed}");
    }
    ensure!(!folder.path().join("results").exists());
    Ok(())
}
