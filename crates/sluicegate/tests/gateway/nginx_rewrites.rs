//! Ingresses of ingress-nginx with rewrites, redirects and snippets.

use crate::nginx::{get, ingress, serve};

type TestResult = anyhow::Result<()>;

#[tokio::test]
async fn rewritten_paths_and_redirects_of_one_host_work_together() -> TestResult {
    let api = [("rewrite-target", "/v1/$2?from=api"), ("x-forwarded-prefix", "/api$1")];
    let old = [("permanent-redirect", "https://new.test$request_uri"), ("permanent-redirect-code", "308")];
    let root = [("app-root", "/app"), ("from-to-www-redirect", "true")];
    let ingresses = ingress("api", &api, "shop.test", "/api(/|$)(.*)")
        + &ingress("old", &old, "shop.test", "/old/[0-9]+")
        + &ingress("root", &root, "shop.test", "/");
    let (backend, site, _gateway) = serve(&ingresses).await?;

    assert_eq!(get(&site, "shop.test", "/API/users/7?a=b", "").await?.status, 200);
    let request = backend.last_request().expect("a request");
    assert_eq!(request.target, "/v1/users/7?from=api&a=b");
    assert_eq!(request.header("x-forwarded-prefix"), Some("/api/"));
    assert_eq!(get(&site, "shop.test", "/other?a", "").await?.status, 200);
    assert_eq!(backend.last_request().expect("a request").target, "/other?a");

    for (host, target, status, location) in [
        ("shop.test", "/old/7?a=b", 308, "https://new.test/old/7?a=b"),
        ("shop.test", "/", 302, "http://shop.test/app"),
        ("www.shop.test", "/a/?b", 308, "http://shop.test/a/?b"),
        ("www.shop.test", "/a/", 308, "http://shop.test/a"),
        ("www.shop.test", "/", 308, "http://shop.test"),
    ] {
        let response = get(&site, host, target, "").await?;
        assert_eq!(
            (response.status, response.header("location")),
            (status, Some(location)),
            "{host}{target}"
        );
    }
    assert_eq!(backend.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn snippets_respond_restrict_and_set_headers() -> TestResult {
    let configuration = "if ($http_user_agent ~* \"(bot|spider)\") { return 403; }\n\
                         more_set_headers \"X-Served: $namespace/$service_name\";\n\
                         proxy_set_header X-Original $request_uri;\n\
                         proxy_set_header X-User \"\";";
    let server = "location /metrics { deny all; }\nif ($arg_drop) { return 444; }";
    let ingresses = ingress("a", &[("server-snippet", server)], "shop.test", "/a")
        + &ingress("b", &[("configuration-snippet", configuration)], "shop.test", "/")
        + &ingress("c", &[("configuration-snippet", "content_by_lua_file /x;")], "closed.test", "/");
    let (backend, site, _gateway) = serve(&ingresses).await?;

    let served = get(&site, "shop.test", "/x?y", "X-User: admin\r\n").await?;
    assert_eq!((served.status, served.header("x-served")), (200, Some("default/web")));
    let request = backend.last_request().expect("a request");
    assert_eq!((request.header("x-original"), request.header("x-user")), (Some("/x?y"), None));
    assert_eq!(get(&site, "shop.test", "/", "User-Agent: Spider/1\r\n").await?.status, 403);
    // The snippet of one Ingress guards the paths of the other.
    assert_eq!(get(&site, "shop.test", "/metrics/cpu", "").await?.status, 403);
    assert!(get(&site, "shop.test", "/a?drop=1", "").await.is_err(), "the connection is closed");
    assert_eq!(get(&site, "closed.test", "/", "").await?.status, 503);
    assert_eq!(backend.requests(), 1);
    Ok(())
}
