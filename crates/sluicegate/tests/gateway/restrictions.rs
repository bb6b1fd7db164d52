//! An unreadable object that may restrict access closes its routes. Each printed problem is one line.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Instant;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;

use crate::support::{LIMIT, Site, ingress, sluicegate};

type TestResult = anyhow::Result<()>;

fn check(site: &Site, options: &[&str]) -> anyhow::Result<Output> {
    Ok(sluicegate().arg("check").args(options).arg(site.path()).stdin(Stdio::null()).output()?)
}

#[tokio::test]
async fn oversized_manifest_at_startup_closes_all_routes_until_it_is_removed() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    fs::File::create(site.path().join("guard.yaml"))?.set_len(64 * 1024 * 1024 + 1)?;
    let gateway = site.serve(&[]).await?;
    assert_eq!(site.status("/").await?, 503);
    assert!(
        gateway.output().contains("guard.yaml: may contain a SecurityPolicy; all routes respond with 503")
    );
    fs::remove_file(site.path().join("guard.yaml"))?;
    site.wait_for_status("/", 200).await?;
    fs::File::create(site.path().join("guard.yaml"))?.set_len(64 * 1024 * 1024 + 1)?;
    site.save("other.yaml", &ingress("other", "/other"))?;
    site.wait_for_status("/other", 200).await?;
    assert_eq!(site.status("/").await?, 200, "routes in service stay open");
    Ok(())
}

#[tokio::test]
async fn serve_ends_if_its_directory_does_not_exist() -> TestResult {
    let site = Site::new()?;
    let away = site.path().with_extension("away");
    fs::rename(site.path(), &away)?;
    let mut gateway = site.start(&[])?;
    let status = gateway.wait(LIMIT).await?;
    fs::rename(&away, site.path())?;
    assert_eq!(status.code(), Some(1));
    let output = gateway.output();
    assert!(output.contains("does not exist: create the directory, or fix the path"), "{output}");
    Ok(())
}

#[tokio::test]
async fn gateway_waits_for_a_volume_that_is_not_mounted_but_the_check_command_fails() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let (away, volume) = (site.path().with_extension("away"), site.path().with_extension("volume"));
    fs::rename(site.path(), &away)?;
    std::os::unix::fs::symlink(&volume, site.path())?;
    let mut gateway = site.start(&[])?;
    let end = Instant::now() + LIMIT;
    while !gateway.output().contains("cannot be listed") {
        anyhow::ensure!(gateway.is_running() && Instant::now() < end, "{}", gateway.output());
        tokio::task::yield_now().await;
    }
    assert!(
        gateway
            .output()
            .contains("the gateway is not ready until it can be listed. Create it, or fix --manifests")
    );
    assert_eq!(client::get(site.admin, "localhost", "/readyz").await?.status, 503);
    assert!(gateway.is_running(), "{}", gateway.output());
    assert_eq!(check(&site, &[])?.status.code(), Some(1), "check does not wait");
    fs::rename(&away, &volume)?;
    gateway.wait_for_ok(site.admin, "/readyz", LIMIT).await?;
    assert_eq!(site.status("/").await?, 200);
    fs::remove_file(site.path())?;
    fs::rename(&volume, site.path())?;
    Ok(())
}

#[tokio::test]
async fn routes_of_an_ingress_with_an_access_control_annotation_of_ingress_nginx_return_503() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let restricted = ingress("admin", "/admin").replace(
        "{name: admin}",
        "{name: admin, annotations: {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8}}",
    );
    site.save("admin.yaml", &restricted)?;
    let gateway = site.serve(&[]).await?;
    assert_eq!((site.status("/").await?, site.status("/admin/x").await?), (200, 503), "{}", gateway.output());
    for (options, code, word) in
        [(&[][..], 1, "error: "), (&["--ignore-nginx-access-annotations"], 0, "warning: ")]
    {
        let output = check(&site, options)?;
        let problems = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{problems}");
        assert!(problems.contains(word) && problems.contains("whitelist-source-range"), "{problems}");
    }
    drop(gateway);
    let _gateway = site.serve(&["--ignore-nginx-access-annotations"]).await?;
    assert_eq!(site.status("/admin/x").await?, 200);
    Ok(())
}

#[tokio::test]
async fn names_in_manifests_cannot_forge_lines_of_the_log_or_of_the_check_command() -> TestResult {
    let site = Site::of([])?;
    let forged = "\\n2026-01-01T00:00:00Z ERROR forged\\u2028\\u0085\\u202e\\e[2J";
    let annotated = ingress("odd", "/odd").replace(
        "{name: odd}",
        &format!("{{name: odd, annotations: {{\"sluicegate.dev/x{forged}\": \"1\"}}}}"),
    );
    site.save("odd.yaml", &annotated)?;
    site.save("file\n2026-01-01T00:00:00Z ERROR forged\u{202e}.yaml", "kind: [")?;
    let (refused, text_log) = {
        let gateway = site.serve(&[]).await?;
        (check(&site, &[])?, gateway.output())
    };
    let json_log = site.serve(&["--log-format", "json"]).await?.output();
    let check_log = String::from_utf8(refused.stderr)?;
    for log in [&text_log, &check_log, &json_log] {
        assert!(log.contains("ERROR forged"), "{log}");
        assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "{log}");
        assert!(!log.contains(['\u{85}', '\u{2028}', '\u{202e}', '\u{1b}']), "{log}");
    }
    Ok(())
}
