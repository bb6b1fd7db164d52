//! A gateway process forwards requests to XBackends from a directory.

use std::net::SocketAddr;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::Authority;

use crate::http_routes::serving;
use crate::support::Site;

type TestResult = anyhow::Result<()>;

const RULES: &str = "{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]}";

/// The XBackend `out` with this address of this machine, and these further fields.
fn x_backend(address: SocketAddr, fields: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {{name: out}}
spec: {{type: ExternalHostname, externalHostname: {{hostname: localhost}}, port: {{number: {}}}{fields}}}
",
        address.port()
    )
}

#[tokio::test]
async fn requests_reach_the_host_and_port_of_an_x_backend() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([])?;
    site.save("backend.yaml", &x_backend(backend.addr(), ""))?;
    let (process, listener) = serving(&site, RULES).await?;
    let before = backend.requests();
    let response = client::get(listener, "a.test", "/").await?;
    assert_eq!(response.status, 200, "{}", process.output());
    assert_eq!(backend.requests(), before + 1);
    Ok(())
}

#[tokio::test]
async fn requests_reach_an_x_backend_only_with_a_certificate_that_its_tls_verifies() -> TestResult {
    let (authority, other) = (Authority::new(), Authority::named("Other"));
    for (trusted, hostname, expected) in
        [(&authority, "api.test", 200), (&other, "api.test", 502), (&authority, "other.test", 502)]
    {
        let backend = Backend::start(Behaviour::ok()).await?;
        let shown = authority.issue(&["api.test"]);
        let terminator = Terminator::start(backend.addr(), &shown, None).await?;
        let site = Site::of([])?;
        let ca = trusted.pem().replace('\n', "\\n");
        let configmap =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca}}\ndata: {{ca.crt: \"{ca}\"}}\n");
        site.save("ca.yaml", &configmap)?;
        let tls = format!(
            ", tls: {{mode: ServerOnly, validation: {{caCertificateRefs: [{{group: \"\", kind: ConfigMap, name: ca}}], \
             hostname: {hostname}}}}}"
        );
        site.save("backend.yaml", &x_backend(terminator.addr(), &tls))?;
        let (process, listener) = serving(&site, RULES).await?;
        let found = client::get(listener, "a.test", "/").await?.status;
        assert_eq!(found, expected, "{hostname}: {}", process.output());
        assert_eq!(backend.requests() > 0, expected == 200);
    }
    Ok(())
}
