//! Error pages: responses of a Service in place of errors.

use sluicegate_model::feature::ErrorPages;
use sluicegate_model::feature::error_pages::PageCode;
use sluicegate_model::policy::Traffic;
use sluicegate_proxy::counters::TrafficShard;
use sluicegate_testkit::gateway::key;

use super::traffic::add_upstream;
use super::*;

/// A page with the status of the original response, like the pages of ingress-nginx' own image.
fn page() -> Behaviour {
    Behaviour::choose(|request| {
        let code = request.header("x-code").unwrap_or("none");
        let body = format!("<p>{code}</p>");
        Behaviour::raw(format!(
            "HTTP/1.1 {code} x\r\nContent-Type: text/html\r\nX-Page: yes\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    })
}

fn pages(codes: &[i64]) -> ErrorPages {
    ErrorPages {
        upstream: key("pages"),
        codes: Entries::new(codes.iter().map(|code| PageCode::of(*code)).collect()).unwrap(),
        replaces_endpoints: true,
        serves_empty: true,
        service_port: None,
    }
}

/// A gateway with these error pages on its only route, its backend, and the backend with the pages.
async fn paged(pages: ErrorPages) -> anyhow::Result<(Backend, Backend, Gateway)> {
    let (backend, of_pages) = (Backend::start(Behaviour::ok()).await?, Backend::start(page()).await?);
    let mut builder = Gateway::builder().backends([&backend]);
    add_upstream(builder.config_mut(), "pages", &[of_pages.addr()]);
    let mut traffic = Traffic::new(id("Ingress", "shop"));
    traffic.features.error_pages = Some(Box::new(pages));
    let traffic = Arc::new(traffic);
    routes(builder.config_mut(), |rule| rule.traffic = Some(traffic.clone()));
    builder.config_mut().settings.resilience.endpoint_wait = Duration::ZERO;
    Ok((backend, of_pages, builder.start().await?))
}

fn counted(gateway: &Gateway, tally: fn(&TrafficShard) -> &sluicegate_proxy::counters::Tally) -> u64 {
    gateway.proxy().registry().traffic_policies().iter().map(|policy| policy.stats.sum(tally)).sum()
}

#[tokio::test]
async fn error_of_an_endpoint_is_replaced_by_the_page_of_its_status() -> TestResult {
    let (backend, of_pages, gateway) = paged(pages(&[404, 503])).await?;
    for transport in [Transport::Http, Transport::Http2] {
        for (status, is_paged) in [(404, true), (503, true), (500, false), (200, false)] {
            backend.set(Behaviour::status(status));
            let lines = ["Accept: text/html", "X-Code: 200", "X-Service-Name: forged"];
            let response = ask_by(&gateway, "GET", "/a%20b?c=d", &lines, transport).await?;
            assert_eq!(response.status, status);
            assert_eq!(response.header("x-page").is_some(), is_paged, "{status}");
            if is_paged {
                assert_eq!(response.text(), format!("<p>{status}</p>"));
                assert_eq!(response.headers_named("content-type"), ["text/html"]);
            }
        }
    }
    let request = of_pages.last_request().unwrap();
    assert_eq!((&*request.method, &*request.target), ("GET", "/?c=d"));
    for (name, value) in [
        ("x-code", "503"),
        ("x-format", "text/html"),
        ("x-original-uri", "/a%20b?c=d"),
        ("x-namespace", "default"),
        ("x-ingress-name", "backend"),
        ("x-service-name", "backend"),
        ("x-service-port", "80"),
        ("host", "localhost"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert!(request.header("x-request-id").is_some());
    assert_eq!(counted(&gateway, |shard| &shard.pages), 4);
    Ok(())
}

#[tokio::test]
async fn own_errors_of_the_gateway_are_replaced_also_if_responses_of_endpoints_are_not() -> TestResult {
    let own_only = ErrorPages { replaces_endpoints: false, ..pages(&[403, 404, 413, 502]) };
    let (mut backend, of_pages, gateway) = paged(own_only).await?;
    backend.set(Behaviour::status(404));
    assert_eq!(ask(&gateway, "/", &[]).await?.header("x-page"), None);
    backend.kill().await;
    let failed = ask_by(&gateway, "POST", "/", &["Content-Length: 0"], Transport::Http).await?;
    assert_eq!((failed.status, failed.header("x-page")), (502, Some("yes")));
    let request = of_pages.last_request().unwrap();
    assert_eq!((&*request.method, request.header("content-length")), ("POST", Some("0")));
    gateway
        .configure(|config| {
            let ip_access: IpAccess = written(json!({"deny": ["127.0.0.0/8"]}));
            set_security(config, Some(Security { ip_access, ..open() }));
        })
        .await;
    let denied = ask(&gateway, "/", &[]).await?;
    assert_eq!((denied.status, denied.text()), (403, "<p>403</p>".to_owned()));
    assert_eq!(self::denied(&gateway, Denial::Address), 1, "the page does not hide the denial");
    Ok(())
}

/// CVE-2026-24513: in ingress-nginx, a Service with error pages that responds with 200 admitted unauthenticated requests.
#[tokio::test]
async fn page_with_a_success_status_admits_no_denied_request() -> TestResult {
    let (backend, of_pages, gateway) = paged(pages(&[401, 403])).await?;
    of_pages.set(Behaviour::ok());
    let service = Backend::start(Behaviour::raw(
        "HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm=\"a\"\r\nContent-Length: 0\r\n\r\n",
    ))
    .await?;
    let url = format!("http://{}/check", service.addr());
    let authentication: Authentication = written(json!({"extAuth": {"url": url}}));
    gateway.configure(|config| set_security(config, Some(asking(authentication)))).await;
    for transport in [Transport::Http, Transport::Http2] {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!(response.status, 200, "the page");
        assert_eq!(response.header("www-authenticate"), Some("Basic realm=\"a\""));
    }
    assert_eq!((backend.requests(), of_pages.requests(), service.requests()), (0, 2, 2));
    Ok(())
}

#[tokio::test]
async fn client_receives_the_original_response_if_the_service_of_pages_fails() -> TestResult {
    let (backend, mut of_pages, gateway) = paged(pages(&[404])).await?;
    backend.set(Behaviour::raw("HTTP/1.1 404 x\r\nX-Original: yes\r\nContent-Length: 2\r\n\r\nno"));
    for behaviour in [
        Behaviour::garbage(),
        Behaviour::close_on_request(),
        Behaviour::too_little(10).then_close(),
        Behaviour::sized(256 * 1024 + 1),
        Behaviour::chunked(vec!["x".repeat(64 * 1024); 5], Duration::ZERO, &[]),
    ] {
        of_pages.set(behaviour);
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!((response.status, response.header("x-original")), (404, Some("yes")));
        assert_eq!(response.text(), "no");
    }
    of_pages.kill().await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "no");
    gateway.set_addresses_of(key("pages"), []).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "no");
    assert_eq!(counted(&gateway, |shard| &shard.page_failures), 7);
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn page_may_have_chunks_or_end_with_its_connection() -> TestResult {
    let (backend, of_pages, gateway) = paged(pages(&[404])).await?;
    backend.set(Behaviour::status(404));
    let until_close = "HTTP/1.1 404 x\r\nConnection: close\r\n\r\npage";
    for behaviour in
        [Behaviour::chunked(vec!["pa", "ge"], Duration::ZERO, &[]), Behaviour::raw(until_close).then_close()]
    {
        of_pages.set(behaviour);
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!(response.text(), "page");
        assert_eq!(response.header("content-length"), Some("4"));
    }
    Ok(())
}

#[tokio::test]
async fn client_connection_stays_open_after_a_page() -> TestResult {
    let (backend, of_pages, gateway) = paged(pages(&[404])).await?;
    backend.set(Behaviour::status(404));
    let mut client = gateway.connect().await?;
    for _ in 0..5 {
        let response = client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        assert_eq!(response.text(), "<p>404</p>");
    }
    assert_eq!(of_pages.accepted(), 1, "the connection to the Service stays open too");
    let head = client.request("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    assert_eq!((head.status, head.text()), (404, String::new()));
    Ok(())
}

#[tokio::test]
async fn default_backend_receives_the_requests_of_a_service_without_an_endpoint() -> TestResult {
    let (backend, of_pages, gateway) = paged(pages(&[])).await?;
    of_pages.set(Behaviour::echo());
    assert_eq!(ask(&gateway, "/shop?a=b", &[]).await?.status, 200);
    assert_eq!((backend.requests(), of_pages.requests()), (1, 0));
    gateway.set_addresses([]).await;
    let lines = ["X-Code: 200", "Content-Length: 2\r\n\r\nhi"];
    let response = ask_by(&gateway, "POST", "/shop?a=b", &lines[..], Transport::Http).await?;
    assert_eq!(response.status, 200);
    let request = of_pages.last_request().unwrap();
    assert_eq!((&*request.method, &*request.target), ("POST", "/shop?a=b"), "the request itself");
    assert_eq!(request.header("x-code"), Some("503"));
    assert!(!response.text().contains("X-Code: 200"), "{}", response.text());
    // Without an endpoint for the default backend either, the gateway responds.
    gateway.set_addresses_of(key("pages"), []).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    Ok(())
}

#[tokio::test]
async fn own_errors_have_the_id_of_the_request_and_responses_of_endpoints_have_none() -> TestResult {
    let backend = Backend::start(Behaviour::status(503)).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    routes(builder.config_mut(), |rule| {
        rule.matches.iter_mut().for_each(|of| of.method = Some("GET".into()));
    });
    let gateway = builder.start().await?;
    for transport in [Transport::Http, Transport::Http2] {
        let of_endpoint = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((of_endpoint.status, of_endpoint.header("x-request-id")), (503, None));
        let own = ask_by(&gateway, "DELETE", "/none", &["X-Request-ID: forged"], transport).await?;
        assert_eq!(own.status, 404);
        let id = own.header("x-request-id").expect("an error has an ID");
        let refused = |gateway: &Gateway| gateway.proxy().registry().refused(id);
        gateway.wait_until(|gateway| refused(gateway).is_some()).await?;
        let found = refused(&gateway).map(|refused| (refused.method, refused.target, refused.status));
        assert_eq!(found, Some(("DELETE".to_owned(), "/none".to_owned(), 404)));
    }
    Ok(())
}
