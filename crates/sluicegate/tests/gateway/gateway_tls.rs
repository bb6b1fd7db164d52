//! A gateway process terminates TLS at the listeners of Gateways.

use std::net::SocketAddr;
use std::time::Instant;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::tls::{Authority, ClientOptions};

use crate::http_routes::{LOOPBACK, gateway, route};
use crate::support::{LIMIT, Site, free_address};

type TestResult = anyhow::Result<()>;

const GET: &str = "GET / HTTP/1.1\r\nHost: edge.test\r\n\r\n";

/// Waits until a client with these options receives 200, or is rejected.
async fn wait_until(listener: SocketAddr, options: &ClientOptions, is_admitted: bool) -> TestResult {
    let end = Instant::now() + LIMIT;
    loop {
        let asked = async { Client::connect_tls(listener, options, "edge.test").await?.request(GET).await };
        let asked = asked.await;
        if asked.as_ref().is_ok_and(|response| response.status == 200) == is_admitted {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < end, "admitted: {is_admitted}, but {asked:?}");
    }
}

#[tokio::test]
async fn https_listener_admits_clients_as_the_frontend_validation_of_its_gateway_requires() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let (authority, clients) = (Authority::new(), Authority::named("Clients"));
    let listener = free_address()?;
    let https = format!(
        "{{name: https, protocol: HTTPS, port: {}, tls: {{certificateRefs: [{{name: edge}}]}}}}",
        listener.port()
    );
    let with = |validation: &str| {
        gateway(&https)
            .replace("spec: {", &format!("spec: {{tls: {{frontend: {{default: {{{validation}}}}}}}, "))
    };
    let ca = "caCertificateRefs: [{group: \"\", kind: ConfigMap, name: clients}]";
    let pem = clients.pem().replace('\n', "\\n");
    let configmap = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: clients}}\ndata: {{ca.crt: \"{pem}\"}}\n"
    );
    site.save("ca.yaml", &configmap)?;
    site.save("certificate.yaml", &authority.issue(&["edge.test"]).secret("edge"))?;
    site.save("route.yaml", &route("web", "", "", "{backendRefs: [{name: web, port: 80}]}"))?;
    site.save("gateway.yaml", &gateway(&https))?;
    let _process = site.serve(&LOOPBACK).await?;
    let (known, unknown) = (clients.issue(&["alice"]), authority.issue(&["mallory"]));
    let with_known = authority.client().identity(&known);
    let others = [authority.client(), authority.client().identity(&unknown)];
    for (validation, admits_known, admits_others) in [
        (String::new(), true, true),
        (format!("validation: {{{ca}}}"), true, false),
        (format!("validation: {{{ca}, mode: AllowInsecureFallback}}"), true, true),
        (format!("validation: {{{}}}", ca.replace("name: clients", "name: none")), false, false),
    ] {
        site.save("gateway.yaml", &with(&validation))?;
        for client in &others {
            wait_until(listener, client, admits_others).await?;
        }
        wait_until(listener, &with_known, admits_known).await?;
    }
    Ok(())
}
