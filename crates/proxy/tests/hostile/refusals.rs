//! Requests that are refused although their end is clear: the connection serves on, and no endpoint is asked.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{GET, TestResult, gateway_to, serves_on};

/// Sends each request with a good one behind it. Both are answered, in order, and the endpoint saw the good one
/// alone.
async fn assert_answered(cases: impl IntoIterator<Item = (String, u16)>) -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway =
        Gateway::builder().route("elsewhere", "/", "empty").endpoints([backend.addr()]).start().await?;
    for (good, (case, status)) in (1..).zip(cases) {
        let mut client = gateway.connect().await?;
        client.send(format!("{case}{GET}")).await?;
        let refusal = if case.starts_with("HEAD") {
            client.read_response_to_head().await?
        } else {
            client.read_response().await?
        };
        assert_eq!((refusal.status, refusal.header("Connection")), (status, None), "{case}");
        assert_eq!(client.read_response().await?.status, 200, "{case}");
        assert_eq!((backend.requests(), backend.malformed()), (good, 0), "{case}");
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn a_path_that_means_no_good_is_refused() -> TestResult {
    let paths = [
        "/..",
        "/../",
        "/../etc/passwd",
        "/a/../..",
        "/%2e%2e/",
        "/.%2e/a",
        "/%2E./a",
        "/a/%2e%2e/%2e%2e/b",
        "//..",
        "/./..",
        "/%00",
        "/a%00b",
        "/%",
        "/%4",
        "/%zz",
        "/%u0041",
        "/a%2",
        "http://a/../b",
        "http://a/%00",
    ];
    assert_answered(paths.map(|path| (format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), 400))).await
}

#[tokio::test]
async fn methods_that_no_gateway_serves_are_refused_and_options_of_the_gateway_are_answered() -> TestResult {
    let cases = [
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n", 405),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", 200),
    ];
    assert_answered(cases.map(|(case, status)| (case.to_owned(), status))).await?;
    let (_backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let mut client = gateway.connect().await?;
    for start in ["TRACE /", "OPTIONS *"] {
        let answer = client.request(format!("{start} HTTP/1.1\r\nHost: a\r\n\r\n")).await?;
        let allow = answer.header("Allow").unwrap_or_default();
        assert!(allow.contains("PATCH") && !allow.contains("TRACE"), "{allow}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_nobody_serves_is_answered_with_or_without_a_body() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().route("here", "/", "backend").start().await?;
    for method in ["GET", "HEAD", "DELETE"] {
        let mut client = gateway.connect().await?;
        for _ in 0..3 {
            let answer = client.request(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).await?;
            assert_eq!((answer.status, answer.header("Connection")), (404, None));
        }
    }
    let mut client = gateway.connect().await?;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await?;
    assert_eq!(client.read_response().await?.status, 404);
    client.expect_end().await?;
    drop(client);
    assert_eq!(backend.accepted(), 0);
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn a_client_that_sends_on_after_a_refusal_still_reads_it() -> TestResult {
    let (_backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let unread = "x".repeat(500_000);
    for head in [
        "GET / HTTP/1.1\r\nX : y\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 500000\r\n\r\n",
    ] {
        let mut client = gateway.connect().await?;
        client.send(format!("{head}{unread}")).await?;
        assert!(matches!(client.read_response().await?.status, 400 | 405));
        client.expect_end().await?;
    }
    serves_on(&gateway).await
}
