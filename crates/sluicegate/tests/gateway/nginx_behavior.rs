//! The behavior of ingress-nginx that no annotation asks for: each test names one behavior.

use std::time::{Duration, Instant};

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client, Response};
use sluicegate_testkit::tls::Authority;

use crate::nginx::{COMPATIBILITY, get, ingress, serve};
use crate::support::{LIMIT, SERVICE, Site, free_address, slices};

type TestResult = anyhow::Result<()>;

const HOST: &str = "shop.test";
const ACME: &str = "/.well-known/acme-challenge";

/// The statuses of GET requests.
async fn statuses<const N: usize>(site: &Site, targets: [&str; N]) -> anyhow::Result<[u16; N]> {
    let mut found = [0; N];
    for (target, status) in targets.into_iter().zip(&mut found) {
        *status = get(site, HOST, target, "").await?.status;
    }
    Ok(found)
}

/// An Ingress with a path that is no regular expression.
fn plain(name: &str, path: &str, kind: &str) -> String {
    ingress(name, &[], HOST, path).replace("ImplementationSpecific", kind)
}

/// A site with TLS for the host, and the options of its HTTPS listener.
async fn with_tls(ingresses: &str) -> anyhow::Result<(Backend, Site, [String; 2])> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let tls = format!("spec:\n  tls: [{{hosts: [{HOST}], secretName: edge}}]\n");
    site.save("ingress.yaml", &ingresses.replace("spec:\n", &tls))?;
    site.save("edge.yaml", &Authority::of_process().issue(&[HOST]).secret("edge"))?;
    Ok((backend, site, ["--listen-https".to_owned(), free_address()?.to_string()]))
}

async fn over_tls(address: &str, lines: &str) -> anyhow::Result<Response> {
    let mut client = Client::connect_tls(address.parse()?, &Authority::of_process().client(), HOST).await?;
    Ok(client.request(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n")).await?)
}

#[tokio::test]
async fn exact_path_comes_first_then_the_longest_prefix_of_whole_segments() -> TestResult {
    let ingresses = plain("a", "/a", "Exact").replace("name: web,", "name: none,")
        + &plain("b", "/a", "Prefix")
        + &plain("c", "/a/b", "Prefix").replace("name: web,", "name: none,");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/a", "/a/x", "/a/b/x", "/a/bc", "/ab"]).await?, [503, 200, 503, 200, 404]);
    Ok(())
}

#[tokio::test]
async fn regular_expression_ignores_case_and_matches_a_prefix() -> TestResult {
    let ingresses = ingress("a", &[("use-regex", "true")], HOST, "/item/[0-9]+");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(
        statuses(&site, ["/item/7", "/ITEM/7/more", "/item/x", "/x/item/7"]).await?,
        [200, 200, 404, 404]
    );
    Ok(())
}

#[tokio::test]
async fn longest_regular_expression_comes_first() -> TestResult {
    let none = |text: String| text.replace("name: web,", "name: none,");
    let ingresses = none(ingress("a", &[("use-regex", "true")], HOST, "/a.*"))
        + &ingress("b", &[("use-regex", "true")], HOST, "/[a-z]+/b");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/a/b", "/a/c"]).await?, [200, 503]);
    Ok(())
}

#[tokio::test]
async fn use_regex_of_one_ingress_makes_regular_expressions_of_all_paths_of_its_host() -> TestResult {
    let ingresses = ingress("a", &[("use-regex", "true")], HOST, "/a.c") + &plain("b", "/b", "Exact");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/abc", "/B/more"]).await?, [200, 200]);
    Ok(())
}

#[tokio::test]
async fn rewrite_target_makes_regular_expressions_of_all_paths_of_its_host() -> TestResult {
    let ingresses = ingress("a", &[("rewrite-target", "/$1")], HOST, "/a/(.*)") + &plain("b", "/b", "Exact");
    let (backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/B/more", "/A/x"]).await?, [200, 200]);
    assert_eq!(backend.last_request().expect("a request").target, "/x");
    Ok(())
}

#[tokio::test]
async fn path_without_its_final_slash_is_redirected_with_301() -> TestResult {
    let (_backend, site, _gateway) = serve(&plain("a", "/a/", "ImplementationSpecific")).await?;
    let response = get(&site, HOST, "/a?q", "").await?;
    assert_eq!((response.status, response.header("location")), (301, Some("http://shop.test/a/?q")));
    assert_eq!(statuses(&site, ["/a/", "/a/x", "/ab"]).await?, [200, 200, 404]);
    Ok(())
}

#[tokio::test]
async fn dots_and_double_slashes_are_resolved_before_the_match_and_endpoints_receive_the_original()
-> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/a", "Prefix")).await?;
    assert_eq!(statuses(&site, ["/x/../a", "//a", "/%61"]).await?, [200, 200, 200]);
    assert_eq!(backend.last_request().expect("a request").target, "/%61");
    assert_eq!(statuses(&site, ["/a/../x"]).await?, [404]);
    Ok(())
}

#[tokio::test]
async fn host_with_tls_redirects_to_https_with_308_but_not_the_path_of_acme_challenges() -> TestResult {
    let ingresses = plain("a", "/", "Prefix") + &plain("acme", ACME, "Prefix");
    let (_backend, site, https) = with_tls(&ingresses).await?;
    let _gateway = site.serve(&[COMPATIBILITY[0], &https[0], &https[1]]).await?;
    let response = get(&site, HOST, "/a?q", "").await?;
    assert_eq!((response.status, response.header("location")), (308, Some("https://shop.test/a?q")));
    assert_eq!(statuses(&site, [&format!("{ACME}/x")]).await?, [200]);
    Ok(())
}

#[tokio::test]
async fn responses_over_tls_have_hsts_and_the_scheme_reaches_endpoints() -> TestResult {
    let ingresses = plain("a", "/", "Prefix") + &plain("acme", ACME, "Prefix");
    let (backend, site, https) = with_tls(&ingresses).await?;
    let _gateway = site.serve(&[COMPATIBILITY[0], &https[0], &https[1]]).await?;
    let response = over_tls(&https[1], "").await?;
    let hsts = "max-age=31536000; includeSubDomains";
    assert_eq!((response.status, response.header("strict-transport-security")), (200, Some(hsts)));
    assert_eq!(backend.last_request().expect("a request").header("x-forwarded-proto"), Some("https"));
    let open = get(&site, HOST, &format!("{ACME}/x"), "").await?;
    assert_eq!((open.status, open.header("strict-transport-security")), (200, None));
    Ok(())
}

#[tokio::test]
async fn clients_over_tls_negotiate_http2() -> TestResult {
    let (_backend, site, https) = with_tls(&plain("a", "/", "Prefix")).await?;
    let _gateway = site.serve(&[COMPATIBILITY[0], &https[0], &https[1]]).await?;
    let options = Authority::of_process().client().protocols(&["h2", "http/1.1"]);
    let client = Client::connect_tls(https[1].parse()?, &options, HOST).await?;
    assert_eq!(client.tls().and_then(|tls| tls.alpn_protocol()), Some(&b"h2"[..]));
    Ok(())
}

#[tokio::test]
async fn body_of_more_than_1_mib_receives_413() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    for (length, status) in [(1 << 20, 200), ((1 << 20) + 1, 413)] {
        let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {length}\r\n\r\n");
        let request = [head.into_bytes(), vec![b'x'; length]].concat();
        assert_eq!(Client::connect(site.http).await?.request(request).await?.status, status);
    }
    assert_eq!(backend.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn forwarding_headers_of_clients_are_replaced_and_request_ids_stay() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    let lines = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: evil.test\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-Port: 1\r\nX-Real-IP: 192.0.2.1\r\nX-Scheme: https\r\nX-Request-ID: own\r\n";
    assert_eq!(get(&site, HOST, "/", lines).await?.status, 200);
    let request = backend.last_request().expect("a request");
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", HOST),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-scheme", "http"),
        ("x-forwarded-port", "80"),
        ("x-real-ip", "127.0.0.1"),
        ("x-scheme", "http"),
        ("x-request-id", "own"),
        ("x-original-forwarded-for", "192.0.2.1"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn request_over_a_limit_receives_503() -> TestResult {
    let limits = [("limit-rpm", "1"), ("limit-burst-multiplier", "1")];
    let (_backend, site, _gateway) = serve(&ingress("a", &limits, HOST, "/")).await?;
    assert_eq!(statuses(&site, ["/", "/", "/"]).await?, [200, 200, 503]);
    Ok(())
}

#[tokio::test]
async fn cors_headers_do_not_depend_on_the_header_origin() -> TestResult {
    let (_backend, site, _gateway) = serve(&ingress("a", &[("enable-cors", "true")], HOST, "/")).await?;
    let response = get(&site, HOST, "/", "").await?;
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    assert_eq!(response.header("access-control-allow-credentials"), Some("true"));
    Ok(())
}

#[tokio::test]
async fn oldest_ingress_has_precedence_for_one_host_and_path() -> TestResult {
    let aged = |name: &str, time: &str| {
        plain(name, "/", "Prefix")
            .replace(&format!("name: {name}\n"), &format!("name: {name}\n  creationTimestamp: \"{time}\"\n"))
    };
    let ingresses = aged("a", "2026-02-02T00:00:00Z").replace("name: web,", "name: none,")
        + &aged("b", "2026-01-01T00:00:00Z");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/"]).await?, [200]);
    Ok(())
}

#[tokio::test]
async fn unknown_hosts_and_paths_receive_404_and_a_service_without_endpoints_503() -> TestResult {
    let ingresses =
        plain("a", "/a", "Prefix") + &plain("b", "/b", "Prefix").replace("name: web,", "name: none,");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(get(&site, "other.test", "/a", "").await?.status, 404);
    assert_eq!(statuses(&site, ["/x", "/b"]).await?, [404, 503]);
    Ok(())
}

#[tokio::test]
async fn secret_in_another_namespace_is_refused_by_default() -> TestResult {
    let secret = |namespace: &str| {
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: users, namespace: {namespace}}}\n\
             stringData: {{auth: \"alice:{{SHA}}VBPuJHI7uixaa6LQGWx4s+5GKNE=\"}}\n"
        )
    };
    let with = |name| [("auth-type", "basic"), ("auth-secret", name)];
    let ingresses = ingress("a", &with("default/users"), HOST, "/here")
        + &ingress("b", &with("other/users"), HOST, "/other")
        + &secret("default")
        + &secret("other");
    let (_backend, site, _gateway) = serve(&ingresses).await?;
    assert_eq!(statuses(&site, ["/here", "/other"]).await?, [401, 503]);
    Ok(())
}

#[tokio::test]
async fn request_that_fails_is_tried_at_three_different_endpoints() -> TestResult {
    let refused = [free_address()?, free_address()?];
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    site.save("slices.yaml", &slices(refused.into_iter().chain([backend.addr()])))?;
    let end = Instant::now() + LIMIT;
    loop {
        let page = client::get(site.admin, "localhost", "/upstreams").await?.text();
        if refused.iter().all(|address| page.contains(&address.to_string())) {
            break;
        }
        anyhow::ensure!(Instant::now() < end, "{page}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(statuses(&site, ["/1", "/2", "/3"]).await?, [200, 200, 200]);
    Ok(())
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    let long = "x".repeat(40_000);
    assert_eq!(get(&site, HOST, "/", &format!("X-Long: {long}\r\n")).await?.status, 431);
    assert_eq!(statuses(&site, [&format!("/{long}")]).await?, [414]);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn connections_of_clients_and_endpoints_stay_open() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    let mut client = Client::connect(site.http).await?;
    for _ in 0..5 {
        assert_eq!(client.request(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await?.status, 200);
    }
    assert_eq!((backend.requests(), backend.last_request().expect("a request").connection), (5, 1));
    Ok(())
}

#[tokio::test]
async fn client_that_leaves_before_the_response_is_counted_with_499() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("a", "/", "Prefix")).await?;
    backend.set(Behaviour::silent());
    let mut client = Client::connect(site.http).await?;
    client.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    drop(client);
    let end = Instant::now() + LIMIT;
    loop {
        let page = client::get(site.admin, "localhost", "/metrics").await?.text();
        let is_counted = |line: &str| {
            line.starts_with("nginx_ingress_controller_requests{") && line.contains("status=\"499\"")
        };
        if page.lines().any(is_counted) {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < end, "{page}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn canary_is_chosen_by_header_then_by_cookie_then_by_weight() -> TestResult {
    let (backend, site, _gateway) = serve(&plain("main", "/", "Prefix")).await?;
    let next = Backend::start(Behaviour::echo()).await?;
    let annotations = [
        ("canary", "true"),
        ("canary-by-header", "X-Next"),
        ("canary-by-cookie", "next"),
        ("canary-weight", "100"),
    ];
    let canary = ingress("next", &annotations, HOST, "/").replace("ImplementationSpecific", "Prefix");
    let service = format!("---{SERVICE}{}", slices([next.addr()])).replace("web", "next");
    site.save("next.yaml", &(canary.replace("{name: web,", "{name: next,") + &service))?;
    let end = Instant::now() + LIMIT;
    while next.requests() == 0 {
        get(&site, HOST, "/", "").await?;
        anyhow::ensure!(Instant::now() < end, "no request reaches the canary");
    }
    for (lines, reaches_canary) in [
        ("X-Next: never\r\nCookie: next=always\r\n", false),
        ("X-Next: other\r\nCookie: next=never\r\n", false),
        ("X-Next: always\r\nCookie: next=never\r\n", true),
        ("Cookie: next=never\r\n", false),
        ("", true),
    ] {
        let before = (backend.requests(), next.requests());
        assert_eq!(get(&site, HOST, "/", lines).await?.status, 200);
        let after = (backend.requests() - before.0, next.requests() - before.1);
        assert_eq!(after, if reaches_canary { (0, 1) } else { (1, 0) }, "{lines}");
    }
    Ok(())
}
