//! Requests as endpoints receive them. They have one reading only. The client cannot forge any header about its address
//! or about its connection to the gateway.

use sluicegate_testkit::backend::{Backend, Behaviour, Request};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

use super::{TestResult, gateway_to};

/// The request as the endpoint receives it.
async fn forwarded(
    gateway: &Gateway,
    backend: &Backend,
    request: impl AsRef<[u8]>,
) -> anyhow::Result<Request> {
    assert_eq!(gateway.connect().await?.request(request).await?.status, 200);
    Ok(backend.last_request().expect("it answered"))
}

/// The header lines that the gateway adds to every request.
const ADDED: [&str; 8] = [
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-Scheme",
    "X-Scheme",
    "X-Forwarded-Host",
    "X-Request-ID",
];

fn names(request: &Request) -> Vec<&str> {
    let names = request.headers.iter().map(|(name, _)| name.as_str());
    names.filter(|name| !ADDED.contains(name)).collect()
}

fn values<'r>(request: &'r Request, name: &str) -> Vec<&'r str> {
    let named = request.headers.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn hop_by_hop_request_headers_are_not_forwarded() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let request = forwarded(
        &gateway,
        &backend,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
         TE: trailers, deflate\r\nUpgrade: websocket\r\nTrailer: X-Sum\r\nAccept: */*\r\n\r\n",
    )
    .await?;
    assert_eq!(names(&request), ["Host", "Trailer", "Accept"]);
    Ok(())
}

#[tokio::test]
async fn headers_named_by_connection_are_dropped_except_protected_headers() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let nominated =
        "Host, Authorization, Cookie, Content-Length, Content-Type, X-Forwarded-For, X-Request-ID, X-Real-IP";
    let request = forwarded(
        &gateway,
        &backend,
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: {nominated}\r\nconnection: ,x-one , X-TWO,close\r\nX-One: 1\r\n\
             x-Two: 2\r\nX-Two: 3\r\nX-Three: 3\r\nAuthorization: Basic x\r\nCookie: c=d\r\nContent-Type: text/plain\r\n\
             Content-Length: 5\r\n\r\nhello"
        ),
    )
    .await?;
    assert_eq!(
        names(&request),
        ["Host", "X-Three", "Authorization", "Cookie", "Content-Type", "Content-Length"]
    );
    assert_eq!((request.header("X-Forwarded-For"), &request.body[..]), (Some("127.0.0.1"), &b"hello"[..]));
    assert_eq!(request.header("X-Request-ID").map(str::len), Some(32));
    Ok(())
}

/// Every header in which proxies report a request's origin, each with a forged value.
const LIES: &str = "Forwarded: for=6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 7.7.7.7\r\n\
    X-Forwarded-Host: evil\r\nX-Forwarded-Port: 6\r\nX-Forwarded-Prefix: /evil\r\nX-Forwarded-Proto: gopher\r\n\
    X-Forwarded-Scheme: gopher\r\nX-Original-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Request-ID: evil\r\n\
    X-Scheme: gopher\r\nX-Forwarded-Ssl: evil\r\nx-forwarded-server: evil\r\nX_Forwarded_For: 6.6.6.6\r\n\
    x_real_ip: 6.6.6.6\r\nX-Forwarded_Proto: gopher\r\nProxy: evil\r\n";

#[tokio::test]
async fn gateway_replaces_forwarding_headers_of_untrusted_clients() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let request =
        forwarded(&gateway, &backend, format!("GET / HTTP/1.1\r\nHost: a:81\r\n{LIES}\r\n")).await?;
    let port = gateway.target().port().to_string();
    for (name, truth) in [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("X-Forwarded-Host", "a:81"),
        ("X-Forwarded-Port", &port),
        ("X-Forwarded-Proto", Transport::of_environment().scheme()),
        ("X-Forwarded-Scheme", Transport::of_environment().scheme()),
        ("X-Scheme", Transport::of_environment().scheme()),
    ] {
        assert_eq!(values(&request, name), [truth], "{name}");
    }
    for name in ["Forwarded", "X-Forwarded-Prefix", "X-Original-Forwarded-For"] {
        assert_eq!(values(&request, name), [""; 0], "{name}");
    }
    assert_eq!(values(&request, "X-Request-ID").len(), 1);
    let head = String::from_utf8_lossy(&request.head);
    assert!(!head.contains("evil") && !head.contains("6.6.6.6") && !head.contains("gopher"), "{head}");
    Ok(())
}

#[tokio::test]
async fn headers_with_underscores_are_forwarded_only_if_enabled() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    for underscores in [false, true] {
        let wanted =
            |settings: &mut sluicegate_model::Settings| settings.underscores_in_headers = underscores;
        let gateway = Gateway::builder().backends([&backend]).settings(wanted).start().await?;
        let get = "GET / HTTP/1.1\r\nHost: a\r\nmy_own: 1\r\nproxy: evil\r\nMy-Own: 2\r\n\r\n";
        let request = forwarded(&gateway, &backend, get).await?;
        let expected = if underscores { vec!["Host", "my_own", "My-Own"] } else { vec!["Host", "My-Own"] };
        assert_eq!(names(&request), expected);
        let dropped = gateway.proxy().registry().counters().workers().sum(|worker| &worker.headers_dropped);
        assert_eq!(dropped, if underscores { 1 } else { 2 });
    }
    Ok(())
}

#[tokio::test]
async fn client_ip_is_the_last_address_before_trusted_proxies() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let trust = |settings: &mut sluicegate_model::Settings| {
        settings.trusted_proxies =
            ["127.0.0.0/8", "10.0.0.0/8"].map(|net| net.parse().expect("a network")).into();
    };
    let gateway = Gateway::builder().backends([&backend]).settings(trust).start().await?;
    for (said, real) in [
        ("6.6.6.6", "6.6.6.6"),
        ("1.1.1.1, 6.6.6.6, 10.1.2.3", "6.6.6.6"),
        ("6.6.6.6, ::ffff:10.1.2.3", "6.6.6.6"),
        ("6.6.6.6, nonsense", "127.0.0.1"),
        ("10.0.0.7, 10.1.2.3", "10.0.0.7"),
    ] {
        let get = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {said}\r\n\r\n");
        let request = forwarded(&gateway, &backend, get).await?;
        assert_eq!(values(&request, "X-Real-IP"), [real], "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn gateway_appends_the_peer_address_to_forwarding_headers_of_trusted_proxies() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let trust = |settings: &mut sluicegate_model::Settings| {
        settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    };
    let gateway = Gateway::builder().backends([&backend]).settings(trust).start().await?;
    let said = "Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-For: 3.3.3.3\r\n\
        X-Forwarded-Host: outside\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Prefix: /p\r\nX-Forwarded-Proto: https\r\n\
        X-Real-IP: 1.1.1.1\r\nX-Request-ID: theirs\r\n";
    let request = forwarded(&gateway, &backend, format!("GET / HTTP/1.1\r\nHost: a\r\n{said}\r\n")).await?;
    for (name, value) in [
        ("Forwarded", "for=1.1.1.1"),
        ("X-Forwarded-For", "1.1.1.1, 2.2.2.2, 3.3.3.3, 127.0.0.1"),
        ("X-Forwarded-Host", "outside"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Prefix", "/p"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Scheme", Transport::of_environment().scheme()),
        ("X-Scheme", Transport::of_environment().scheme()),
        ("X-Real-IP", "1.1.1.1"),
        ("X-Request-ID", "theirs"),
        ("Host", "a"),
    ] {
        assert_eq!(values(&request, name), [value], "{name}");
    }
    let request = forwarded(&gateway, &backend, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    assert_eq!(values(&request, "X-Forwarded-For"), ["127.0.0.1"]);
    assert_eq!(values(&request, "X-Request-ID").len(), 1);
    Ok(())
}

#[tokio::test]
async fn every_request_receives_a_unique_request_id() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..20 {
        let request = forwarded(&gateway, &backend, super::GET).await?;
        let id = request.header("X-Request-ID").unwrap_or_default().to_owned();
        assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
        ids.insert(id);
    }
    assert_eq!(ids.len(), 20);
    Ok(())
}

#[tokio::test]
async fn endpoint_receives_the_target_in_normalized_origin_form_with_an_unchanged_query() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let cases = [
        ("GET /a/./b/../c//d%7E%2f?x=/../%2e&y", "a", "/a/c/d~%2F?x=/../%2e&y", "a"),
        ("GET http://A:80/x?y", "a", "/x?y", "A:80"),
        ("GET HTTP://a", "a:80", "/", "a"),
        ("GET http://a?q", "a", "/?q", "a"),
        ("GET https://a:443/", "A", "/", "a:443"),
        ("OPTIONS /x", "a", "/x", "a"),
        ("GET //evil/..", "a", "/", "a"),
        ("GET /%5c/\"<>", "[::1]:80", "/%5C/%22%3C%3E", "[::1]:80"),
        ("GET /a?%00\\\"", "a", "/a?%00\\\"", "a"),
    ];
    for (start, host, target, arrives) in cases {
        let request =
            forwarded(&gateway, &backend, format!("{start} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?;
        assert_eq!((request.target.as_str(), values(&request, "Host")), (target, vec![arrives]), "{start}");
    }
    Ok(())
}

#[tokio::test]
async fn content_lengths_are_forwarded_without_leading_zeros() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    for (length, body, canonical) in [("010", "0123456789", "10"), ("0", "", "0"), ("00", "", "0")] {
        let put = format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\ncontent-length:  {length} \r\nX-B: 2\r\n\r\n{body}"
        );
        let request = forwarded(&gateway, &backend, put).await?;
        assert_eq!(values(&request, "Content-Length"), [canonical], "{length}");
        assert_eq!(names(&request), ["Host", "X-A", "content-length", "X-B"]);
        assert_eq!(request.body, body.as_bytes());
    }
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (status, request) in
        [("200 OK", get), ("304 Not Modified", get), ("200 OK", &get.replace("GET", "HEAD"))]
    {
        let body = if request == get && status == "200 OK" { "0123456789" } else { "" };
        let reply = format!("HTTP/1.1 {status}\r\nX-A: 1\r\nContent-Length: 010\r\nX-B: 2\r\n\r\n{body}");
        backend.set(Behaviour::raw(reply));
        let response = gateway.connect().await?.request(request).await?;
        assert_eq!(response.headers_named("Content-Length"), ["10"], "{status}");
        assert_eq!((response.header("X-A"), response.header("X-B")), (Some("1"), Some("2")));
    }
    Ok(())
}

#[tokio::test]
async fn chunked_bodies_are_reencoded_in_canonical_form() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let headers =
        ["Transfer-Encoding: chunked", "transfer-encoding:\t ChUnKeD \t", "TRANSFER-ENCODING:chunked"];
    let bodies = [
        "5\r\nhello\r\n0\r\n\r\n",
        "0005;a=b;c=\"d;\\\"\"\r\nhello\r\n000;x\r\n\r\n",
        "5 ; a = b\r\nhello\r\n0 ;y\r\n\r\n",
    ];
    for (header, body) in headers.iter().flat_map(|header| bodies.map(|body| (header, body))) {
        // Some old clients send an empty line after a body (RFC 9112, 2.2).
        let post = format!("\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n{body}");
        let request = forwarded(&gateway, &backend, post).await?;
        assert!(request.head.starts_with(b"POST / HTTP/1.1\r\n"), "empty lines end here");
        assert_eq!(values(&request, "Transfer-Encoding"), ["chunked"], "{header}");
        assert_eq!(String::from_utf8_lossy(&request.raw_body), "5\r\nhello\r\n0\r\n\r\n", "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn trailers_are_forwarded_except_forbidden_fields() -> TestResult {
    let (backend, gateway) = gateway_to(Behaviour::ok()).await?;
    let forbidden = "Content-Length: 5\r\nTransfer-Encoding: x\r\nHost: b\r\nAuthorization: x\r\nCookie: x\r\n\
        X-Forwarded-For: 6.6.6.6\r\nConnection: x\r\nTE: x\r\nExpect: x\r\nRange: x\r\n";
    let post = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n5\r\nhello\r\n0\r\nX-A: 1\r\n\
         {forbidden}X-B: 2\r\n\r\n"
    );
    let request = forwarded(&gateway, &backend, post).await?;
    assert_eq!(String::from_utf8_lossy(&request.raw_body), "5\r\nhello\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n");
    assert_eq!(request.header("Trailer"), Some("X-A"));
    Ok(())
}

#[tokio::test]
async fn http_1_0_requests_and_requests_with_expect_are_forwarded_as_plain_http_1_1() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let everywhere = |options: &mut sluicegate_proxy::Options| options.http = vec![([0, 0, 0, 0], 0).into()];
    let gateway = Gateway::builder().backends([&backend]).options(everywhere).start().await?;
    let request = forwarded(&gateway, &backend, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await?;
    assert_eq!((request.minor_version, names(&request)), (1, vec!["Host"]));
    // An HTTP/1.0 request may omit the host. The gateway then uses the address that the client connected to.
    let host = format!("127.0.0.1:{}", gateway.target().port());
    assert_eq!(values(&request, "Host"), [&host]);
    assert_eq!(values(&request, "X-Forwarded-Host"), [&host]);
    let put = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
    let request = forwarded(&gateway, &backend, put).await?;
    assert_eq!(names(&request), ["Host", "Content-Length"]);
    Ok(())
}

#[tokio::test]
async fn hop_by_hop_response_headers_are_not_forwarded() -> TestResult {
    let reply = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Own\r\nKeep-Alive: timeout=60\r\nX-Own: 1\r\nTE: x\r\n\
        Proxy-Connection: x\r\nUpgrade: h2c\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nX-Other: 2\r\nContent-Length: 2\r\n\r\nhi";
    let (_backend, gateway) = gateway_to(Behaviour::raw(reply)).await?;
    let response = gateway.connect().await?.request(super::GET).await?;
    let names: Vec<_> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Set-Cookie", "Set-Cookie", "X-Other", "Content-Length", "Date"]);
    Ok(())
}
