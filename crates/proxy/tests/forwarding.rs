//! A request's way through the gateway and back.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

type TestResult = anyhow::Result<()>;

#[tokio::test]
async fn a_get_reaches_the_back_end_with_forwarding_headers() -> TestResult {
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
async fn bodies_go_both_ways_whatever_their_framing() -> TestResult {
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
