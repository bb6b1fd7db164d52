use std::sync::Arc;
use std::time::Duration;

use h2::ext::Protocol;
use http::{Method, Request};
use sluicegate_proxy::Drain;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use crate::{TestResult, ask, connect, get};

#[tokio::test]
async fn concurrent_requests_on_one_connection_receive_their_own_responses() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..100 {
        let requests = requests.clone();
        tasks.spawn(async move {
            let mut request = get("/");
            request.headers_mut().insert("x-id", format!("id-{id:03}").parse().expect("a value"));
            (id, ask(&requests, request, b"", &[]).await)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (id, answer) = done?;
        let answer = answer?;
        assert_eq!(answer.head.status(), 200);
        assert!(String::from_utf8_lossy(&answer.body).contains(&format!("id-{id:03}")));
    }
    Ok(())
}

#[tokio::test]
async fn http2_bodies_and_trailers_are_forwarded_in_both_directions() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let body = vec![b'x'; 60_000];
    let post = || Request::post("http://a.test/").body(()).expect("a request");
    let answer = ask(&requests, post(), &body, &[("x-check", "sum")]).await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("Transfer-Encoding: chunked") && text.contains("x-check: sum\r\n"), "{text:.300}");
    let mut sized = post();
    sized.headers_mut().insert("content-length", "5".parse()?);
    let text = String::from_utf8_lossy(&ask(&requests, sized, b"hello", &[]).await?.body).into_owned();
    assert!(text.contains("content-length: 5\r\n") && text.ends_with("hello"), "{text}");
    backend.set(Behaviour::chunked(["one", "two"], Duration::ZERO, &[("X-Sum", "6")]));
    let answer = ask(&requests, get("/"), b"", &[]).await?;
    assert_eq!(answer.body, b"onetwo");
    assert_eq!(answer.trailers.get("x-sum").map(|value| value.as_bytes()), Some(&b"6"[..]));
    assert_eq!(answer.header("transfer-encoding"), None, "RFC 9113, 8.2.2");
    Ok(())
}

#[tokio::test]
async fn http2_cookie_lines_are_joined_and_conflicting_hosts_are_rejected() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut request = get("/");
    for cookie in ["a=1", "b=2"] {
        request.headers_mut().append("cookie", cookie.parse()?);
    }
    assert_eq!(ask(&requests, request, b"", &[]).await?.head.status(), 200);
    assert_eq!(backend.last_request().expect("a request").header("cookie"), Some("a=1; b=2"));
    let mut request = get("/");
    request.headers_mut().insert("host", "b.test".parse()?);
    assert_eq!(ask(&requests, request, b"", &[]).await?.head.status(), 400);
    let connect_to = Request::builder().method(Method::CONNECT).uri("a.test:443").body(())?;
    assert_eq!(ask(&requests, connect_to, b"", &[]).await?.head.status(), 405);
    Ok(())
}

#[tokio::test]
async fn extended_connect_with_a_length_or_invalid_protocol_is_rejected() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let tunnel = |protocol: &str, length: Option<&str>| {
        let mut request = Request::builder().method(Method::CONNECT).uri("http://a.test/chat");
        request = request.extension(Protocol::from(protocol));
        request =
            length.into_iter().fold(request, |request, length| request.header("content-length", length));
        request.body(()).expect("a request")
    };
    for (protocol, length, status) in [
        // An endpoint would read the bytes of other requests on its connection as the body of this request.
        ("websocket", Some("40"), 400),
        ("websocket", Some("0"), 400),
        ("h2c", Some("40"), 501),
        ("h2c", None, 501),
        ("websocket\r\nX-Injected: 1", None, 501),
        ("websocket\r\nContent-Length: 40", None, 501),
        ("websocket\r\n\r\nGET /admin HTTP/1.1", None, 501),
        ("web socket", None, 501),
        ("", None, 501),
    ] {
        // The stream of this request stays open, as the stream of a tunnel does.
        let mut requests = requests.clone().ready().await?;
        let (response, _sink) = requests.send_request(tunnel(protocol, length), false)?;
        assert_eq!(response.await?.status(), status, "{protocol:?} {length:?}");
    }
    assert_eq!(backend.requests(), 0);
    let mut requests = requests.clone().ready().await?;
    let (response, _sink) = requests.send_request(tunnel("websocket", None), false)?;
    assert_eq!(response.await?.status(), 200, "it is answered, and no tunnel");
    assert_eq!(backend.last_request().expect("a request").header("content-length"), None);
    Ok(())
}

#[tokio::test]
async fn forbidden_trailer_fields_are_dropped() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let post = Request::post("http://a.test/").body(()).expect("a request");
    let trailers = [
        ("x-check", "sum"),
        ("x-consumer-username", "root"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-user", "root"),
        ("authorization", "Basic x"),
        ("host", "b.test"),
        ("ssl-client-verify", "SUCCESS"),
        ("x_user", "root"),
        ("te", "trailers"),
    ];
    let answer = ask(&requests, post, b"hello", &trailers).await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let behind = text.split("\r\n0\r\n").nth(1).expect("trailers");
    assert_eq!(behind.trim_end(), "x-check: sum", "{text}");
    Ok(())
}

#[tokio::test]
async fn truncated_response_resets_only_its_own_stream() -> TestResult {
    let backend = Backend::start(Behaviour::too_little(10)).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let error = ask(&requests, get("/"), b"", &[]).await.expect_err("it is not whole");
    assert!(error.is_reset(), "{error}");
    backend.set(Behaviour::ok());
    assert_eq!(ask(&requests, get("/"), b"", &[]).await?.head.status(), 200);
    Ok(())
}

#[tokio::test]
async fn stream_reset_by_the_client_closes_the_endpoint_connection() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let (response, mut sink) = requests.clone().send_request(get("/"), false)?;
    sink.send_data(bytes::Bytes::new(), true)?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    sink.send_reset(h2::Reason::CANCEL);
    drop(response);
    backend.wait_until(|backend| backend.open() == 0).await?;
    Ok(())
}

#[tokio::test]
async fn grpc_client_receives_errors_as_grpc_status() -> TestResult {
    let gateway = Gateway::builder().route("only.test", "/", "backend").start().await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut request = Request::post("http://a.test/a.B/C").body(())?;
    request.headers_mut().insert("content-type", "application/grpc+proto".parse()?);
    let answer = ask(&requests, request, b"x", &[]).await?;
    assert_eq!((answer.head.status().as_u16(), answer.header("grpc-status")), (200, Some("12")));
    assert_eq!(answer.header("grpc-message"), Some("Not Found"));
    let mut request = Request::post("http://only.test/a.B/C").body(())?;
    request.headers_mut().insert("content-type", "application/grpc".parse()?);
    let answer = ask(&requests, request, b"x", &[]).await?;
    assert_eq!((answer.head.status().as_u16(), answer.header("grpc-status")), (200, Some("14")));
    assert_eq!(ask(&requests, get("/"), b"", &[]).await?.head.status(), 404);
    Ok(())
}

#[tokio::test]
async fn grpc_call_beyond_its_timeout_receives_deadline_exceeded() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut request = Request::post("http://a.test/a.B/C").body(())?;
    request.headers_mut().insert("content-type", "application/grpc".parse()?);
    request.headers_mut().insert("grpc-timeout", "100m".parse()?);
    let answer = ask(&requests, request, b"x", &[]).await?;
    assert_eq!(answer.header("grpc-status"), Some("4"), "DEADLINE_EXCEEDED");
    Ok(())
}

#[tokio::test]
async fn gateway_sends_goaway_at_shutdown_and_serves_requests_in_flight() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_millis(200))).await?;
    let gateway = Arc::new(Gateway::of([&backend]).await?);
    let (used, connection) = connect(&gateway).await?;
    ask(&used, get("/"), b"", &[]).await?;
    let (busy, busy_connection) = connect(&gateway).await?;
    let under_way = tokio::spawn(async move { ask(&busy, get("/"), b"", &[]).await });
    backend.wait_until(|backend| backend.requests() == 2).await?;
    let drain = Drain {
        grace: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
    };
    let end = tokio::spawn({
        let gateway = gateway.clone();
        async move { gateway.proxy().shutdown(drain).await }
    });
    connection.await??;
    assert_eq!(under_way.await??.head.status(), 200);
    busy_connection.await??;
    // The gateway serves one request of a client that connects during the grace period.
    let (late, late_connection) = connect(&gateway).await?;
    assert_eq!(ask(&late, get("/"), b"", &[]).await?.head.status(), 200);
    drop(late);
    late_connection.await??;
    gateway.proxy().end_grace();
    end.await?;
    Ok(())
}

#[tokio::test]
async fn gateway_sends_goaway_on_old_connections_and_serves_requests_in_flight() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_millis(500))).await?;
    let builder = Gateway::builder().backends([&backend]);
    let aged = |settings: &mut sluicegate_model::Settings| {
        settings.timeouts.connection_age = Some(Duration::from_millis(20));
    };
    let gateway = builder.settings(aged).start().await?;
    let (_unused, unused_connection) = connect(&gateway).await?;
    let (busy, busy_connection) = connect(&gateway).await?;
    let under_way = tokio::spawn(async move { ask(&busy, get("/"), b"", &[]).await });
    backend.wait_until(|backend| backend.requests() == 1).await?;
    // The client that has made no request also receives GOAWAY.
    unused_connection.await??;
    assert_eq!(under_way.await??.head.status(), 200);
    busy_connection.await??;
    Ok(())
}

#[tokio::test]
async fn gateway_announces_its_stream_limit_and_further_requests_wait() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_millis(50))).await?;
    let builder = Gateway::builder().backends([&backend]);
    let gateway = builder.settings(|settings| settings.limits.http2_streams = 2).start().await?;
    let (requests, _connection) = connect(&gateway).await?;
    // The client learns the limit with the first response. Before, the gateway resets the stream with REFUSED_STREAM
    // (RFC 9113, 5.1.2).
    ask(&requests, get("/"), b"", &[]).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let requests = requests.clone();
        tasks.spawn(async move { ask(&requests, get("/"), b"", &[]).await });
    }
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done??.head.status(), 200);
    }
    Ok(())
}
