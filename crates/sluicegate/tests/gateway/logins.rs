//! A gateway process logs browsers in at an OpenID provider.

use std::time::Instant;

use anyhow::Context as _;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::browser::Browser;
use sluicegate_testkit::client;
use sluicegate_testkit::provider::{self, CLIENT, Provider};
use sluicegate_testkit::stream::Transport;

use crate::support::{LIMIT, Site, free_address};

type TestResult = anyhow::Result<()>;

const COOKIE_KEY: &str = "cookie-key-of-the-test-0123456789";

fn policy(provider: &Provider) -> String {
    let issuer = provider.state().issuer.clone();
    format!(
        "
apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {{name: web}}
spec:
  targetRefs: [{{group: networking.k8s.io, kind: Ingress, name: web}}]
  authentication:
    oidc:
      issuer: {issuer}
      clientId: {CLIENT:?}
      clientSecretRef: {{name: login}}
      cookieSecretRef: {{name: login}}
      claimToHeaders: [{{claim: sub, header: X-User}}]
    introspection:
      url: {issuer}/introspect
      clientId: {CLIENT:?}
      clientSecretRef: {{name: login}}
      claimToHeaders: [{{claim: sub, header: X-User}}]
  authorization:
    rules: [{{action: Allow, claims: [{{name: sub, values: [{}, robot]}}]}}]
",
        provider::USER
    )
}

fn secret() -> String {
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{client-secret: {:?}, cookie-secret: {COOKIE_KEY}}}
",
        provider::SECRET
    )
}

#[tokio::test]
async fn browser_logs_in_by_manifests_and_no_log_or_dump_shows_a_secret() -> TestResult {
    let (backend, provider) = (Backend::start(Behaviour::ok()).await?, Provider::start().await?);
    let site = Site::of([&backend])?;
    site.save("policy.yaml", &policy(&provider))?;
    let log = site.path().join(".access.log");
    let log_option = log.to_string_lossy().into_owned();
    let gateway = site.serve(&["--access-log", &log_option]).await?;
    let mut browser = Browser::at("localhost", Transport::Http);
    // Without the Secret, no method is usable.
    assert_eq!(browser.open(site.http, "/").await?.status, 503);
    site.save("secret.yaml", &secret())?;
    site.wait_for_status("/", 401).await?;
    let response = browser.log_in(site.http, &provider, "/page?a=b").await;
    let response = response.with_context(|| gateway.output())?;
    assert_eq!(response.header("location"), Some("http://localhost/page?a=b"));
    assert_eq!(browser.open(site.http, "/page?a=b").await?.status, 200);
    let seen = backend.last_request().ok_or_else(|| anyhow::anyhow!("no request"))?;
    assert_eq!((seen.header("x-user"), seen.header("cookie")), (Some("alice"), None));
    let robot = serde_json::json!({"active": true, "sub": "robot"});
    provider.state().introspected.insert("opaque-token-of-a-robot".into(), robot);
    let line = "Authorization: Bearer opaque-token-of-a-robot";
    let mut client = client::Client::connect(site.http).await?;
    assert_eq!(
        client.request(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n")).await?.status,
        200
    );

    let metrics = client::get(site.admin, "localhost", "/metrics").await?.text();
    for wanted in
        ["event=\"login_completed\"} 1", "sluicegate_oidc_provider_known{", "result=\"admitted\"} 1"]
    {
        assert!(metrics.contains(wanted), "{wanted}: {metrics}");
    }
    let end = Instant::now() + LIMIT;
    let mut lines = String::new();
    while !lines.contains("/oauth2/callback") {
        anyhow::ensure!(Instant::now() < end, "no line of the callback: {lines}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        lines = std::fs::read_to_string(&log).unwrap_or_default();
    }
    assert!(lines.contains("code=***"), "{lines}");
    let dump = client::get(site.admin, "localhost", "/config").await?.text();
    assert!(dump.contains("cookieSecretRef"), "{dump}");
    for secret in [COOKIE_KEY, provider::SECRET, "opaque-token", "code-1", "access-", "refresh-"] {
        assert!(!lines.contains(secret) && !dump.contains(secret) && !metrics.contains(secret), "{secret}");
    }
    Ok(())
}

#[tokio::test]
async fn gateways_with_the_same_keys_know_each_others_sessions_also_after_a_restart() -> TestResult {
    let (backend, mut provider) = (Backend::start(Behaviour::ok()).await?, Provider::start().await?);
    let sites = [Site::of([&backend])?, Site::of([&backend])?];
    let mut gateways = Vec::new();
    for site in &sites {
        site.save("policy.yaml", &policy(&provider))?;
        site.save("secret.yaml", &secret())?;
        gateways.push(site.serve(&[]).await?);
    }
    let mut browser = Browser::at("localhost", Transport::Http);
    // The login begins at one gateway, and ends at the other.
    let begun = browser.open(sites[0].http, "/").await?;
    let location = begun.header("location").unwrap_or_default().to_owned();
    let back = provider.log_in(&location)?;
    let ended = browser.open(sites[1].http, &back).await?;
    assert_eq!(ended.status, 302, "{}\n{}", ended.text(), gateways[1].output());
    for site in &sites {
        assert_eq!(browser.open(site.http, "/").await?.status, 200);
    }
    gateways.clear();
    provider.backend().kill().await;
    let _restarted = sites[0].serve(&[]).await?;
    assert_eq!(browser.open(sites[0].http, "/").await?.status, 200, "the session needs no provider");
    assert_eq!(Browser::at("localhost", Transport::Http).open(sites[0].http, "/").await?.status, 503);
    Ok(())
}

#[tokio::test]
async fn operator_logs_in_to_the_dashboard_at_the_provider_of_the_portal() -> TestResult {
    let (backend, mut provider) = (Backend::start(Behaviour::ok()).await?, Provider::start().await?);
    let (site, dashboard, portal) = (Site::of([&backend])?, free_address()?, free_address()?);
    let write = |name: &str, at: std::net::SocketAddr, rules: &str| {
        let (issuer, path) = (provider.state().issuer.clone(), site.path().join(name));
        let text = format!(
            "openIdConnect: {{issuer: {issuer:?}, clientId: {CLIENT:?}, clientSecret: {:?}, publicUrl: \"http://localhost:{}\", {rules}}}\n",
            provider::SECRET,
            at.port()
        );
        std::fs::write(&path, text)?;
        anyhow::Ok(path.to_string_lossy().into_owned())
    };
    let operators = write("operators", dashboard, "roles: [{group: admin, role: operator}]")?;
    let visitors = write("visitors", portal, "consumers: [{group: staff, consumers: [default/alice]}]")?;
    site.save(
        "consumer.yaml",
        "apiVersion: sluicegate.dev/v1alpha1\nkind: Consumer\nmetadata: {name: alice}\nspec: {}\n",
    )?;
    let (at_dashboard, at_portal) = (dashboard.to_string(), portal.to_string());
    let gateway = site
        .serve(&[
            "--dashboard-address",
            &at_dashboard,
            "--dashboard-token-file",
            &operators,
            "--dashboard-changes",
            "--portal-address",
            &at_portal,
            "--portal-token-file",
            &visitors,
        ])
        .await?;
    let browser_at = |at: std::net::SocketAddr| {
        let host: &'static str = format!("localhost:{}", at.port()).leak();
        Browser::at(host, Transport::Http)
    };
    let (mut operator, mut visitor) = (browser_at(dashboard), browser_at(portal));
    for (browser, at) in [(&mut operator, dashboard), (&mut visitor, portal)] {
        let response = browser.log_in(at, &provider, "/oauth2/login?to=/keys").await?;
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(response.text().contains(&format!("url=http://localhost:{}/keys", at.port())));
    }
    let session: serde_json::Value =
        serde_json::from_slice(&operator.open(dashboard, "/api/session").await?.body)?;
    assert_eq!((&session["user"], &session["role"]), (&provider::USER.into(), &"operator".into()));
    let consumers: serde_json::Value =
        serde_json::from_slice(&visitor.open(portal, "/api/session").await?.body)?;
    assert_eq!(consumers["consumers"], serde_json::json!(["default/alice"]));

    // The sessions continue while the provider is away, and so does the data path.
    provider.backend().kill().await;
    assert_eq!(operator.open(dashboard, "/api/routes").await?.status, 200);
    assert_eq!(visitor.open(portal, "/api/keys").await?.status, 200);
    assert_eq!(site.status("/").await?, 200);
    let mut stranger = Browser::with_cookies_of(&operator, format!("localhost:{}", portal.port()).leak());
    assert_eq!(stranger.open(portal, "/api/keys").await?.status, 401, "a session of the dashboard");
    let config = client::get(site.admin, "localhost", "/config").await?.text();
    for text in [gateway.output(), config] {
        let has_secret = text.contains(provider::SECRET) || text.contains("eyJ") || text.contains("code-");
        assert!(!has_secret, "{text}");
    }
    assert!(gateway.output().contains("logged in to the dashboard"), "{}", gateway.output());
    Ok(())
}
