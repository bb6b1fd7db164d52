//! HTTP/2 by prior knowledge, and gRPC calls.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request, Response};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::pod::Pod;

/// The timeout of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test with a connection. The second argument of the test completes when the connection ends.
fn with_connection<T>(
    pod: &Pod,
    test: impl AsyncFnOnce(SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) -> T,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async {
        let stream = TcpStream::connect(pod.addr).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        test(sender, tokio::spawn(connection)).await
    };
    runtime.block_on(async { timeout(PATIENCE, test).await.unwrap() })
}

/// Returns the response with its body and its trailers.
async fn read(answer: ResponseFuture) -> (Response<()>, Vec<u8>, HeaderMap) {
    let (head, mut body) = answer.await.unwrap().into_parts();
    let bytes = all(&mut body).await;
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    (Response::from_parts(head, ()), bytes, trailers)
}

async fn all(body: &mut RecvStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend_from_slice(&data);
    }
    bytes
}

#[test]
fn url_of_an_http2_request_selects_the_response() {
    let pod = Pod::start("--name web-1");
    with_connection(&pod, async |mut sender, _| {
        let request = Request::get("http://a/?s=100k&r=404").header("x-lab-id", "7").body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        let (head, body, _) = read(answer).await;
        assert_eq!((head.status().as_u16(), body.len()), (404, 100 * 1024));
        let header = |name| head.headers()[name].to_str().unwrap();
        assert_eq!(
            [header("x-lab-id"), header("x-lab-length"), header("x-lab-pod")],
            ["7", "102400", "web-1"]
        );
    });
}

#[test]
fn pod_responds_to_a_grpc_call_with_one_message_and_status_0() {
    for (size, field) in [(5, &b"\x0a\x05"[..]), (1024, b"\x0a\x80\x08")] {
        let pod = Pod::start(&format!("--grpc-size {size}"));
        with_connection(&pod, async |mut sender, _| {
            let request =
                Request::post("http://a/bench.Unary/Call").header("content-type", "application/grpc");
            let (answer, mut call) = sender.send_request(request.body(()).unwrap(), false).unwrap();
            call.send_data(Bytes::from_static(b"\0\0\0\0\0"), true).unwrap();
            let (head, body, trailers) = read(answer).await;
            assert_eq!(head.status(), 200);
            assert_eq!(head.headers()["content-type"], "application/grpc");
            assert_eq!(trailers["grpc-status"], "0");
            let length = u32::try_from(field.len() + size).unwrap().to_be_bytes();
            assert_eq!(body, [&[0], &length[..], field, &b"x".repeat(size)].concat());
        });
    }
}

#[test]
fn draining_pod_finishes_http2_requests_in_flight() {
    let mut pod = Pod::start("--exit drain");
    with_connection(&pod, async |mut sender, connection| {
        let first = Request::post("http://a/?s=1").body(()).unwrap();
        let (under_way, mut body) = sender.send_request(first, false).unwrap();
        let second = Request::get("http://a/?s=1").body(()).unwrap();
        let (answer, _) = sender.send_request(second, true).unwrap();
        assert_eq!(read(answer).await.1, b"x", "and so the first one is known too");
        pod.signal(Signal::TERM);
        while let Ok(ready) = sender.clone().ready().await {
            // Waits until the GOAWAY arrives.
            drop(ready);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        body.send_data(Bytes::from_static(b"body"), true).unwrap();
        assert_eq!(read(under_way).await.1, b"x");
        drop(sender);
        connection.await.unwrap().unwrap();
    });
    assert_eq!(pod.wait().code(), Some(0));
}
