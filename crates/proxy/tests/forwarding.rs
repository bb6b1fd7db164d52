//! Requests and responses through the gateway.

use std::sync::Arc;

use sluicegate_model::feature::DirectResponse;
use sluicegate_model::policy::Traffic;
use sluicegate_model::rule::{HeaderMatch, PathMatch, Pattern, QueryMatch, Rule, RuleMatch, ValueMatch};
use sluicegate_model::value::Number;
use sluicegate_model::{ObjectId, PathPattern};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::{Gateway, key};
use sluicegate_testkit::stream::Transport;

type TestResult = anyhow::Result<()>;

#[tokio::test]
async fn get_reaches_the_endpoint_with_forwarding_headers() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let mut client = gateway.connect().await?;
    for _ in 0..3 {
        let response = client
            .request("GET /a/../b?q=1 HTTP/1.1\r\nHost: example.com\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: x-drop\r\nX-Drop: 1\r\nX-Keep: 1\r\n\r\n")
            .await?;
        assert_eq!(response.status, 200);
        let text = response.text();
        assert!(text.starts_with("GET /b?q=1 HTTP/1.1\r\n"), "{text}");
        let request = backend.last_request().expect("a request");
        assert_eq!(request.header("Host"), Some("example.com"));
        assert_eq!(request.header("X-Forwarded-For"), Some("127.0.0.1"));
        assert_eq!(request.header("X-Real-IP"), Some("127.0.0.1"));
        assert_eq!(request.header("X-Forwarded-Host"), Some("example.com"));
        assert_eq!(request.header("X-Forwarded-Proto"), Some(Transport::of_environment().scheme()));
        assert_eq!(request.header("X-Request-ID").map(str::len), Some(32));
        assert_eq!((request.header("X-Keep"), request.header("X-Drop")), (Some("1"), None));
    }
    assert_eq!(backend.accepted(), 1, "the connection is used again");
    Ok(())
}

#[tokio::test]
async fn request_and_response_bodies_of_any_framing_are_forwarded() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let mut client = gateway.connect().await?;
    let long = "x".repeat(300_000);
    let requests = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX-T: 1\r\n\r\n".to_owned(),
        format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{long}", long.len()),
    ];
    for (request, body) in requests.iter().zip(["hello", "5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", &long]) {
        let response = client.request(request).await?;
        // HTTP/2 has names in lower case.
        let (text, body) = (response.text().to_lowercase(), body.to_lowercase());
        assert!(text.ends_with(&body), "{}", text.len());
    }
    Ok(())
}

#[tokio::test]
async fn rules_match_requests_by_method_headers_query_parameters_and_regular_expressions() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    // Each listed rule responds with its own status; all other rules lead to the backend.
    let rule = |status: u16, matches: Vec<RuleMatch>| {
        let id = ObjectId { kind: "HTTPRoute", namespace: "default".into(), name: "a".into() };
        let mut traffic = Traffic::new(id.clone());
        traffic.features.direct_response = Some(DirectResponse {
            status_code: Number::of(status.into()),
            content_type: None,
            body: "".into(),
        });
        let path = PathPattern::Prefix("/".into());
        Rule { matches, traffic: Some(Arc::new(traffic)), ..Rule::new(id, path, key("backend")) }
    };
    let path = |path: &str| RuleMatch::path(PathPattern::Prefix(path.into()));
    let header = |name: &str, value| HeaderMatch { name: name.into(), value };
    let regex = |text: &str| Pattern::new(text, true);
    let query = QueryMatch { name: "version".into(), value: ValueMatch::Exact("two words".into()) };
    let canary = header("x-canary", ValueMatch::Regex(regex("^(always|yes)$")?));
    Arc::make_mut(&mut builder.config_mut().hosts[0]).rules.extend([
        rule(441, vec![RuleMatch { precedence: 0, method: Some("DELETE".into()), ..path("/") }]),
        rule(442, vec![RuleMatch { precedence: 1, headers: vec![canary], ..path("/shop") }]),
        rule(443, vec![RuleMatch { precedence: 2, query: vec![query], ..path("/shop") }, path("/other")]),
        rule(
            444,
            vec![RuleMatch { precedence: 3, path: PathMatch::Regex(regex("^/img/.*[.]png$")?), ..path("/") }],
        ),
    ]);
    let gateway = builder.start().await?;
    let mut client = gateway.connect().await?;
    for (method, target, line, status) in [
        ("GET", "/shop", "X-Other: 1", 200),
        ("DELETE", "/shop", "X-Canary: always", 441),
        ("GET", "/shop/cart", "x-canary: YES", 442),
        ("GET", "/shop", "X-Canary: never", 200),
        ("GET", "/shopping", "X-Canary: always", 200),
        ("GET", "/shop?version=two+words", "X-Canary: never", 443),
        ("GET", "/shop?version=two", "X-Canary: never", 200),
        ("GET", "/a/../other/x", "X-Canary: never", 443),
        ("GET", "/img/a/B.PNG?x=1", "X-Canary: never", 444),
        ("GET", "/img/a.gif", "X-Canary: never", 200),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
        assert_eq!(client.request(request).await?.status, status, "{method} {target} {line}");
    }
    assert_eq!(backend.requests(), 5);
    Ok(())
}
