//! Features that only annotations of ingress-nginx set: its session cookies, canaries, CORS, retries, and the form of requests to
//! endpoints.

use sluicegate_model::feature::cors::NginxCors;
use sluicegate_model::feature::endpoint_form::NginxForwarding;
use sluicegate_model::feature::load_balancing::{NginxSession, SameSite, SessionMode};
use sluicegate_model::feature::mirror::MirrorForm;
use sluicegate_model::feature::response_rewrite::{RewriteFrom, TextRewrite};
use sluicegate_model::feature::retries::RetryConditions;
use sluicegate_model::feature::{
    Affinity, BodyLimits, Cors, EndpointForm, Features, Mirror, RequestMatch, ResponseRewrite, Retries,
    Split, SplitBackend,
};
use sluicegate_model::policy::Traffic;
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{
    CookieName, HeaderName, HeaderValue, MatchValue, Number, Percent, Size, Template, Weight,
};
use sluicegate_testkit::gateway::key;

use super::traffic::add_upstream;
use super::*;

/// Gives all routes these features.
fn set_features(config: &mut Config, features: Features) {
    let mut traffic = Traffic::new(id("Ingress", "shop"));
    traffic.features = features;
    let traffic = Arc::new(traffic);
    routes(config, |rule| rule.traffic = Some(traffic.clone()));
}

/// A gateway with these features on all routes.
async fn featured(backends: &[Backend], features: Features) -> anyhow::Result<Gateway> {
    let mut builder = Gateway::builder().backends(backends);
    set_features(builder.config_mut(), features);
    builder.start().await
}

fn session(nginx: NginxSession) -> Features {
    let affinity = Affinity {
        cookie: Some(CookieName::of("INGRESSCOOKIE")),
        over_weights: true,
        nginx: Some(Box::new(nginx)),
        ..Affinity::default()
    };
    let mut features = Features::default();
    features.load_balancing.affinity = Some(affinity);
    features
}

/// The cookie that a response sets, as the client returns it.
fn pair(response: &Response) -> String {
    let cookie = response.header("set-cookie").expect("the response sets a cookie");
    format!("Cookie: {}", cookie.split(';').next().unwrap())
}

/// The place of the only endpoint that receives requests with these lines.
async fn receiver(gateway: &Gateway, backends: &[Backend], lines: &[&str]) -> anyhow::Result<usize> {
    let before: Vec<_> = backends.iter().map(Backend::requests).collect();
    for _ in 0..5 {
        let response = ask(gateway, "/", lines).await?;
        assert_eq!((response.status, response.header("set-cookie")), (200, None), "{lines:?}");
    }
    let mut received = (0..backends.len()).filter(|place| backends[*place].requests() > before[*place]);
    let place = received.next().expect("an endpoint");
    assert_eq!(received.next(), None, "one endpoint");
    Ok(place)
}

#[tokio::test]
async fn session_cookie_has_the_attributes_of_the_annotations() -> TestResult {
    let backends = [Backend::start(Behaviour::ok()).await?];
    let gateway = featured(
        &backends,
        session(NginxSession {
            domain: Some(sluicegate_model::value::CookieDomain::of("shop.example")),
            expires: Some(172_800),
            max_age: Some(172_800),
            same_site: Some(SameSite::None),
            is_none_conditional: true,
            secure: Some(true),
            ..NginxSession::default()
        }),
    )
    .await?;
    let chrome = |version: u32| {
        format!("User-Agent: Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/{version}.0 Safari/537.36")
    };
    for (agent, same_site) in [(chrome(120), "; SameSite=None"), (chrome(66), "")] {
        let response = ask(&gateway, "/", &[&agent]).await?;
        let cookie = response.header("set-cookie").unwrap();
        let (value, attributes) = cookie.split_once(';').unwrap();
        assert!(value.starts_with("INGRESSCOOKIE=") && attributes.starts_with(" Expires="), "{cookie}");
        let rest = attributes.split_once(" GMT").unwrap().1;
        let expected = format!("; Max-Age=172800; Domain=shop.example; Path=/; Secure; HttpOnly{same_site}");
        assert_eq!(rest, expected);
    }
    gateway.configure(|config| set_features(config, session(NginxSession::default()))).await;
    let plain = ask(&gateway, "/", &[]).await?;
    assert!(plain.header("set-cookie").unwrap().ends_with("; Path=/; HttpOnly"), "{plain:?}");
    Ok(())
}

#[tokio::test]
async fn balanced_session_stays_at_its_endpoint_and_moves_when_the_endpoint_is_gone() -> TestResult {
    let backends = Backend::group(4, Behaviour::ok()).await?;
    for mode in [SessionMode::Balanced, SessionMode::Persistent] {
        let gateway = featured(&backends, session(NginxSession { mode, ..NginxSession::default() })).await?;
        let mut places = std::collections::HashSet::new();
        for _ in 0..40 {
            let pair = pair(&ask(&gateway, "/", &[]).await?);
            places.insert(receiver(&gateway, &backends, &[&pair]).await?);
        }
        assert_eq!(places.len(), 4, "sessions use all endpoints");
        let pair = pair(&ask(&gateway, "/", &[]).await?);
        let place = receiver(&gateway, &backends, &[&pair]).await?;
        let others = backends.iter().enumerate().filter(|(of, _)| *of != place);
        gateway.set_addresses(others.map(|(_, backend)| backend.addr())).await;
        let response = ask(&gateway, "/", &[&pair]).await?;
        assert_eq!(response.status, 200);
        // In balanced mode, the hash leads to another endpoint, and the cookie stays.
        assert_eq!(response.header("set-cookie").is_some(), mode == SessionMode::Persistent, "{mode:?}");
    }
    Ok(())
}

#[tokio::test]
async fn session_changes_on_failure_only_if_the_annotation_says_so() -> TestResult {
    for mode in [SessionMode::Balanced, SessionMode::Persistent] {
        for changes_on_failure in [false, true] {
            let mut backends = Backend::group(3, Behaviour::ok()).await?;
            let nginx = NginxSession { mode, changes_on_failure, ..NginxSession::default() };
            let gateway = featured(&backends, session(nginx)).await?;
            let mut cookie = pair(&ask(&gateway, "/", &[]).await?);
            let place = receiver(&gateway, &backends, &[&cookie]).await?;
            backends[place].kill().await;
            let response = ask(&gateway, "/", &[&cookie]).await?;
            assert_eq!(response.status, 200, "another endpoint serves the request");
            assert_eq!(response.header("set-cookie").is_some(), changes_on_failure, "{mode:?}");
            if changes_on_failure {
                cookie = pair(&response);
                let other = receiver(&gateway, &backends, &[&cookie]).await?;
                assert_ne!(other, place);
                backends[place].restart().await?;
                assert_eq!(receiver(&gateway, &backends, &[&cookie]).await?, other, "{mode:?}");
            }
        }
    }
    Ok(())
}

fn by_header(name: &str, value: Option<&str>, refuses: bool) -> RequestMatch {
    let value = value.map(MatchValue::of);
    RequestMatch { header: Some(HeaderName::of(name)), cookie: None, value, pattern: None, refuses }
}

fn by_cookie(name: &str, value: &str, refuses: bool) -> RequestMatch {
    let value = Some(MatchValue::of(value));
    RequestMatch { header: None, cookie: Some(CookieName::of(name)), value, pattern: None, refuses }
}

/// A canary with a weight of 100, by the header and the cookie `canary`.
fn canary(weights: [i64; 2], matches: Vec<RequestMatch>) -> Split {
    let backend = SplitBackend {
        upstream: key("canary"),
        weight: Weight::of(weights[1]),
        matches: Entries::new(matches).unwrap(),
        exclude: Entries::default(),
    };
    let backends = Entries::new(vec![backend]).unwrap();
    Split { weight: Weight::of(weights[0]), backends, skips_empty: true }
}

/// A gateway with a canary, and both backends.
async fn with_canary(features: Features) -> anyhow::Result<([Backend; 2], Gateway)> {
    let backends = [Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?];
    let mut builder = Gateway::builder().backends(&backends[..1]);
    add_upstream(builder.config_mut(), "canary", &[backends[1].addr()]);
    set_features(builder.config_mut(), features);
    Ok((backends, builder.start().await?))
}

#[tokio::test]
async fn canary_is_chosen_by_header_then_by_cookie_then_by_weight() -> TestResult {
    let matches = vec![
        by_header("canary", Some("always"), false),
        by_header("canary", Some("never"), true),
        by_cookie("canary", "always", false),
        by_cookie("canary", "never", true),
    ];
    for (weights, by_weight) in [([100, 0], 0), ([0, 100], 1)] {
        let split = Some(canary(weights, matches.clone()));
        let (backends, gateway) = with_canary(Features { split, ..Features::default() }).await?;
        for (lines, expected) in [
            (&["Canary: always", "Cookie: canary=never"][..], 1),
            (&["Canary: never", "Cookie: canary=always"], 0),
            (&["Canary: other", "Cookie: canary=always"], 1),
            (&["Canary: other", "Cookie: canary=never"], 0),
            (&["Canary: other", "Cookie: canary=other"], by_weight),
            (&[], by_weight),
        ] {
            assert_eq!(receiver(&gateway, &backends, lines).await?, expected, "{lines:?} {weights:?}");
        }
        gateway.set_addresses_of(key("canary"), []).await;
        for lines in [&["Canary: always"][..], &[]] {
            assert_eq!(receiver(&gateway, &backends, lines).await?, 0, "a canary without endpoints");
        }
    }
    Ok(())
}

#[tokio::test]
async fn canary_is_chosen_by_a_regular_expression_on_a_header() -> TestResult {
    let of =
        RequestMatch { pattern: Some(Pattern::new("^v[0-9]+$", false)?), ..by_header("canary", None, false) };
    let split = Some(canary([100, 0], vec![of]));
    let (backends, gateway) = with_canary(Features { split, ..Features::default() }).await?;
    for (value, expected) in [("v12", 1), ("v", 0), ("V1", 0)] {
        assert_eq!(receiver(&gateway, &backends, &[&format!("Canary: {value}")]).await?, expected, "{value}");
    }
    Ok(())
}

#[tokio::test]
async fn sticky_session_stays_at_the_canary_or_at_the_main_service() -> TestResult {
    for mode in [SessionMode::Balanced, SessionMode::Persistent] {
        let of = || session(NginxSession { mode, ..NginxSession::default() });
        let with = |weights| Features {
            split: Some(canary(weights, vec![by_header("canary", Some("never"), true)])),
            ..of()
        };
        let (backends, gateway) = with_canary(with([0, 100])).await?;
        let of_canary = pair(&ask(&gateway, "/", &[]).await?);
        gateway.configure(|config| set_features(config, with([100, 0]))).await;
        let of_main = pair(&ask(&gateway, "/", &[]).await?);
        assert_eq!(receiver(&gateway, &backends, &[&of_canary]).await?, 1, "{mode:?}");
        assert_eq!(receiver(&gateway, &backends, &[&of_canary, "Canary: never"]).await?, 1, "{mode:?}");
        gateway.configure(|config| set_features(config, with([0, 100]))).await;
        assert_eq!(receiver(&gateway, &backends, &[&of_main]).await?, 0, "{mode:?}");
    }
    Ok(())
}

fn cors(origins: &[&str]) -> Security {
    let mut cors: Cors = written(json!({"allowOrigins": origins}));
    cors.allow_credentials = true;
    cors.nginx = Some(Box::new(NginxCors {
        methods: HeaderValue::of("GET, PUT, POST, DELETE, PATCH, OPTIONS"),
        headers: HeaderValue::of("DNT,Keep-Alive"),
        exposed: Some(HeaderValue::of("X-A")),
        max_age: 1_728_000,
    }));
    Security { cors: Some(cors), ..open() }
}

const CORS_HEADERS: [(&str, &str); 5] = [
    ("access-control-allow-credentials", "true"),
    ("access-control-allow-methods", "GET, PUT, POST, DELETE, PATCH, OPTIONS"),
    ("access-control-allow-headers", "DNT,Keep-Alive"),
    ("access-control-expose-headers", "X-A"),
    ("access-control-max-age", "1728000"),
];

#[tokio::test]
async fn responses_to_allowed_origins_have_all_cors_headers_and_options_receives_204() -> TestResult {
    let (backend, gateway) = guarded(cors(&["https://*.shop.example", "http://a.example:8080"])).await?;
    backend.set(Behaviour::raw(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: X\r\nAccess-Control-Other: X\r\nContent-Length: 0\r\n\r\n",
    ));
    for transport in [Transport::Http, Transport::Http2] {
        for origin in ["https://b.shop.example", "http://a.example:8080"] {
            for (method, status) in [("GET", 200), ("OPTIONS", 204)] {
                let line = format!("Origin: {origin}");
                let response = ask_by(&gateway, method, "/", &[&line], transport).await?;
                assert_eq!(response.status, status);
                assert_eq!(response.headers_named("access-control-allow-origin"), [origin]);
                for (name, value) in CORS_HEADERS {
                    assert_eq!(response.headers_named(name), [value], "{name}");
                }
            }
        }
        for lines in [&["Origin: https://a.b.shop.example"][..], &["Origin: https://other.example"], &[]] {
            for method in ["GET", "OPTIONS"] {
                let response = ask_by(&gateway, method, "/", lines, transport).await?;
                assert_eq!(response.status, 200, "the endpoint responds");
                assert_eq!(response.header("access-control-allow-origin"), None);
                assert_eq!(response.headers_named("access-control-allow-methods"), ["X"]);
                assert_eq!(response.headers_named("access-control-other"), ["X"]);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn origin_star_allows_requests_without_an_origin_and_errors_have_the_headers_too() -> TestResult {
    let (_backend, gateway) = guarded(cors(&["*"])).await?;
    let options = ask_by(&gateway, "OPTIONS", "/", &[], Transport::Http).await?;
    assert_eq!(options.status, 204);
    gateway.set_addresses([]).await;
    gateway.configure(|config| config.settings.resilience.endpoint_wait = Duration::ZERO).await;
    let failed = ask(&gateway, "/", &["Origin: https://x.example"]).await?;
    assert_eq!(failed.status, 503);
    for response in [options, failed] {
        assert_eq!(response.headers_named("access-control-allow-origin"), ["*"]);
        for (name, value) in CORS_HEADERS {
            assert_eq!(response.headers_named(name), [value], "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn cookies_and_locations_of_endpoints_are_rewritten() -> TestResult {
    let backends = [Backend::start(Behaviour::raw(
        "HTTP/1.1 302 x\r\nSet-Cookie: a=b; Domain=inner; Path=/app/x\r\nLocation: http://inner/a\r\nContent-Length: 0\r\n\r\n",
    ))
    .await?];
    let literal =
        |from: &str, to: &str| TextRewrite { from: RewriteFrom::Literal(from.into()), to: to.into() };
    let rewrite = ResponseRewrite {
        cookie_domains: vec![literal("inner", "shop.example")],
        cookie_paths: vec![literal("/app/", "/")],
        locations: vec![literal("http://inner/", "https://shop.example/")],
    };
    let features = Features { response_rewrite: Some(Box::new(rewrite)), ..Features::default() };
    let gateway = featured(&backends, features).await?;
    for transport in [Transport::Http, Transport::Http2] {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!(response.headers_named("set-cookie"), ["a=b; Domain=shop.example; Path=/x"]);
        assert_eq!(response.headers_named("location"), ["https://shop.example/a"]);
    }
    Ok(())
}

#[tokio::test]
async fn requests_to_endpoints_have_http_1_0_and_connections_of_their_own() -> TestResult {
    let backends = [Backend::start(Behaviour::echo()).await?];
    let endpoint_form = EndpointForm { is_http10: true, ..EndpointForm::default() };
    let gateway = featured(&backends, Features { endpoint_form, ..Features::default() }).await?;
    for _ in 0..3 {
        let text = ask(&gateway, "/", &[]).await?.text();
        assert!(
            text.starts_with("GET / HTTP/1.0\r\n") && text.contains("\r\nConnection: close\r\n"),
            "{text}"
        );
    }
    assert_eq!(backends[0].accepted(), 3);
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0";
    let text = ask_by(&gateway, "POST", "/", &[chunked], Transport::Http).await?.text();
    assert!(text.starts_with("POST / HTTP/1.1\r\n"), "HTTP/1.0 has no chunks: {text}");
    let connection = Some(HeaderValue::of("keep-alive"));
    let endpoint_form = EndpointForm { connection, ..EndpointForm::default() };
    gateway.configure(|config| set_features(config, Features { endpoint_form, ..Features::default() })).await;
    let text = ask(&gateway, "/", &[]).await?.text();
    assert!(
        text.starts_with("GET / HTTP/1.1\r\n") && text.contains("\r\nConnection: keep-alive\r\n"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn head_of_a_response_above_the_limit_of_the_route_is_a_502() -> TestResult {
    let head =
        |length: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(length));
    let backends = [Backend::start(Behaviour::raw(head(3900))).await?];
    let mut features = Features::default();
    features.limits.response_head = Some(Size::of(4096));
    let gateway = featured(&backends, features).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    backends[0].set(Behaviour::raw(head(4100)));
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 502);
    gateway.configure(|config| set_features(config, Features::default())).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    Ok(())
}

fn conditions() -> RetryConditions {
    RetryConditions { error: true, timeout: true, invalid_head: false, non_idempotent: false, within: None }
}

/// The status, and the number of attempts, of a request to endpoints that all behave so.
async fn attempts(
    behaviour: Behaviour,
    method: &str,
    conditions: RetryConditions,
) -> anyhow::Result<(u16, u64)> {
    let backends = Backend::group(3, behaviour).await?;
    let retries = Retries { attempts: Number::of(2), conditions: Some(conditions), ..Retries::default() };
    let mut features = Features { retries: Some(retries), ..Features::default() };
    features.timeouts.response = Some(written(json!("100ms")));
    let gateway = featured(&backends, features).await?;
    let lines = if method == "POST" { &["Content-Length: 0"][..] } else { &[] };
    let status = ask_by(&gateway, method, "/", lines, Transport::Http).await?.status;
    Ok((status, backends.iter().map(Backend::requests).sum()))
}

#[tokio::test]
async fn conditions_decide_which_failures_are_retried() -> TestResult {
    let off = RetryConditions { error: false, timeout: false, ..conditions() };
    let every = RetryConditions { invalid_head: true, non_idempotent: true, ..conditions() };
    let garbage = || Behaviour::garbage();
    for (behaviour, method, conditions, expected) in [
        (Behaviour::close_on_request(), "GET", conditions(), (502, 3)),
        (Behaviour::close_on_request(), "GET", off, (502, 1)),
        (Behaviour::close_on_request(), "POST", conditions(), (502, 1)),
        (Behaviour::close_on_request(), "POST", every, (502, 3)),
        (Behaviour::silent(), "GET", conditions(), (504, 3)),
        (Behaviour::silent(), "GET", RetryConditions { timeout: false, ..conditions() }, (504, 1)),
        (garbage(), "GET", conditions(), (502, 1)),
        (garbage(), "GET", every, (502, 3)),
        (
            Behaviour::silent(),
            "GET",
            RetryConditions { within: Some(written(json!("50ms"))), ..conditions() },
            (504, 1),
        ),
    ] {
        let context = format!("{behaviour:?} {method} {conditions:?}");
        assert_eq!(attempts(behaviour, method, conditions).await?, expected, "{context}");
    }
    Ok(())
}

#[tokio::test]
async fn copies_for_a_url_have_its_path_and_host_and_the_body_if_wanted() -> TestResult {
    for drops_body in [false, true] {
        let (backend, shadow) =
            (Backend::start(Behaviour::echo()).await?, Backend::start(Behaviour::ok()).await?);
        let mut builder = Gateway::builder().backends([&backend]);
        add_upstream(builder.config_mut(), "shadow", &[shadow.addr()]);
        let form = MirrorForm {
            target: Template::new("/copy$request_uri")?,
            host: HeaderValue::of("mirror.example"),
            drops_body,
        };
        let mirror =
            Mirror { upstream: key("shadow"), percent: Percent::of(100), form: Some(Box::new(form)) };
        let mirrors = Entries::new(vec![mirror]).unwrap();
        set_features(builder.config_mut(), Features { mirrors, ..Features::default() });
        let gateway = builder.start().await?;
        let lines = ["X-Id: 7", "Content-Length: 5\r\n\r\nhello"];
        for (count, transport) in [(1, Transport::Http), (2, Transport::Http2)] {
            let response = match transport {
                Transport::Http => ask_by(&gateway, "POST", "/a%20b?c", &lines, transport).await?,
                _ => ask_by(&gateway, "POST", "/a%20b?c", &["X-Id: 7"], transport).await?,
            };
            assert_eq!(response.status, 200);
            shadow.wait_until(|shadow| shadow.requests() == count).await?;
            let copy = shadow.last_request().unwrap();
            assert_eq!((&*copy.method, &*copy.target), ("POST", "/copy/a%20b?c"));
            assert_eq!((copy.header("host"), copy.header("x-id")), (Some("mirror.example"), Some("7")));
            if count == 1 {
                assert_eq!(copy.body, if drops_body { &b""[..] } else { b"hello" });
                assert_eq!(copy.header("content-length").is_some(), !drops_body);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn requests_over_tls_go_to_the_upstream_for_tls() -> TestResult {
    let (clear, secure) = (Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?);
    let mut builder = Gateway::builder().backends([&clear]);
    add_upstream(builder.config_mut(), "secure", &[secure.addr()]);
    let features = Features { secure_upstream: Some(key("secure")), ..Features::default() };
    set_features(builder.config_mut(), features);
    let gateway = builder.start().await?;
    for (transport, expected) in
        [(Transport::Http, (1, 0)), (Transport::Http2, (1, 1)), (Transport::Https, (1, 2))]
    {
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
        assert_eq!((clear.requests(), secure.requests()), expected);
    }
    Ok(())
}

#[tokio::test]
async fn preflight_comes_before_the_client_ip_and_the_redirect_to_https() -> TestResult {
    let ip_access = written(json!({"allow": ["192.0.2.0/24"]}));
    let (_backend, gateway) = guarded(Security { ip_access, ..cors(&["https://a.example"]) }).await?;
    let line = "Origin: https://a.example";
    for https_only in [false, true] {
        gateway.configure(|config| routes(config, |rule| rule.https_only = https_only)).await;
        let preflight = ask_by(&gateway, "OPTIONS", "/", &[line], Transport::Http).await?;
        assert_eq!(preflight.status, 204, "{https_only}");
        assert_eq!(preflight.headers_named("access-control-allow-origin"), ["https://a.example"]);
        let other = ask_by(&gateway, "OPTIONS", "/", &["Origin: https://b.example"], Transport::Http).await?;
        assert_eq!(other.status, if https_only { 308 } else { 403 });
    }
    gateway.configure(|config| routes(config, |rule| rule.https_only = false)).await;
    let denied = ask(&gateway, "/", &[line]).await?;
    assert_eq!(denied.status, 403);
    assert_eq!(denied.headers_named("access-control-allow-origin"), ["https://a.example"]);
    Ok(())
}

#[tokio::test]
async fn endpoint_receives_the_target_and_the_headers_of_a_client_as_nginx_sends_them() -> TestResult {
    let backends = [Backend::start(Behaviour::ok()).await?];
    let gateway = featured(&backends, Features::default()).await?;
    for nginx in [None, Some(NginxForwarding::default())] {
        let endpoint_form = EndpointForm { nginx, ..EndpointForm::default() };
        gateway
            .configure(|config| set_features(config, Features { endpoint_form, ..Features::default() }))
            .await;
        let is_nginx = nginx.is_some();
        let lines = [
            "X-Request-ID: given",
            "X-Forwarded-For: 192.0.2.7",
            "X-Forwarded-For: 192.0.2.8",
            "Forwarded: for=192.0.2.9",
            "X-Forwarded-Server: front",
            "X-Real-IP: 192.0.2.9",
            "X.Dot: x",
        ];
        ask(&gateway, "//a/%2e/./b%7E?x", &lines).await?;
        let seen = backends[0].last_request().expect("a request");
        assert_eq!(seen.target, if is_nginx { "//a/%2e/./b%7E?x" } else { "/a/b~?x" });
        let of = |name| seen.header(name);
        assert_eq!(of("x-request-id") == Some("given"), is_nginx);
        assert_eq!((of("x-forwarded-for"), of("x-real-ip")), (Some("127.0.0.1"), Some("127.0.0.1")));
        assert_eq!(of("x-original-forwarded-for"), is_nginx.then_some("192.0.2.7, 192.0.2.8"));
        assert_eq!(of("forwarded"), is_nginx.then_some("for=192.0.2.9"));
        assert_eq!(of("x-forwarded-server"), is_nginx.then_some("front"));
        assert_eq!(of("x.dot").is_none(), is_nginx, "nginx ignores such names");
        ask(&gateway, "/", &[]).await?;
        let seen = backends[0].last_request().expect("a request");
        assert_eq!(seen.header("x-request-id").map(str::len), Some(32), "the gateway writes an ID");
        assert_eq!(seen.header("x-original-forwarded-for"), None);
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_behind_a_trusted_proxy_receives_one_scheme_host_and_address_as_from_nginx() -> TestResult {
    let backends = [Backend::start(Behaviour::ok()).await?];
    let gateway = featured(&backends, Features::default()).await?;
    for is_full in [false, true] {
        let endpoint_form =
            EndpointForm { nginx: Some(NginxForwarding { is_full }), ..EndpointForm::default() };
        gateway
            .configure(|config| {
                config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
                set_features(config, Features { endpoint_form, ..Features::default() });
            })
            .await;
        let lines = [
            "X-Forwarded-For: 198.51.100.1, 192.0.2.7",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: one.example, two.example",
            "X-Forwarded-Port: 444",
            "X-Real-IP: 192.0.2.9",
            "X-Scheme: gopher",
        ];
        ask(&gateway, "/", &lines).await?;
        let seen = backends[0].last_request().expect("a request");
        let of = |name| seen.header(name).unwrap_or("none").to_owned();
        let all = "198.51.100.1, 192.0.2.7";
        let expected = if is_full { format!("{all}, 127.0.0.1") } else { "192.0.2.7".to_owned() };
        assert_eq!(of("x-forwarded-for"), expected);
        assert_eq!((&*of("x-real-ip"), &*of("x-original-forwarded-for")), ("192.0.2.7", all));
        assert_eq!((&*of("host"), &*of("x-forwarded-host")), ("one.example", "one.example"));
        assert_eq!((&*of("x-scheme"), &*of("x-forwarded-scheme")), ("https", "https"));
        assert_eq!((&*of("x-forwarded-proto"), &*of("x-forwarded-port")), ("https", "444"));
        ask(&gateway, "/", &["X-Forwarded-Host: no host"]).await?;
        let seen = backends[0].last_request().expect("a request");
        assert_eq!(seen.header("x-forwarded-host"), seen.header("host"), "an invalid host is ignored");
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_receives_the_length_of_a_chunked_body_only_if_the_route_states_it() -> TestResult {
    let backends = [Backend::start(Behaviour::ok()).await?];
    let gateway = featured(&backends, Features::default()).await?;
    let send = async |kind: &str, chunks: &str| -> anyhow::Result<u16> {
        let mut client = gateway.connect().await?;
        let head = format!(
            "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        Ok(client.request(format!("{head}{chunks}")).await?.status)
    };
    let chunks = "3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Trailer: x\r\n\r\n";
    for (states_length, most, kind, expected) in [
        (true, 1 << 20, "text/plain", true),
        (false, 1 << 20, "text/plain", false),
        (true, 2 << 20, "text/plain", false),
        (true, 1 << 20, "application/grpc", false),
    ] {
        let endpoint_form = EndpointForm { states_length, ..EndpointForm::default() };
        let limits = BodyLimits { request_body: Some(Size::of(most)), ..BodyLimits::default() };
        let features = Features { endpoint_form, limits, ..Features::default() };
        gateway.configure(|config| set_features(config, features.clone())).await;
        assert_eq!(send(kind, chunks).await?, 200);
        let seen = backends[0].last_request().expect("a request");
        assert_eq!(seen.header("content-length"), expected.then_some("7"), "{states_length} {most} {kind}");
        assert_eq!(seen.header("transfer-encoding").is_none(), expected);
        assert_eq!(seen.body, b"abcdefg");
    }
    let endpoint_form = EndpointForm { states_length: true, ..EndpointForm::default() };
    let limits = BodyLimits { request_body: Some(Size::of(6)), ..BodyLimits::default() };
    let features = Features { endpoint_form, limits, ..Features::default() };
    let before = backends[0].requests();
    gateway.configure(|config| set_features(config, features.clone())).await;
    assert_eq!(send("text/plain", chunks).await?, 413);
    assert_eq!(send("text/plain", "zz\r\n").await?, 400);
    assert_eq!(backends[0].requests(), before);
    Ok(())
}
