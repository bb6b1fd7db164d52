//! Addresses, origins, rules, and attempts to bypass the rules of paths.

use sluicegate_model::feature::Authorization;
use sluicegate_model::{PathPattern, Rule};
use sluicegate_testkit::gateway::key;

use super::*;

fn access(allow: &[&str], deny: &[&str]) -> Security {
    let deny = written(json!({"deny": deny}));
    let ip_access = if allow.is_empty() { deny } else { IpAccess { allow: written(json!(allow)), ..deny } };
    Security { ip_access, ..open() }
}

/// Addresses, passwords or both.
fn satisfied(satisfies_any: bool, ip_access: Value) -> Security {
    let users = FromSecret::Value(vec![("alice".into(), "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=".into())]);
    Security { satisfies_any, ip_access: written(ip_access), ..asking(basic_of(users)) }
}

#[tokio::test]
async fn policy_that_satisfies_any_admits_an_allowed_client_ip_or_a_password() -> TestResult {
    let right = basic("alice", "myPassword");
    let wrong = basic("alice", "wrong");
    let here = json!({"allow": ["127.0.0.0/8"]});
    let elsewhere = json!({"allow": ["192.0.2.0/24"]});
    let denied_here = json!({"deny": ["127.0.0.0/8"]});
    let denied_elsewhere = json!({"deny": ["192.0.2.0/24"]});
    for (satisfies_any, access, statuses) in [
        (true, &here, [200, 200, 200]),
        (true, &elsewhere, [401, 401, 200]),
        (true, &denied_here, [401, 401, 200]),
        // Without a list of allowed client IPs, no client IP is enough.
        (true, &denied_elsewhere, [401, 401, 200]),
        (false, &here, [401, 401, 200]),
        (false, &elsewhere, [403, 403, 403]),
    ] {
        let (backend, gateway) = guarded(satisfied(satisfies_any, access.clone())).await?;
        for (lines, status) in [vec![], vec![&*wrong], vec![&*right]].iter().zip(statuses) {
            assert_eq!(ask(&gateway, "/", lines).await?.status, status, "{access} {lines:?}");
        }
        let lines = [&*right, "X-Consumer-Username: root"];
        if ask(&gateway, "/", &lines).await?.status == 200 {
            let seen = backend.last_request().unwrap();
            assert_eq!((seen.header("authorization"), seen.header("x-consumer-username")), (None, None));
        }
    }
    let alone = Security { authentication: None, ..satisfied(true, elsewhere) };
    let (_backend, gateway) = guarded(alone).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn access_rules_apply_to_the_client_ip_despite_forged_headers() -> TestResult {
    let (_backend, gateway) = guarded(access(&["127.0.0.0/8"], &["127.0.0.2/32"])).await?;
    let forged = ["X-Forwarded-For: 127.0.0.2", "X-Real-IP: 127.0.0.2", "Forwarded: for=127.0.0.2"];
    assert_eq!(ask(&gateway, "/", &forged).await?.status, 200);
    gateway.configure(|config| set_security(config, Some(access(&["127.0.0.0/8"], &["127.0.0.1/32"])))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403, "denied within what is allowed");
    gateway.configure(|config| set_security(config, Some(access(&[], &["127.0.0.1/32"])))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    gateway.configure(|config| set_security(config, Some(access(&["10.0.0.0/8"], &[])))).await;
    let forged = ["X-Forwarded-For: 10.0.0.1", "X-Real-IP: 10.0.0.1"];
    assert_eq!(ask(&gateway, "/", &forged).await?.status, 403);
    assert_eq!(denied(&gateway, Denial::Address), 3);
    // Behind a trusted proxy the client IP is the address that the proxy saw, whatever addresses the client sent.
    gateway.configure(|config| config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]).await;
    assert_eq!(ask(&gateway, "/", &["X-Forwarded-For: 10.0.0.1"]).await?.status, 200);
    assert_eq!(ask(&gateway, "/", &["X-Forwarded-For: 10.0.0.1, 192.0.2.1"]).await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn request_without_client_address_is_denied() -> TestResult {
    let (_backend, gateway) = with(|config| {
        config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        set_security(config, Some(access(&[], &["192.0.2.1/32"])));
    })
    .await?;
    let status = async |gateway: &Gateway, from: &str| {
        Ok::<_, anyhow::Error>(ask(gateway, "/", &[&format!("X-Forwarded-For: {from}")]).await?.status)
    };
    for (from, expected) in [
        ("192.0.2.2", 200),
        // The spelling of some load balancers.
        ("192.0.2.2:4711", 200),
        ("[2001:db8::1]:443", 200),
        ("[2001:db8::1]", 200),
        ("192.0.2.2, ,", 200),
        ("192.0.2.1", 403),
        ("192.0.2.1:80", 403),
        ("[::ffff:192.0.2.1]", 403),
        ("192.0.2.1,", 403),
        ("\"192.0.2.1\"", 403),
        ("unknown", 403),
        ("192.0.2.2, unknown", 403),
        ("unknown, 192.0.2.2", 200),
    ] {
        assert_eq!(status(&gateway, from).await?, expected, "{from}");
    }
    // The gateway denies the request under a rule that allows some addresses, including the proxy's, and under a rule
    // that denies others.
    for (action, address) in [("Allow", "127.0.0.1/32"), ("Deny", "192.0.2.1/32")] {
        let authorization = rules(json!([{"action": action, "addresses": [address]}]));
        let security = Security { authorization, ..open() };
        gateway.configure(|config| set_security(config, Some(security))).await;
        assert_eq!(status(&gateway, "unknown").await?, 403, "{address}");
    }
    gateway.configure(|config| set_security(config, None)).await;
    assert_eq!(status(&gateway, "unknown").await?, 200);
    Ok(())
}

#[tokio::test]
async fn default_rule_does_not_bypass_the_security_policy_of_a_route() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let config = builder.config_mut();
    let mut admin = Rule::new(id("Ingress", "admin"), PathPattern::Prefix("/admin".into()), key("backend"));
    admin.security = Some(Arc::new(asking(shared_jwt())));
    let host = sluicegate_model::HostPattern::Exact("localhost".into());
    config.hosts = vec![Arc::new(VirtualHost::new(host, vec![admin]))];
    config.default_rule =
        Some(Rule::new(id("Ingress", "default"), PathPattern::Prefix("/".into()), key("backend")));
    config.settings.allow_encoded_dot_segments = true;
    let gateway = builder.start().await?;
    for (way, status) in [("/admin", 401), ("/%2fadmin", 400), ("/x%2f..%2fadmin", 400), ("/x%2fy", 200)] {
        assert_eq!(ask(&gateway, way, &[]).await?.status, status, "{way}");
    }
    // The other way round: the guard applies to the default route.
    gateway
        .configure(|config| {
            let guard = Some(Arc::new(asking(shared_jwt())));
            routes(config, |route| route.security = None);
            if let Some(default) = &mut config.default_rule {
                default.security = guard;
            }
        })
        .await;
    for (way, status) in [("/admin/x", 200), ("/x", 401), ("/admin/..%2fx", 400), ("/admin%2fx", 401)] {
        assert_eq!(ask(&gateway, way, &[]).await?.status, status, "{way}");
    }
    Ok(())
}

fn cors(origin: &str, credentials: bool) -> Security {
    let cors = json!({
        "allowOrigins": [origin], "allowMethods": ["GET", "PUT"], "allowHeaders": ["content-type"],
        "exposeHeaders": ["x-total"], "allowCredentials": credentials, "maxAge": "10m",
    });
    Security { cors: Some(written(cors)), ..asking(shared_jwt()) }
}

const PREFLIGHT: &str = "Access-Control-Request-Method: PUT";

#[tokio::test]
async fn preflight_request_of_an_allowed_origin_needs_no_token() -> TestResult {
    let (backend, gateway) = guarded(cors("https://app.example.com", true)).await?;
    for transport in [Transport::Http, Transport::Http2] {
        let lines = ["Origin: https://app.example.com", PREFLIGHT];
        let response = ask_by(&gateway, "OPTIONS", "/", &lines, transport).await?;
        assert_eq!((response.status, response.body.len()), (204, 0));
        for (name, value) in [
            ("access-control-allow-origin", "https://app.example.com"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "content-type"),
            ("access-control-max-age", "600"),
            ("vary", "Origin"),
        ] {
            assert_eq!(response.header(name), Some(value), "{name}");
        }
    }
    for origin in
        ["null", "https://evil.example", "https://app.example.com.evil.example", "http://app.example.com"]
    {
        let line = format!("Origin: {origin}");
        let response = ask_by(&gateway, "OPTIONS", "/", &[&line, PREFLIGHT], Transport::Http).await?;
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.header("access-control-allow-origin"), None, "{origin}");
    }
    let two = ["Origin: https://app.example.com", "Origin: https://evil.example", PREFLIGHT];
    assert_eq!(ask_by(&gateway, "OPTIONS", "/", &two, Transport::Http).await?.status, 403);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn preflight_response_names_the_requested_method_for_a_wildcard() -> TestResult {
    let mut security = cors("https://app.example.com", true);
    security.cors.as_mut().unwrap().allow_methods = written(json!(["*"]));
    let (_backend, gateway) = guarded(security).await?;
    let lines = ["Origin: https://app.example.com", "Access-Control-Request-Method: PATCH"];
    let response = ask_by(&gateway, "OPTIONS", "/", &lines, Transport::Http).await?;
    // In a request with credentials, browsers take * for a literal name.
    assert_eq!(response.headers_named("access-control-allow-methods"), ["PATCH"]);
    assert_eq!(response.headers_named("vary"), ["Origin", "Access-Control-Request-Method"]);
    Ok(())
}

#[tokio::test]
async fn cors_headers_of_the_policy_replace_cors_headers_of_the_endpoint() -> TestResult {
    let (backend, gateway) = guarded(cors("https://app.example.com", false)).await?;
    backend.set(Behaviour::raw(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nContent-Length: 0\r\n\r\n",
    ));
    let token = format!("Authorization: Bearer {}", good_token());
    for transport in [Transport::Http, Transport::Http2] {
        let good =
            ask_by(&gateway, "GET", "/", &[&token, "Origin: https://app.example.com"], transport).await?;
        assert_eq!(good.headers_named("access-control-allow-origin"), ["https://app.example.com"]);
        assert_eq!(good.header("access-control-allow-credentials"), None);
        assert_eq!(good.header("access-control-expose-headers"), Some("x-total"));
        for origin in ["null", "https://evil.example"] {
            let line = format!("Origin: {origin}");
            let bad = ask_by(&gateway, "GET", "/", &[&token, &line], transport).await?;
            assert_eq!((bad.status, bad.header("access-control-allow-origin")), (200, None), "{origin}");
            assert_eq!(bad.header("vary"), Some("Origin"));
        }
        // A page must be able to read the reason of a rejection.
        let refused = ask_by(&gateway, "GET", "/", &["Origin: https://app.example.com"], transport).await?;
        assert_eq!(refused.status, 401);
        assert_eq!(refused.header("access-control-allow-origin"), Some("https://app.example.com"));
    }
    gateway.configure(|config| set_security(config, Some(cors("*", false)))).await;
    let any = ask(&gateway, "/", &[&token, "Origin: https://evil.example"]).await?;
    assert_eq!((any.header("access-control-allow-origin"), any.header("vary")), (Some("*"), None));
    gateway.configure(|config| set_security(config, Some(cors("*", true)))).await;
    let any = ask(&gateway, "/", &[&token, "Origin: https://evil.example"]).await?;
    // Only an HTTPRoute can ask for this. Browsers accept no * with credentials.
    assert_eq!(any.header("access-control-allow-origin"), Some("https://evil.example"));
    assert_eq!(any.header("vary"), Some("Origin"));
    Ok(())
}

fn rules(rules: Value) -> Option<Authorization> {
    Some(written(json!({"rules": rules})))
}

fn below(path: &str) -> Value {
    json!([{"type": "Prefix", "value": path}])
}

/// Sends a request to `/` with every header that names another path or method. Returns these headers as the endpoint
/// receives them.
async fn overrides(gateway: &Gateway, backend: &Backend) -> anyhow::Result<Vec<String>> {
    let lines = [
        "X-Original-URL: /admin",
        "x-rewrite-url: /admin",
        "X-HTTP-Method-Override: DELETE",
        "X-Http-Method: DELETE",
        "X-Method-Override: DELETE",
        "X_Http_Method_Override: DELETE",
        "X-Original: /kept",
    ];
    let response = ask(gateway, "/", &lines).await?;
    anyhow::ensure!(response.status == 200, "{}", response.status);
    let names = backend.last_request().expect("a request").headers.into_iter().map(|(name, _)| name);
    let named = names.map(|name| name.to_ascii_lowercase().replace('_', "-"));
    Ok(named
        .filter(|name| name.contains("original") || name.contains("rewrite") || name.contains("method"))
        .collect())
}

#[tokio::test]
async fn override_headers_are_dropped_if_authorization_rules_match_path_or_method() -> TestResult {
    let (backend, gateway) = with(|config| config.settings.underscores_in_headers = true).await?;
    let forwarded = overrides(&gateway, &backend).await?;
    assert_eq!(forwarded.len(), 7, "without a policy: {forwarded:?}");
    let policy = |rule: Value, forward_overrides: bool| {
        let authorization = rules(json!([rule]));
        Security { authorization, forward_overrides, ..open() }
    };
    let method = || json!({"action": "Deny", "methods": ["DELETE"]});
    let address = json!({"action": "Deny", "addresses": ["192.0.2.1/32"]});
    for (security, count) in [
        (policy(method(), false), 1),
        (policy(json!({"action": "Deny", "paths": below("/admin")}), false), 1),
        (policy(method(), true), 7),
        (policy(address, false), 7),
        (open(), 7),
    ] {
        let security = Security { authentication: None, ..security };
        gateway.configure(|config| set_security(config, Some(security.clone()))).await;
        let forwarded = overrides(&gateway, &backend).await?;
        assert_eq!(forwarded.len(), count, "{security:?}: {forwarded:?}");
    }
    let dropped = gateway.proxy().registry().counters().workers().sum(|worker| &worker.headers_dropped);
    assert_eq!(dropped, 12);
    Ok(())
}

#[tokio::test]
async fn denied_method_is_denied_in_any_letter_case() -> TestResult {
    let authorization = rules(json!([{"action": "Deny", "methods": ["PURGE"]}]));
    let (backend, gateway) = guarded(Security { authorization, ..open() }).await?;
    for (method, status) in [("PURGE", 403), ("purge", 403), ("Purge", 403), ("delete", 400)] {
        let request = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(gateway.connect().await?.request(request).await?.status, status, "{method}");
    }
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn denied_path_is_denied_in_every_encoding() -> TestResult {
    let authorization = rules(json!([{"action": "Deny", "paths": below("/admin")}]));
    let (backend, gateway) = guarded(Security { authorization, ..open() }).await?;
    gateway.configure(|config| config.settings.allow_encoded_dot_segments = true).await;
    for way in [
        "/admin",
        "//admin",
        "/./admin",
        "/x/../admin",
        "/%61dmin",
        "/%2e/admin",
        "/x/%2e%2e/admin",
        "/%2fadmin",
        "/Admin/x",
        "/admin;a=b",
        "/admin.",
        "/admin%09",
        "/admin%3fx",
        "/%2561dmin",
        "http://localhost/admin",
    ] {
        let response = ask(&gateway, way, &[]).await?;
        assert_eq!(response.status, 403, "{way}");
    }
    for way in [
        "/x/..%2fadmin",
        "/x/..;/admin",
        "/x%5c..%5cadmin",
        "/admin%2F%252e%252e/y",
        "/x%2F..%2Fadmin%2F%252e%252e%2Fy",
        "/ADMIN/%252e%252e/x",
        "/admin;a/%252e%252e/y",
        "/x%2525252f..%2525252fadmin",
    ] {
        let response = ask(&gateway, way, &[]).await?;
        assert_eq!(response.status, 400, "{way}");
    }
    assert_eq!(backend.requests(), 0);
    assert_eq!(ask(&gateway, "/administrator", &[]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn route_without_a_policy_does_not_bypass_the_policy_of_another_route() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let config = builder.config_mut();
    let mut admin = Rule::new(id("Ingress", "admin"), PathPattern::Prefix("/admin".into()), key("backend"));
    admin.security = Some(Arc::new(asking(shared_jwt())));
    Arc::make_mut(&mut config.hosts[0]).rules.push(admin);
    config.settings.allow_encoded_dot_segments = true;
    let gateway = builder.start().await?;
    for (way, status) in [
        ("/admin", 401),
        ("//admin", 401),
        ("/x/..%2fadmin", 400),
        ("/x%2f..%2fadmin/y", 400),
        ("/x/..;/admin", 400),
        ("/;/admin", 400),
        ("/%2fadmin", 400),
        ("/x%5c..%5cadmin", 400),
        ("/%2561dmin", 400),
        ("/admin%2F%252e%252e/y", 400),
        ("/x%2F..%2Fadmin%2F%252e%252e%2Fy", 400),
    ] {
        assert_eq!(ask(&gateway, way, &[]).await?.status, status, "{way}");
    }
    assert_eq!(backend.requests(), 0);
    assert_eq!(denied(&gateway, Denial::AmbiguousPath), 9);
    for way in ["/", "/x%2fy", "/files/a;v=1", "/x/admin", "/100%25"] {
        assert_eq!(ask(&gateway, way, &[]).await?.status, 200, "{way}");
    }
    let line = format!("Authorization: Bearer {}", good_token());
    assert_eq!(ask(&gateway, "/admin/a%2fb", &[&line]).await?.status, 200, "within the guarded route");
    Ok(())
}

#[tokio::test]
async fn trailing_slash_does_not_bypass_the_policy_of_an_exact_path() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let route = |name: &str, path: PathPattern, is_guarded: bool| {
        let mut route = Rule::new(id("Ingress", name), path, key("backend"));
        route.security = is_guarded.then(|| Arc::new(asking(shared_jwt())));
        route
    };
    let mut open_to_pages = route("fonts", PathPattern::Exact("/fonts".into()), false);
    let cors_alone = Security { authentication: None, ..cors("*", false) };
    open_to_pages.security = Some(Arc::new(cors_alone));
    let routes = &mut Arc::make_mut(&mut builder.config_mut().hosts[0]).rules;
    routes.extend([
        route("admin", PathPattern::Exact("/admin".into()), true),
        route("both", PathPattern::Exact("/both".into()), true),
        route("both-open", PathPattern::Exact("/both/".into()), false),
        route("below", PathPattern::Exact("/below".into()), true),
        route("below-open", PathPattern::Prefix("/below".into()), false),
        route("plain", PathPattern::Exact("/plain".into()), true),
        route("plain-open", PathPattern::Starts("/plain/".into()), false),
        route("health", PathPattern::Exact("/guarded/health".into()), false),
        route("guarded", PathPattern::Prefix("/guarded".into()), true),
        open_to_pages,
    ]);
    let gateway = builder.start().await?;
    for (path, status) in [
        ("/admin", 401),
        ("/admin/", 400),
        ("/admin//", 400),
        ("/admin/x", 200),
        ("/administrator/", 200),
        ("/", 200),
        ("/other/", 200),
        ("/both", 401),
        ("/both/", 200),
        ("/below", 401),
        ("/below/", 200),
        ("/plain/", 200),
        ("/guarded/", 401),
        ("/guarded/health", 200),
        ("/guarded/health/", 401),
        ("/fonts/", 200),
    ] {
        assert_eq!(ask(&gateway, path, &[]).await?.status, status, "{path}");
    }
    assert_eq!(denied(&gateway, Denial::AmbiguousPath), 2);
    Ok(())
}

#[tokio::test]
async fn security_policy_of_a_rule_with_a_method_applies_to_every_reading_of_its_path() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let mut guarded =
        Rule::new(id("HTTPRoute", "admin"), PathPattern::Prefix("/admin".into()), key("backend"));
    guarded.matches[0].method = Some("POST".into());
    guarded.security = Some(Arc::new(asking(shared_jwt())));
    Arc::make_mut(&mut builder.config_mut().hosts[0]).rules.push(guarded);
    let gateway = builder.start().await?;
    for (method, path, status) in [
        ("POST", "/admin/x", 401),
        ("GET", "/admin/x", 200),
        ("POST", "/a%2F..%2fadmin/x", 400),
        ("POST", "/%61dmin/x", 401),
        ("POST", "/x;/admin", 200),
        ("POST", "/admin;v=1/x", 400),
        ("GET", "/admin;v=1/x", 200),
    ] {
        let response = ask_by(&gateway, method, path, &[], Transport::Http).await?;
        assert_eq!(response.status, status, "{method} {path}");
    }
    Ok(())
}

#[tokio::test]
async fn authorization_rules_match_consumer_groups_and_claims() -> TestResult {
    let authorization = rules(json!([
        {"action": "Allow", "groups": ["gold"], "paths": below("/gold")},
        {
            "action": "Allow", "claims": [{"name": "scope", "values": ["write"]}], "methods": ["PUT"],
            "paths": below("/"),
        },
    ]));
    let security = Security { authorization, ..asking(either(shared_jwt(), api_key("x-api-key"))) };
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(security));
        config.consumers = vec![Arc::new(consumer("alice", "alice-key"))];
    })
    .await?;
    let mut said = claims();
    said["scope"] = json!("read write");
    let writer = format!("Authorization: Bearer {}", token(&json!({"alg": "HS256"}), &said, SECRET));
    let reader = format!("Authorization: Bearer {}", good_token());
    for (method, target, line, status) in [
        ("GET", "/gold/1", "X-API-Key: alice-key", 200),
        ("GET", "/other", "X-API-Key: alice-key", 403),
        ("PUT", "/other", &writer, 200),
        ("GET", "/other", &writer, 403),
        ("PUT", "/other", &reader, 403),
        ("GET", "/gold/1", &reader, 403),
    ] {
        let response =
            ask_by(&gateway, method, target, &[line, "Content-Length: 0"], Transport::Http).await?;
        assert_eq!(response.status, status, "{method} {target} {line}");
    }
    assert_eq!(denied(&gateway, Denial::Forbidden), 4);
    Ok(())
}

#[tokio::test]
async fn all_uses_of_a_policy_are_counted_in_the_same_metrics() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let security = asking(api_key("x-api-key"));
    let closed = Arc::new(Security::closed(security.id.clone(), "no such port".into()));
    let open = Arc::new(security);
    let config = builder.config_mut();
    Arc::make_mut(&mut config.hosts[0]).rules = [("/one", &open), ("/closed", &closed), ("/two", &open)]
        .map(|(path, form)| {
            let route = Rule::new(id("Ingress", "shop"), PathPattern::Prefix(path.into()), key("backend"));
            Rule { security: Some(form.clone()), ..route }
        })
        .into();
    keys::set_consumers(config, vec![consumer("alice", "alice-key")]);
    let gateway = builder.start().await?;
    for round in 1..3 {
        for (path, status) in [("/one", 200), ("/closed", 503), ("/two", 200)] {
            assert_eq!(ask(&gateway, path, &["X-API-Key: alice-key"]).await?.status, status, "{path}");
        }
        let policies = gateway.proxy().registry().policies();
        let [policy] = &policies[..] else { panic!("{policies:?}") };
        assert!(policy.refuses);
        assert_eq!(policy.stats.sum(|shard| &shard.admitted), 2 * round);
        gateway.configure(|config| config.settings.underscores_in_headers = true).await;
    }
    Ok(())
}

#[tokio::test]
async fn tokens_need_all_scopes_of_one_entry() -> TestResult {
    let authentication = Authentication {
        required_scopes: written(json!(["read list", "admin"])),
        ..either(shared_jwt(), api_key("x-api-key"))
    };
    let (_backend, gateway) = with(|config| {
        set_security(config, Some(asking(authentication)));
        config.consumers = vec![Arc::new(consumer("alice", "alice-key"))];
    })
    .await?;
    let with_scopes = |claim: &str, scopes: Value| {
        let mut said = claims();
        said[claim] = scopes;
        format!("Authorization: Bearer {}", token(&json!({"alg": "HS256"}), &said, SECRET))
    };
    for (line, status) in [
        (with_scopes("scope", json!("list other read")), 200),
        (with_scopes("scope", json!("admin")), 200),
        (with_scopes("scp", json!(["read", "list"])), 200),
        (with_scopes("scope", json!("read")), 403),
        (with_scopes("scope", json!("readlist read list2")), 403),
        (with_scopes("scopes", json!("admin")), 403),
        ("X-API-Key: alice-key".to_owned(), 200),
    ] {
        let response = ask_by(&gateway, "GET", "/", &[&line], Transport::Http).await?;
        assert_eq!(response.status, status, "{line}");
        let challenge = (status == 403).then_some("Bearer error=\"insufficient_scope\", scope=\"read list\"");
        assert_eq!(response.header("www-authenticate"), challenge, "{line}");
    }
    assert_eq!(denied(&gateway, Denial::Scope), 3);
    Ok(())
}

#[tokio::test]
async fn optional_authentication_denies_only_invalid_credentials() -> TestResult {
    let methods = either(shared_jwt(), api_key("x-api-key"));
    let authentication = Authentication { require: Require::Optional, ..methods };
    let (backend, gateway) = with(|config| {
        set_security(config, Some(asking(authentication)));
        config.consumers = vec![Arc::new(consumer("alice", "alice-key"))];
    })
    .await?;
    let token = format!("Authorization: Bearer {}", good_token());
    for (lines, status, caller) in [
        (vec!["X-Consumer-Username: mallory"], 200, None),
        (vec!["X-API-Key: alice-key"], 200, Some("alice")),
        (vec![token.as_str()], 200, None),
        (vec!["X-API-Key: wrong"], 401, None),
        (vec!["Authorization: Bearer wrong"], 401, None),
        (vec!["Authorization: Bearer wrong", "X-API-Key: alice-key"], 200, Some("alice")),
        (vec!["X-API-Key: alice-key", "X-API-Key: wrong"], 400, None),
    ] {
        let response = ask_by(&gateway, "GET", "/", &lines, Transport::Http).await?;
        assert_eq!(response.status, status, "{lines:?}");
        if status == 200 {
            let seen = backend.last_request().expect("a request");
            assert_eq!(seen.header("x-consumer-username"), caller, "{lines:?}");
        }
    }
    Ok(())
}
