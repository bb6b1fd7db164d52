//! The audit trail: each change of an object is recorded once, with its writer and without secrets.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluicegate_netns::Process;
use sluicegate_testkit::client;

use crate::support::{LIMIT, Site, sluicegate};

type TestResult = anyhow::Result<()>;

/// A gateway with an audit trail in a database.
async fn serve(site: &Site, database: &Path) -> anyhow::Result<Process> {
    let database = format!("sqlite:{}", database.display());
    let options = ["--no-takeover", "--shutdown-grace", "0s", "--shutdown-idle", "100ms"];
    let options = [&options[..], &["--audit", "--analytics-database", &database]].concat();
    let mut process = site.start(&options)?;
    process.wait_for_ok(site.admin, "/readyz", LIMIT).await?;
    Ok(process)
}

async fn entries(site: &Site, query: &str) -> anyhow::Result<Vec<Value>> {
    let response = client::get(site.admin, "localhost", &format!("/audit?{query}")).await?;
    anyhow::ensure!(response.status == 200, "{query}: {} {}", response.status, response.text());
    Ok(response.text().lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The newest entry, once there are this many.
async fn newest(site: &Site, count: usize) -> anyhow::Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let found = entries(site, "limit=1000").await.unwrap_or_default();
        if found.len() == count {
            return Ok(found[0].clone());
        }
        anyhow::ensure!(found.len() < count && Instant::now() < end, "{count} entries expected: {found:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn run(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(sluicegate().args(arguments).output()?)
}

/// The standard output of a command that succeeds.
fn said(arguments: &[&str]) -> anyhow::Result<String> {
    let output = run(arguments)?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn plan(name: &str, requests: u32) -> String {
    format!(
        "apiVersion: sluicegate.dev/v1alpha1\nkind: Plan\nmetadata: {{name: {name}}}\n\
         spec: {{limits: [{{name: second, requests: {requests}, per: 1s}}]}}\n"
    )
}

const CONSUMER: &str =
    "apiVersion: sluicegate.dev/v1alpha1\nkind: Consumer\nmetadata: {name: alice}\nspec: {}\n";

fn secret(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: password}}\nstringData: {{key: {value}, other: same-s3cr3t}}\n"
    )
}

/// Whether a file of the database contains a text.
fn database_has(folder: &Path, text: &str) -> anyhow::Result<bool> {
    let mut is_there = false;
    for file in folder.read_dir()? {
        let bytes = std::fs::read(file?.path())?;
        is_there |= bytes.windows(text.len()).any(|window| window == text.as_bytes());
    }
    Ok(is_there)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_manifests_are_recorded_with_their_owner_and_without_secrets() -> TestResult {
    let site = Site::new()?;
    site.save("plan.yaml", &plan("gold", 10))?;
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("audit.db");
    let mut gateway = serve(&site, &database).await?;
    let begun = newest(&site, 1).await?;
    assert_eq!((&begun["operation"], &begun["kind"]), (&json!("started"), &json!("AuditTrail")));

    site.save("plan.yaml", &plan("gold", 20))?;
    let changed = newest(&site, 2).await?;
    assert_eq!(changed["changes"], json!([{"field": "/spec/limits/0/requests", "old": 10, "new": 20}]));
    let path = site.path().join("plan.yaml");
    let is_root = std::fs::metadata(&path)?.uid() == 0;
    assert_eq!(changed["actor"]["type"], "owner");
    assert!(!is_root || changed["actor"]["name"] == "root", "{changed}");
    assert_eq!(changed["manifest"], json!({"file": path.display().to_string(), "line": 1}));

    site.save("plan.yaml", &plan("gold", 0))?;
    let faulty = newest(&site, 3).await?;
    assert_eq!((&faulty["applied"], &faulty["fault"]), (&json!(false), &json!("spec.limits[0].requests")));

    site.save("plan.yaml", &plan("silver", 20))?;
    newest(&site, 5).await?;
    let renamed = entries(&site, "after=3").await?;
    let renamed: Vec<_> = renamed.iter().map(|of| (of["operation"].clone(), of["name"].clone())).collect();
    assert!(
        renamed.contains(&(json!("deleted"), json!("gold")))
            && renamed.contains(&(json!("created"), json!("silver")))
    );

    site.save("alice.yaml", CONSUMER)?;
    newest(&site, 6).await?;
    let manifest = site.path().join("alice.yaml").display().to_string();
    let key = said(&["key", "issue", "alice", "--name", "first", "--manifest", &manifest])?;
    assert_eq!(newest(&site, 7).await?["summary"], "key \"first\" issued");
    let rotated =
        said(&["key", "rotate", "alice", "--name", "first", "--overlap", "1h", "--manifest", &manifest])?;
    let rotation = newest(&site, 8).await?;
    let summary = rotation["summary"].as_str().unwrap_or_default();
    assert!(summary.starts_with("key \"first\" rotated: key \"key-"), "{summary}");
    said(&["key", "revoke", "alice", "--name", "first", "--manifest", &manifest])?;
    assert_eq!(newest(&site, 9).await?["summary"], "key \"first\" revoked");

    site.save("secret.yaml", &secret("one-s3cr3t"))?;
    newest(&site, 10).await?;
    site.save("secret.yaml", &secret("two-s3cr3t"))?;
    let of_secret = newest(&site, 11).await?;
    assert_eq!(of_secret["changes"], json!([{"field": "/stringData/key", "secret": "changed"}]));
    site.save("subscription.yaml", &subscription(""))?;
    newest(&site, 12).await?;
    site.save("subscription.yaml", &subscription("approval: Approved"))?;
    assert_eq!(newest(&site, 13).await?["summary"], "subscription approved");

    let admin = site.admin.to_string();
    let table = said(&["audit", "--admin", &admin, "--kind", "Consumer"])?;
    assert!(table.contains("Consumer default/alice") && table.contains("key \"first\" revoked"), "{table}");
    assert!(!table.contains("Plan"), "{table}");
    let csv = said(&["audit", "--admin", &admin, "--output", "csv"])?;
    assert_eq!(csv.lines().count(), 14, "{csv}");
    let exported = said(&["audit", "--admin", &admin, "--output", "json", "--name", "alice"])?;
    assert_eq!(exported.lines().count(), 4, "{exported}");
    let metrics = client::get(site.admin, "localhost", "/metrics").await?.text();
    assert!(metrics.contains("\nsluicegate_audit_entries_total 13"), "{metrics}");
    let wrong = client::get(site.admin, "localhost", "/audit?x=1").await?;
    assert_eq!(wrong.status, 400);

    gateway.terminate()?;
    gateway.wait(LIMIT).await?;
    let [key, rotated] = [key.trim(), rotated.trim()];
    for text in ["s3cr3t", key, rotated, &sha256_of(&manifest)?] {
        assert!(!database_has(folder.path(), text)?, "{text}");
    }
    assert!(database_has(folder.path(), "/stringData/key")?);
    Ok(())
}

fn subscription(field: &str) -> String {
    format!(
        "apiVersion: sluicegate.dev/v1alpha1\nkind: Subscription\nmetadata: {{name: alice-pets}}\n\
         spec:\n  consumerRef: {{name: alice}}\n  planRef: {{name: silver}}\n  apis: [{{name: pets}}]\n  {field}\n"
    )
}

/// The first hash of a key in a manifest.
fn sha256_of(manifest: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(manifest)?;
    let hash = text.split(|character: char| !character.is_ascii_hexdigit()).find(|part| part.len() == 64);
    hash.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no hash: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_while_no_process_runs_are_recorded_at_the_next_start() -> TestResult {
    let site = Site::new()?;
    site.save("gold.yaml", &plan("gold", 10))?;
    site.save("silver.yaml", &plan("silver", 10))?;
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("audit.db");
    for _ in 0..2 {
        let mut gateway = serve(&site, &database).await?;
        newest(&site, 1).await?;
        gateway.terminate()?;
        gateway.wait(LIMIT).await?;
    }
    site.save("gold.yaml", &plan("gold", 11))?;
    site.save("new.yaml", &plan("new", 1))?;
    std::fs::remove_file(site.path().join("silver.yaml"))?;
    let mut gateway = serve(&site, &database).await?;
    newest(&site, 4).await?;
    let found = entries(&site, "after=1").await?;
    let said: Vec<_> =
        found.iter().map(|of| format!("{} {}", of["operation"], of["name"]).replace('"', "")).collect();
    assert_eq!(said, ["changed gold", "created new", "deleted silver"]);
    assert_eq!(found[0]["changes"][0]["old"], 10);
    assert_eq!(found[2]["actor"], json!({"type": "unknown"}));
    // The last change is stored at the end of the process.
    site.save("gold.yaml", &plan("gold", 12))?;
    newest(&site, 5).await?;
    gateway.terminate()?;
    gateway.wait(LIMIT).await?;
    let _gateway = serve(&site, &database).await?;
    newest(&site, 5).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_finds_a_changed_entry_and_a_missing_entry() -> TestResult {
    let site = Site::new()?;
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("audit.db");
    let _gateway = serve(&site, &database).await?;
    newest(&site, 1).await?;
    let admin = site.admin.to_string();
    let verified = said(&["audit", "verify", "--admin", &admin])?;
    assert!(verified.starts_with("1 entry, 1, is complete and unchanged.\nanchor: 1:"), "{verified}");
    for requests in 1..=3 {
        site.save("gold.yaml", &plan("gold", requests))?;
        newest(&site, 1 + requests as usize).await?;
    }
    let verified = said(&["audit", "verify", "--admin", &admin])?;
    assert!(verified.starts_with("4 entries, 1 to 4, are complete and unchanged.\nanchor: 4:"), "{verified}");
    let anchor = verified.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    said(&["audit", "verify", "--admin", &admin, "--anchor", &anchor])?;
    // An export is the same chain.
    let file = folder.path().join("export.jsonl").display().to_string();
    let export = client::get(site.admin, "localhost", "/audit?after=0&limit=1000").await?.text();
    std::fs::write(&file, &export)?;
    said(&["audit", "verify", "--file", &file, "--anchor", &anchor])?;
    std::fs::write(&file, said(&["audit", "--admin", &admin, "--output", "json"])?)?;
    said(&["audit", "verify", "--file", &file, "--anchor", &anchor])?;
    std::fs::write(&file, export.replacen("\"new\":2", "\"new\":1000", 1))?;
    let failed = run(&["audit", "verify", "--file", &file])?;
    let error = String::from_utf8(failed.stderr)?;
    assert!(
        !failed.status.success() && error.contains("entry 3 was changed after it was written"),
        "{error}"
    );

    let sql = rusqlite::Connection::open(&database)?;
    sql.busy_timeout(LIMIT)?;
    sql.execute(
        "UPDATE sluicegate_audit SET entry = replace(entry, '\"root\"', '\"eve\"') WHERE number = 2",
        [],
    )?;
    sql.execute(
        "UPDATE sluicegate_audit SET entry = replace(entry, 'created', 'changed') WHERE number = 2",
        [],
    )?;
    let failed = run(&["audit", "verify", "--admin", &admin])?;
    assert!(!failed.status.success());
    let error = String::from_utf8(failed.stderr)?;
    assert!(error.contains("entry 2 was changed after it was written"), "{error}");
    sql.execute("DELETE FROM sluicegate_audit WHERE number = 2", [])?;
    let error = String::from_utf8(run(&["audit", "verify", "--admin", &admin])?.stderr)?;
    assert!(error.contains("between entry 1 and entry 3"), "{error}");
    sql.execute("DELETE FROM sluicegate_audit WHERE number > 1", [])?;
    let error = String::from_utf8(run(&["audit", "verify", "--admin", &admin])?.stderr)?;
    assert!(error.contains("the newest entries are missing"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_apply_while_the_database_is_unavailable_and_are_recorded_later() -> TestResult {
    let site = Site::new()?;
    site.save("gold.yaml", &plan("gold", 1))?;
    let folder = tempfile::tempdir()?;
    // A folder that does not exist yet is a database that is unavailable.
    let database = folder.path().join("later").join("audit.db");
    let _gateway = serve(&site, &database).await?;
    assert_eq!(client::get(site.admin, "localhost", "/audit").await?.status, 503);
    site.save("api.yaml", &crate::support::ingress("late", "/late"))?;
    site.wait_for_status("/late", 503).await?;
    std::fs::create_dir(folder.path().join("later"))?;
    newest(&site, 2).await?;
    let last = &entries(&site, "limit=1").await?[0];
    assert_eq!((&last["kind"], &last["name"]), (&json!("Ingress"), &json!("late")));
    Ok(())
}

#[tokio::test]
async fn audit_page_without_an_audit_trail_says_how_to_start_one() -> TestResult {
    let site = Site::new()?;
    let mut process = site.start(&["--no-takeover"])?;
    process.wait_for_ok(site.admin, "/readyz", LIMIT).await?;
    let response = client::get(site.admin, "localhost", "/audit").await?;
    assert!(response.status == 404 && response.text().contains("with --audit"), "{}", response.text());
    Ok(())
}
