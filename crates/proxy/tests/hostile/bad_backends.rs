//! Endpoints that send malformed, oversized, incomplete or no responses: the client receives a clear status, or sees
//! that its response is incomplete. A fault of an endpoint never spoils another request.

use std::time::Duration;

use sluicegate_http1::ResponseError;
use sluicegate_model::Settings;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Error;
use sluicegate_testkit::gateway::Gateway;

use super::{GET, Stage, TestResult, failures, gateway_to, serves_on};

const SOON: Duration = Duration::from_millis(300);
const BAD: Failure = Failure::BadResponse(ResponseError::BareLf);
const OLD: &str = "GET / HTTP/1.0\r\n\r\n";

async fn strict() -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let change = |settings: &mut Settings| {
        settings.timeouts.response_head = SOON;
        settings.timeouts.upstream_idle = SOON;
        settings.limits.response_head = 4096;
        settings.limits.headers = 20;
    };
    let gateway = Gateway::builder().backends([&backend]).settings(change).start().await?;
    Ok((backend, gateway))
}

/// For each behaviour the client receives this status, and the gateway counts this failure. The client's connection
/// stays open, the endpoint's closes.
async fn assert_answered(cases: impl IntoIterator<Item = (Behaviour, u16, Failure)>) -> TestResult {
    let (backend, gateway) = strict().await?;
    let mut client = gateway.connect().await?;
    for (index, (behaviour, status, failure)) in cases.into_iter().enumerate() {
        let before = failures(&gateway, failure);
        backend.set(behaviour);
        let response = client.request(GET).await?;
        assert_eq!((response.status, response.header("Connection")), (status, None), "case {index}");
        assert_eq!(failures(&gateway, failure), before + 1, "case {index}: {}", failure.reason());
        backend.wait_until(|backend| backend.open() == 0).await?;
        // The endpoint closes this connection, for behaviours that start with a new connection.
        backend.set(Behaviour::raw("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(client.request(GET).await?.status, 200, "case {index}");
        backend.wait_until(|backend| backend.open() == 0).await?;
    }
    drop(client);
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

/// The endpoint responds to any request with these bytes, then waits for another request.
fn reply(bytes: &str) -> Behaviour {
    Behaviour::raw(bytes)
}

#[tokio::test]
async fn ambiguous_response_head_returns_502() -> TestResult {
    let ok = "HTTP/1.1 200 OK\r\n";
    let lines = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 4",
        "Content-Length: -4",
        "Content-Length: +4",
        "Content-Length: 4x",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:",
        "X: y\nContent-Length: 4",
        "X: y\rContent-Length: 4",
        "X: y\r\n z\r\nContent-Length: 4",
        "Content-Length : 4",
        " Content-Length: 4",
        "X: \0\r\nContent-Length: 4",
        "X y: z\r\nContent-Length: 4",
        "Content-Length 4",
    ];
    let whole = lines.map(|lines| format!("{ok}{lines}\r\n\r\nbody"));
    let others = [
        "HTTP/1.1 200 OK\nContent-Length: 4\n\nbody",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\nbody",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ];
    let replies = whole.iter().map(String::as_str).chain(others);
    assert_answered(replies.map(|bytes| (reply(bytes), 502, BAD))).await
}

#[tokio::test]
async fn malformed_response_returns_502() -> TestResult {
    let replies = [
        "\0\u{ff}not http at all\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\x15\x03\x01\0\x02\x02\x46",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/0.9 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 1000 High\r\n\r\n",
        "HTTP/1.1 2xx OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200\0OK\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\r\n\r\n",
        "x",
    ];
    let cases = replies.map(|bytes| (reply(bytes), 502, BAD)).into_iter();
    assert_answered(cases.chain([(Behaviour::garbage(), 502, BAD)])).await
}

#[tokio::test]
async fn endless_response_head_returns_502() -> TestResult {
    let endless = |line: &str| reply(&format!("HTTP/1.1 200 OK\r\n{}", line.repeat(5000)));
    let interim = |status: &str| reply(&format!("HTTP/1.1 {status}\r\n\r\n").repeat(20_000));
    assert_answered([
        (endless("x"), 502, BAD),
        (endless("X: y\r\n"), 502, BAD),
        (reply(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(21))), 502, BAD),
        (reply(&format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(5000))), 502, BAD),
        (interim("100 Continue"), 502, BAD),
    ])
    .await?;
    let (backend, gateway) = strict().await?;
    backend.set(interim("103 Early Hints"));
    let response = gateway.connect().await?.request(GET).await?;
    assert_eq!((response.status, failures(&gateway, BAD)), (502, 1));
    assert!(response.interim.iter().all(|status| *status == 103) && response.interim.len() < 4000);
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn closed_endpoint_returns_502_and_silent_endpoint_returns_504() -> TestResult {
    assert_answered([
        (Behaviour::close_on_accept(), 502, Failure::Reset),
        (Behaviour::close_on_request(), 502, Failure::Reset),
        (Behaviour::reset_on_request(), 502, Failure::Reset),
        (reply("HTTP/1.1 200 OK\r\nConte").then_close(), 502, Failure::Truncated),
        (reply("HTTP").then_close(), 502, Failure::Truncated),
        (Behaviour::silent(), 504, Failure::ResponseTimeout),
        (reply("HTTP/1.1 200 OK\r\nConte"), 504, Failure::ResponseTimeout),
        (reply("HTTP/1.1 103 Early Hints\r\n\r\n"), 504, Failure::ResponseTimeout),
    ])
    .await
}

#[tokio::test]
async fn endpoint_that_never_reads_returns_504() -> TestResult {
    let (backend, gateway) = strict().await?;
    backend.set(Behaviour::hold_on_accept());
    let mut client = gateway.connect().await?;
    assert_eq!(client.request(GET).await?.status, 504);
    assert_eq!(failures(&gateway, Failure::ResponseTimeout), 1);
    backend.set(Behaviour::ok());
    assert_eq!(client.request(GET).await?.status, 200);
    drop(client);
    serves_on(&gateway).await
}

/// Bodies that end before the length or the last chunk that their heads announce.
fn unfinished() -> Vec<(Behaviour, Failure)> {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    let bad_chunks = [
        "",
        "5\r\nhel",
        "5\r\nhelloworld\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "-1\r\n",
        "xyz\r\n",
        "FFFFFFFFFFFFFFFF\r\n",
        "10000000000000005\r\nhello\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n",
    ];
    let chunked_cases =
        bad_chunks.map(|rest| (reply(&format!("{chunked}{rest}")).then_close(), Failure::Truncated));
    let mut cases = vec![
        (Behaviour::too_little(5), Failure::Truncated),
        (Behaviour::too_little(1_000_000), Failure::Truncated),
        (reply(length), Failure::BodyTimeout),
        (reply(chunked), Failure::BodyTimeout),
        (reply(&format!("{chunked}0\r\nX: y\r\n")), Failure::BodyTimeout),
    ];
    cases.extend(chunked_cases);
    cases
}

#[tokio::test]
async fn truncated_response_never_appears_complete_to_the_client() -> TestResult {
    let (backend, gateway) = strict().await?;
    for (index, (behaviour, failure)) in unfinished().into_iter().enumerate() {
        for request in [GET, OLD, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"] {
            let before = failures(&gateway, failure);
            backend.set(behaviour.clone());
            let seen = gateway.connect().await?.request(request).await;
            let told = matches!(&seen, Err(Error::Closed { .. }))
                || seen.as_ref().is_ok_and(|seen| seen.status == 502);
            assert!(told, "case {index}: {request} {seen:?}");
            assert_eq!(failures(&gateway, failure), before + 1, "case {index}: {request}");
            backend.wait_until(|backend| backend.open() == 0).await?;
        }
    }
    backend.set(Behaviour::ok());
    serves_on(&gateway).await
}

#[tokio::test]
async fn body_after_a_large_response_head_arrives_complete() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let body = "y".repeat(5000);
    for size in [16_000, 16_300, 16_350, 16_384, 20_000, 40_000] {
        for (framing, body) in [
            ("Transfer-Encoding: chunked", format!("1388\r\n{body}\r\n0\r\n\r\n")),
            ("Content-Length: 5000", body.clone()),
            ("Connection: close", body.clone()),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nX-Big: {}\r\n{framing}\r\n\r\n", "x".repeat(size));
            backend.set(Behaviour::raw(format!("{head}{body}")).then_close());
            let response = gateway.connect().await?.request(GET).await?;
            assert_eq!((response.status, response.body.len()), (200, 5000), "{size} {framing}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_reset_within_a_response_body_truncates_the_response_to_the_client() -> TestResult {
    let stage = Stage::set().await?;
    for framing in ["Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        for request in [GET, OLD] {
            let (mut client, mut endpoint, _) = stage.play(request).await?;
            endpoint.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n5\r\nhello\r\n")).await?;
            client.read_until("hell").await?;
            endpoint.reset()?;
            let rest = client.read_exact(1_000).await;
            assert!(matches!(rest, Err(Error::Closed { .. })), "{framing}: {rest:?}");
        }
    }
    assert_eq!(failures(&stage.gateway, Failure::Truncated), 6);
    stage.gateway.wait_until_idle().await
}

#[tokio::test]
async fn http_1_0_client_receives_a_reset_if_the_endpoint_resets_within_the_body() -> TestResult {
    let stage = Stage::set().await?;
    for framing in ["", "Transfer-Encoding: chunked\r\n"] {
        let (mut client, mut endpoint, _) = stage.play(OLD).await?;
        endpoint.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n5\r\nhello\r\n")).await?;
        client.read_until("hello").await?;
        endpoint.reset()?;
        // An end of the stream would mean that the body is complete.
        let end = client.read_response().await;
        assert!(matches!(end, Err(Error::Closed { .. })), "{end:?}");
    }
    Ok(())
}

#[tokio::test]
async fn gateway_discards_bytes_after_a_response_and_closes_the_connection() -> TestResult {
    let evil = "HTTP/1.1 200 OK\r\nX-Evil: 1\r\nContent-Length: 4\r\n\r\nevil";
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let cases = [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood".to_owned(), "good"),
        (
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n".to_owned(),
            "good",
        ),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), ""),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\ngood".to_owned(), ""),
        (GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\ngood".to_owned(), ""),
        (head, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood".to_owned(), ""),
    ];
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let mut client = gateway.connect().await?;
    for (request, good, body) in cases {
        for behind in [evil, "x", "\r\n", "HTTP/1.1 100 Continue\r\n\r\n"] {
            backend.set(Behaviour::raw(format!("{good}{behind}")));
            let response = client.request(request).await?;
            assert_eq!((response.text().as_str(), response.header("X-Evil")), (body, None), "{good}");
            backend.wait_until(|backend| backend.open() == 0).await?;
        }
    }
    assert_eq!(backend.accepted(), 24, "no connection was used again");
    Ok(())
}

#[tokio::test]
async fn gateway_closes_an_idle_connection_on_unsolicited_bytes() -> TestResult {
    let stage = Stage::with(|builder| builder.workers(1)).await?;
    let good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
    for unasked in
        ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "HTTP/1.1 408 Request Timeout\r\n\r\n", "x"]
    {
        let (mut client, mut endpoint, _) = stage.play(GET).await?;
        endpoint.send(good).await?;
        assert_eq!(client.read_response().await?.text(), "good");
        endpoint.send(unasked).await?;
        endpoint.expect_end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn slow_response_body_within_the_idle_timeout_arrives_complete() -> TestResult {
    let stage =
        Stage::with(|builder| builder.settings(|settings| settings.timeouts.upstream_idle = SOON * 5))
            .await?;
    let (mut client, mut endpoint, _) = stage.play(GET).await?;
    endpoint.send("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n").await?;
    endpoint.send_slowly("x".repeat(40), 2, Duration::from_millis(50)).await?;
    assert_eq!(client.read_response().await?.body.len(), 40);
    Ok(())
}
