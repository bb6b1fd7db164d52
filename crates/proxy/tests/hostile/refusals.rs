//! Requests that the gateway rejects although their end is clear: the connection stays open, and no endpoint receives
//! them.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{GET, TestResult, gateway_to, serves_on};

/// Sends each request with a good request behind it. The gateway responds to both in order. The endpoint receives the
/// good request only.
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
async fn paths_above_the_root_or_with_invalid_escapes_are_rejected() -> TestResult {
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
async fn encoded_dot_segments_are_rejected_unless_allowed() -> TestResult {
    let paths = [
        "/pub/..%2fadmin",
        "/pub/..%2Fadmin",
        "/pub/%2e%2e%5cx",
        "/pub/..;/admin",
        "/pub/..;x=1/admin",
        "/x%2F..",
        "/x%5c..%5cy",
        "/..%3bx/admin",
        "/search/a%2F.%2Fb",
        "/x/..%20/y",
        "//x/..%2f",
        "http://a/pub/..%2fadmin",
    ];
    assert_answered(paths.map(|path| (format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), 400))).await?;
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let asks = async |path: &str| -> anyhow::Result<String> {
        let answer =
            gateway.connect().await?.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await?;
        anyhow::ensure!(answer.status == 200, "{path}: {}", answer.status);
        Ok(backend.last_request().map(|request| request.target).unwrap_or_default())
    };
    for path in ["/v1..2/x", "/a...b", "/...", "/100%25", "/a%2Fb.c", "/a;v=1.2/b", "/x%252F..%252Fy"] {
        assert_eq!(asks(path).await?, path);
    }
    gateway.configure(|config| config.settings.allow_encoded_dot_segments = true).await;
    for path in ["/pub/..%2Fadmin", "/pub/..;/admin", "/x%5C..%5Cy"] {
        assert_eq!(asks(path).await?, path);
    }
    Ok(())
}

#[tokio::test]
async fn targets_with_raw_bytes_above_0x7f_are_rejected_unless_allowed() -> TestResult {
    let targets = ["/\u{e4}", "/a?q=\u{e4}", "/\u{e4}?q", "http://a/\u{e4}"];
    assert_answered(targets.map(|target| (format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400))).await?;
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    gateway.configure(|config| config.settings.allow_non_ascii_targets = true).await;
    let get = "GET /\u{e4}?\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(gateway.connect().await?.request(get).await?.status, 200);
    let head = backend.last_request().expect("a request").head;
    assert!(head.starts_with("GET /%C3%A4?\u{e4} HTTP/1.1\r\n".as_bytes()), "{}", head.escape_ascii());
    // The gateway rejects every target that is not UTF-8.
    let mut client = gateway.connect().await?;
    client.send(&b"GET /\xe4 HTTP/1.1\r\nHost: a\r\n\r\n"[..]).await?;
    assert_eq!(client.read_response().await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn trace_and_connect_are_rejected_and_options_asterisk_returns_200() -> TestResult {
    let cases = [
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n", 405),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 200),
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
async fn request_without_a_matching_route_returns_404() -> TestResult {
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
async fn client_receives_the_rejection_even_if_it_continues_to_send() -> TestResult {
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
