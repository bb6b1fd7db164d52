//! Responses that are kept for others.

use sluicegate_model::Tracing;
use sluicegate_model::policy::Traffic;
use sluicegate_model::policy::traffic::{Cache, HeaderRules};
use sluicegate_proxy::telemetry::{CacheState, Tally, TrafficShard};
use sluicegate_testkit::backend::Request;
use sluicegate_testkit::client::Client;

use super::*;

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Http2];

/// A policy that keeps what says that it may be kept.
fn rules() -> Cache {
    Cache {
        max_size: 4 << 20,
        max_response_size: 256 << 10,
        default_time: None,
        stale_if_error: Duration::ZERO,
        key_headers: Vec::new(),
    }
}

fn keeping(cache: Cache) -> Traffic {
    let mut traffic = Traffic::new(id("TrafficPolicy", "cache"));
    traffic.cache = Some(cache);
    traffic
}

/// A gateway that keeps what this back end answers.
async fn gateway(behaviour: Behaviour, cache: Cache) -> anyhow::Result<(Backend, Gateway)> {
    gateway_of(2, behaviour, cache).await
}

async fn gateway_of(
    workers: usize,
    behaviour: Behaviour,
    cache: Cache,
) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let mut builder = Gateway::builder().workers(workers).backends([&backend]);
    let traffic = Arc::new(keeping(cache));
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    Ok((backend, builder.start().await?))
}

/// A response of these lines, whose body is the number of the request.
fn answer(lines: &str) -> Behaviour {
    let lines = lines.to_owned();
    let count = std::sync::atomic::AtomicU64::new(0);
    Behaviour::choose(move |_| {
        let body = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
        let length = body.len();
        Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {length}\r\n\r\n{body}"))
    })
}

/// What the request says decides.
fn by_request(decide: impl Fn(&Request) -> String + Send + Sync + 'static) -> Behaviour {
    Behaviour::choose(move |request| Behaviour::raw(decide(request)))
}

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn counted(gateway: &Gateway, tally: fn(&TrafficShard) -> &Tally) -> u64 {
    gateway.proxy().telemetry().traffic_policies().iter().map(|policy| policy.stats.sum(tally)).sum()
}

fn kept(gateway: &Gateway) -> CacheState {
    gateway.proxy().telemetry().traffic_policies()[0].cache.unwrap()
}

fn said(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}

#[tokio::test]
async fn a_fresh_response_answers_without_the_endpoint() -> TestResult {
    for transport in TRANSPORTS {
        let lines = "Cache-Control: max-age=60\r\nX-Own: 1\r\nAge: 5\r\nContent-Type: text/plain\r\n";
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        let first = ask_by(&gateway, "GET", "/a?b=c", &[], transport).await?;
        assert_eq!((first.status, &*first.text(), said(&first)), (200, "0", "sluicegate; fwd=miss; stored"));
        let second = ask_by(&gateway, "GET", "/a?b=c", &[], transport).await?;
        assert_eq!((second.status, &*second.text()), (200, "0"));
        assert_eq!(said(&second), "sluicegate; hit; ttl=55");
        assert_eq!(second.headers_named("age"), ["5"]);
        assert_eq!(second.headers_named("content-length"), ["1"]);
        assert_eq!((second.header("x-own"), second.header("content-type")), (Some("1"), Some("text/plain")));
        assert_eq!(second.headers_named("date").len(), 1);
        let head = ask_by(&gateway, "HEAD", "/a?b=c", &[], transport).await?;
        assert_eq!((head.status, head.header("content-length"), &*head.text()), (200, Some("1"), ""));
        assert_eq!(backend.requests(), 1);
        for (target, lines) in
            [("/a?b=d", vec![]), ("/A?b=c", vec![]), ("/a", vec![]), ("/a?", vec![]), ("/a?b=c&", vec![])]
        {
            let other = ask_by(&gateway, "GET", target, &lines, transport).await?;
            assert!(said(&other).starts_with("sluicegate; fwd=miss"), "{target}: {}", said(&other));
        }
        assert_eq!(counted(&gateway, |shard| &shard.cache_hits), 2);
        assert!(kept(&gateway).entries >= 4 && kept(&gateway).bytes > 0);
    }
    Ok(())
}

#[tokio::test]
async fn what_says_that_it_is_not_for_all_is_kept_for_nobody() -> TestResult {
    for lines in [
        "",
        "Cache-Control: no-store, max-age=60\r\n",
        "Cache-Control: private, max-age=60\r\n",
        "Cache-Control: PRIVATE=\"x-user\", max-age=60\r\n",
        "Cache-Control: max-age=60\r\nCache-Control: no-store\r\n",
        "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
        "Cache-Control: max-age=60\r\nVary: *\r\n",
        "Cache-Control: max-age=60\r\nVary: Accept, *\r\n",
        "Cache-Control: max-age=60\r\nAge: 60\r\n",
        "Cache-Control: max-age=0\r\n",
        "Cache-Control: max-age=-1\r\n",
        "Cache-Control: max-age=60, max-age=x\r\n",
        "Cache-Control: max-age=60, s-maxage=0\r\n",
        "Cache-Control: no-cache\r\n",
        "Expires: 0\r\n",
        "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Expires: Fri, 31 Dec 2100 00:00:00 GMT\r\nCache-Control: max-age=0\r\n",
        "Cache-Control: public\r\n",
        "Cache-Control: x=\"a, max-age=60\r\nExpires: 0\r\nCache-Control: max-age=0\r\n",
    ] {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        for number in ["0", "1"] {
            assert_eq!(ask(&gateway, "/", &[]).await?.text(), number, "{lines}");
        }
        assert_eq!((backend.requests(), kept(&gateway).entries), (2, 0), "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn what_says_how_long_it_is_fresh_is_kept() -> TestResult {
    for lines in [
        "Cache-Control: max-age=60\r\n",
        "Cache-Control: Max-Age=\"60\", no-transform\r\n",
        "Cache-Control: s-maxage=60, max-age=0\r\n",
        "Expires: Fri, 31 Dec 2100 00:00:00 GMT\r\n",
        "Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\n",
        "Cache-Control: max-age=99999999999999999999\r\n",
        "Cache-Control: max-age=60\r\nVary:\r\n",
    ] {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        for _ in 0..2 {
            assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "{lines}");
        }
        assert_eq!(backend.requests(), 1, "{lines}");
    }
    // Statuses, and bodies whose end is not told.
    for (response, is_kept) in [
        ("HTTP/1.1 404 Not Found\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", true),
        ("HTTP/1.1 204 No Content\r\nCache-Control: max-age=60\r\n\r\n", true),
        (
            "HTTP/1.1 301 Moved\r\nLocation: /b\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 500 Oh\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", false),
        ("HTTP/1.1 206 P\r\nCache-Control: max-age=60\r\nContent-Length: 0\r\n\r\n", false),
        (
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n",
            false,
        ),
    ] {
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
            let first = ask_by(&gateway, "GET", "/", &[], transport).await?;
            let second = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!(backend.requests(), if is_kept { 1 } else { 2 }, "{response}");
            assert_eq!((first.status, &first.body), (second.status, &second.body));
            assert_eq!(second.header("location"), first.header("location"));
        }
    }
    let open_end = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nabc";
    for behaviour in [
        Behaviour::raw(open_end).then_close(),
        Behaviour::raw("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nabc")
            .then_close(),
    ] {
        let (_backend, gateway) = gateway(behaviour, rules()).await?;
        let _ = ask(&gateway, "/", &[]).await;
        assert_eq!(kept(&gateway).entries, 0, "it may have been cut off");
    }
    Ok(())
}

#[tokio::test]
async fn nobody_gets_the_answer_of_another_caller() -> TestResult {
    // Says who has asked, and by which host, path and headers.
    let echo = |lines: &'static str| {
        by_request(move |request| {
            let header = |name| request.header(name).unwrap_or("-").to_owned();
            let names =
                ["authorization", "cookie", "x-user", "host", "x-forwarded-host", "x-http-method-override"];
            let body = names.map(header).join("|") + "|" + &request.target;
            ok(lines, &body)
        })
    };
    let public = "Cache-Control: max-age=60\r\n";
    for (response, first, second) in [
        // RFC 9111, 3.5, both ways.
        (public, vec!["Authorization: Bearer a"], vec!["Authorization: Bearer b"]),
        (public, vec!["Authorization: Bearer a"], vec![]),
        (public, vec![], vec!["Authorization: Bearer a"]),
        (public, vec!["Proxy-Authorization: Basic YTpi"], vec![]),
        (
            "Cache-Control: max-age=60\r\nVary: Authorization\r\n",
            vec!["Authorization: a"],
            vec!["Authorization: b"],
        ),
        (
            "Cache-Control: public, max-age=60\r\nVary: Authorization\r\n",
            vec!["Authorization: a"],
            vec!["Authorization: b"],
        ),
        ("Cache-Control: max-age=60\r\nVary: Cookie\r\n", vec!["Cookie: s=a"], vec!["Cookie: s=b"]),
        ("Cache-Control: max-age=60\r\nVary: cookie\r\n", vec!["Cookie: s=a"], vec![]),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", vec!["X-User: a"], vec!["X-User: b"]),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", vec!["X-User: a"], vec!["X-User:"]),
        (
            "Cache-Control: max-age=60\r\nVary: X-User\r\n",
            vec!["X-User: a", "X-User: b"],
            vec!["X-User: a, b"],
        ),
        // What is nominated by Connection does not reach the endpoint, so it does not count.
        (
            "Cache-Control: max-age=60\r\nVary: X-User\r\n",
            vec!["X-User: a", "Connection: X-User"],
            vec!["X-User: a"],
        ),
        (
            "Cache-Control: max-age=60\r\nVary: Accept\r\nVary: X-User\r\n",
            vec!["X-User: a"],
            vec!["X-User: b"],
        ),
        // Another method or target than it seems.
        (public, vec!["X-HTTP-Method-Override: DELETE"], vec![]),
        (public, vec!["X-Original-URL: /admin"], vec![]),
    ] {
        for transport in TRANSPORTS {
            let (backend, gateway) = gateway(echo(response), rules()).await?;
            let has_connection = first.iter().any(|line| line.starts_with("Connection"));
            if has_connection && transport == Transport::Http2 {
                continue;
            }
            let one = ask_by(&gateway, "GET", "/", &first, transport).await?;
            let other = ask_by(&gateway, "GET", "/", &second, transport).await?;
            assert_eq!(
                backend.requests(),
                2,
                "{response} {first:?} {second:?}: {} {}",
                said(&one),
                said(&other)
            );
        }
    }
    // Who says that a response is for all who say who they are decides so; equal headers are equal.
    for (response, first, second) in [
        ("Cache-Control: public, max-age=60\r\n", "Authorization: a", "Authorization: b"),
        ("Cache-Control: s-maxage=60\r\n", "Authorization: a", "Authorization: b"),
        ("Cache-Control: max-age=60\r\nVary: X-User\r\n", "X-User: a", "x-user:  a "),
        ("Cache-Control: max-age=60\r\n", "Cookie: a=b", "Cookie: a=c"),
    ] {
        let (backend, gateway) = gateway(echo(response), rules()).await?;
        for line in [first, second] {
            ask(&gateway, "/", &[line]).await?;
        }
        assert_eq!(backend.requests(), 1, "{response} {first}");
    }
    Ok(())
}

#[tokio::test]
async fn hosts_paths_and_queries_are_told_apart_as_the_endpoint_tells_them() -> TestResult {
    let body =
        |request: &Request| format!("{} {}", request.header("host").unwrap_or_default(), request.target);
    let echo = by_request(move |request| ok("Cache-Control: max-age=60\r\n", &body(request)));
    let (backend, gateway) = gateway(echo, rules()).await?;
    let mut asked = 0;
    for (target, host, is_new) in [
        ("/a?x=1&y=2", "one.example", true),
        ("/a?x=1&y=2", "ONE.example", false),
        ("/a?y=2&x=1", "one.example", true),
        ("/a?x=1&y=2", "two.example", true),
        ("/a?x=1&y=2", "one.example:8080", true),
        ("/a?x=1&y=2", "one.example.", true),
        ("http://one.example/a?x=1&y=2", "two.example", false),
        ("http://three.example/a?x=1&y=2", "one.example", true),
        ("/A?x=1&y=2", "one.example", true),
        ("/b/../a?x=1&y=2", "one.example", false),
        ("/%61?x=1&y=2", "one.example", false),
        ("/a%3fx=1&y=2", "one.example", true),
        ("/a;?x=1&y=2", "one.example", true),
        ("/a?x=1&y=2#", "one.example", true),
    ] {
        let mut client = gateway.connect().await?;
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: evil.example\r\n\r\n");
        let response = client.request(request).await?;
        if response.status == 400 {
            continue;
        }
        asked += u64::from(is_new);
        assert_eq!(backend.requests(), asked, "{target} {host}: {}", response.text());
        if is_new {
            assert_eq!(response.text(), body(&backend.last_request().unwrap()));
        }
    }
    Ok(())
}

#[tokio::test]
async fn where_callers_say_who_they_are_nothing_is_kept() -> TestResult {
    let backend = Backend::start(answer("Cache-Control: public, s-maxage=60\r\n")).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    let traffic = Arc::new(keeping(rules()));
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    set_security(builder.config_mut(), Some(asking(vec![api_key("x-api-key")])));
    builder.config_mut().consumers =
        [consumer("alice", "one"), consumer("bob", "two")].into_iter().map(Arc::new).collect();
    let gateway = builder.start().await?;
    for (key, body) in [("one", "0"), ("two", "1"), ("one", "2")] {
        let response = ask(&gateway, "/", &[&format!("X-API-Key: {key}")]).await?;
        assert_eq!((&*response.text(), said(&response)), (body, "sluicegate; fwd=bypass"));
    }
    let by_query = ask(&gateway, "/?key=one", &[]).await?;
    assert_eq!((by_query.status, said(&by_query)), (200, "sluicegate; fwd=bypass"));
    assert_eq!((kept(&gateway).entries, counted(&gateway, |shard| &shard.cache_bypassed)), (0, 4));
    // Without the policy it is kept; with it again, what was kept before is for nobody who is not let in.
    gateway.configure(|config| set_security(config, None)).await;
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "4");
    }
    let mut closed = open();
    closed.access.deny = vec!["127.0.0.0/8".parse()?];
    gateway.configure(|config| set_security(config, Some(closed))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 403);
    gateway.configure(|config| set_security(config, Some(asking(vec![api_key("x-api-key")])))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn clients_that_have_it_already_are_told_so() -> TestResult {
    let lines = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Own: 1\r\nContent-Type: text/plain\r\n";
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(answer(lines), rules()).await?;
        assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
        for (line, status) in [
            ("If-None-Match: \"v1\"", 304),
            ("If-None-Match: W/\"v1\"", 304),
            ("If-None-Match: \"a,b\", W/\"v0\" , \"v1\"", 304),
            ("If-None-Match: *", 304),
            ("If-None-Match: \"v2\"", 200),
            ("If-None-Match: v1", 200),
            ("If-None-Match: \"v1", 200),
            ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 304),
            ("If-Modified-Since: Mon, 07 Nov 1994 08:49:37 GMT", 304),
            ("If-Modified-Since: Sat, 05 Nov 1994 08:49:37 GMT", 200),
            ("If-Modified-Since: x", 200),
        ] {
            let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
            assert_eq!(response.status, status, "{line}");
            assert_eq!(response.text().is_empty(), status == 304);
            assert_eq!(response.header("etag"), Some("\"v1\""));
            assert_eq!(response.header("x-own").is_some(), status == 200);
            assert_eq!(ask_by(&gateway, "HEAD", "/", &[line], transport).await?.status, status);
        }
        // An ETag goes before a date.
        let both = ["If-None-Match: \"v2\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"];
        assert_eq!(ask_by(&gateway, "GET", "/", &both, transport).await?.status, 200);
        assert_eq!(backend.requests(), 1);
        // Parts, and conditions for the endpoint alone.
        for line in
            ["Range: bytes=0-0", "If-Match: \"v1\"", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]
        {
            let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
            assert_eq!(said(&response), "sluicegate; fwd=bypass", "{line}");
        }
        assert_eq!(backend.requests(), 4);
    }
    Ok(())
}

#[tokio::test]
async fn traces_make_no_difference() -> TestResult {
    let (backend, gateway) = gateway_of(1, answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    // Nobody needs to take what is sent there.
    let tracing = Tracing::to("http://127.0.0.1:9".parse().unwrap());
    gateway.configure(|config| config.settings.tracing = Some(tracing)).await;
    for number in 1..=40 {
        let line = format!("traceparent: 00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01");
        assert_eq!(&*ask(&gateway, "/", &[&line]).await?.text(), "0");
    }
    assert_eq!((backend.requests(), kept(&gateway).entries), (1, 1));
    Ok(())
}

#[tokio::test]
async fn what_a_304_says_to_one_client_reaches_that_client() -> TestResult {
    for (said, name) in
        [("Set-Cookie: session=1", "set-cookie"), ("Cache-Control: no-store", "cache-control")]
    {
        let validates = by_request(move |request| match request.header("if-none-match") {
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\n{said}\r\n\r\n"),
            None => ok("Cache-Control: no-cache\r\nETag: \"v1\"\r\n", "body"),
        });
        for transport in TRANSPORTS {
            let (_backend, gateway) = gateway_of(1, validates.clone(), rules()).await?;
            assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.status, 200);
            let renewed = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert_eq!((renewed.status, &*renewed.text()), (200, "body"));
            let value = said.split_once(": ").unwrap().1;
            assert!(renewed.headers_named(name).contains(&value), "{said}");
            let others = ask_by(&gateway, "GET", "/", &[], transport).await?;
            assert!(!others.headers_named(name).contains(&value), "it is not kept");
        }
    }
    // What a policy takes out of responses is taken out of these lines, too.
    let backend = Backend::start(by_request(|request| match request.header("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nSet-Cookie: session=1\r\n\r\n".into(),
        None => ok("Cache-Control: no-cache\r\nETag: \"v1\"\r\n", "body"),
    }))
    .await?;
    let mut traffic = keeping(rules());
    traffic.response_headers.remove = vec!["set-cookie".into()];
    let traffic = Arc::new(traffic);
    let mut builder = Gateway::builder().workers(1).backends([&backend]);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    let gateway = builder.start().await?;
    ask(&gateway, "/", &[]).await?;
    let renewed = ask(&gateway, "/", &[]).await?;
    assert_eq!((&*renewed.text(), renewed.header("set-cookie")), ("body", None));
    Ok(())
}

#[tokio::test]
async fn a_stale_response_is_asked_for_again_by_what_it_is_known_by() -> TestResult {
    for transport in TRANSPORTS {
        let validates = by_request(|request| match request.header("if-none-match") {
            Some("\"v1\"") => {
                "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\nX-New: 1\r\n\r\n"
                    .into()
            }
            _ => ok("Cache-Control: max-age=0\r\nETag: \"v1\"\r\nX-Old: 1\r\nX-New: 0\r\n", "body"),
        });
        let (backend, gateway) = gateway_of(1, validates, rules()).await?;
        assert_eq!(
            said(&ask_by(&gateway, "GET", "/", &[], transport).await?),
            "sluicegate; fwd=miss; stored"
        );
        let theirs = ["If-None-Match: \"v0\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"];
        let renewed = ask_by(&gateway, "GET", "/", &theirs, transport).await?;
        assert_eq!(
            (renewed.status, &*renewed.text(), said(&renewed)),
            (200, "body", "sluicegate; fwd=stale; fwd-status=304")
        );
        assert_eq!((renewed.headers_named("x-new"), renewed.header("x-old")), (vec!["1"], Some("1")));
        let request = backend.last_request().unwrap();
        assert_eq!(
            (request.header("if-none-match"), request.header("if-modified-since")),
            (Some("\"v1\""), None)
        );
        let hit = ask_by(&gateway, "GET", "/", &[], transport).await?;
        assert_eq!((&*hit.text(), said(&hit)), ("body", "sluicegate; hit; ttl=60"));
        assert_eq!((backend.requests(), counted(&gateway, |shard| &shard.cache_revalidated)), (2, 1));
        assert_eq!(backend.accepted(), 1, "the connection goes on");
        // What the client wants newer than it is.
        for (line, says) in [
            ("Cache-Control: no-cache", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: max-age=0", "sluicegate; fwd=stale; fwd-status=304"),
            ("Pragma: no-cache", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: min-fresh=3600", "sluicegate; fwd=stale; fwd-status=304"),
            ("Cache-Control: no-store", "sluicegate; fwd=bypass"),
            ("Cache-Control: max-age=30, min-fresh=30", "sluicegate; hit; ttl=60"),
            ("Cache-Control: only-if-cached", "sluicegate; hit; ttl=60"),
        ] {
            assert_eq!(said(&ask_by(&gateway, "GET", "/", &[line], transport).await?), says, "{line}");
        }
        let asked = backend.requests();
        let nothing = ask_by(&gateway, "GET", "/b", &["Cache-Control: only-if-cached"], transport).await?;
        assert_eq!((nothing.status, backend.requests()), (504, asked));
    }
    Ok(())
}

/// Many clients that ask at once, each on a connection of its own.
async fn together(gateway: &Gateway, count: usize, transport: Transport) -> anyhow::Result<Vec<Response>> {
    let address = gateway.addr_of(transport);
    let asking = (0..count).map(|_| {
        tokio::spawn(async move {
            let mut client = Client::connect_by(address, transport).await?;
            Ok::<_, anyhow::Error>(client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?)
        })
    });
    let mut responses = Vec::new();
    for response in asking.collect::<Vec<_>>() {
        responses.push(response.await??);
    }
    Ok(responses)
}

#[tokio::test]
async fn of_many_who_want_the_same_one_asks() -> TestResult {
    for transport in TRANSPORTS {
        let behaviour = answer("Cache-Control: max-age=60\r\n").delay(Duration::from_millis(300));
        let (backend, gateway) = gateway(behaviour, rules()).await?;
        for response in together(&gateway, 100, transport).await? {
            assert_eq!((response.status, &*response.text()), (200, "0"));
        }
        assert_eq!(backend.requests(), 1);
        assert_eq!(counted(&gateway, |shard| &shard.cache_misses), 1);
        assert_eq!(counted(&gateway, |shard| &shard.cache_hits), 99);
    }
    Ok(())
}

#[tokio::test]
async fn nobody_waits_twice_for_what_is_not_for_all() -> TestResult {
    // The first of all is answered once all others wait, and the others by nobody: they all have to ask at once.
    let mine = ok("Cache-Control: private\r\n", "mine");
    let count = std::sync::atomic::AtomicU64::new(0);
    let behaviour =
        Behaviour::choose(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Behaviour::raw(mine.clone()).delay(Duration::from_millis(500)),
            _ => Behaviour::silent(),
        });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = gateway.connect().await?;
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        clients.push(client);
    }
    backend.wait_until(|backend| backend.requests() == 20).await?;
    // And whoever comes next does not wait for them.
    let mut next = gateway.connect().await?;
    next.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 21).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_stale_bridges_the_time_until_it_is_renewed() -> TestResult {
    let lines = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\nAge: 90\r\n";
    let (backend, gateway) = gateway(answer(lines), rules()).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
    backend.set(Behaviour::silent());
    let mut first = gateway.connect().await?;
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 2).await?;
    let second = ask(&gateway, "/", &[]).await?;
    assert_eq!(second.text(), "0");
    assert!(said(&second).starts_with("sluicegate; hit; ttl=-3"), "{}", said(&second));
    assert_eq!(backend.requests(), 2);
    Ok(())
}

#[tokio::test]
async fn who_goes_away_leaves_nobody_waiting() -> TestResult {
    for transport in TRANSPORTS {
        let (backend, gateway) = gateway(Behaviour::silent(), rules()).await?;
        let mut first = Client::connect_by(gateway.addr_of(transport), transport).await?;
        first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        backend.wait_until(|backend| backend.requests() == 1).await?;
        backend.set(answer("Cache-Control: max-age=60\r\n"));
        let address = gateway.addr_of(transport);
        let others: Vec<_> = (0..5)
            .map(|_| {
                tokio::spawn(async move {
                    let mut client = Client::connect_by(address, transport).await?;
                    Ok::<_, anyhow::Error>(client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?)
                })
            })
            .collect();
        gateway.wait_until(|gateway| in_flight(gateway) == 6).await?;
        assert_eq!(backend.requests(), 1);
        drop(first);
        for other in others {
            assert_eq!(other.await??.text(), "0");
        }
        assert_eq!(backend.requests(), 2, "one of them has asked");
    }
    Ok(())
}

fn in_flight(gateway: &Gateway) -> u64 {
    gateway.proxy().telemetry().workers().sum(|worker| &worker.in_flight)
}

#[tokio::test]
async fn a_stale_response_stands_in_for_an_endpoint_that_fails() -> TestResult {
    let hour = Duration::from_secs(3600);
    let stale = "Age: 60\r\n";
    for (lines, policy, stands_in) in [
        (format!("Cache-Control: max-age=60, stale-if-error=600\r\n{stale}"), Duration::ZERO, true),
        (format!("Cache-Control: max-age=60\r\n{stale}"), hour, true),
        (format!("Cache-Control: max-age=60\r\nETag: \"a\"\r\n{stale}"), Duration::ZERO, false),
        (format!("Cache-Control: max-age=60, must-revalidate\r\nETag: \"a\"\r\n{stale}"), hour, false),
        (format!("Cache-Control: max-age=60, proxy-revalidate\r\nETag: \"a\"\r\n{stale}"), hour, false),
        (format!("Cache-Control: s-maxage=60\r\nETag: \"a\"\r\n{stale}"), hour, false),
        ("Cache-Control: no-cache, stale-if-error=600\r\nETag: \"a\"\r\n".into(), hour, false),
        ("Cache-Control: max-age=60\r\nETag: \"a\"\r\nAge: 3660\r\n".into(), hour, false),
    ] {
        let (mut backend, gateway) =
            gateway(answer(&lines), Cache { stale_if_error: policy, ..rules() }).await?;
        assert_eq!(said(&ask(&gateway, "/", &[]).await?), "sluicegate; fwd=miss; stored", "{lines}");
        backend.set(Behaviour::status(503));
        let failing = ask(&gateway, "/", &[]).await?;
        backend.set(Behaviour::status(404));
        let missing = ask(&gateway, "/", &[]).await?;
        assert_eq!(missing.status, 404, "an answer is an answer");
        backend.kill().await;
        let dead = ask(&gateway, "/", &[]).await?;
        for (response, otherwise) in [(failing, 503), (dead, 502)] {
            let expected = if stands_in { 200 } else { otherwise };
            assert_eq!(response.status, expected, "{lines}");
            if stands_in {
                assert_eq!(said(&response), "sluicegate; fwd=stale; detail=stale-if-error");
                assert_eq!(response.text(), "0");
            }
        }
        let expected = if stands_in { 2 } else { 0 };
        assert_eq!(counted(&gateway, |shard| &shard.cache_stale), expected, "{lines}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_changes_something_ends_what_was_kept_of_it() -> TestResult {
    for transport in TRANSPORTS {
        let status = Arc::new(std::sync::atomic::AtomicU16::new(200));
        let answered = status.clone();
        let behaviour = by_request(move |request| match &*request.method {
            "GET" => ok("Cache-Control: max-age=60\r\nVary: Accept\r\n", "body"),
            _ => {
                let status = answered.load(std::sync::atomic::Ordering::Relaxed);
                format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
            }
        });
        let (backend, gateway) = gateway(behaviour, rules()).await?;
        let get = async |target: &str, line: &str| {
            anyhow::Ok(said(&ask_by(&gateway, "GET", target, &[line], transport).await?).contains("hit"))
        };
        for (method, answers, ends) in [
            ("POST", 200, true),
            ("PUT", 204, true),
            ("DELETE", 303, true),
            ("PATCH", 200, true),
            ("PURGE", 200, true),
            ("POST", 404, false),
            ("DELETE", 500, false),
            ("OPTIONS", 200, false),
        ] {
            status.store(answers, std::sync::atomic::Ordering::Relaxed);
            for target in ["/a?b", "/a"] {
                for line in ["Accept: a", "Accept: b"] {
                    get(target, line).await?;
                    assert!(get(target, line).await?, "{method} {answers}");
                }
            }
            let changed = ask_by(&gateway, method, "/a?b", &["Content-Length: 0"], transport).await?;
            assert_eq!(changed.status, answers);
            assert_eq!(said(&changed), "sluicegate; fwd=method");
            for line in ["Accept: a", "Accept: b"] {
                assert_eq!(get("/a?b", line).await?, !ends, "{method} {answers}");
                assert!(get("/a", line).await?, "another target");
            }
        }
        assert_eq!(kept(&gateway).entries, 4);
        drop(backend);
    }
    Ok(())
}

#[tokio::test]
async fn what_was_asked_for_before_a_change_is_not_kept_after_it() -> TestResult {
    let behaviour = Behaviour::choose(|request| match &*request.method {
        "GET" => Behaviour::raw(ok("Cache-Control: max-age=60\r\n", "old")).delay(Duration::from_millis(300)),
        _ => Behaviour::status(200),
    });
    let (backend, gateway) = gateway(behaviour, rules()).await?;
    let mut reader = gateway.connect().await?;
    reader.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    assert_eq!(ask_by(&gateway, "POST", "/", &["Content-Length: 0"], Transport::Http).await?.status, 200);
    assert_eq!(reader.read_response().await?.text(), "old");
    assert_eq!(kept(&gateway).entries, 0);
    Ok(())
}

#[tokio::test]
async fn memory_stays_within_its_limit_under_a_flood_of_keys() -> TestResult {
    let body = "x".repeat(2000);
    let flood = by_request(move |request| match request.target.starts_with("/hot") {
        true => ok("Cache-Control: max-age=60\r\n", "hot"),
        false => ok("Cache-Control: max-age=60\r\n", &body),
    });
    let cache = Cache { max_size: 256 << 10, max_response_size: 16 << 10, ..rules() };
    let limit = cache.max_size;
    let (backend, gateway) = gateway(flood, cache).await?;
    let mut client = gateway.connect().await?;
    for number in 0..1000 {
        let long = "k".repeat(500);
        let asked = format!("GET /{number}?{long} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.request(asked).await?.status, 200);
        if number % 10 == 0 {
            client.request("GET /hot HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        }
        assert!(kept(&gateway).bytes <= limit, "{:?}", kept(&gateway));
    }
    let state = kept(&gateway);
    assert!(state.entries > 20 && state.bytes > limit / 2, "{state:?}");
    assert_eq!(backend.requests(), 1001, "what is asked for stays");
    let stored = counted(&gateway, |shard| &shard.cache_stored);
    assert_eq!(stored - counted(&gateway, |shard| &shard.cache_evicted), state.entries);
    Ok(())
}

#[tokio::test]
async fn long_responses_pass_as_they_come() -> TestResult {
    let most = 64 << 10;
    for length in [most, most + 1] {
        let fixed = ok("Cache-Control: max-age=60\r\n", &"x".repeat(length));
        let half = "x".repeat(length - length / 2);
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{half}\r\n0\r\n\r\n",
            length / 2,
            &half[..length / 2],
            half.len(),
        );
        for response in [fixed, chunked] {
            for transport in TRANSPORTS {
                let cache = Cache { max_response_size: most as u64, ..rules() };
                let (backend, gateway) = gateway(Behaviour::raw(response.clone()), cache).await?;
                for _ in 0..2 {
                    assert_eq!(ask_by(&gateway, "GET", "/", &[], transport).await?.body.len(), length);
                }
                let is_kept = length <= most;
                assert_eq!(
                    (backend.requests(), kept(&gateway).entries),
                    if is_kept { (1, 1) } else { (2, 0) }
                );
                assert!(is_kept || kept(&gateway).bytes == 0, "what was collected is given back");
            }
        }
    }
    // The client has the first part before the endpoint sends the second.
    let streamed = Behaviour::chunked(["first", "second"], Duration::from_secs(3600), &[]);
    let (_backend, gateway) =
        gateway(streamed, Cache { default_time: Some(Duration::from_secs(60)), ..rules() }).await?;
    let mut client = gateway.connect().await?;
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    client.read_until("first").await?;
    Ok(())
}

#[tokio::test]
async fn what_says_nothing_is_kept_as_long_as_the_policy_says() -> TestResult {
    let minute = Some(Duration::from_secs(60));
    let (backend, gateway) = gateway(answer(""), Cache { default_time: minute, ..rules() }).await?;
    for (lines, body) in [
        (vec![], "0"),
        (vec![], "0"),
        // Nobody has said that this is for all.
        (vec!["Cookie: session=a"], "1"),
        (vec!["Cookie: session=b"], "2"),
        (vec!["Authorization: a"], "3"),
        (vec![], "0"),
    ] {
        assert_eq!(ask(&gateway, "/", &lines).await?.text(), body, "{lines:?}");
    }
    backend.set(answer("Cache-Control: no-store\r\n"));
    assert_eq!(ask(&gateway, "/b", &[]).await?.text(), "0");
    assert_eq!(ask(&gateway, "/b", &[]).await?.text(), "1");
    Ok(())
}

#[tokio::test]
async fn named_headers_tell_requests_apart() -> TestResult {
    let cache = Cache { key_headers: vec!["x-tenant".into()], ..rules() };
    let (_backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), cache).await?;
    for (lines, body) in [
        (vec!["X-Tenant: a"], "0"),
        (vec!["X-Tenant: b"], "1"),
        (vec!["x-tenant: a"], "0"),
        (vec![], "2"),
        (vec!["X-Tenant: a", "X-Tenant: b"], "3"),
    ] {
        assert_eq!(ask(&gateway, "/", &lines).await?.text(), body, "{lines:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_policy_begins_with_nothing() -> TestResult {
    let (backend, gateway) = gateway(answer("Cache-Control: max-age=60\r\n"), rules()).await?;
    let set = |traffic: Option<Traffic>| {
        let traffic = traffic.map(Arc::new);
        gateway.configure(move |config| routes(config, |route| route.traffic.clone_from(&traffic)))
    };
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
    gateway.configure(|_| {}).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0", "nothing has changed");
    let mut other = keeping(rules());
    other.response_headers = HeaderRules { remove: vec!["cache-status".into()], ..HeaderRules::default() };
    set(Some(other)).await;
    let response = ask(&gateway, "/", &[]).await?;
    assert_eq!((&*response.text(), response.header("cache-status")), ("1", None));
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "1");
    set(None).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "2");
    set(Some(keeping(rules()))).await;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "3");
    assert_eq!(backend.requests(), 4);
    Ok(())
}

#[tokio::test]
async fn upstreams_do_not_mix() -> TestResult {
    use sluicegate_model::policy::traffic::{Branch, MatchPlace, RequestMatch, Split};
    use sluicegate_testkit::gateway::{key, ready};
    let [stable, canary] = [
        Backend::start(answer("Cache-Control: max-age=60\r\n")).await?,
        Backend::start(Behaviour::raw(ok("Cache-Control: max-age=60\r\n", "canary"))).await?,
    ];
    let mut builder = Gateway::builder().backends([&stable]);
    let upstream =
        sluicegate_model::Upstream { endpoints: [ready(canary.addr())].into(), ..Default::default() };
    builder.config_mut().upstreams.insert(key("canary"), Arc::new(upstream));
    let mut traffic = keeping(rules());
    let always = RequestMatch { place: MatchPlace::Header("x-canary".into()), value: None };
    let branch = Branch { upstream: key("canary"), weight: 0, matches: vec![always], excludes: Vec::new() };
    traffic.split = Some(Split { weight: 100, branches: vec![branch] });
    let traffic = Arc::new(traffic);
    routes(builder.config_mut(), |route| route.traffic = Some(traffic.clone()));
    let gateway = builder.start().await?;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
        assert_eq!(ask(&gateway, "/", &["X-Canary: 1"]).await?.text(), "canary");
    }
    assert_eq!((stable.requests(), canary.requests()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn each_client_gets_it_in_the_coding_that_it_accepts() -> TestResult {
    let body = "text ".repeat(1000);
    let response = ok("Cache-Control: max-age=60\r\nContent-Type: text/html\r\nETag: \"a\"\r\n", &body);
    let (backend, gateway) = gateway(Behaviour::raw(response), rules()).await?;
    gateway.configure(|config| config.settings.compression.codings = "gzip".parse().expect("codings")).await;
    for transport in TRANSPORTS {
        for (line, coding) in [("Accept-Encoding: gzip", Some("gzip")), ("Accept-Encoding: identity", None)] {
            for _ in 0..2 {
                let response = ask_by(&gateway, "GET", "/", &[line], transport).await?;
                assert_eq!(response.header("content-encoding"), coding, "{line}");
                assert_eq!(response.body == body.as_bytes(), coding.is_none());
                assert_eq!(response.header("vary"), Some("Accept-Encoding"));
            }
        }
        let known = ["Accept-Encoding: gzip", "If-None-Match: W/\"a\""];
        assert_eq!(ask_by(&gateway, "GET", "/", &known, transport).await?.status, 304);
    }
    assert_eq!(backend.requests(), 2, "once for http, once for https");
    Ok(())
}

#[tokio::test]
async fn who_reads_slowly_does_not_keep_others_waiting_for_ever() -> TestResult {
    let long = "x".repeat(30 << 20);
    let count = std::sync::atomic::AtomicU64::new(0);
    let behaviour = Behaviour::choose(move |_| {
        let is_first = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        Behaviour::raw(ok("Cache-Control: max-age=60\r\n", if is_first { &long } else { "short" }))
    });
    let cache = Cache { max_size: 256 << 20, max_response_size: 64 << 20, ..rules() };
    let (backend, gateway) = gateway(behaviour, cache).await?;
    let mut slow = gateway.connect().await?;
    slow.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    // The client's own limit of 10 s says that it did not wait for ever.
    for response in together(&gateway, 10, Transport::Http).await? {
        assert_eq!(response.text(), "short");
    }
    let kept = ask(&gateway, "/", &[]).await?;
    assert!(kept.text() == "short" && said(&kept).starts_with("sluicegate; hit"), "{}", said(&kept));
    drop(slow);
    Ok(())
}

#[tokio::test]
async fn what_trusted_peers_say_tells_requests_apart_and_what_others_say_goes_nowhere() -> TestResult {
    let link = |request: &Request| request.header("x-forwarded-host").unwrap_or("-").to_owned();
    let behaviour = || by_request(move |request| ok("Cache-Control: max-age=60\r\n", &link(request)));
    for (is_trusted, requests, first) in [(true, 3, "evil.example"), (false, 1, "localhost")] {
        let (backend, gateway) = gateway(behaviour(), rules()).await?;
        if is_trusted {
            let networks = vec!["127.0.0.0/8".parse()?];
            gateway.configure(|config| config.settings.trusted_peers = networks).await;
        }
        let evil = ask(&gateway, "/", &["X-Forwarded-Host: evil.example"]).await?;
        assert_eq!(evil.text(), first);
        assert_eq!(ask(&gateway, "/", &[]).await?.text(), "localhost");
        ask(&gateway, "/", &["X-Forwarded-User: root"]).await?;
        ask(&gateway, "/", &["X-Forwarded-For: 192.0.2.1"]).await?;
        assert_eq!(backend.requests(), requests, "{is_trusted}");
    }
    Ok(())
}

#[tokio::test]
async fn a_response_that_must_be_asked_for_is_not_used_while_another_one_asks() -> TestResult {
    let lines = "Cache-Control: no-cache, max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\n";
    let (backend, gateway) = gateway(answer(lines), rules()).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.text(), "0");
    backend.set(Behaviour::silent());
    let mut first = gateway.connect().await?;
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 2).await?;
    backend.set(answer("Cache-Control: no-store\r\n"));
    let mut second = gateway.connect().await?;
    second.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    gateway.wait_until(|gateway| in_flight(gateway) == 2).await?;
    drop(first);
    let second = second.read_response().await?;
    assert_eq!((&*second.text(), backend.requests()), ("0", 3), "{}", said(&second));
    assert!(said(&second).starts_with("sluicegate; fwd=stale"), "{}", said(&second));
    Ok(())
}
