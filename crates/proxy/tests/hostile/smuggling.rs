//! Request smuggling: requests that two parsers might read differently. The gateway rejects them with a clear status,
//! and no byte of them reaches a backend.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::{Builder, Gateway};

use super::{GET, SMUGGLED, TestResult, serves_on};

/// Sends each request with another request hidden behind it: in one piece, in many, and behind a good request. Each
/// time the client receives the status, the connection ends there, and no byte of the hidden request reaches an
/// endpoint.
pub(crate) async fn assert_refused<'c>(cases: impl IntoIterator<Item = (&'c [u8], u16)>) -> TestResult {
    assert_refused_by(|builder| builder, cases).await
}

pub(crate) async fn assert_refused_by<'c>(
    change: impl FnOnce(Builder) -> Builder,
    cases: impl IntoIterator<Item = (&'c [u8], u16)>,
) -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = change(Gateway::builder().backends([&backend])).start().await?;
    let mut good = 0;
    for (case, status) in cases {
        let name = case.escape_ascii().to_string();
        let name = &name[..name.len().min(200)];
        let whole = [case, SMUGGLED.as_bytes()].concat();
        for pieces in [1, 20] {
            let mut client = gateway.connect().await?;
            client.send_slowly(&whole, whole.len().div_ceil(pieces), std::time::Duration::ZERO).await?;
            assert_eq!(client.read_response().await?.status, status, "{name} in {pieces}");
            client.expect_end().await?;
        }
        let mut client = gateway.connect().await?;
        client.send([GET.as_bytes(), &whole].concat()).await?;
        assert_eq!(client.read_response().await?.status, 200, "{name}");
        let refusal = client.read_response().await?;
        assert_eq!((refusal.status, refusal.header("Connection")), (status, Some("close")), "{name}");
        client.expect_end().await?;
        good += 1;
        assert_eq!((backend.requests(), backend.malformed()), (good, 0), "{name}");
    }
    serves_on(&gateway).await
}

/// A POST with these header lines, and a body that ends at once if the body is chunked.
fn framed_by(lines: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n0\r\n\r\n").into_bytes()
}

async fn assert_framings_refused(framings: &[(&str, u16)]) -> TestResult {
    let cases: Vec<_> = framings.iter().map(|(lines, status)| (framed_by(lines), *status)).collect();
    assert_refused(cases.iter().map(|(case, status)| (&case[..], *status))).await
}

#[tokio::test]
async fn request_with_content_length_and_transfer_encoding_is_rejected() -> TestResult {
    assert_framings_refused(&[
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 0", 400),
        ("content-length: 5\r\ntransfer-encoding: CHUNKED", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: identity", 400),
        ("Content-Length: 5\r\nTransfer-Encoding: xchunked", 400),
        ("Content-Length: 5\r\nConnection: Content-Length\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 5\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked", 400),
    ])
    .await
}

#[tokio::test]
async fn obscured_transfer_encoding_is_rejected() -> TestResult {
    assert_framings_refused(&[
        ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: chunkedx", 501),
        ("Transfer-Encoding: identity", 501),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: x\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding: chunked, identity", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-encoding: identity", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding: ,chunked", 400),
        ("Transfer-Encoding: chunked,", 400),
        ("Transfer-Encoding: \"chunked\"", 400),
        ("Transfer-Encoding: 'chunked'", 501),
        ("Transfer-Encoding: chunked;q=1", 400),
        ("Transfer-Encoding: chun ked", 400),
        ("Transfer-Encoding: chunked\x0b", 400),
        ("Transfer-Encoding: \x0cchunked", 400),
        ("Transfer-Encoding: chunked\0", 400),
        ("Transfer-Encoding: chunked\u{a0}", 400),
        ("Transfer-Encoding : chunked", 400),
        ("Transfer-Encoding\t: chunked", 400),
        ("Transfer-Encoding\r\n: chunked", 400),
        ("Transfer-Encoding:\r\n chunked", 400),
        ("Transfer-Encoding: chunked\r\n\t", 400),
        (" Transfer-Encoding: chunked", 400),
        ("X: y\r\n Transfer-Encoding: chunked", 400),
        ("X: y\nTransfer-Encoding: chunked", 400),
        ("X: y\rTransfer-Encoding: chunked", 400),
        ("X: y\r\rTransfer-Encoding: chunked", 400),
        ("\0Transfer-Encoding: chunked", 400),
        ("Transfer-Encod\u{131}ng: chunked", 400),
    ])
    .await?;
    assert_refused([(&b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..], 400)])
        .await
}

#[tokio::test]
async fn malformed_content_length_is_rejected() -> TestResult {
    let two_lines = ["Content-Length: 5\r\nContent-Length: 5", "Content-Length: 5\r\nContent-Length: 6"];
    let values = [
        "",
        "5, 5",
        "5, 6",
        "5,",
        "+5",
        "-5",
        "0x5",
        "5 5",
        "5.0",
        "5e0",
        "5;",
        "\"5\"",
        "five",
        "1_0",
        "0b1",
        "5\u{a0}",
        "\u{665}",
        "\x0b5",
        "5\0",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551621",
        "99999999999999999999999999",
    ];
    let one_line = values.map(|value| format!("Content-Length: {value}"));
    let lines = two_lines.into_iter().chain(one_line.iter().map(String::as_str));
    assert_framings_refused(&lines.map(|line| (line, 400)).collect::<Vec<_>>()).await
}

#[tokio::test]
async fn line_without_a_crlf_ending_is_rejected() -> TestResult {
    let cases: [&[u8]; 13] = [
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\rHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \ry\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r \r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r \r\n",
        b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    assert_refused(cases.map(|case| (case, 400))).await
}

#[tokio::test]
async fn malformed_header_line_is_rejected() -> TestResult {
    let lines = [
        "X: y\r\n folded",
        "X: y\r\n\tfolded",
        " X: y",
        "\tX: y",
        "X : y",
        "X\t: y",
        "X y: z",
        ": y",
        "X",
        "X\0: y",
        "X: y\0",
        "X: \x01",
        "X: y\x7f",
        "X\x0b: y",
        "X(: y",
        "X\u{e4}: y",
        "\"X\": y",
        "X[]: y",
        "=: y\x1b",
    ];
    let cases = lines.map(|line| format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n"));
    assert_refused(cases.iter().map(|case| (case.as_bytes(), 400))).await
}

#[tokio::test]
async fn malformed_request_line_is_rejected() -> TestResult {
    let cases = [
        ("GET /", 400),
        ("GET", 400),
        ("GET / ", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        (" GET / HTTP/1.1", 400),
        ("GET / x HTTP/1.1", 400),
        ("G\0T / HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("GET /\0 HTTP/1.1", 400),
        ("GET /\x7f HTTP/1.1", 400),
        ("GET / HTTP/1.1x", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/11", 400),
        ("GET / HTCPCP/1.0", 400),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/3.0", 505),
        ("PRI / HTTP/2.0", 505),
    ];
    let cases = cases.map(|(line, status)| (format!("{line}\r\nHost: a\r\n\r\n"), status));
    assert_refused(cases.iter().map(|(case, status)| (case.as_bytes(), *status))).await?;
    assert_refused([(&b"GET /\r\n\r\n"[..], 400), (&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], 400)])
        .await
}

#[tokio::test]
async fn known_methods_in_lower_or_mixed_case_are_rejected() -> TestResult {
    let methods = [
        "get",
        "Get",
        "head",
        "delete",
        "DELETe",
        "post",
        "options",
        "patch",
        "put",
        "trace",
        "connect",
        "propfind",
        "Version-Control",
        "mkcol",
        "query",
        "pri",
    ];
    let cases = methods.map(|method| format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_refused(cases.iter().map(|case| (case.as_bytes(), 400))).await
}

#[tokio::test]
async fn overlong_method_is_rejected_before_its_last_byte() -> TestResult {
    let case = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(65));
    assert_refused([(case.as_bytes(), 501)]).await?;
    let (_backend, gateway) = super::gateway_to(Behaviour::ok()).await?;
    for beginning in ["A".repeat(65), format!("\r\n{}", "A".repeat(65)), "A".repeat(100_000)] {
        let mut client = gateway.connect().await?;
        client.send(beginning).await?;
        assert_eq!(client.read_response().await?.status, 501);
    }
    let longest = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(64));
    assert_eq!(gateway.connect().await?.request(longest).await?.status, 200);
    serves_on(&gateway).await
}

#[tokio::test]
async fn ambiguous_target_or_host_is_rejected() -> TestResult {
    let targets = [
        "foo",
        "*",
        "a:80",
        "http://b/",
        "http://b:80/",
        "http://a:81/",
        "http://u@a/",
        "http://u:p@a/",
        "http:///",
        "http://",
        "http:/a/",
        "http:a",
        "https://b/",
        "ftp://a/",
        "file:///etc/passwd",
        "http://a\\@b/",
        "http://[::1/",
        "/#f",
        "/?q#f",
        "http://a/#f",
        "http://a#f",
        "?q",
    ];
    let by_target = targets.iter().map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let hosts = [
        "",
        "Host:",
        "Host: \t ",
        "Host:\r\nHost: a",
        "Host: a\r\nHost: a",
        "Host: a\r\nHost: b",
        "Host: a\r\nhost: a",
        "Host: a b",
        "Host: a/b",
        "Host: a?b",
        "Host: a#b",
        "Host: u@a",
        "Host: a:b",
        "Host: a:80:80",
        "Host: a:65536",
        "Host: a:-1",
        "Host: :80",
        "Host: a\\b",
        "Host: [::1",
        "Host: ::1",
        "Host: [::g]",
        "Host: a%2",
        "Host: <a>",
        "Host: \u{e4}",
        "Host : a",
        " Host: a",
    ];
    let by_host = hosts.iter().map(|lines| match *lines {
        "" => "GET / HTTP/1.1\r\n\r\n".to_owned(),
        lines => format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n"),
    });
    let others =
        ["OPTIONS a:80", "CONNECT /", "CONNECT *", "CONNECT a", "CONNECT b:443", "CONNECT http://a/"];
    let others = others.map(|start| format!("{start} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let cases: Vec<String> = by_target.chain(by_host).chain(others).collect();
    assert_refused(cases.iter().map(|case| (case.as_bytes(), 400))).await
}

#[tokio::test]
async fn request_head_beyond_the_limits_is_rejected() -> TestResult {
    let get = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let cases = [
        (get(&format!("X: {}\r\n", "x".repeat(4096))), 431),
        (get(&"X: y\r\n".repeat(20)), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(4096)), 414),
        (format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(4096)), 414),
        (format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "X".repeat(4096)), 501),
        (get(&format!("Connection: {}close\r\n", "x,".repeat(64))), 400),
        (get("Expect: 200-ok\r\n"), 417),
        (get("Expect: 100-continue\r\nExpect: x\r\n"), 417),
        (get("Expect: 100-continue, x\r\n"), 417),
    ];
    let cases = cases.iter().map(|(case, status)| (case.as_bytes(), *status));
    let limited = |builder: Builder| {
        builder.settings(|settings| (settings.limits.request_head, settings.limits.headers) = (4096, 20))
    };
    assert_refused_by(limited, cases).await
}
