//! Chunked bodies whose end two parsers might find at different places, and bodies beyond the limit.

use std::time::Duration;

use sluicegate_model::Settings;
use sluicegate_proxy::failure::ClientFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;

use super::{GET, SMUGGLED, TestResult, client_faults, serves_on};

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn limit_bodies(settings: &mut Settings) {
    settings.limits.request_body = Some(40_000);
}

/// Sends each body with a request hidden behind it. Sent in one piece, no byte reaches an endpoint; sent in many, an
/// endpoint receives a request that never ends. Each time the client receives the status, both connections end, and the
/// next request opens a new connection.
async fn assert_bodies_refused(bodies: impl IntoIterator<Item = Vec<u8>>, status: u16) -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    for body in bodies {
        let name = body[..body.len().min(100)].escape_ascii();
        let whole = [CHUNKED.as_bytes(), &body, SMUGGLED.as_bytes()].concat();
        for (pieces, before) in [(1, ""), (1, GET), (20, "")] {
            let seen = backend.requests();
            let mut client = gateway.connect().await?;
            if !before.is_empty() {
                client.send(before).await?;
            }
            client.send_slowly(&whole, whole.len().div_ceil(pieces), Duration::ZERO).await?;
            if !before.is_empty() {
                assert_eq!(client.read_response().await?.status, 200, "{name}");
            }
            let refusal = client.read_response().await?;
            assert_eq!((refusal.status, refusal.header("Connection")), (status, Some("close")), "{name}");
            client.expect_end().await?;
            // Includes connections that the endpoint has not accepted yet.
            let made = gateway.count(|upstream| &upstream.connects);
            backend.wait_until(|backend| backend.accepted() == made && backend.open() == 0).await?;
            let forwarded = backend.requests() - seen - u64::from(!before.is_empty());
            assert!(forwarded <= u64::from(pieces > 1), "{name} in {pieces}");
        }
        assert_eq!((backend.ids(), backend.malformed()), (vec![], 0), "{name}");
    }
    serves_on(&gateway).await
}

#[tokio::test]
async fn malformed_chunk_size_is_rejected() -> TestResult {
    let sizes = [
        "",
        "-1",
        "+5",
        "0x5",
        "0X5",
        "x",
        "5g",
        "g5",
        " 5",
        "\t5",
        "5 ",
        "5\t",
        "5 5",
        "5,",
        "5.",
        "5\0",
        "\r",
        "\u{664}",
        "8000000000000000",
        "FFFFFFFFFFFFFFFF",
        "10000000000000000",
        "00000000000000005",
        "100000000000000005",
    ];
    assert_bodies_refused(sizes.map(|size| format!("{size}\r\nhello\r\n0\r\n\r\n").into_bytes()), 400).await
}

#[tokio::test]
async fn chunk_with_a_malformed_end_is_rejected() -> TestResult {
    let bodies = [
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello\r\r\n0\r\n\r\n",
        "5\r\nhello \r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\rhello\r\n0\r\n\r\n",
        "3\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\r\n",
        "0\n\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
    ];
    assert_bodies_refused(bodies.map(Vec::from), 400).await
}

#[tokio::test]
async fn malformed_chunk_extension_is_rejected() -> TestResult {
    let lines = [
        "5;\nx",
        "5;x\ny",
        "5;x=\ny",
        "5;x=\"\ny\"",
        "5;x=\"\r\ny\"",
        "5;x=\"\\\ny\"",
        "5;x\ry",
        "5;x=y\rz",
        "5;",
        "5;;x",
        "5;=x",
        "5;x=",
        "5;x=\"y",
        "5;x=y z",
        "5;x=\0",
        "5;x=\"\x01\"",
        "5 x",
        "5;x y",
        "5;\u{e4}",
    ];
    let too_long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(5000));
    let bodies = lines.map(|line| format!("{line}\r\nhello\r\n0\r\n\r\n"));
    assert_bodies_refused(bodies.into_iter().chain([too_long]).map(String::into_bytes), 400).await
}

#[tokio::test]
async fn malformed_trailers_are_rejected() -> TestResult {
    let trailers = [
        "X: y\n",
        "X: y\r",
        "X : y\r\n",
        " X: y\r\n",
        "X: y\r\n z\r\n",
        "X\r\n",
        ": y\r\n",
        "X: \0\r\n",
        "X y: z\r\n",
        "GET /smuggled HTTP/1.1\r\n",
        "\n",
        "X: y\r\n\n",
    ];
    let too_long = format!("X: {}\r\n", "x".repeat(9000));
    let bodies = trailers.map(str::to_owned).into_iter().chain([too_long, "X: y\r\n".repeat(65)]);
    let bodies = bodies.map(|lines| format!("5\r\nhello\r\n0\r\n{lines}\r\n").into_bytes());
    assert_bodies_refused(bodies, 400).await
}

#[tokio::test]
async fn chunked_body_is_rejected_as_soon_as_it_exceeds_the_limits() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).settings(limit_bodies).start().await?;
    let data = "x".repeat(50_000);
    let cases = [
        (format!("c350\r\n{data}\r\n0\r\n\r\n"), 413),
        (format!("7fffffffffffffff\r\n{data}"), 413),
        ("a\r\n0123456789\r\n".repeat(5_000), 413),
        (format!("1;{}\r\nx\r\n", "x".repeat(1000)).repeat(30), 400),
    ];
    for (body, status) in cases {
        let mut client = gateway.connect().await?;
        client.send(CHUNKED.to_owned() + &body).await?;
        assert_eq!(client.read_response().await?.status, status);
        client.expect_end().await?;
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    assert_eq!(client_faults(&gateway, ClientFault::BodyTooLarge), 3);
    assert_eq!(client_faults(&gateway, ClientFault::BadBody), 1);
    serves_on(&gateway).await
}

#[tokio::test]
async fn content_length_over_the_limit_is_rejected_before_contacting_an_endpoint() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).settings(limit_bodies).start().await?;
    for length in ["40001", "9223372036854775807"] {
        let mut client = gateway.connect().await?;
        client
            .send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"))
            .await?;
        assert_eq!(client.read_response().await?.status, 413);
        client.expect_end().await?;
    }
    assert_eq!(backend.accepted(), 0);
    let exact = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n{}", "x".repeat(40_000));
    assert_eq!(gateway.connect().await?.request(exact).await?.status, 200);
    serves_on(&gateway).await
}
