//! The filter `ExternalAuth` of Gateway API, at rules and at listeners.

use std::net::SocketAddr;

use sluicegate_model::feature::{ExternalAuth, ExternalAuthProtocol};
use sluicegate_model::rule::{HeaderMatch, RuleMatch, ValueMatch};
use sluicegate_model::value::HeaderName;
use sluicegate_model::{PathPattern, Protocol, Rule, Upstream, UpstreamKey};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{key, ready};

use super::authz::{Allowed, Authz, CheckResponse, Denied, Status, allowed, header};
use super::*;

fn names(names: &[&str]) -> Entries<HeaderName, 64> {
    Entries::new(names.iter().map(|name| HeaderName::of(name)).collect()).unwrap()
}

fn by_http(upstream: UpstreamKey) -> ExternalAuth {
    let protocol = ExternalAuthProtocol::Http { path: None, response_headers: Entries::default() };
    ExternalAuth { upstream, protocol, request_headers: Entries::default(), body: 0 }
}

fn by_grpc(upstream: UpstreamKey) -> ExternalAuth {
    ExternalAuth { protocol: ExternalAuthProtocol::Grpc, ..by_http(upstream) }
}

/// The filter with these headers of its response for endpoints.
fn forwarding(filter: ExternalAuth, headers: &[&str]) -> ExternalAuth {
    let protocol = ExternalAuthProtocol::Http { path: None, response_headers: names(headers) };
    ExternalAuth { protocol, ..filter }
}

fn add(config: &mut Config, name: &str, protocol: Protocol, address: SocketAddr) -> UpstreamKey {
    let mut key = key(name);
    key.transport.protocol = protocol;
    let upstream = Upstream { endpoints: [ready(address)].into(), ..Upstream::default() };
    config.upstreams.insert(key.clone(), Arc::new(upstream));
    key
}

fn add_http(config: &mut Config, name: &str, server: &Backend) -> UpstreamKey {
    add(config, name, Protocol::Http, server.addr())
}

fn filtering(filters: Vec<ExternalAuth>) -> Security {
    Security { filters, ..Security::open(id("HTTPRoute", "shop")) }
}

/// A gateway whose rules have the filters that a function makes.
async fn filtered(
    filters: impl FnOnce(&mut Config) -> Vec<ExternalAuth>,
) -> anyhow::Result<(Backend, Gateway)> {
    with(|config| {
        let filters = filters(config);
        set_security(config, Some(filtering(filters)));
    })
    .await
}

/// A gateway whose listeners have the filters that a function makes. Requests with `X-Tenant: gold` go to the second backend.
async fn listening(
    filters: impl FnOnce(&mut Config) -> Vec<ExternalAuth>,
) -> anyhow::Result<([Backend; 2], Gateway)> {
    let backends = [Backend::start(Behaviour::ok()).await?, Backend::start(Behaviour::ok()).await?];
    let mut builder = Gateway::builder().backends([&backends[0]]);
    let config = builder.config_mut();
    let gold = add_http(config, "gold", &backends[1]);
    let filters = filters(config);
    let value = ValueMatch::Exact("gold".into());
    let headers = vec![HeaderMatch { name: "x-tenant".into(), value }];
    let of = RuleMatch { headers, precedence: 0, ..RuleMatch::path(PathPattern::Prefix("/".into())) };
    let rule = Rule::new(id("HTTPRoute", "gold"), PathPattern::Prefix("/".into()), gold);
    for host in &mut config.hosts {
        let host = Arc::make_mut(host);
        host.filters = Some(Arc::new(filtering(filters.clone())));
        host.rules.push(Rule { matches: vec![of.clone()], ..rule.clone() });
    }
    Ok((backends, builder.start().await?))
}

fn values<'r>(backend: &'r sluicegate_testkit::backend::Request, name: &str) -> Vec<&'r str> {
    let named = backend.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn http_filter_sends_the_head_of_the_request_with_only_the_allowed_headers() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) = filtered(|config| {
        let protocol =
            ExternalAuthProtocol::Http { path: Some(written(json!("/auth/"))), response_headers: names(&[]) };
        let upstream = add_http(config, "authz", &server);
        vec![ExternalAuth { protocol, request_headers: names(&["cookie", "x-real-ip"]), ..by_http(upstream) }]
    })
    .await?;
    let lines = [
        "Authorization: alice",
        "Cookie: a=b",
        "User-Agent: me",
        "X-Real-IP: 1.2.3.4",
        "X-Original-URL: /admin",
    ];
    for transport in [Transport::Http, Transport::Http2] {
        assert_eq!(ask_by(&gateway, "DELETE", "/x/../a?b=c", &lines, transport).await?.status, 200);
        let asked = server.last_request().unwrap();
        assert_eq!((&*asked.method, &*asked.target), ("DELETE", "/auth/a?b=c"));
        let mut told: Vec<_> = asked.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        told.sort_unstable();
        assert_eq!(told, ["authorization", "content-length", "cookie", "host", "x-real-ip"]);
        assert_eq!((asked.header("host"), asked.header("content-length")), (Some("localhost"), Some("0")));
        assert_eq!(asked.header("x-real-ip"), Some("127.0.0.1"));
    }
    assert_eq!(backend.last_request().unwrap().header("x-original-url"), None);
    Ok(())
}

#[tokio::test]
async fn http_filter_copies_the_allowed_response_headers_and_drops_forged_headers() -> TestResult {
    let answer = ["X-User: alice", "X-User: admin", "X-Other: 1", "Set-Cookie: s=1", "Content-Type: text/x"];
    let server = Backend::start(says(200, &answer)).await?;
    let forged = ["X-User: root", "X_User: root", "X-Missing: root", "Content-Type: text/plain"];
    let (backend, gateway) = filtered(|config| {
        vec![forwarding(by_http(add_http(config, "authz", &server)), &["x-user", "x-missing"])]
    })
    .await?;
    let response = ask(&gateway, "/", &forged).await?;
    assert_eq!((response.status, response.headers_named("set-cookie")), (200, vec!["s=1"]));
    let seen = backend.last_request().unwrap();
    assert_eq!(values(&seen, "x-user"), ["alice", "admin"]);
    assert_eq!((seen.header("x-missing"), seen.header("x-other")), (None, None));
    // Without a list: all headers, except those of the connection and of the body.
    let (backend, gateway) = filtered(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    server.set(says(200, &[&answer[..], &["Host: evil", "Connection: X-Hop", "X-Hop: 1"]].concat()));
    assert_eq!(ask(&gateway, "/", &forged).await?.status, 200);
    let seen = backend.last_request().unwrap();
    assert_eq!((values(&seen, "x-user"), seen.header("x-other")), (vec!["alice", "admin"], Some("1")));
    assert_eq!(
        (values(&seen, "host"), seen.header("x-hop"), seen.header("content-type")),
        (vec!["localhost"], None, Some("text/plain"))
    );
    Ok(())
}

#[tokio::test]
async fn http_filter_allows_only_200_and_responds_with_the_denial_of_the_service() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) = filtered(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    for (status, expected) in
        [(201, 403), (204, 403), (304, 403), (401, 401), (404, 404), (429, 429), (500, 403), (503, 403)]
    {
        server.set(says(status, &["X-Why: no"]));
        assert_eq!(ask(&gateway, "/", &[]).await?.status, expected, "{status}");
    }
    let page = "HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: s=1\r\nContent-Type: text/html\r\n\
                Content-Length: 4\r\n\r\n<p/>";
    server.set(Behaviour::raw(page));
    for transport in [Transport::Http, Transport::Http2] {
        let response = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((response.status, response.text()), (302, "<p/>".to_owned()));
        assert_eq!(response.headers_named("content-type"), ["text/html"]);
        assert_eq!(
            (response.header("location"), response.header("set-cookie")),
            (Some("/login"), Some("s=1"))
        );
    }
    assert_eq!(backend.requests(), 0);
    assert_eq!(denied(&gateway, Denial::CheckDenied(403)), 10);
    Ok(())
}

#[tokio::test]
async fn filter_without_a_valid_response_of_its_service_responds_with_403() -> TestResult {
    let server = Backend::start(Behaviour::garbage()).await?;
    let (backend, gateway) = filtered(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    server.set(Behaviour::close_on_request());
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    // The configuration lacks the upstream, and the name of the Service is not looked up.
    let (other, missing) = filtered(|_| vec![by_http(key("missing"))]).await?;
    assert_eq!(ask(&missing, "/", &[]).await?.status, 403);
    assert_eq!((backend.requests(), other.requests()), (0, 0));
    assert_eq!(denied(&missing, Denial::CheckUnreachable), 1);
    Ok(())
}

#[tokio::test]
async fn filter_and_security_policy_must_both_allow_a_request() -> TestResult {
    let server = Backend::start(directory()).await?;
    let (backend, gateway) = with(|config| {
        let filters = vec![by_http(add_http(config, "authz", &server))];
        config.consumers = vec![Arc::new(consumer("carol", "key-of-carol"))];
        set_security(config, Some(Security { filters, ..asking(api_key("x-api-key")) }));
    })
    .await?;
    for (lines, status) in [
        (&[][..], 401),
        (&["Authorization: alice"], 401),
        (&["X-API-Key: key-of-carol", "Authorization: eve"], 403),
        (&["X-API-Key: key-of-carol", "Authorization: alice"], 200),
    ] {
        assert_eq!(ask(&gateway, "/", lines).await?.status, status, "{lines:?}");
    }
    assert_eq!((backend.requests(), server.requests()), (1, 2), "the policy comes first");
    Ok(())
}

#[tokio::test]
async fn service_and_endpoint_both_receive_a_forwarded_body() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) =
        filtered(|config| vec![ExternalAuth { body: 1000, ..by_http(add_http(config, "authz", &server)) }])
            .await?;
    let whole = "x".repeat(1000);
    let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = |body: &str| {
        let (one, other) = body.split_at(body.len() / 2);
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{one}\r\n{:x}\r\n{other}\r\n0\r\nX-T: 1\r\n\r\n",
            one.len(),
            other.len()
        )
    };
    for transport in [Transport::Http, Transport::Http2] {
        for rest in [framed(&whole), chunked(&whole), framed("")] {
            let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
            let request = format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{rest}");
            assert_eq!(client.request(request).await?.status, 200, "{transport:?}");
            let (asked, seen) = (server.last_request().unwrap(), backend.last_request().unwrap());
            let length = asked.body.len().to_string();
            assert_eq!((asked.header("content-length"), &asked.body), (Some(&*length), &seen.body));
            assert!(matches!(&*length, "0" | "1000"), "{length}");
        }
        let before = (server.requests(), backend.requests());
        for rest in [framed(&format!("{whole}x")), chunked(&format!("{whole}x"))] {
            let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
            let request = format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{rest}");
            assert_eq!(client.request(request).await?.status, 413, "{transport:?}");
        }
        assert_eq!((server.requests(), backend.requests()), before);
    }
    Ok(())
}

#[tokio::test]
async fn client_that_waits_for_100_sends_its_body_to_the_service_and_keeps_its_connection() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) =
        filtered(|config| vec![ExternalAuth { body: 10, ..by_http(add_http(config, "authz", &server)) }])
            .await?;
    let mut client = gateway.connect().await?;
    for _ in 0..2 {
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        client.send(head).await?;
        assert_eq!(client.read_interim().await?, 100);
        client.send("body").await?;
        assert_eq!(client.read_response().await?.status, 200);
        assert_eq!(server.last_request().unwrap().body, b"body");
        assert_eq!(backend.last_request().unwrap().body, b"body");
    }
    server.set(says(401, &[]));
    let request = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(client.request(request).await?.status, 401);
    assert_eq!(client.request(request).await?.status, 401, "the connection stays open");
    Ok(())
}

#[tokio::test]
async fn grpc_filter_sends_the_attributes_of_the_request_and_applies_the_header_changes() -> TestResult {
    let server = Authz::start(|_| {
        let ok = Allowed {
            headers: vec![header("x-user", "alice", false), header("x-role", "admin", true)],
            headers_to_remove: vec!["authorization".to_owned(), "host".to_owned()],
            response_headers_to_add: vec![header("x-checked", "1", false)],
        };
        (allowed(ok), 0)
    })
    .await?;
    let (backend, gateway) = filtered(|config| {
        let upstream = add(config, "authz", Protocol::Http2, server.addr);
        vec![ExternalAuth { body: 100, ..by_grpc(upstream) }]
    })
    .await?;
    let mut client = gateway.connect().await?;
    let request = "POST /a/../b?c=d HTTP/1.1\r\nHost: localhost\r\nAuthorization: token\r\nX-User: root\r\n\
                   X-Role: user\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 4\r\n\r\nbody";
    let response = client.request(request).await?;
    assert_eq!((response.status, response.header("x-checked")), (200, Some("1")));
    let (path, check) = server.last();
    assert_eq!(path, "/envoy.service.auth.v3.Authorization/Check");
    let source = check.attributes.unwrap().source.unwrap().address.unwrap().socket_address.unwrap();
    assert_eq!(source.address, "127.0.0.1");
    let http = server.last_http();
    assert_eq!((&*http.method, &*http.path, &*http.host), ("POST", "/b?c=d", "localhost"));
    assert_eq!((&*http.scheme, &*http.protocol, http.size), ("http", "HTTP/1.1", 4));
    assert_eq!((&*http.body, http.id.len()), ("body", 32));
    let of = |name: &str| http.headers.get(name).map(String::as_str);
    assert_eq!((of("authorization"), of("x-a"), of(":path")), (Some("token"), Some("1,2"), Some("/b?c=d")));
    assert_eq!((of("content-length"), of("x-forwarded-for")), (Some("4"), Some("127.0.0.1")));
    let seen = backend.last_request().unwrap();
    assert_eq!((values(&seen, "x-user"), values(&seen, "x-role")), (vec!["alice"], vec!["user", "admin"]));
    assert_eq!((seen.header("authorization"), seen.header("host")), (None, Some("localhost")));
    assert_eq!(seen.body, b"body");
    Ok(())
}

#[tokio::test]
async fn grpc_filter_sends_only_the_allowed_headers_and_responds_with_the_denial() -> TestResult {
    let server = Authz::start(|http| match http.headers.get("x-a").map(String::as_str) {
        Some("fail") => (allowed(Allowed::default()), 13),
        Some("empty") => (CheckResponse::default(), 0),
        _ => {
            let headers = vec![header("www-authenticate", "Custom", false)];
            let denied = Denied { status: Some(Status { code: 401 }), headers, body: "no".to_owned() };
            (CheckResponse { status: Some(Status { code: 16 }), denied: Some(denied), ok: None }, 0)
        }
    })
    .await?;
    let (backend, gateway) = filtered(|config| {
        let upstream = add(config, "authz", Protocol::Http2, server.addr);
        vec![ExternalAuth { request_headers: names(&["x-a"]), ..by_grpc(upstream) }]
    })
    .await?;
    let response = ask(&gateway, "/", &["X-A: 1", "X-B: 2", "Authorization: t"]).await?;
    assert_eq!((response.status, response.text()), (401, "no".to_owned()));
    assert_eq!(response.header("www-authenticate"), Some("Custom"));
    let headers = server.last_http().headers;
    assert_eq!(headers.into_iter().collect::<Vec<_>>(), [("x-a".to_owned(), "1".to_owned())]);
    for line in ["X-A: fail", "X-A: empty"] {
        assert_eq!(ask(&gateway, "/", &[line]).await?.status, 403, "{line}");
    }
    assert_eq!((denied(&gateway, Denial::CheckAnswer), backend.requests()), (2, 0));
    Ok(())
}

#[tokio::test]
async fn filter_of_a_listener_changes_the_headers_that_select_the_rule() -> TestResult {
    let server = Backend::start(says(200, &["X-Tenant: gold", "X-Forwarded-User: alice"])).await?;
    let ([first, gold], gateway) =
        listening(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    for transport in [Transport::Http, Transport::Http2] {
        // The client can neither choose the tenant nor remove the header.
        let lines: &[&str] = match transport {
            Transport::Http => &["X-Tenant: iron", "Connection: X-Tenant"],
            _ => &["X-Tenant: iron"],
        };
        let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: 4\r\n\r\nbody");
        assert_eq!(client.request(request).await?.status, 200);
        let seen = gold.last_request().unwrap();
        assert_eq!((values(&seen, "x-tenant"), &*seen.body), (vec!["gold"], &b"body"[..]));
        assert_eq!(
            (seen.header("x-forwarded-user"), seen.header("host")),
            (Some("alice"), Some("localhost"))
        );
    }
    // The original value selects no rule.
    server.set(says(200, &["X-Tenant: iron"]));
    assert_eq!(ask(&gateway, "/", &["X-Tenant: gold"]).await?.status, 200);
    assert_eq!((first.requests(), gold.requests()), (1, 2));
    Ok(())
}

#[tokio::test]
async fn filters_of_a_listener_run_in_order_and_end_at_the_first_denial() -> TestResult {
    let servers = [
        Backend::start(says(200, &["X-Tenant: gold"])).await?,
        Backend::start(says(200, &["X-Tenant: iron"])).await?,
    ];
    for (order, expected) in [([0, 1], "iron"), ([1, 0], "gold")] {
        let ([first, gold], gateway) = listening(|config| {
            let filters = order.map(|index| {
                let upstream = add_http(config, &format!("authz-{index}"), &servers[index]);
                ExternalAuth { request_headers: names(&["x-tenant"]), ..by_http(upstream) }
            });
            filters.into()
        })
        .await?;
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
        assert_eq!((first.requests() == 0, gold.requests() == 1), (expected == "gold", expected == "gold"));
        // The second filter receives the header of the first filter.
        let second = servers[order[1]].last_request().unwrap();
        assert_eq!(second.header("x-tenant"), Some(if expected == "gold" { "iron" } else { "gold" }));
    }
    servers[0].set(says(403, &[]));
    let ([first, gold], gateway) = listening(|config| {
        let [one, other] = ["a", "b"]
            .map(|name| name)
            .map(|name| (name, if name == "a" { &servers[0] } else { &servers[1] }));
        [one, other].map(|(name, server)| by_http(add_http(config, name, server))).into()
    })
    .await?;
    let before = servers[1].requests();
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    assert_eq!((servers[1].requests(), first.requests(), gold.requests()), (before, 0, 0));
    Ok(())
}

#[tokio::test]
async fn filter_of_a_listener_decides_about_requests_without_a_rule_once() -> TestResult {
    let server = Backend::start(says(200, &["Host: other.test"])).await?;
    let ([first, _], gateway) = listening(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    gateway
        .configure(|config| {
            for host in &mut config.hosts {
                Arc::make_mut(host).rules.clear();
            }
        })
        .await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 404);
    server.set(says(401, &[]));
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    assert_eq!((server.requests(), first.requests()), (2, 0));
    Ok(())
}

#[tokio::test]
async fn filters_of_a_listener_and_of_a_rule_both_run() -> TestResult {
    let [listener, rule] =
        [Backend::start(says(200, &["X-L: 1"])).await?, Backend::start(says(200, &["X-R: 1"])).await?];
    let ([first, _], gateway) = listening(|config| {
        let of_rule = by_http(add_http(config, "rule", &rule));
        set_security(config, Some(filtering(vec![of_rule])));
        vec![by_http(add_http(config, "listener", &listener))]
    })
    .await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    let seen = first.last_request().unwrap();
    assert_eq!((seen.header("x-l"), seen.header("x-r")), (Some("1"), Some("1")));
    rule.set(says(403, &[]));
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    assert_eq!((listener.requests(), rule.requests(), first.requests()), (2, 2, 1));
    Ok(())
}

#[tokio::test]
async fn listener_with_an_invalid_filter_denies_all_requests() -> TestResult {
    let ([first, _], gateway) = listening(|_| Vec::new()).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 200);
    gateway
        .configure(|config| {
            for host in &mut config.hosts {
                let closed = Security::closed(id("Gateway", "edge"), "a filter is invalid".into());
                Arc::make_mut(host).filters = Some(Arc::new(closed));
            }
        })
        .await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    assert_eq!(first.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn client_cannot_remove_the_headers_of_a_filter_before_a_further_filter() -> TestResult {
    let servers = [
        Backend::start(says(200, &["X-Role: restricted"])).await?,
        Backend::start(says(200, &["X-User: alice"])).await?,
    ];
    let ([first, _], gateway) = listening(|config| {
        let upstreams = [add_http(config, "role", &servers[0]), add_http(config, "user", &servers[1])];
        upstreams.map(by_http).into()
    })
    .await?;
    let lines = ["Connection: x-role, x-user, x-client", "X-Client: 1"];
    assert_eq!(ask(&gateway, "/", &lines).await?.status, 200);
    let seen = first.last_request().unwrap();
    assert_eq!((values(&seen, "x-role"), values(&seen, "x-user")), (vec!["restricted"], vec!["alice"]));
    assert_eq!(seen.header("x-client"), None);
    Ok(())
}

#[tokio::test]
async fn response_header_with_underscores_does_not_change_the_framing() -> TestResult {
    let server =
        Backend::start(says(200, &["Content_Length: 0", "Transfer_Encoding: chunked", "X-A: 1"])).await?;
    let (backend, gateway) = filtered(|config| vec![by_http(add_http(config, "authz", &server))]).await?;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    assert_eq!(gateway.connect().await?.request(request).await?.status, 200);
    let seen = backend.last_request().unwrap();
    assert_eq!((values(&seen, "content-length"), seen.header("x-a")), (vec!["4"], Some("1")));
    assert_eq!((seen.header("content_length"), seen.header("transfer_encoding")), (None, None));
    Ok(())
}

/// Z6: the body is in memory, so a connection that dies before the first byte of a response is no reason to fail.
#[tokio::test]
async fn request_with_a_forwarded_body_is_sent_again_after_its_connection_dies() -> TestResult {
    let server = Backend::start(says(200, &[])).await?;
    let (backend, gateway) = filtered(|config| {
        vec![ExternalAuth { body: 300_000, ..by_http(add_http(config, "authz", &server)) }]
    })
    .await?;
    let dying = Backend::start(Behaviour::close_on_request()).await?;
    gateway.set_addresses([dying.addr(), backend.addr()]).await;
    let request =
        format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{}", "x".repeat(200_000));
    for _ in 0..8 {
        let response = gateway.connect().await?.request(request.clone()).await?;
        assert_eq!(response.status, 200);
    }
    assert!(dying.requests() > 0, "the dying endpoint was asked");
    Ok(())
}
