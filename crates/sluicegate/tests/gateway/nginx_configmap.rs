//! The ConfigMap and the flags of ingress-nginx, from the YAML to the responses.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};

use crate::support::{Site, ingress, sluicegate};

type TestResult = anyhow::Result<()>;

const OPTIONS: &[&str] = &["--ingress-nginx-compatibility", "--configmap=default/nginx"];

/// A ConfigMap with these entries of YAML.
fn configmap(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{data}}}\n")
}

/// A site with an Ingress of class nginx.
fn site(backend: &Backend) -> anyhow::Result<Site> {
    let site = Site::of([backend])?;
    let ingress = ingress("web", "/").replace("spec:\n", "spec:\n  ingressClassName: nginx\n");
    site.save("ingress.yaml", &ingress)?;
    Ok(site)
}

async fn ask(site: &Site, lines: &str) -> anyhow::Result<Response> {
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    Ok(Client::connect(site.http).await?.request(request).await?)
}

#[tokio::test]
async fn clients_that_the_configmap_blocks_are_denied_and_changes_apply_at_once() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = site(&backend)?;
    let blocked = "block-user-agents: \"~*bad/[0-9]+,EvilBot\", block-referers: \"~*spam\"";
    site.save("nginx.yaml", &configmap("nginx", blocked))?;
    let _gateway = site.serve(OPTIONS).await?;
    for (lines, status) in [
        ("User-Agent: Mozilla/5.0\r\nReferer: https://shop.test/\r\n", 200),
        ("User-Agent: x Bad/7\r\n", 403),
        ("User-Agent: evilbot\r\n", 403),
        ("User-Agent: EvilBot/2\r\n", 200),
        ("Referer: http://spam.test/\r\n", 403),
        ("", 200),
    ] {
        assert_eq!(ask(&site, lines).await?.status, status, "{lines}");
    }
    site.save("nginx.yaml", &configmap("nginx", "block-cidrs: \"127.0.0.0/8\""))?;
    site.wait_for_status("/", 403).await?;
    site.save("nginx.yaml", &configmap("nginx", "block-cidrs: \"192.0.2.0/24\""))?;
    site.wait_for_status("/", 200).await?;
    site.save("nginx.yaml", &configmap("nginx", "block-cidrs: \"192.0.2.0/99\""))?;
    site.wait_for_status("/", 503).await
}

#[tokio::test]
async fn headers_of_the_configmap_reach_endpoints_and_clients() -> TestResult {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Powered-By: php\r\nX-Frame-Options: ALLOW\r\nServer: app\r\n\r\n";
    let backend = Backend::start(Behaviour::raw(response)).await?;
    let site = site(&backend)?;
    site.save("request.yaml", &configmap("request", "X-Forwarded-Proto: https, X-Client: \"$remote_addr\""))?;
    site.save("response.yaml", &configmap("response", "X-Frame-Options: DENY"))?;
    let data =
        "proxy-set-headers: default/request, add-headers: default/response, hide-headers: X-Powered-By";
    site.save("nginx.yaml", &configmap("nginx", data))?;
    let _gateway = site.serve(OPTIONS).await?;
    let found = ask(&site, "X-Client: forged\r\n").await?;
    assert_eq!(found.headers_named("x-frame-options"), ["DENY"]);
    assert_eq!((found.header("x-powered-by"), found.header("server")), (None, None));
    let seen = backend.last_request().unwrap_or_else(|| panic!("no request"));
    assert_eq!(
        (seen.header("x-forwarded-proto"), seen.header("x-client")),
        (Some("https"), Some("127.0.0.1"))
    );
    Ok(())
}

#[tokio::test]
async fn use_proxy_protocol_needs_the_header_except_at_tcp_ports_without_proxy() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = site(&backend)?;
    let port = crate::support::free_address()?;
    site.save("nginx.yaml", &configmap("nginx", "use-proxy-protocol: \"true\""))?;
    site.save("tcp.yaml", &configmap("tcp", &format!("\"{}\": default/web:http", port.port())))?;
    let options =
        [OPTIONS, &["--tcp-services-configmap=default/tcp", "--gateway-address=127.0.0.1"]].concat();
    let _gateway = site.serve(&options).await?;
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let proxied = format!("PROXY TCP4 192.0.2.7 198.51.100.1 4000 80\r\n{request}");
    assert_eq!(Client::connect(site.http).await?.request(proxied).await?.status, 200);
    assert_eq!(
        backend.last_request().and_then(|seen| seen.header("x-real-ip").map(str::to_owned)),
        Some("192.0.2.7".to_owned())
    );
    assert!(ask(&site, "").await.is_err(), "no PROXY header");
    assert_eq!(Client::connect(port).await?.request(request).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn check_reports_faults_of_the_configmap_and_flags_of_ingress_nginx_are_refused() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = site(&backend)?;
    let check = |options: &[&str]| -> anyhow::Result<(Option<i32>, String)> {
        let done = sluicegate().arg("check").arg(site.path()).args(options).output()?;
        Ok((done.status.code(), String::from_utf8(done.stderr)?))
    };
    site.save("nginx.yaml", &configmap("nginx", "ssl-dh-param: X, proxy-body-size: 1m"))?;
    let (code, output) = check(OPTIONS)?;
    assert!(code == Some(0) && output.contains("data[ssl-dh-param]: is ignored:"), "{output}");
    site.save("nginx.yaml", &configmap("nginx", "block-cidrs: nowhere"))?;
    let (code, output) = check(OPTIONS)?;
    assert!(code == Some(1) && output.contains("data[block-cidrs]"), "{output}");
    let (code, output) = check(&["--sync-rate-limit=1"])?;
    let expected =
        "sluicegate: error: --sync-rate-limit: Sluicegate applies each change at once. Remove the option\n";
    assert_eq!((code, &*output), (Some(2), expected));
    Ok(())
}
