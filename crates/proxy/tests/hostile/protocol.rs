//! Versions, responses without a body, interim responses, expectations and pipelining.

use std::time::Duration;

use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{GET, Stage, TestResult, failures, gateway_to, serves_on};

const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const PUT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[tokio::test]
async fn http_1_0_client_receives_an_unchunked_body_ended_by_close() -> TestResult {
    let (backend, gateway) =
        gateway_to(Behaviour::chunked(["one", "two"], Duration::ZERO, &[("X-T", "1")])).await?;
    for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"] {
        let mut client = gateway.connect().await?;
        let response = client.request(request).await?;
        assert_eq!((response.text().as_str(), response.trailers.len()), ("onetwo", 0));
        assert_eq!(response.header("Transfer-Encoding"), None);
        assert_eq!(response.header("Connection"), Some("close"));
        client.expect_end().await?;
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn http_1_0_connection_stays_open_if_keep_alive_is_requested_and_the_length_is_known() -> TestResult {
    let (_backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let mut client = gateway.connect().await?;
    for _ in 0..3 {
        let response = client.request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").await?;
        assert_eq!((response.status, response.header("Connection")), (200, Some("keep-alive")));
    }
    let response = client.request("GET / HTTP/1.0\r\n\r\n").await?;
    assert_eq!((response.status, response.header("Connection")), (200, Some("close")));
    client.expect_end().await?;
    serves_on(&gateway).await
}

#[tokio::test]
async fn connection_close_header_ends_the_connection_after_one_response() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for option in ["close", "Close", "x, close", "close, keep-alive", "keep-alive, CLOSE"] {
        let mut client = gateway.connect().await?;
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {option}\r\n\r\n{GET}")).await?;
        let response = client.read_response().await?;
        assert_eq!((response.status, response.header("Connection")), (200, Some("close")), "{option}");
        client.expect_end().await?;
    }
    assert_eq!(backend.requests(), 5);
    serves_on(&gateway).await
}

#[tokio::test]
async fn responses_without_a_body_leave_client_and_endpoint_connections_open() -> TestResult {
    let cases = [
        (HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", Some("1000")),
        (HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (HEAD, "HTTP/1.1 404 Not Found\r\n\r\n", None),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n", None),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n", None),
        (GET, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: x\r\n\r\n", Some("1000")),
        (GET, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
    ];
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let mut client = gateway.connect().await?;
    for (request, reply, length) in cases {
        backend.set(Behaviour::raw(reply));
        for _ in 0..2 {
            let response = client.request(request).await?;
            assert_eq!(response.header("Content-Length"), length, "{reply}");
            assert_eq!((response.header("Transfer-Encoding"), response.body.len()), (None, 0), "{reply}");
        }
    }
    assert_eq!(backend.accepted(), 1, "so does the endpoint's");
    Ok(())
}

#[tokio::test]
async fn interim_responses_are_forwarded_except_100_of_the_endpoint() -> TestResult {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let (backend, gateway) = gateway_to(Behaviour::ok().interim(hints)).await?;
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.interim, [103]);
    backend.set(
        Behaviour::ok()
            .interim(format!("HTTP/1.1 100 Continue\r\n\r\n{hints}HTTP/1.1 102 Processing\r\n\r\n")),
    );
    assert_eq!(client.request(GET).await?.interim, [103, 102]);
    let old = client.request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await?;
    assert_eq!((old.status, old.interim), (200, vec![]), "HTTP/1.0 has none");
    client.send(PUT).await?;
    assert_eq!(client.read_interim().await?, 100);
    client.send("hello").await?;
    assert_eq!(client.read_response().await?.interim, [103, 102]);
    Ok(())
}

#[tokio::test]
async fn interim_response_is_forwarded_before_the_final_response() -> TestResult {
    let stage = Stage::set().await?;
    let (mut client, mut endpoint, _) = stage.play(GET).await?;
    endpoint.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n").await?;
    assert_eq!(client.read_until("\r\n\r\n").await?, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await?;
    assert_eq!(client.read_response().await?.text(), "hi");
    Ok(())
}

#[tokio::test]
async fn gateway_sends_100_continue_once_an_endpoint_is_connected() -> TestResult {
    let stage = Stage::set().await?;
    let (mut client, mut endpoint, head) = stage.play(PUT).await?;
    assert!(!head.contains("Expect"), "{head}");
    assert_eq!(client.read_interim().await?, 100);
    client.send("hello").await?;
    assert_eq!(endpoint.read_exact(5).await?, b"hello");
    endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    let response = client.read_response().await?;
    assert_eq!((response.status, response.header("Connection")), (200, None));
    Ok(())
}

#[tokio::test]
async fn rejected_request_receives_no_100_continue() -> TestResult {
    let mut backend = Backend::start(Behaviour::ok()).await?;
    backend.kill().await;
    let gateway = Gateway::builder()
        .route("b", "/", "empty")
        .route("a", "/", "backend")
        .settings(|settings| {
            settings.limits.request_body = Some(10);
            settings.resilience.endpoint_wait = Duration::ZERO;
        })
        .upstream(|upstream| upstream.endpoints = [sluicegate_testkit::gateway::ready(backend.addr())].into())
        .start()
        .await?;
    let put = |host, length| {
        format!("PUT / HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    for (request, status) in [(put("c", 5), 404), (put("a", 11), 413), (put("b", 5), 503), (put("a", 5), 502)]
    {
        let mut client = gateway.connect().await?;
        let response = client.request(&request).await?;
        assert_eq!((response.status, response.interim), (status, vec![]), "{request}");
        client.expect_end().await?;
    }
    gateway.wait_until_idle().await
}

#[tokio::test]
async fn expect_100_continue_without_a_pending_body_receives_no_100_response() -> TestResult {
    let (_backend, gateway) = gateway_to(Behaviour::echo()).await?;
    let mut client = gateway.connect().await?;
    let get = "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    for request in [get.to_owned(), format!("{PUT}hello"), PUT.replace("HTTP/1.1", "HTTP/1.0") + "hello"] {
        let response = client.request(&request).await?;
        assert_eq!((response.status, response.interim), (200, vec![]), "{request}");
    }
    Ok(())
}

#[tokio::test]
async fn pipelined_requests_receive_their_own_responses_in_order() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::echo()).await?;
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let framings = ["\r\n", "Content-Length: 0\r\n\r\n", "Content-Length: 3\r\n\r\nabc", chunked];
    let requests =
        (0..100).map(|n| format!("POST /{n} HTTP/1.1\r\nHost: a\r\nX-Id: {n}\r\n{}", framings[n % 4]));
    let all: String = requests.collect();
    for piece in [1, 7, 100, 4096, all.len()] {
        let mut client = gateway.connect().await?;
        for piece in all.as_bytes().chunks(piece) {
            client.send(piece).await?;
        }
        for n in 0..100 {
            let text = client.read_response().await?.text();
            assert!(text.starts_with(&format!("POST /{n} HTTP/1.1\r\n")), "{n}: {text}");
            assert!(
                text.ends_with(
                    ["\r\n\r\n", "\r\n\r\n", "\r\n\r\nabc", "\r\n\r\n3\r\nabc\r\n0\r\n\r\n"][n % 4]
                )
            );
        }
    }
    assert_eq!(backend.ids().len(), 500, "none was sent twice");
    serves_on(&gateway).await
}

#[tokio::test]
async fn long_bodies_of_pipelined_requests_arrive_unchanged() -> TestResult {
    let (_backend, gateway) = gateway_to(Behaviour::echo()).await?;
    // Longer than the part of a body that the gateway keeps for another attempt.
    let lengths = [1, 65_535, 81_921, 100_003, 200_017, 3];
    let body =
        |n: usize| -> String { (0..lengths[n]).map(|at| char::from(b'a' + ((at + n) % 23) as u8)).collect() };
    let request = |n: usize| {
        format!("PUT /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}", lengths[n], body(n))
    };
    for piece in [1_009, 70_001, 300_000] {
        let mut client = gateway.connect().await?;
        let mut sent = 0;
        for n in 0..lengths.len() {
            // The start of each request arrives with the end of the one before it.
            let (this, next) =
                (request(n), if n + 1 < lengths.len() { request(n + 1) } else { String::new() });
            let start = next.len().min(20);
            for piece in format!("{}{}", &this[sent..], &next[..start]).as_bytes().chunks(piece) {
                client.send(piece).await?;
            }
            sent = start;
            let text = client.read_response().await?.text();
            assert!(text.starts_with(&format!("PUT /{n} HTTP/1.1\r\n")), "{n}: {text:.80}");
            assert!(text.ends_with(&format!("\r\n\r\n{}", body(n))), "{n}: {} bytes", text.len());
        }
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn gateway_closes_a_pipelined_connection_at_the_limit_of_requests() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let limited =
        |settings: &mut sluicegate_model::Settings| settings.limits.requests_per_connection = Some(3);
    let gateway = Gateway::builder().backends([&backend]).settings(limited).start().await?;
    let mut client = gateway.connect().await?;
    client.send(GET.repeat(10)).await?;
    for connection in [None, None, Some("close")] {
        assert_eq!(client.read_response().await?.header("Connection"), connection);
    }
    client.expect_end().await?;
    drop(client);
    assert_eq!(backend.requests(), 3);
    serves_on(&gateway).await
}

#[tokio::test]
async fn old_connection_ends_after_its_next_response_also_of_the_gateway_itself() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let aged = |settings: &mut sluicegate_model::Settings| {
        settings.timeouts.connection_age = Some(Duration::from_millis(20));
    };
    let gateway = Gateway::builder().backends([&backend]).settings(aged).start().await?;
    for request in [GET, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut client = gateway.connect().await?;
        let mut responses = 0;
        loop {
            let response = client.request(request).await?;
            assert_eq!(response.status, 200);
            responses += 1;
            match response.header("Connection") {
                None => assert!(responses < 1_000_000, "the connection does not end"),
                end => break assert_eq!(end, Some("close")),
            }
        }
        client.expect_end().await?;
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn response_delimited_by_close_is_chunked_for_an_http_1_1_client() -> TestResult {
    for version in ["HTTP/1.0", "HTTP/1.1"] {
        let reply = format!("{version} 200 OK\r\nX-A: b\r\n\r\nuntil the close");
        let (backend, gateway) = gateway_to(Behaviour::raw(reply).then_close()).await?;
        let mut client = gateway.connect().await?;
        for _ in 0..2 {
            let response = client.request(GET).await?;
            assert_eq!((response.text().as_str(), response.header("Connection")), ("until the close", None));
            assert_eq!(response.headers_named("Transfer-Encoding"), ["chunked"]);
        }
        let response = client.request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await?;
        assert_eq!(
            (response.text().as_str(), response.header("Connection")),
            ("until the close", Some("close"))
        );
        client.expect_end().await?;
        assert_eq!((backend.accepted(), failures(&gateway, Failure::Truncated)), (3, 0));
    }
    Ok(())
}
