//! A gateway process uses TLS to the endpoints of Services with a BackendTLSPolicy.

use std::net::SocketAddr;
use std::time::Instant;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;
use sluicegate_testkit::load::Load;
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::{Authority, Issued};

use crate::http_routes::{route, serving};
use crate::support::{LIMIT, Site, slices};

type TestResult = anyhow::Result<()>;

const RULES: &str = "{backendRefs: [{name: web, port: 80}]}";

const CA: &str = "caCertificateRefs: [{group: \"\", kind: ConfigMap, name: ca}], hostname: web.test";

/// A BackendTLSPolicy for the Service `web`.
fn policy(validation: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: web}}
spec: {{targetRefs: [{{group: \"\", kind: Service, name: web}}], validation: {{{validation}}}}}
"
    )
}

/// The ConfigMap `ca` with these CA certificates.
fn configmap(authorities: &[&Authority]) -> String {
    let pem: String = authorities.iter().map(|authority| authority.pem()).collect();
    let pem = pem.replace('\n', "\\n");
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca}}\ndata: {{ca.crt: \"{pem}\"}}\n")
}

/// A site in front of an endpoint with this certificate.
async fn site(shown: &Issued) -> anyhow::Result<(Backend, Terminator, Site)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let terminator = Terminator::start(backend.addr(), shown, None).await?;
    let site = Site::of([&backend])?;
    site.save("slices.yaml", &slices([terminator.addr()]))?;
    Ok((backend, terminator, site))
}

async fn wait_for_status(listener: SocketAddr, status: u16) -> TestResult {
    let end = Instant::now() + LIMIT;
    loop {
        let found = client::get(listener, "a.test", "/").await?.status;
        if found == status {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < end, "the status is {found}, not {status}");
    }
}

#[tokio::test]
async fn requests_reach_only_endpoints_that_the_backend_tls_policy_verifies() -> TestResult {
    let (authority, other) = (Authority::new(), Authority::named("Other"));
    let (right, wrong) = (configmap(&[&authority]), configmap(&[&other]));
    let named = |names: &str| format!("{CA}, subjectAltNames: [{names}]");
    for (configmap, validation, expected) in [
        (&*right, CA.to_owned(), 200),
        (&wrong, CA.to_owned(), 502),
        (&right, CA.replace("web.test", "other.test"), 502),
        (&right, named("{type: Hostname, hostname: shop.test}"), 200),
        (
            &right,
            named("{type: Hostname, hostname: other.test}, {type: URI, uri: \"spiffe://web.test/shop\"}"),
            200,
        ),
        (
            &right,
            named("{type: Hostname, hostname: other.test}, {type: URI, uri: \"spiffe://web.test/x\"}"),
            502,
        ),
        (&wrong, named("{type: URI, uri: \"spiffe://web.test/shop\"}"), 502),
        (&right, "wellKnownCACertificates: System, hostname: web.test".to_owned(), 502),
        ("", CA.to_owned(), 500),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca}\ndata: {}\n", CA.to_owned(), 500),
        (&right, CA.replace("ConfigMap", "Bucket"), 500),
        (&right, "hostname: web.test".to_owned(), 500),
    ] {
        let shown = authority.issue(&["web.test", "shop.test", "spiffe://web.test/shop"]);
        let (backend, terminator, site) = site(&shown).await?;
        site.save("ca.yaml", configmap)?;
        site.save("policy.yaml", &policy(&validation))?;
        let (process, listener) = serving(&site, RULES).await?;
        let found = client::get(listener, "a.test", "/").await?.status;
        assert_eq!(found, expected, "{validation}: {}", process.output());
        assert_eq!(backend.requests() > 0, expected == 200, "{validation}");
        assert!(terminator.names().iter().all(|name| name.as_deref() != Some("shop.test")), "{validation}");
    }
    Ok(())
}

#[tokio::test]
async fn configmap_with_ca_certificates_takes_effect_when_it_appears() -> TestResult {
    let authority = Authority::new();
    let (_backend, _terminator, site) = site(&authority.issue(&["web.test"])).await?;
    site.save("policy.yaml", &policy(CA))?;
    let (_process, listener) = serving(&site, RULES).await?;
    wait_for_status(listener, 500).await?;
    site.save("ca.yaml", &configmap(&[&authority]))?;
    wait_for_status(listener, 200).await
}

#[tokio::test]
async fn endpoints_receive_the_client_certificate_of_the_gateway() -> TestResult {
    let (authority, clients) = (Authority::new(), Authority::named("Clients"));
    let backend = Backend::start(Behaviour::ok()).await?;
    let terminator =
        Terminator::start(backend.addr(), &authority.issue(&["web.test"]), Some(&clients)).await?;
    let site = Site::of([&backend])?;
    site.save("slices.yaml", &slices([terminator.addr()]))?;
    site.save("policy.yaml", &policy(CA))?;
    site.save("ca.yaml", &configmap(&[&authority]))?;
    let (_process, listener) = serving(&site, RULES).await?;
    wait_for_status(listener, 502).await?;
    site.save("client.yaml", &clients.issue(&["gateway.test"]).secret("client"))?;
    let gateway = std::fs::read_to_string(site.path().join("gateway.yaml"))?;
    let tls = "spec: {tls: {backend: {clientCertificateRef: {name: client}}}, ";
    site.save("gateway.yaml", &gateway.replace("spec: {", tls))?;
    wait_for_status(listener, 200).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_of_ca_certificates_fails_no_request() -> TestResult {
    const AUTHORITIES: usize = 6;
    let authorities: Vec<Authority> =
        (0..AUTHORITIES).map(|nth| Authority::named(&format!("CA {nth}"))).collect();
    let (_backend, terminator, site) = site(&authorities[0].issue(&["web.test"])).await?;
    site.save("policy.yaml", &policy(CA))?;
    site.save("ca.yaml", &configmap(&[&authorities[0]]))?;
    let (process, listener) = serving(&site, RULES).await?;
    let load = Load::new(listener).connections(5).start()?;
    let mut served = 0;
    for (change, pair) in authorities.windows(2).enumerate() {
        site.save("ca.yaml", &configmap(&[&pair[0], &pair[1]]))?;
        // A later change of the route shows that the workers have the CA certificates.
        let filter = format!(
            "{{filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-change, value: \
             \"{change}\"}}]}}}}], backendRefs: [{{name: web, port: 80}}]}}"
        );
        site.save("route.yaml", &route("web", "", "", &filter))?;
        let (end, mut in_a_row) = (Instant::now() + LIMIT, 0);
        while in_a_row < 30 {
            let response = client::get(listener, "a.test", "/").await?;
            let is_changed = response.header("x-change") == Some(&change.to_string());
            in_a_row = if is_changed { in_a_row + 1 } else { 0 };
            anyhow::ensure!(Instant::now() < end, "change {change} is not served: {response:?}");
        }
        terminator.show(&pair[1].issue(&["web.test"]));
        served += 100;
        load.wait_for_ok(served, LIMIT).await?;
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", process.output());
    assert!(terminator.handshakes() as usize > AUTHORITIES, "connections are verified again");
    Ok(())
}
