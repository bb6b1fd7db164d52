//! Authorization as `auth-url` of ingress-nginx.

use sluicegate_model::feature::authentication::ext_auth::CacheTime;
use sluicegate_model::feature::headers::TemplateHeader;
use sluicegate_model::feature::{AuthRequest, AuthRequestCache, StatusTime};
use sluicegate_model::value::{AnnotatedHeader, Number, Template};

use super::*;

fn template(text: &str) -> Template {
    Template::new(text).unwrap()
}

/// A service as ingress-nginx asks it.
fn asked(server: &Backend, request: AuthRequest) -> ExtAuth {
    ExtAuth { auth_request: Some(request), response_headers: written(json!(["x-user"])), ..service(server) }
}

fn times(entries: &[(i64, u64)]) -> Entries<StatusTime, 64, 0> {
    let entry = |(status, millis): &(i64, u64)| StatusTime {
        status: Number::of(*status),
        time: CacheTime::of_millis(*millis),
    };
    Entries::new(entries.iter().map(entry).collect()).unwrap()
}

#[tokio::test]
async fn auth_request_has_the_headers_of_ingress_nginx_and_a_target_with_variables() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let headers = [("X-Tenant", "$arg_tenant"), ("X-Forwarded-Proto", ""), ("Cookie", "only=$cookie_a")];
    let headers = headers
        .map(|(name, value)| TemplateHeader { name: AnnotatedHeader::of(name), value: template(value) });
    let request = AuthRequest {
        target: Some(template("/verify?path=$escaped_request_uri&by=$http_x_by")),
        request_redirect: Some(template("https://start.test/")),
        headers: Entries::new(headers.into()).unwrap(),
        tells_uri: true,
        ..AuthRequest::default()
    };
    let external = ExtAuth { method: ExtAuthMethod::Put, ..asked(&server, request) };
    let (_backend, gateway) = guarded(by(external)).await?;
    let lines = [
        "Cookie: a=1; b=2",
        "X-By: a b\"c",
        "X-Tenant: forged",
        "X-Original-URL: forged",
        "Content-Length: 4",
    ];
    let request = format!(
        "POST /a%20b?tenant=t&x=1 HTTP/1.1\r\nHost: Shop.test:80\r\n{}\r\n\r\nbody",
        lines.join("\r\n")
    );
    assert_eq!(gateway.connect().await?.request(request).await?.status, 200);
    let seen = server.last_request().unwrap();
    assert_eq!(seen.target, "/verify?path=%2Fa%2520b%3Ftenant%3Dt%26x%3D1&by=a%20b\"c");
    assert_eq!(seen.method, "PUT");
    for (name, value) in [
        ("host", Some("127.0.0.1")),
        ("x-original-url", Some("http://Shop.test:80/a%20b?tenant=t&x=1")),
        ("x-original-method", Some("POST")),
        ("x-original-uri", Some("/a%20b?tenant=t&x=1")),
        ("x-sent-from", Some("nginx-ingress-controller")),
        ("x-auth-request-redirect", Some("https://start.test/")),
        ("x-real-ip", Some("127.0.0.1")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-proto", None),
        ("x-tenant", Some("t")),
        ("cookie", Some("only=1")),
        ("content-length", Some("0")),
    ] {
        assert_eq!(seen.header(name), value, "{name}: {seen:?}");
    }
    Ok(())
}

#[tokio::test]
async fn sign_in_with_variables_replaces_every_401_and_no_other_status() -> TestResult {
    let server = Backend::start(directory()).await?;
    let page = "https://login.test/start?rd=$pass_access_scheme://$http_host$escaped_request_uri";
    let request = AuthRequest { sign_in: Some(template(page)), ..AuthRequest::default() };
    let users = FromSecret::Value(vec![("alice".into(), "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=".into())]);
    let external = ext_auth(asked(&server, request));
    for (authentication, denial) in [
        (external.clone(), Denial::SignIn),
        // nginx redirects a 401 of Basic authentication too.
        (all(basic_of(users), external), Denial::SignIn),
    ] {
        let (backend, gateway) = guarded(asking(authentication)).await?;
        for transport in [Transport::Http, Transport::Http2] {
            let redirected = ask_by(&gateway, "GET", "/a?b=c&d", &[], transport).await?;
            assert_eq!((redirected.status, redirected.header("www-authenticate")), (302, None));
            let scheme = transport.scheme();
            let expected = format!("https://login.test/start?rd={scheme}://localhost%2Fa%3Fb%3Dc%26d");
            assert_eq!(redirected.header("location"), Some(&*expected), "{transport:?}");
        }
        assert_eq!(backend.requests(), 0);
        assert_eq!(denied(&gateway, denial), 2);
    }
    let request = AuthRequest { sign_in: Some(template(page)), ..AuthRequest::default() };
    let (_backend, gateway) = guarded(by(asked(&server, request))).await?;
    let forbidden = ask(&gateway, "/", &["Authorization: eve"]).await?;
    assert_eq!((forbidden.status, forbidden.header("location")), (403, None));
    assert_eq!(ask(&gateway, "/", &["Authorization: alice"]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn status_of_the_service_decides_as_in_nginx() -> TestResult {
    let server = Backend::start(Behaviour::ok()).await?;
    let (backend, gateway) = guarded(by(asked(&server, AuthRequest::default()))).await?;
    for (status, expected) in [
        (200, 200),
        (204, 200),
        (299, 200),
        (401, 401),
        (403, 403),
        (302, 500),
        (404, 500),
        (500, 500),
        (429, 500),
    ] {
        server.set(says(status, &["WWW-Authenticate: Bearer realm=\"x\"", "Location: https://evil.test/"]));
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!(response.status, expected, "{status}");
        let challenge = (expected == 401).then_some("Bearer realm=\"x\"");
        assert_eq!(
            (response.header("www-authenticate"), response.header("location")),
            (challenge, None),
            "{status}"
        );
    }
    assert_eq!(backend.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn cookies_of_the_service_go_to_the_client_by_the_status_of_the_response() -> TestResult {
    let server = Backend::start(says(200, &["Set-Cookie: s=1", "Set-Cookie: t=2"])).await?;
    for (always, status, count) in
        [(false, 200, 2), (false, 302, 2), (false, 404, 0), (false, 500, 0), (true, 404, 2)]
    {
        let request = AuthRequest { always_sets_cookies: always, ..AuthRequest::default() };
        let (backend, gateway) = guarded(by(asked(&server, request))).await?;
        backend.set(says(status, &["Set-Cookie: own=3"]));
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!(response.status, status);
        assert_eq!(response.headers_named("set-cookie").len(), count + 1, "{always} {status}: {response:?}");
    }
    server.set(says(403, &["Set-Cookie: s=1"]));
    for (always, count) in [(false, 0), (true, 1)] {
        let request = AuthRequest { always_sets_cookies: always, ..AuthRequest::default() };
        let (_backend, gateway) = guarded(by(asked(&server, request))).await?;
        let response = ask(&gateway, "/", &[]).await?;
        assert_eq!((response.status, response.headers_named("set-cookie").len()), (403, count));
    }
    server.set(says(401, &["Set-Cookie: s=1"]));
    let request = AuthRequest { sign_in: Some(template("https://login.test/")), ..AuthRequest::default() };
    let (_backend, gateway) = guarded(by(asked(&server, request))).await?;
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!((response.status, response.headers_named("set-cookie").len()), (302, 1));
    Ok(())
}

#[tokio::test]
async fn endpoints_receive_further_response_headers_and_clients_cannot_forge_them() -> TestResult {
    let server = Backend::start(says(200, &["X-Forwarded-User: alice", "Authorization: Bearer t"])).await?;
    let names = ["X-Forwarded-User", "x-forwarded-email", "Authorization"].map(AnnotatedHeader::of);
    let response_headers = Entries::new(names.into()).unwrap();
    let request = AuthRequest { response_headers, ..AuthRequest::default() };
    let (backend, gateway) = guarded(by(asked(&server, request))).await?;
    let forged = [
        "X-Forwarded-User: root",
        "X_Forwarded_Email: root",
        "X-Forwarded-Email: root",
        "Authorization: own",
    ];
    assert_eq!(ask(&gateway, "/", &forged).await?.status, 200);
    let seen = backend.last_request().unwrap();
    for (name, values) in [
        ("x-forwarded-user", vec!["alice"]),
        ("x-forwarded-email", vec![]),
        ("x_forwarded_email", vec![]),
        ("authorization", vec!["Bearer t"]),
    ] {
        let found = seen.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        assert_eq!(found.map(|(_, value)| &**value).collect::<Vec<_>>(), values, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn answers_are_cached_by_the_key_and_the_status() -> TestResult {
    let server = Backend::start(directory()).await?;
    let key = template("$http_authorization");
    let cache = AuthRequestCache { key, times: times(&[(200, 600_000), (401, 600_000)]) };
    let request = AuthRequest { cache: Some(cache), ..AuthRequest::default() };
    let (backend, gateway) = of_one_worker(asked(&server, request)).await?;
    for (user, status, asked) in [
        ("alice", 200, 1),
        ("alice", 200, 1),
        ("bob", 200, 2),
        ("nobody", 401, 3),
        ("nobody", 401, 3),
        // 403 is not in the list.
        ("eve", 403, 4),
        ("eve", 403, 5),
    ] {
        let response = ask(&gateway, "/", &[&format!("Authorization: {user}"), "X-User: root"]).await?;
        assert_eq!((response.status, server.requests()), (status, asked), "{user}");
        if status == 200 {
            assert_eq!(backend.last_request().unwrap().header("x-user"), Some(user));
        }
    }
    assert_eq!(checks(&gateway, Check::Remembered), 2);
    Ok(())
}

#[tokio::test]
async fn request_whose_authorization_target_is_too_long_is_rejected() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let request =
        AuthRequest { target: Some(template(&"/$request_uri".repeat(30))), ..AuthRequest::default() };
    let (backend, gateway) = guarded(by(asked(&server, request))).await?;
    let response = ask(&gateway, &format!("/{}", "x".repeat(3000)), &[]).await?;
    assert_eq!((response.status, backend.requests(), server.requests()), (431, 0, 0));
    Ok(())
}
