//! Rewrites, headers, responses and hashes with variables of nginx.

use serde_json::{Value, json};
use sluicegate_model::Features;
use sluicegate_model::feature::returns::{Body, Condition, Content, Location, Return, Test};
use sluicegate_model::feature::{
    ResponseHeader, ResponseHeaderMode, TargetRewrite, TemplateHeader, TemplateHeaders,
};
use sluicegate_model::policy::Traffic;
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{AnnotatedHeader, Entries, MediaType, Number, Template};

use super::traffic::{add_upstream, traffic};
use super::*;

/// A gateway with these features on all routes, and its backend.
async fn governed(features: Value, change: impl FnOnce(&mut Features)) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let policy = policy(features, change);
    let mut builder = Gateway::builder().backends([&backend]);
    let config = builder.config_mut();
    routes(config, |route| route.traffic = Some(policy.clone()));
    config.settings.resilience.endpoint_wait = Duration::ZERO;
    Ok((backend, builder.start().await?))
}

fn policy(features: Value, change: impl FnOnce(&mut Features)) -> Arc<Traffic> {
    let mut policy = Traffic::clone(&traffic(features));
    change(&mut policy.features);
    Arc::new(policy)
}

fn template(text: &str) -> Template {
    Template::new(text).unwrap()
}

/// A rewrite of an Ingress of ingress-nginx.
fn rewrite(pattern: &str, target: &str) -> TargetRewrite {
    let pattern = Pattern::new(pattern, true).unwrap();
    TargetRewrite { pattern, target: template(target), continues: false }
}

fn header(name: &str, value: &str) -> TemplateHeader {
    TemplateHeader { name: AnnotatedHeader::of(name), value: template(value) }
}

fn entries<T, const MAX: usize>(entries: Vec<T>) -> Entries<T, MAX, 0> {
    Entries::new(entries).unwrap()
}

fn redirect(conditions: Vec<Condition>, status: u16, url: &str) -> Return {
    let location = Location { url: template(url), is_relative: false, has_port: false };
    Return {
        conditions: entries(conditions),
        status_code: Number::of(status.into()),
        content: Some(Content::Location(location)),
    }
}

fn condition(subject: &str, test: Test) -> Condition {
    Condition { subject: template(subject), test, is_negated: false }
}

fn matches(subject: &str, pattern: &str) -> Condition {
    condition(subject, Test::Matches(Pattern::new(pattern, false).unwrap()))
}

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Http2];

#[tokio::test]
async fn rewrite_replaces_the_whole_path_by_its_target_with_captures() -> TestResult {
    for (pattern, target, asked, expected) in [
        ("/something(/|$)(.*)", "/$2", "/something/new?x=1", "/new?x=1"),
        ("/something(/|$)(.*)", "/$2", "/SOMETHING", "/"),
        ("/something(/|$)(.*)", "/$2", "/a/something/b%20c%2Fd", "/b%20c%2Fd"),
        ("/x(.*)", "/$1", "/x/y", "//y"),
        ("/x/(.*)", "/y?id=$1&host=$host", "/x/1&2+3?q=4", "/y?id=1%262%2B3&host=localhost&q=4"),
        ("/x/(.*)", "/y?id=$1", "/x/1", "/y?id=1"),
        ("/x/(.*)", "/y?id=$1?", "/x/1?q=4", "/y?id=1"),
        ("/x/(.*)", "/$1?", "/x/1?q=4", "/1"),
        ("/x", "/v$http_x_version/$arg_q", "/x?q=a%20b", "/v2%203/a%20b?q=a%20b"),
        ("/x", "$uri/$1", "/x%0D%0A", "/x%0D%0A/"),
        ("/other", "/never", "/x?q", "/x?q"),
    ] {
        let (backend, gateway) = governed(json!({}), |features| {
            features.url_rewrite.targets = entries(vec![rewrite(pattern, target)]);
        })
        .await?;
        for transport in TRANSPORTS {
            assert_eq!(ask_by(&gateway, "GET", asked, &["X-Version: 2 3"], transport).await?.status, 200);
            assert_eq!(backend.last_request().unwrap().target, expected, "{pattern} {target} {asked}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn rewrites_without_break_apply_one_after_the_other() -> TestResult {
    let (backend, gateway) = governed(json!({}), |features| {
        let first = TargetRewrite { continues: true, ..rewrite("^/a(.*)", "/b$1?one=1") };
        features.url_rewrite.targets = entries(vec![first, rewrite("^/b(.*)", "/c$1"), rewrite("c", "/d")]);
    })
    .await?;
    ask(&gateway, "/a/x?q", &[]).await?;
    assert_eq!(backend.last_request().unwrap().target, "/c/x?one=1&q");
    Ok(())
}

#[tokio::test]
async fn rewrite_to_an_invalid_path_or_to_dot_segments_returns_400() -> TestResult {
    for (pattern, target, asked) in [
        ("/x(.*)", "/static/$1", "/x../admin"),
        ("/x(.*)", "/static/$1", "/x..%2Fadmin"),
        ("/x/(.)(.*)", "/%2$1$2", "/x/e./admin"),
        ("/x/(.*)", "/.$1/admin", "/x/."),
        ("/x(/.*)?", "$1", "/x"),
        ("/x", "$http_x_path", "/x"),
    ] {
        let (backend, gateway) = governed(json!({}), |features| {
            features.url_rewrite.targets = entries(vec![rewrite(pattern, target)]);
        })
        .await?;
        let status = ask(&gateway, asked, &["X-Path: /../secret"]).await?.status;
        assert_eq!((status, backend.requests()), (400, 0), "{pattern} {target} {asked}");
    }
    Ok(())
}

#[tokio::test]
async fn access_rules_decide_on_the_path_before_the_rewrite() -> TestResult {
    let (backend, gateway) = governed(json!({}), |features| {
        let targets = vec![rewrite("^/private/(.*)", "/open/$1"), rewrite("^/open/(.*)", "/private/$1")];
        features.url_rewrite.targets = entries(targets);
    })
    .await?;
    let paths = json!([{"type": "Prefix", "value": "/private"}]);
    let denying = written(json!({"rules": [{"action": "Deny", "paths": paths}]}));
    let security = Security { authorization: Some(denying), ..open() };
    gateway.configure(|config| set_security(config, Some(security))).await;
    assert_eq!(ask(&gateway, "/private/x", &[]).await?.status, 403);
    assert_eq!(backend.requests(), 0);
    assert_eq!(ask(&gateway, "/open/x", &[]).await?.status, 200);
    assert_eq!(backend.last_request().unwrap().target, "/private/x");
    Ok(())
}

#[tokio::test]
async fn cache_and_mirrors_see_the_rewritten_path_and_query() -> TestResult {
    let (backend, shadow) =
        (Backend::start(Behaviour::echo()).await?, Backend::start(Behaviour::echo()).await?);
    let cacheable = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok";
    backend.set(Behaviour::raw(cacheable));
    let policy = policy(
        json!({"cache": {"maxSize": "1Mi"}, "mirror": {"serviceRef": {"name": "shadow", "port": 80}}}),
        |features| features.url_rewrite.targets = entries(vec![rewrite("^/[ab]/(.*)", "/x?id=$1?")]),
    );
    let mut builder = Gateway::builder().workers(1).backends([&backend]);
    add_upstream(builder.config_mut(), "shadow", &[shadow.addr()]);
    routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
    let gateway = builder.start().await?;
    for (target, requests) in [("/a/1", 1), ("/a/1?q", 1), ("/b/1", 1), ("/a/2", 2), ("/c/1", 3)] {
        assert_eq!(ask(&gateway, target, &[]).await?.status, 200);
        assert_eq!(backend.requests(), requests, "{target}");
    }
    gateway.wait_until(|_| shadow.requests() == 3).await?;
    Ok(())
}

#[tokio::test]
async fn request_headers_with_variables_replace_headers_of_the_client_and_of_the_gateway() -> TestResult {
    let (backend, gateway) = governed(json!({}), |features| {
        features.url_rewrite.targets = entries(vec![rewrite("^/(api|web)/(.*)", "/$2")]);
        let request = [
            header("X-Forwarded-Prefix", "/$1"),
            header("X-Forwarded-Proto", "https"),
            header("X-Real-IP", "$http_x_real"),
            header("X-Uri", "$uri|$request_uri|$args"),
            header("X-Empty", "$http_none"),
            header("X-Theirs", "ours"),
            header(
                "X-Rule",
                "$namespace/$ingress_name $service_name:$service_port $location_path $server_name",
            ),
        ];
        let request = entries(request.into());
        features.template_headers = Some(TemplateHeaders { request, ..TemplateHeaders::default() });
    })
    .await?;
    for transport in TRANSPORTS {
        let lines = ["X-Theirs: a", "x_theirs: b", "X-Empty: c", "X-Real: 192.0.2.1"];
        ask_by(&gateway, "GET", "/api/a%0D%0Ab?q=%0a", &lines, transport).await?;
        let request = backend.last_request().unwrap();
        let text =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}").to_ascii_lowercase());
        let text: Vec<String> =
            text.filter(|line| line.starts_with("x-") || line.starts_with("x_")).collect();
        for (line, count) in [
            ("x-forwarded-prefix: /api", 1),
            ("x-forwarded-proto: https", 1),
            ("x-forwarded-scheme: http", u32::from(transport == Transport::Http)),
            ("x-real-ip: 192.0.2.1", 1),
            ("x-real-ip: 127.0.0.1", 0),
            ("x-uri: /a%0d%0ab|/api/a%0d%0ab?q=%0a|q=%0a", 1),
            ("x-theirs: ours", 1),
            ("x-rule: default/backend backend:80 / _", 1),
        ] {
            assert_eq!(text.iter().filter(|found| *found == line).count() as u32, count, "{line}: {text:?}");
        }
        for name in ["x-empty", "x_theirs", "x-theirs: a", "x-forwarded-proto: http "] {
            assert!(!text.iter().any(|line| line.starts_with(name)), "{name}: {text:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn response_headers_with_variables_depend_on_the_status() -> TestResult {
    let (backend, gateway) = governed(json!({}), |features| {
        let header = |name, value, mode| ResponseHeader { header: header(name, value), mode };
        let response = entries(vec![
            header("X-Add", "$arg_q", ResponseHeaderMode::Add),
            header("X-Always", "$request_uri", ResponseHeaderMode::AddAlways),
            header("Server", "ours", ResponseHeaderMode::Set),
            header("X-Powered-By", "", ResponseHeaderMode::Set),
            header("X-Break", "$uri", ResponseHeaderMode::Set),
        ]);
        features.template_headers = Some(TemplateHeaders { response, ..TemplateHeaders::default() });
    })
    .await?;
    for transport in TRANSPORTS {
        for (status, added) in [("200 OK", vec!["theirs", "1"]), ("404 Not Found", vec!["theirs"])] {
            backend.set(Behaviour::raw(format!(
                "HTTP/1.1 {status}\r\nServer: theirs\r\nX-Powered-By: theirs\r\nX-Add: theirs\r\nContent-Length: 0\r\n\r\n"
            )));
            let response = ask_by(&gateway, "GET", "/a%0D%0AX-Evil:1?q=1", &[], transport).await?;
            assert_eq!(response.headers_named("x-add"), added, "{status}");
            assert_eq!(response.headers_named("x-always"), ["/a%0D%0AX-Evil:1?q=1"]);
            assert_eq!(response.headers_named("server"), ["ours"]);
            assert_eq!(response.headers_named("x-break"), ["/a%0D%0AX-Evil:1"]);
            assert_eq!(response.headers_named("x-powered-by"), [""; 0]);
            assert_eq!(response.headers_named("x-evil"), [""; 0]);
        }
    }
    // The gateway's own responses have the headers too.
    gateway.set_addresses([]).await;
    let failed = ask(&gateway, "/?q=1", &[]).await?;
    assert_eq!(
        (failed.status, failed.header("x-always"), failed.header("x-add")),
        (503, Some("/?q=1"), None)
    );
    Ok(())
}

#[tokio::test]
async fn return_redirects_to_a_url_with_variables() -> TestResult {
    let relative = Location { url: template("$uri/x"), is_relative: true, has_port: false };
    let with_port = Location { url: template("/port"), is_relative: false, has_port: true };
    let at = |path: &str| vec![condition("$uri", Test::Equals(path.into()))];
    let own = |path: &str, location| Return {
        conditions: entries(at(path)),
        status_code: Number::of(302),
        content: Some(Content::Location(location)),
    };
    let (backend, gateway) = governed(json!({}), |features| {
        features.returns = entries(vec![
            redirect(at("/"), 302, "$scheme://$http_host/app"),
            redirect(at("/path"), 301, "/elsewhere"),
            own("/relative", relative),
            own("/port", with_port),
            redirect(at("/break\r\n"), 301, "https://other$uri"),
            redirect(
                vec![matches("$request_uri", "^/old/([^?]*)")],
                308,
                "https://new.example/$1$is_args$args",
            ),
            redirect(vec![condition("$arg_next", Test::IsSet)], 307, "$arg_next"),
        ]);
    })
    .await?;
    let port = gateway.addr().port();
    for (target, status, location) in [
        ("/", 302, "http://localhost/app".to_owned()),
        ("/path", 301, "http://localhost/elsewhere".to_owned()),
        ("/relative", 302, "/relative/x".to_owned()),
        ("/port", 302, format!("http://localhost:{port}/port")),
        ("/break%0D%0A", 301, "https://other/break%0D%0A".to_owned()),
        ("/old/a/b?q=1", 308, "https://new.example/a/b?q=1".to_owned()),
        ("/x?next=//evil", 307, "http://localhost//evil".to_owned()),
    ] {
        let response = ask(&gateway, target, &[]).await?;
        assert_eq!((response.status, response.header("location")), (status, Some(&*location)), "{target}");
    }
    assert_eq!(ask(&gateway, "/x?next=0", &[]).await?.status, 200);
    assert_eq!(backend.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn return_responds_with_a_body_if_its_conditions_hold() -> TestResult {
    let text = Body { text: template("hello $arg_name\n"), media_type: MediaType::of("text/html") };
    let denied = Return {
        conditions: entries(vec![
            condition("$request_method", Test::Equals("POST".into())),
            Condition { is_negated: true, ..matches("$http_x_key", "^(a|b)$") },
        ]),
        status_code: Number::of(403),
        content: None,
    };
    let hello = Return {
        conditions: entries(vec![condition("$uri", Test::Equals("/hello".into()))]),
        status_code: Number::of(200),
        content: Some(Content::Body(text)),
    };
    let (backend, gateway) =
        governed(json!({}), |features| features.returns = entries(vec![denied, hello])).await?;
    for transport in TRANSPORTS {
        let response = ask_by(&gateway, "GET", "/hello?name=%0Ab", &[], transport).await?;
        assert_eq!((response.status, response.header("content-type")), (200, Some("text/html")));
        assert_eq!(response.text(), "hello %0Ab\n");
        assert_eq!(ask_by(&gateway, "POST", "/x", &["X-Key: c"], transport).await?.status, 403);
        assert_eq!(ask_by(&gateway, "POST", "/x", &["X-Key: b"], transport).await?.status, 200);
        assert_eq!(ask_by(&gateway, "GET", "/x", &[], transport).await?.status, 200);
    }
    assert_eq!(backend.requests(), 4);
    Ok(())
}

#[tokio::test]
async fn return_comes_before_the_security_policy_but_never_opens_a_closed_route() -> TestResult {
    let (_backend, gateway) = governed(json!({}), |features| {
        features.returns = entries(vec![redirect(Vec::new(), 301, "https://new.example/")]);
    })
    .await?;
    gateway.configure(|config| set_security(config, Some(asking(api_key("x-key"))))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 301);
    let closed = Security { refuses: Some("auth-url: invalid".into()), ..open() };
    gateway.configure(|config| set_security(config, Some(closed))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    Ok(())
}

#[tokio::test]
async fn endpoint_receives_a_host_with_variables() -> TestResult {
    let (backend, gateway) = governed(json!({"urlRewrite": {"hostname": "other.example"}}), |features| {
        features.url_rewrite.host = Some(template("$http_x_tenant.$service_name.svc"));
    })
    .await?;
    ask(&gateway, "/", &["X-Tenant: a"]).await?;
    let request = backend.last_request().unwrap();
    assert_eq!(
        (request.header("host"), request.header("x-forwarded-host")),
        (Some("a.backend.svc"), Some("localhost"))
    );
    assert_eq!(ask(&gateway, "/", &["X-Tenant: a b"]).await?.status, 400);
    assert_eq!(ask(&gateway, "/", &["X-Tenant: a/b"]).await?.status, 400);
    assert_eq!(backend.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn text_with_variables_over_the_limit_rejects_the_request_with_431() -> TestResult {
    let (backend, gateway) = governed(json!({}), |features| {
        let request = entries(vec![header("X-Long", &"$http_x_a".repeat(20))]);
        features.template_headers = Some(TemplateHeaders { request, ..TemplateHeaders::default() });
    })
    .await?;
    let line = format!("X-A: {}", "x".repeat(4000));
    assert_eq!(ask(&gateway, "/", &[&line]).await?.status, 431);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn hash_of_a_text_with_variables_selects_an_endpoint_or_a_subset() -> TestResult {
    for (subset, expected) in [(None, 1), (Some(3), 3)] {
        let backends = Backend::group(8, Behaviour::ok()).await?;
        let balancing = |features: &mut Features| {
            features.load_balancing.algorithm =
                Some(sluicegate_model::feature::LoadBalancingAlgorithm::ConsistentHash);
            features.load_balancing.hash_text = Some(template("$http_x_user$arg_q"));
            features.load_balancing.hash_subset = subset.map(Number::of);
        };
        let policy = policy(json!({}), balancing);
        let mut builder = Gateway::builder().backends(&backends);
        routes(builder.config_mut(), |route| route.traffic = Some(policy.clone()));
        let gateway = builder.start().await?;
        let served = || backends.iter().map(Backend::requests).collect::<Vec<_>>();
        for user in 0..4 {
            let before = served();
            for _ in 0..60 {
                ask(&gateway, "/?q=1", &[&format!("X-User: {user}")]).await?;
            }
            let used = served().iter().zip(before).filter(|(now, before)| *now > before).count();
            assert_eq!(used, expected, "user {user}");
        }
        assert!(served().iter().filter(|count| **count > 0).count() > expected, "{:?}", served());
    }
    Ok(())
}

#[tokio::test]
async fn regex_of_a_policy_replaces_the_path_by_its_value_with_captures() -> TestResult {
    let regex = json!({"pattern": "^/users/([^/]+)/(?:orders/)?(.*)$", "value": "/orders/$1/$2"});
    let (backend, gateway) = governed(json!({"urlRewrite": {"regex": regex}}), |_| ()).await?;
    for (asked, expected) in [
        ("/users/7/orders/new?a=/users/1", "/orders/7/new?a=/users/1"),
        ("/users/a%2Fb/", "/orders/a%2Fb/"),
        ("/users/$2/x", "/orders/$2/x"),
        ("/Users/7/x", "/Users/7/x"),
    ] {
        assert_eq!(ask(&gateway, asked, &[]).await?.status, 200);
        assert_eq!(backend.last_request().unwrap().target, expected, "{asked}");
    }
    let merging = policy(json!({"urlRewrite": {"regex": {"pattern": "^/a(.*)", "value": "/$1"}}}), |_| ());
    gateway.configure(|config| routes(config, |route| route.traffic = Some(merging.clone()))).await;
    ask(&gateway, "/a/b", &[]).await?;
    assert_eq!(backend.last_request().unwrap().target, "/b");
    assert_eq!(ask(&gateway, "/a../b", &[]).await?.status, 400);
    Ok(())
}
