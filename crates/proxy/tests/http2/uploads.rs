//! Request bodies that arrive slowly over HTTP/2.

use std::future::poll_fn;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use sluicegate_model::Settings;
use sluicegate_proxy::failure::ClientFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http2_backend::{Http2Backend, Manner};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::{TestResult, connect};

const GRACE: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(20);

/// Begins an upload.
async fn upload(
    requests: &SendRequest<Bytes>,
    media_type: &str,
) -> anyhow::Result<(ResponseFuture, SendStream<Bytes>)> {
    let request = Request::post("http://a.test/").header("content-type", media_type).body(())?;
    Ok(requests.clone().ready().await?.send_request(request, false)?)
}

/// Waits for room in the windows, then sends as much as fits.
async fn send_some(sink: &mut SendStream<Bytes>) -> anyhow::Result<usize> {
    sink.reserve_capacity(64 * 1024);
    let room = poll_fn(|cx| sink.poll_capacity(cx)).await.context("the stream ended")??;
    sink.send_data(vec![b'x'; room].into(), false)?;
    Ok(room)
}

async fn status(response: ResponseFuture) -> anyhow::Result<u16> {
    Ok(timeout(SOON, response).await??.status().as_u16())
}

fn faults(gateway: &Gateway, fault: ClientFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.client_faults[fault.index()])
}

fn short(settings: &mut Settings) {
    settings.timeouts.request_body_grace = GRACE;
    settings.limits.stalled_uploads_per_endpoint = 1;
}

#[tokio::test]
async fn silent_grpc_call_is_not_rejected_as_too_slow() -> TestResult {
    let backend = Http2Backend::start(Manner::Silent, 100).await?;
    let builder = Gateway::builder().workers(1).http2_endpoints([backend.addr()]).settings(short);
    let gateway = builder.start().await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(upload(&requests, "application/grpc+proto").await?);
    }
    for count in 1..=2 {
        let (response, _sink) = upload(&requests, "application/octet-stream").await?;
        assert_eq!(status(response).await?, 408);
        assert_eq!(faults(&gateway, ClientFault::BodyTooSlow), count);
    }
    assert_eq!(faults(&gateway, ClientFault::UploadStalled), 0);
    assert_eq!(gateway.proxy().registry().counters().workers().sum(|worker| &worker.in_flight), 3);
    for (response, sink) in &mut calls {
        sink.send_data(Bytes::from_static(b"still there"), false)?;
        assert!(timeout(Duration::ZERO, response).await.is_err(), "the call is open");
    }
    Ok(())
}

#[tokio::test]
async fn grpc_upload_to_an_http_1_endpoint_must_meet_the_minimum_rate() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().workers(1).backends([&backend]).settings(short).start().await?;
    let (requests, _connection) = connect(&gateway).await?;
    let (response, _sink) = upload(&requests, "application/grpc").await?;
    assert!(timeout(SOON, response).await??.headers().contains_key("grpc-status"));
    assert_eq!(faults(&gateway, ClientFault::BodyTooSlow), 1);
    backend.wait_until(|backend| backend.open() == 0).await?;
    Ok(())
}

#[tokio::test]
async fn stalled_http2_uploads_occupy_a_limited_number_of_endpoint_connections() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let builder = Gateway::builder().workers(1).backends([&backend]);
    let gateway = builder
        .settings(|settings| {
            settings.limits.request_body_rate = 0;
            settings.limits.stalled_uploads_per_endpoint = 8;
        })
        .start()
        .await?;
    let (requests, _connection) = connect(&gateway).await?;
    let mut uploads = Vec::new();
    for _ in 0..50 {
        uploads.push(upload(&requests, "text/plain").await?);
    }
    gateway.wait_until(|gateway| faults(gateway, ClientFault::UploadStalled) == 42).await?;
    backend.wait_until(|backend| backend.open() == 8).await?;
    Ok(())
}

#[tokio::test]
async fn upload_blocked_by_the_connection_window_is_not_rejected_as_too_slow() -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let gateway = Gateway::builder()
        .workers(1)
        .endpoints([listener.local_addr()?])
        .settings(|settings| {
            settings.timeouts.request_body_grace = GRACE;
            settings.limits.http2_stream_window = 64 * 1024;
            settings.limits.http2_connection_window = 64 * 1024;
        })
        .start()
        .await?;
    let accept = async || anyhow::Ok(Client::over(timeout(SOON, listener.accept()).await??.0)?);
    let (requests, _connection) = connect(&gateway).await?;
    // The first upload takes the whole window, since its endpoint reads nothing.
    let (first, mut sink) = upload(&requests, "text/plain").await?;
    let mut first_endpoint = accept().await?;
    let mut length = 0;
    while let Ok(taken) = timeout(3 * GRACE, send_some(&mut sink)).await {
        length += taken?;
    }
    sink.send_data(Bytes::new(), true)?;
    let (second, mut sink) = upload(&requests, "text/plain").await?;
    sink.send_data(Bytes::from_static(b"hello"), true)?;
    let mut second_endpoint = accept().await?;
    // Meanwhile another client is too slow, although its endpoint has room.
    for count in 1..=4 {
        let mut slow = gateway.connect().await?;
        slow.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n").await?;
        let _endpoint = accept().await?;
        assert_eq!(slow.read_response().await?.status, 408);
        assert_eq!(faults(&gateway, ClientFault::BodyTooSlow), count);
    }
    first_endpoint.read_until("\r\n\r\n").await?;
    let mut read = 0;
    while read < length {
        read += first_endpoint.read_exact((length - read).min(4096)).await?.len();
    }
    for endpoint in [&mut first_endpoint, &mut second_endpoint] {
        endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    }
    assert_eq!((status(first).await?, status(second).await?), (200, 200));
    Ok(())
}
