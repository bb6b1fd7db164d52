use std::time::Duration;

use http::Request;
use sluicegate_model::feature::RetryConstraint;
use sluicegate_model::value::{Number, Span};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Gateway, ready};
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};

use crate::{TestResult, ask, before, connect, get};

/// Sends `count` requests at once. Returns how many received 200.
async fn at_once(gateway: &Gateway, count: usize, posts: bool) -> anyhow::Result<usize> {
    let (requests, _connection) = connect(gateway).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..count {
        let requests = requests.clone();
        let prefix = fastrand::u64(..);
        tasks.spawn(async move {
            let method = if posts { "POST" } else { "GET" };
            let request = Request::builder()
                .method(method)
                .uri("http://a.test/")
                .header("x-id", format!("{prefix}-{id}"));
            let request = request.body(()).expect("a request");
            ask(&requests, request, if posts { b"body" } else { b"" }, &[]).await
        });
    }
    let mut good = 0;
    while let Some(done) = tasks.join_next().await {
        good += usize::from(done??.head.status() == 200);
    }
    Ok(good)
}

#[tokio::test]
async fn requests_share_http2_connections_within_the_stream_limit_of_the_endpoint() -> TestResult {
    let backend = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = before([backend.addr()]).await?;
    for _ in 0..5 {
        assert_eq!(at_once(&gateway, 60, false).await?, 60);
    }
    assert_eq!(backend.connections(), 1);
    let narrow = Http2Backend::start(Manner::Echo, 4).await?;
    let gateway = before([narrow.addr()]).await?;
    assert_eq!(at_once(&gateway, 40, true).await?, 40);
    assert!(narrow.most_at_once() <= 4, "{}", narrow.most_at_once());
    Ok(())
}

#[tokio::test]
async fn bodies_trailers_and_headers_of_http2_endpoints_are_forwarded() -> TestResult {
    let backend = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = before([backend.addr()]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut request = Request::post("http://a.test/pkg.Service/Call").body(())?;
    request.headers_mut().insert("content-type", "application/grpc".parse()?);
    let body = vec![b'x'; 50_000];
    let answer = ask(&requests, request, &body, &[("grpc-status", "0")]).await?;
    assert_eq!((answer.head.status().as_u16(), answer.body), (200, body));
    assert_eq!(answer.trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    let told = backend.last();
    assert_eq!(told.get("te").map(|value| value.as_bytes()), Some(&b"trailers"[..]));
    assert_eq!(told.get("x-forwarded-for").map(|value| value.as_bytes()), Some(&b"127.0.0.1"[..]));
    // A response that consists of trailers alone stays so.
    backend.set(Manner::GrpcStatus(5));
    let answer = ask(&requests, get("/"), b"", &[]).await?;
    assert_eq!((answer.header("grpc-status"), answer.trailers.len()), (Some("5"), 0));
    // The gateway also serves clients of HTTP/1.1.
    backend.set(Manner::Echo);
    let mut client = Client::connect(gateway.addr()).await?;
    for _ in 0..3 {
        let response = client.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await?;
        assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    }
    let response = client.request("HEAD / HTTP/1.1\r\nHost: a\r\nX-Id: 1\r\n\r\n").await?;
    assert_eq!(response.status, 200);
    Ok(())
}

#[tokio::test]
async fn post_on_a_refused_stream_is_retried_on_another_endpoint() -> TestResult {
    let refusing = Http2Backend::start(Manner::Refuse, 100).await?;
    let good = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = before([refusing.addr(), good.addr()]).await?;
    for _ in 0..10 {
        assert_eq!(at_once(&gateway, 10, true).await?, 10);
    }
    assert_eq!((refusing.requests(), good.repeated_ids()), (0, Vec::new()));
    Ok(())
}

#[tokio::test]
async fn request_on_a_refused_stream_is_retried_beyond_the_retry_budget_of_its_service() -> TestResult {
    let refusing = Http2Backend::start(Manner::Refuse, 100).await?;
    let good = Http2Backend::start(Manner::GoAwayAfter(3), 100).await?;
    let hour = Span::of_millis(3_600_000);
    let (percent, min_retries) = (Number::of(0), Number::of(1));
    let constraint =
        RetryConstraint { percent, interval: Span::of_millis(1000), min_retries, min_interval: hour };
    let gateway = before([refusing.addr(), good.addr()]).await?;
    gateway
        .configure(|config| {
            for upstream in config.upstreams.values_mut() {
                std::sync::Arc::make_mut(upstream).retry_constraint = Some(constraint);
            }
        })
        .await;
    for round in 0..10 {
        assert_eq!(at_once(&gateway, 10, round % 2 == 0).await?, 10, "round {round}");
    }
    assert!(gateway.count(|upstream| &upstream.retries[Failure::Refused.index()]) > 1);
    assert_eq!(gateway.count(|upstream| &upstream.failures[Failure::OverRetryBudget.index()]), 0);
    Ok(())
}

#[tokio::test]
async fn frequent_goaway_frames_of_endpoints_lose_no_request() -> TestResult {
    let backends = [
        Http2Backend::start(Manner::GoAwayAfter(7), 100).await?,
        Http2Backend::start(Manner::GoAwayAfter(3), 100).await?,
    ];
    let gateway = before(backends.iter().map(Http2Backend::addr)).await?;
    for round in 0..20 {
        assert_eq!(at_once(&gateway, 8, round % 2 == 0).await?, 8, "round {round}");
    }
    for backend in &backends {
        assert_eq!(backend.repeated_ids(), Vec::<String>::new());
        assert!(backend.connections() > 3);
    }
    Ok(())
}

#[tokio::test]
async fn get_requests_in_flight_at_a_killed_endpoint_are_retried() -> TestResult {
    let (dying, good) =
        (Http2Backend::start(Manner::Silent, 100).await?, Http2Backend::start(Manner::Echo, 100).await?);
    let gateway = before([dying.addr()]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let under_way: Vec<_> = (0..5)
        .map(|_| {
            let requests = requests.clone();
            tokio::spawn(async move { ask(&requests, get("/"), b"", &[]).await })
        })
        .collect();
    while dying.requests() < 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    gateway
        .configure(|config| {
            for upstream in config.upstreams.values_mut() {
                std::sync::Arc::make_mut(upstream).endpoints =
                    [dying.addr(), good.addr()].map(ready).into_iter().collect();
            }
        })
        .await;
    dying.kill();
    for answer in under_way {
        assert_eq!(answer.await??.head.status(), 200);
    }
    Ok(())
}

#[tokio::test]
async fn gateway_returns_502_if_an_endpoint_of_an_http2_upstream_speaks_http1() -> TestResult {
    let old = Backend::start(Behaviour::ok()).await?;
    let gateway = before([old.addr()]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    assert_eq!(ask(&requests, get("/"), b"", &[]).await?.head.status(), 502);
    let upstream = gateway.upstream();
    let failures = upstream.shards().sum(|shard| &shard.connect_failures[Failure::NoHttp2.index()]);
    assert!(failures > 0, "{upstream:#?}");
    Ok(())
}

#[tokio::test]
async fn removed_http2_endpoint_finishes_requests_in_flight_and_receives_no_new_requests() -> TestResult {
    let (old, new) =
        (Http2Backend::start(Manner::Echo, 100).await?, Http2Backend::start(Manner::Echo, 100).await?);
    let gateway = before([old.addr()]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut slow = requests.clone().ready().await?;
    let (response, mut sink) = slow.send_request(Request::post("http://a.test/").body(())?, false)?;
    sink.send_data("first".into(), false)?;
    let mut body = response.await?.into_body();
    gateway
        .configure(|config| {
            for upstream in config.upstreams.values_mut() {
                std::sync::Arc::make_mut(upstream).endpoints = [ready(new.addr())].into_iter().collect();
            }
        })
        .await;
    let before = old.requests();
    assert_eq!(at_once(&gateway, 10, true).await?, 10);
    assert_eq!((old.requests(), new.requests()), (before, 10));
    sink.send_data("last".into(), true)?;
    let mut received = Vec::new();
    while let Some(data) = body.data().await {
        received.extend_from_slice(&data?);
    }
    assert_eq!(received, b"firstlast");
    // The old connection ends with its last request; an idle connection ends at once.
    gateway.wait_until(|_| old.open() == 0).await?;
    gateway
        .configure(|config| {
            config.upstreams.values_mut().for_each(|upstream| {
                std::sync::Arc::make_mut(upstream).endpoints = [ready(old.addr())].into_iter().collect();
            });
        })
        .await;
    gateway.wait_until(|_| new.open() == 0).await
}

#[tokio::test]
async fn gateway_opens_a_second_connection_at_the_stream_limit_of_the_first() -> TestResult {
    let backend = Http2Backend::start(Manner::Silent, 1).await?;
    let gateway = before([backend.addr()]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let waiting = tokio::spawn({
        let requests = requests.clone();
        async move { ask(&requests, get("/"), b"", &[]).await }
    });
    gateway.wait_until(|_| backend.requests() == 1).await?;
    backend.set(Manner::Echo);
    assert_eq!(ask(&requests, get("/"), b"", &[]).await?.head.status(), 200);
    assert_eq!(backend.connections(), 2);
    waiting.abort();
    Ok(())
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

#[tokio::test]
async fn websocket_is_forwarded_to_http2_endpoints() -> TestResult {
    let backend = Http2Backend::start(Manner::WebSocket, 100).await?;
    let gateway = before([backend.addr()]).await?;
    let mut client = Client::connect(gateway.addr()).await?;
    client.send(format!("{UPGRADE}\r\nearly")).await?;
    let switching = client.read_response_to_head().await?;
    assert_eq!(switching.status, 101);
    assert_eq!(switching.header("Upgrade"), Some("websocket"));
    assert_eq!(
        switching.header("Sec-WebSocket-Accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "RFC 6455, 1.3"
    );
    assert_eq!(switching.header("Sec-WebSocket-Protocol"), Some("chat"));
    let last = backend.last();
    assert_eq!(last.get("sec-websocket-version").map(|version| version.as_bytes()), Some(&b"13"[..]));
    assert!(last.get("sec-websocket-key").is_none(), "RFC 8441, 5: it is not used");
    assert_eq!(client.read_exact(5).await?, b"early");
    let large = vec![b'x'; 300_000];
    let (sent, came) = {
        let mut echo = Vec::new();
        for piece in large.chunks(50_000) {
            client.send(piece).await?;
            echo.extend(client.read_exact(piece.len()).await?);
        }
        (large, echo)
    };
    assert!(sent == came, "what is sent comes back");
    client.half_close().await?;
    client.expect_end().await?;
    gateway.wait_until(|gateway| gateway.count(|upstream| &upstream.in_flight) == 0).await?;
    Ok(())
}

#[tokio::test]
async fn websocket_declined_or_unsupported_by_an_endpoint_returns_an_error() -> TestResult {
    let backend = Http2Backend::start(Manner::WebSocket, 100).await?;
    let gateway = before([backend.addr()]).await?;
    let mut client = Client::connect(gateway.addr()).await?;
    let refused = client.request(format!("{UPGRADE}X-Id: refused\r\n\r\n")).await?;
    assert_eq!(refused.status, 403, "the endpoint's own answer");
    assert_eq!(client.request(format!("{UPGRADE}X-Id: refused\r\n\r\n")).await?.status, 403);

    let without = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = before([without.addr()]).await?;
    let mut client = Client::connect(gateway.addr()).await?;
    assert_eq!(client.request(format!("{UPGRADE}\r\n")).await?.status, 502);
    assert_eq!(gateway.count(|upstream| &upstream.failures[Failure::NoWebSocket.index()]), 1);
    assert_eq!(without.requests(), 0, "a plain GET in its place would be something else");
    Ok(())
}
