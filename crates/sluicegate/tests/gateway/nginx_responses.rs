//! Ingresses of ingress-nginx with error pages, sessions, canaries and CORS.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};

use crate::nginx::{self, COMPATIBILITY};
use crate::support::{SERVICE, Site, slices};

type TestResult = anyhow::Result<()>;

/// An Ingress for host `shop.test` that leads to this Service.
fn ingress(name: &str, annotations: &[(&str, &str)], service: &str) -> String {
    nginx::ingress(name, annotations, "shop.test", "/").replace("{name: web,", &format!("{{name: {service},"))
}

/// A Service of this name with one endpoint.
fn service(name: &str, backend: &Backend) -> String {
    format!("---{}{}", SERVICE, slices([backend.addr()])).replace("web", name)
}

async fn ask(site: &Site, method: &str, lines: &str) -> anyhow::Result<Response> {
    let request = format!("{method} / HTTP/1.1\r\nHost: shop.test\r\n{lines}\r\n");
    Ok(Client::connect(site.http).await?.request(request).await?)
}

#[tokio::test]
async fn canary_session_and_error_pages_of_annotations_work_together() -> TestResult {
    let (main, canary, pages) = (
        Backend::start(Behaviour::ok()).await?,
        Backend::start(Behaviour::ok()).await?,
        Backend::start(Behaviour::raw("HTTP/1.1 503 x\r\nX-Page: yes\r\nContent-Length: 4\r\n\r\npage"))
            .await?,
    );
    let site = Site::new()?;
    site.save("main.yaml", &service("main", &main))?;
    site.save("canary.yaml", &service("canary", &canary))?;
    site.save("pages.yaml", &service("pages", &pages))?;
    let of_main = [
        ("affinity", "cookie"),
        ("custom-http-errors", "503"),
        ("default-backend", "pages"),
        ("enable-cors", "true"),
    ];
    let of_canary = [("canary", "true"), ("canary-by-header", "X-Canary")];
    let ingresses = ingress("shop", &of_main, "main") + &ingress("shop-canary", &of_canary, "canary");
    site.save("ingresses.yaml", &ingresses)?;
    let _gateway = site.serve(COMPATIBILITY).await?;

    let first = ask(&site, "GET", "").await?;
    assert_eq!((first.status, main.requests(), canary.requests()), (200, 1, 0));
    let cookie = first.header("set-cookie").expect("a session cookie");
    assert!(cookie.starts_with("INGRESSCOOKIE=") && cookie.ends_with("; Path=/; HttpOnly"), "{cookie}");
    assert_eq!(first.header("access-control-allow-origin"), Some("*"));

    let diverted = ask(&site, "GET", "X-Canary: always\r\n").await?;
    assert_eq!((diverted.status, main.requests(), canary.requests()), (200, 1, 1));
    // A session stays at the canary, and the header does not decide then.
    let pair = diverted.header("set-cookie").expect("a session cookie").split(';').next().unwrap_or_default();
    let again = ask(&site, "GET", &format!("Cookie: {pair}\r\nX-Canary: never\r\n")).await?;
    assert_eq!((again.status, main.requests(), canary.requests()), (200, 1, 2));

    main.set(Behaviour::status(503));
    let failed = ask(&site, "GET", "").await?;
    assert_eq!((failed.status, failed.header("x-page")), (503, Some("yes")));
    assert_eq!(pages.last_request().expect("a request").header("x-ingress-name"), Some("shop"));

    let options = ask(&site, "OPTIONS", "").await?;
    assert_eq!(options.status, 204, "no endpoint is asked");
    Ok(())
}
