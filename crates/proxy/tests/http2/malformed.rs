//! Messages that RFC 9113 calls malformed, frame by frame, since no client library sends them.

use sluicegate_http1::Rejection;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::Gateway;
use tokio::net::TcpListener;

use crate::floods::{PREFACE, frame};
use crate::{TestResult, before};

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Status(u16),
    /// The gateway reset the stream with this error code.
    Reset(u32),
}

/// `PROTOCOL_ERROR` (RFC 9113, 7).
const PROTOCOL_ERROR: Outcome = Outcome::Reset(1);

/// Fields as literals, in HPACK without its tables.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

const HEAD: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")];

/// The usual head with these pseudo-header fields changed and these fields added.
fn head(change: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    let changed = HEAD.map(|(name, value)| {
        change.iter().find(|(other, _)| *other == name).map_or((name, value), |change| *change)
    });
    block(&[&changed[..], more].concat())
}

/// A client that sends and receives raw frames.
struct Frames {
    client: Client,
    stream: u32,
}

impl Frames {
    async fn connect(gateway: &Gateway) -> anyhow::Result<Self> {
        let mut client = Client::connect(gateway.addr()).await?;
        client.send([PREFACE, &frame(4, 0, 0, &[])].concat()).await?;
        Ok(Self { client, stream: 1 })
    }

    async fn next(&mut self) -> anyhow::Result<(u8, u32, Vec<u8>)> {
        read_frame(&mut self.client).await
    }

    /// Sends a request with this head, this body and these trailers. Returns the outcome.
    async fn ask(&mut self, head: &[u8], body: &str, trailers: Option<&[u8]>) -> anyhow::Result<Outcome> {
        let stream = self.stream;
        self.stream += 2;
        let end = |ends: bool| if ends { END_STREAM } else { 0 };
        let is_bodiless = body.is_empty() && trailers.is_none();
        let mut bytes = frame(1, END_HEADERS | end(is_bodiless), stream, head);
        if !body.is_empty() {
            bytes.extend(frame(0, end(trailers.is_none()), stream, body.as_bytes()));
        }
        if let Some(trailers) = trailers {
            bytes.extend(frame(1, END_HEADERS | END_STREAM, stream, trailers));
        }
        self.client.send(bytes).await?;
        loop {
            match self.next().await? {
                (1, of, block) if of == stream => return Ok(Outcome::Status(status(&block))),
                (3, of, reason) if of == stream => {
                    return Ok(Outcome::Reset(u32::from_be_bytes(reason[..].try_into()?)));
                }
                (7, ..) => anyhow::bail!("the connection ended"),
                _ => {}
            }
        }
    }

    /// Sends a request without a body. Returns the outcome.
    async fn get(&mut self, head: &[u8]) -> anyhow::Result<Outcome> {
        self.ask(head, "", None).await
    }
}

async fn read_frame(client: &mut Client) -> anyhow::Result<(u8, u32, Vec<u8>)> {
    let header = client.read_exact(9).await?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let stream = u32::from_be_bytes(header[5..].try_into()?);
    Ok((header[3], stream, client.read_exact(usize::try_from(length)?).await?))
}

/// The status, which is the first field: an index of the static table, or a literal in Huffman code.
fn status(block: &[u8]) -> u16 {
    match block[0] {
        0x88 => 200,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        // Three digits in Huffman code: 5 is 011011, 0 is 00000, and 1 is 00001.
        0x48 if block[1..4] == [0x82, 0x6c, 0x01] => 501,
        0x48 if block[1..4] == [0x82, 0x6c, 0x02] => 502,
        _ => 0,
    }
}

async fn serving() -> anyhow::Result<(Backend, Gateway, Frames)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::of([&backend]).await?;
    let frames = Frames::connect(&gateway).await?;
    Ok((backend, gateway, frames))
}

#[tokio::test]
async fn http2_requests_that_are_malformed_by_rfc_9113_are_rejected() -> TestResult {
    let (backend, _gateway, mut client) = serving().await?;
    let line = |name: &'static str, value: &'static str| head(&[], &[(name, value)]);
    for (case, head, outcome) in [
        ("two Host lines", head(&[], &[("host", "a"), ("host", "b")]), Outcome::Status(400)),
        ("two equal Host lines", head(&[], &[("host", "a"), ("host", "a")]), Outcome::Status(400)),
        ("another Host", line("host", "b"), Outcome::Status(400)),
        ("an empty authority", head(&[(":authority", "")], &[]), PROTOCOL_ERROR),
        ("an empty Host alone", block(&[HEAD[0], HEAD[1], HEAD[3], ("host", "")]), Outcome::Status(400)),
        ("a space before a value", line("x-a", " b"), Outcome::Status(400)),
        ("a space behind a value", line("x-a", "b "), Outcome::Status(400)),
        ("a tab before a value", line("x-a", "\tb"), Outcome::Status(400)),
        ("a tab behind a value", line("x-a", "b\t"), Outcome::Status(400)),
        ("a value that is a space", line("x-a", " "), Outcome::Status(400)),
        ("a space around a cookie", line("cookie", "a=b "), Outcome::Status(400)),
        ("a space around a length", line("content-length", " 0"), PROTOCOL_ERROR),
        ("a space around a Host", line("host", " a"), Outcome::Status(400)),
        ("an odd scheme", head(&[(":scheme", "ftp")], &[]), Outcome::Status(400)),
        ("another odd scheme", head(&[(":scheme", "httpx")], &[]), Outcome::Status(400)),
        ("a scheme that is none", head(&[(":scheme", "ht tp")], &[]), PROTOCOL_ERROR),
        ("a pseudo-header behind a header", line(":path", "/y"), PROTOCOL_ERROR),
        ("no scheme", block(&[HEAD[0], HEAD[2], HEAD[3]]), PROTOCOL_ERROR),
        ("an empty path", head(&[(":path", "")], &[]), PROTOCOL_ERROR),
        ("Connection", line("connection", "x-a"), PROTOCOL_ERROR),
        ("Transfer-Encoding", line("transfer-encoding", "chunked"), PROTOCOL_ERROR),
        ("Upgrade", line("upgrade", "h2c"), PROTOCOL_ERROR),
        ("TE", line("te", "gzip"), PROTOCOL_ERROR),
    ] {
        assert_eq!(client.get(&head).await?, outcome, "{case}");
    }
    assert_eq!(backend.requests(), 0);
    for (case, head) in [
        ("https", head(&[(":scheme", "https")], &[])),
        ("HTTP", head(&[(":scheme", "HTTP")], &[])),
        ("an equal Host", line("host", "a")),
        ("a space within a value", line("x-a", "b c")),
        ("an empty value", line("x-a", "")),
    ] {
        assert_eq!(client.get(&head).await?, Outcome::Status(200), "{case}");
    }
    Ok(())
}

#[tokio::test]
async fn http2_request_with_an_empty_scheme_is_rejected() -> TestResult {
    let (backend, _gateway, mut client) = serving().await?;
    let outcome = client.get(&head(&[(":scheme", "")], &[])).await?;
    assert!(matches!(outcome, Outcome::Status(400) | PROTOCOL_ERROR), "{outcome:?}");
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn trailers_with_pseudo_headers_or_padded_values_are_rejected() -> TestResult {
    let (backend, _gateway, mut client) = serving().await?;
    // A name in the dynamic table, and then its index.
    let indexed = [&b"\x40\x07:method\x04POST"[..], &block(&HEAD[1..])].concat();
    assert_eq!(client.ask(&indexed, "hello", Some(&block(&[("x-a", "b")]))).await?, Outcome::Status(200));
    for (case, trailers) in [
        ("a path", block(&[(":path", "/y")])),
        ("a method before another field", block(&[(":method", "GET"), ("x-a", "b")])),
        ("a path of the static table", vec![0x84]),
        ("a method of the dynamic table", vec![0xbe]),
        ("a status", block(&[(":status", "200")])),
        ("a space behind a value", block(&[("x-a", "b ")])),
        ("a tab before a value", block(&[("x-a", "\tb")])),
    ] {
        let outcome = client.ask(&head(&[], &[]), "hello", Some(&trailers)).await?;
        assert_eq!(outcome, Outcome::Status(400), "{case}");
    }
    let behind = block(&[("x-a", "b"), (":path", "/y")]);
    assert_eq!(client.ask(&head(&[], &[]), "hello", Some(&behind)).await?, PROTOCOL_ERROR);
    let two = block(&[("x-a", "b"), ("x-a", "c")]);
    assert_eq!(client.ask(&head(&[], &[]), "hello", Some(&two)).await?, Outcome::Status(200));
    let seen = backend.last_request().expect("a request");
    assert!(String::from_utf8_lossy(&seen.raw_body).ends_with("x-a: b\r\nx-a: c\r\n\r\n"));
    Ok(())
}

#[tokio::test]
async fn overlong_methods_and_methods_in_other_letter_case_are_rejected_over_http2() -> TestResult {
    let (backend, gateway, mut client) = serving().await?;
    for method in ["delete", "Get", "connect", "PROPFInd"] {
        let outcome = client.get(&head(&[(":method", method)], &[])).await?;
        assert_eq!(outcome, Outcome::Status(400), "{method}");
    }
    assert_eq!(client.get(&head(&[(":method", &"A".repeat(65))], &[])).await?, Outcome::Status(501));
    let rejected = |rejection: Rejection| {
        gateway.proxy().registry().counters().workers().sum(|worker| &worker.rejections[rejection.index()])
    };
    assert_eq!((rejected(Rejection::MethodInOtherCase), rejected(Rejection::MethodTooLong)), (4, 1));
    assert_eq!(backend.requests(), 0);
    assert_eq!(client.get(&head(&[(":method", "PURGE")], &[])).await?, Outcome::Status(200));
    Ok(())
}

#[tokio::test]
async fn targets_with_raw_bytes_are_rejected_over_http2_unless_allowed() -> TestResult {
    let (backend, gateway, mut client) = serving().await?;
    for path in ["/\u{e4}", "/?\u{e4}"] {
        assert_eq!(client.get(&head(&[(":path", path)], &[])).await?, Outcome::Status(400), "{path}");
    }
    assert_eq!(backend.requests(), 0);
    gateway.configure(|config| config.settings.allow_non_ascii_targets = true).await;
    assert_eq!(client.get(&head(&[(":path", "/\u{e4}")], &[])).await?, Outcome::Status(200));
    assert_eq!(backend.last_request().expect("a request").target, "/%C3%A4");
    Ok(())
}

/// An endpoint that responds to one request with a head, a body and trailers. Returns the outcome at the client.
async fn answered_by(
    head: &[(&str, &str)],
    trailers: Option<&[(&str, &str)]>,
) -> anyhow::Result<Result<sluicegate_testkit::client::Response, sluicegate_testkit::client::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let gateway = before([listener.local_addr()?]).await?;
    let mut client = Client::connect(gateway.addr()).await?;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await?;
    let mut endpoint = Client::over(listener.accept().await?.0)?;
    endpoint.send(frame(4, 0, 0, &[])).await?;
    endpoint.read_exact(PREFACE.len()).await?;
    let stream = loop {
        if let (1, stream, _) = read_frame(&mut endpoint).await? {
            break stream;
        }
    };
    let mut answer = frame(1, END_HEADERS, stream, &block(head));
    answer.extend(frame(0, if trailers.is_some() { 0 } else { END_STREAM }, stream, b"hello"));
    if let Some(trailers) = trailers {
        answer.extend(frame(1, END_HEADERS | END_STREAM, stream, &block(trailers)));
    }
    endpoint.send(answer).await?;
    Ok(client.read_response().await)
}

#[tokio::test]
async fn http2_responses_that_are_malformed_by_rfc_9113_return_502() -> TestResult {
    let ok = (":status", "200");
    let good = answered_by(&[ok], Some(&[("x-sum", "1")])).await??;
    assert_eq!((good.status, good.trailers.len()), (200, 1));
    for line in [("connection", "x-a"), ("transfer-encoding", "chunked"), ("upgrade", "h2c")] {
        let answer = answered_by(&[ok, line], None).await??;
        assert_eq!(answer.status, 502, "{line:?}");
    }
    for trailers in [&[(":status", "200")][..], &[(":path", "/"), ("x-sum", "1")]] {
        let answer = answered_by(&[ok], Some(trailers)).await?;
        assert!(answer.as_ref().map_or(true, |answer| answer.status == 502), "{trailers:?}: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn http2_endpoints_and_clients_receive_canonical_content_lengths() -> TestResult {
    let padded = answered_by(&[(":status", "200"), ("content-length", "005")], None).await??;
    assert_eq!((padded.headers_named("content-length"), padded.text().as_str()), (vec!["5"], "hello"));
    let (backend, _gateway, mut client) = serving().await?;
    let head = head(&[], &[("content-length", "005")]);
    assert_eq!(client.ask(&head, "hello", None).await?, Outcome::Status(200));
    assert_eq!(backend.last_request().expect("a request").header("content-length"), Some("5"));
    Ok(())
}
