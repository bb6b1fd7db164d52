//! Requests and responses of every kind.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};
use sluicegate_model::tls::Http3;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};
use sluicegate_testkit::http3::receive;
use sluicegate_testkit::stream::Transport;

use crate::{TestResult, URI, before, client, get, with_http3};

#[tokio::test]
async fn request_without_body_reaches_the_endpoint_with_forwarding_headers() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    let request = Request::get("https://localhost/a?b=c").header("x-own", "1").body(())?;
    let response = client.request(request, b"").await?;
    assert_eq!(response.status, 200);
    let seen = String::from_utf8(response.body)?;
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    for line in ["host: localhost", "x-own: 1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: https"] {
        assert!(seen.to_lowercase().contains(&line.to_lowercase()), "{line} in {seen}");
    }
    assert!(!seen.to_lowercase().contains("transfer-encoding"), "{seen}");
    Ok(())
}

#[tokio::test]
async fn bodies_of_any_size_pass_both_ways() -> TestResult {
    let backend = Backend::start(Behaviour::choose_by_body(|request| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.body.len());
        Behaviour::raw([head.as_bytes(), &request.body].concat())
    }))
    .await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    for size in [1, 1_000, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        for with_length in [true, false] {
            let mut request = Request::post(URI);
            if with_length {
                request = request.header("content-length", size);
            }
            let response = client.request(request.body(())?, &body).await?;
            assert_eq!(response.status, 200);
            assert!(response.body == body, "{size} bytes, length {with_length}: {}", response.body.len());
        }
    }
    Ok(())
}

#[tokio::test]
async fn many_requests_share_a_connection() -> TestResult {
    let backend = Backend::start(Behaviour::sized(2_000)).await?;
    let gateway = before(&backend).await?;
    let client = Arc::new(client(&gateway).await?);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                let response = client.get(URI).await?;
                anyhow::ensure!(response.status == 200 && response.body.len() == 2_000, "{response:?}");
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

#[tokio::test]
async fn head_and_statuses_without_body_have_no_body() -> TestResult {
    let backend = Backend::start(Behaviour::choose(|request| match &*request.target {
        "/204" => Behaviour::status(204),
        "/304" => Behaviour::status(304),
        _ => Behaviour::ok(),
    }))
    .await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    for (method, path, status) in
        [(Method::HEAD, "/", 200), (Method::GET, "/204", 204), (Method::GET, "/304", 304)]
    {
        let request = Request::builder().method(method).uri(format!("https://localhost{path}")).body(())?;
        let response = client.request(request, b"").await?;
        assert_eq!(response.status, status);
        assert!(response.body.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn gateway_responds_itself_when_no_route_matches() -> TestResult {
    let gateway = with_http3().start().await?;
    let client = client(&gateway).await?;
    let response = client.get(URI).await?;
    assert_eq!(response.status, 404);
    assert_eq!(response.body, b"404 Not Found\n");
    Ok(())
}

#[tokio::test]
async fn grpc_call_passes_messages_and_trailers_both_ways() -> TestResult {
    let backend = Http2Backend::start(Manner::Echo, 100).await?;
    let gateway = with_http3().http2_endpoints([backend.addr()]).start().await?;
    let client = client(&gateway).await?;
    let request = Request::post("https://localhost/pkg.Service/Chat")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let mut stream = client.open(request).await?;
    stream.send_data(Bytes::from_static(b"message")).await?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).await?;
    stream.finish().await?;
    let response = receive(&mut stream).await?;
    assert_eq!(response.body, b"message");
    assert_eq!(response.trailers.unwrap().get("grpc-status").unwrap(), "0");
    Ok(())
}

#[tokio::test]
async fn response_begins_before_the_request_ends() -> TestResult {
    let backend = Backend::start(Behaviour::ok().early()).await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    let mut stream = client.open(Request::post(URI).body(())?).await?;
    stream.send_data(Bytes::from_static(b"begin")).await?;
    assert_eq!(stream.recv_response().await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn interim_response_arrives_before_the_final_response() -> TestResult {
    let backend = Backend::start(
        Behaviour::ok()
            .interim("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n")
            .delay(Duration::from_millis(50)),
    )
    .await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    let mut stream = client.open(get("/")).await?;
    stream.finish().await?;
    let first = stream.recv_response().await?;
    assert_eq!(first.status(), 103);
    assert_eq!(first.headers()["link"], "</a.css>");
    assert_eq!(stream.recv_response().await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn broken_response_ends_with_a_reset() -> TestResult {
    let backend = Backend::start(Behaviour::too_little(10)).await?;
    let gateway = before(&backend).await?;
    let client = client(&gateway).await?;
    let error = client.get(URI).await.unwrap_err();
    assert!(format!("{error:#}").contains("H3_INTERNAL_ERROR"), "{error:#}");
    assert!(client.connection.close_reason().is_none(), "only the stream broke");
    Ok(())
}

#[tokio::test]
async fn tls_responses_announce_http3_only_if_it_is_served() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    for http3 in [
        None,
        Some(Http3::default()),
        Some(Http3 { port: Some(443), max_age: Duration::from_secs(60), ..Http3::default() }),
        Some(Http3 { max_age: Duration::ZERO, ..Http3::default() }),
    ] {
        let gateway = Gateway::builder()
            .settings(|settings| settings.tls.http3 = http3)
            .backends([&backend])
            .start()
            .await?;
        let port = gateway.https_addr().port();
        let expected = match http3 {
            None => None,
            Some(Http3 { max_age: Duration::ZERO, .. }) => Some("clear".to_owned()),
            Some(Http3 { port: Some(_), .. }) => Some("h3=\":443\"; ma=60".to_owned()),
            Some(_) => Some(format!("h3=\":{port}\"; ma=86400")),
        };
        for transport in [Transport::Https, Transport::Http2] {
            let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
            for (behaviour, status) in [(Behaviour::ok(), 200), (Behaviour::raw("not HTTP\r\n\r\n"), 502)] {
                backend.set(behaviour);
                let response = client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
                assert_eq!(response.status, status);
                assert_eq!(response.header("alt-svc"), expected.as_deref(), "{transport:?}");
            }
        }
        let mut plain = Client::connect_by(gateway.addr(), Transport::Http).await?;
        let response = plain.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        assert_eq!(response.header("alt-svc"), None);
        gateway.stop().await;
    }
    Ok(())
}

#[tokio::test]
async fn access_log_names_the_version() -> TestResult {
    use sluicegate_proxy::record::access_log::{AccessLog, LogFormat};

    let backend = Backend::start(Behaviour::ok()).await?;
    let file = tempfile::NamedTempFile::new()?;
    let log = AccessLog::open(LogFormat::Combined, Some(file.path()))?;
    let gateway =
        with_http3().options(|options| options.access_log = Some(log)).backends([&backend]).start().await?;
    let client = client(&gateway).await?;
    client.get("https://localhost/path").await?;
    drop(client);
    gateway.stop().await;
    let text = std::fs::read_to_string(file.path())?;
    assert!(text.contains("\"GET /path HTTP/3.0\" 200"), "{text}");
    Ok(())
}
