use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 16 };

fn parse_within(bytes: &[u8], limits: &HeadLimits) -> Result<Option<RequestHead>, Rejection> {
    let mut head = RequestHead::default();
    let complete = head.parse(bytes, &mut HeadScan::default(), limits)?;
    Ok(complete.then_some(head))
}

#[track_caller]
fn parse(bytes: &[u8]) -> RequestHead {
    match parse_within(bytes, &LIMITS) {
        Ok(Some(head)) => head,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

/// A request with the header Host and these lines.
fn with_lines(lines: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

/// Asserts that the parser rejects each request with its reason, in one piece and byte by byte.
#[track_caller]
fn assert_rejected<B: AsRef<[u8]>>(cases: &[(B, Rejection)]) {
    for (bytes, rejection) in cases {
        let bytes = bytes.as_ref();
        assert_eq!(parse_within(bytes, &LIMITS), Err(*rejection), "{}", bytes.escape_ascii());
        let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
        let in_pieces =
            (0..=bytes.len()).find_map(|seen| head.parse(&bytes[..seen], &mut scan, &LIMITS).err());
        assert!(in_pieces.is_some(), "accepted in pieces: {}", bytes.escape_ascii());
    }
}

#[test]
fn request_head_is_parsed_into_its_parts() {
    let buf =
        b"GET /a/b?c=d&e HTTP/1.1\r\nHost:  example.com:8080 \r\nX-Empty:\r\nUser-Agent: x y\r\n\r\nrest";
    let head = parse(buf);
    assert_eq!(head.len, buf.len() - 4);
    assert_eq!((head.method, head.method_name.of(buf)), (Method::Get, &b"GET"[..]));
    assert_eq!(head.version, Version::Http11);
    assert_eq!((head.form, head.target.of(buf)), (TargetForm::Origin, &b"/a/b?c=d&e"[..]));
    assert_eq!(head.path.of(buf), b"/a/b");
    assert_eq!(head.query.map(|query| query.of(buf)), Some(&b"c=d&e"[..]));
    assert_eq!(head.authority.map(|authority| authority.of(buf)), Some(&b"example.com:8080"[..]));
    assert_eq!(head.framing, RequestFraming::None);
    assert!(head.keep_alive && !head.expect_continue && head.upgrade.is_none());
    assert_eq!(head.header(buf, Known::UserAgent), Some(&b"x y"[..]));
    assert_eq!(head.find(buf, "x-empty"), Some(&b""[..]));
    assert_eq!(head.find(buf, "x-absent"), None);
    let lines: Vec<&[u8]> = head.lines.iter().map(|line| line.span().of(buf)).collect();
    assert_eq!(lines, [&b"Host:  example.com:8080 \r\n"[..], b"X-Empty:\r\n", b"User-Agent: x y\r\n"]);
}

#[test]
fn parser_reads_pipelined_requests_one_after_another() {
    let buf = b"\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.0\r\nContent-Length: 3\r\n\r\nabcGET /3";
    let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
    assert_eq!(head.parse(buf, &mut scan, &LIMITS), Ok(true));
    assert_eq!(head.len, 30);
    let rest = &buf[30..];
    assert_eq!(head.parse(rest, &mut scan, &LIMITS), Ok(true));
    assert_eq!(head.path.of(rest), b"/2");
    assert_eq!((head.framing, head.lines.len()), (RequestFraming::Length(3), 1));
    let rest = &rest[head.len + 3..];
    assert_eq!(head.parse(rest, &mut scan, &LIMITS), Ok(false));
}

#[test]
fn head_received_in_pieces_does_not_affect_the_next_head() {
    let first = b"GET /a-long-path HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
    assert_eq!(head.parse(&first[..20], &mut scan, &LIMITS), Ok(false));
    assert_eq!(head.parse(first, &mut scan, &LIMITS), Ok(true));
    assert_eq!(head.parse(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n", &mut scan, &LIMITS), Ok(true));
    assert_eq!(head.len, 27);
}

#[test]
fn all_four_forms_of_request_target_are_recognized() {
    let cases: [(&str, TargetForm, &str, Option<&str>, &str); 12] = [
        ("GET / HTTP/1.1\r\nHost: h", TargetForm::Origin, "/", None, "h"),
        ("GET /? HTTP/1.1\r\nHost: h", TargetForm::Origin, "/", Some(""), "h"),
        ("GET //x/http://y?a?b HTTP/1.1\r\nHost: h", TargetForm::Origin, "//x/http://y", Some("a?b"), "h"),
        ("GET /ä HTTP/1.1\r\nHost: h", TargetForm::Origin, "/ä", None, "h"),
        ("GET http://H/p?q HTTP/1.1\r\nHost: h", TargetForm::Absolute, "/p", Some("q"), "H"),
        ("GET HTTP://h:80 HTTP/1.1\r\nHost: h", TargetForm::Absolute, "", None, "h:80"),
        ("GET https://h?q HTTP/1.1\r\nHost: h:443", TargetForm::Absolute, "", Some("q"), "h"),
        ("GET http://[::1]:8/a HTTP/1.1\r\nHost: [::1]:8", TargetForm::Absolute, "/a", None, "[::1]:8"),
        ("GET http://h/ HTTP/1.0", TargetForm::Absolute, "/", None, "h"),
        ("OPTIONS * HTTP/1.1\r\nHost: h", TargetForm::Asterisk, "*", None, "h"),
        ("OPTIONS http://h HTTP/1.1\r\nHost: h", TargetForm::Absolute, "", None, "h"),
        ("CONNECT h:443 HTTP/1.1\r\nHost: h:443", TargetForm::Authority, "", None, "h:443"),
    ];
    for (request, form, path, query, authority) in cases {
        let buf = format!("{request}\r\n\r\n").into_bytes();
        let head = parse(&buf);
        assert_eq!(head.form, form, "{request}");
        assert_eq!(head.path.of(&buf), path.as_bytes(), "{request}");
        assert_eq!(head.query.map(|span| span.of(&buf)), query.map(str::as_bytes), "{request}");
        assert_eq!(head.authority.map(|span| span.of(&buf)), Some(authority.as_bytes()), "{request}");
    }
    assert_eq!(parse(b"GET / HTTP/1.0\r\n\r\n").authority, None);
}

#[test]
fn invalid_request_target_is_rejected() {
    let rejected = |target: &str, rejection| (format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), rejection);
    assert_rejected(&[
        rejected("a", Rejection::InvalidTarget),
        rejected("?a", Rejection::InvalidTarget),
        rejected("**", Rejection::InvalidTarget),
        rejected("h", Rejection::InvalidTarget),
        rejected("/\u{1}", Rejection::InvalidTarget),
        rejected("/\0", Rejection::InvalidTarget),
        rejected("/\u{7f}", Rejection::InvalidTarget),
        rejected("ftp://h/", Rejection::InvalidTarget),
        rejected("http:/h/", Rejection::InvalidTarget),
        rejected("http:///", Rejection::InvalidTarget),
        rejected("http://:80/", Rejection::InvalidTarget),
        rejected("http://h:99999/", Rejection::InvalidTarget),
        rejected("http://h\\x/", Rejection::InvalidTarget),
        rejected("http://[::1/", Rejection::InvalidTarget),
        rejected("/a#b", Rejection::FragmentInTarget),
        rejected("/a?b#c", Rejection::FragmentInTarget),
        rejected("http://h#f", Rejection::FragmentInTarget),
        rejected("http://u@h/", Rejection::UserinfoInTarget),
        rejected("http://u:p@h/", Rejection::UserinfoInTarget),
        rejected("h:80", Rejection::TargetFormOfOtherMethod),
        rejected("*", Rejection::TargetFormOfOtherMethod),
        rejected("http://other/", Rejection::HostMismatch),
        rejected("http://h:8080/", Rejection::HostMismatch),
        rejected("https://h:80/", Rejection::HostMismatch),
    ]);
    assert_rejected(&[
        ("GET /\u{e4}\u{1} HTTP/1.1\r\nHost: h\r\n\r\n".as_bytes(), Rejection::InvalidTarget),
        (b"GET /\xe4 HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::InvalidTarget),
        (b"CONNECT / HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::TargetFormOfOtherMethod),
        (b"CONNECT * HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::TargetFormOfOtherMethod),
        (b"CONNECT http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::TargetFormOfOtherMethod),
        (b"CONNECT u@h:1 HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::UserinfoInTarget),
        (b"CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::InvalidTarget),
        (b"CONNECT h: HTTP/1.1\r\nHost: h\r\n\r\n", Rejection::InvalidTarget),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: i:1\r\n\r\n", Rejection::HostMismatch),
    ]);
}

#[test]
fn invalid_request_line_is_rejected() {
    assert_rejected(&[
        (&b"\x16\x03\x01\x02\x00\x01\x00"[..], Rejection::TlsRecord),
        (b"\0", Rejection::InvalidMethod),
        (b" GET / HTTP/1.1\r\n\r\n", Rejection::InvalidMethod),
        (b"G@T / HTTP/1.1\r\n\r\n", Rejection::InvalidMethod),
        (b"G\xe4T / HTTP/1.1\r\n\r\n", Rejection::InvalidMethod),
        (b"GET\t/ HTTP/1.1\r\n\r\n", Rejection::InvalidMethod),
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::MethodInOtherCase),
        (b"Delete / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::MethodInOtherCase),
        (b"version-CONTROL / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::MethodInOtherCase),
        (b"connect h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", Rejection::MethodInOtherCase),
        (&[&[b'A'; 65][..], b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), Rejection::MethodTooLong),
        (&[b'A'; 65], Rejection::MethodTooLong),
        (b"GET\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET /\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET  / HTTP/1.1\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET /  HTTP/1.1\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET / HTTP/1.1 \r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET / http/1.1\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET / x HTTP/1.1\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET / HTTP/11\r\n\r\n12345", Rejection::InvalidRequestLine),
        (b"GET / HTTP/1.12\r\n\r\n", Rejection::InvalidRequestLine),
        (b"GET / HTTP/1.1\rHost: a\r\n\r\n", Rejection::BareCr),
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n", Rejection::BareLf),
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::BareLf),
        (b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::BareLf),
        (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::BareCr),
        (b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::EmptyLines),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Rejection::UnsupportedVersion),
        (b"GET / HTTP/1.2\r\n\r\n", Rejection::UnsupportedVersion),
        (b"GET / HTTP/0.9\r\n\r\n", Rejection::UnsupportedVersion),
        (b"GET / HTTP/3.0\r\n\r\n", Rejection::UnsupportedVersion),
    ]);
}

#[test]
fn invalid_header_line_is_rejected() {
    let rejected = |lines: &str, rejection| (with_lines(lines), rejection);
    assert_rejected(&[
        rejected("A: b\n", Rejection::BareLf),
        rejected("A:\n", Rejection::BareLf),
        rejected("A: b\nC: d\r\n", Rejection::BareLf),
        rejected("A: b\r\n\n", Rejection::BareLf),
        rejected("A: b\r\r\n", Rejection::BareCr),
        rejected("A: b\rContent-Length: 5\r\n", Rejection::BareCr),
        rejected("\rA: b\r\n", Rejection::BareCr),
        rejected("A: b\r\n c\r\n", Rejection::ObsoleteFold),
        rejected("A: b\r\n\tc: d\r\n", Rejection::ObsoleteFold),
        rejected("Transfer-Encoding:\r\n chunked\r\n", Rejection::ObsoleteFold),
        rejected("A : b\r\n", Rejection::SpaceBeforeColon),
        rejected("Transfer-Encoding : chunked\r\n", Rejection::SpaceBeforeColon),
        rejected("Transfer-Encoding\t: chunked\r\n", Rejection::SpaceBeforeColon),
        rejected("Content-Length\x0b: 5\r\n", Rejection::InvalidHeaderName),
        rejected("A b: c\r\n", Rejection::InvalidHeaderName),
        rejected("A\0: b\r\n", Rejection::InvalidHeaderName),
        rejected("Ä: b\r\n", Rejection::InvalidHeaderName),
        rejected("(A): b\r\n", Rejection::InvalidHeaderName),
        rejected(": b\r\n", Rejection::InvalidHeaderName),
        rejected("A\r\n", Rejection::InvalidHeaderName),
        rejected("A: \0\r\n", Rejection::InvalidHeaderValue),
        rejected("A: b\0c\r\n", Rejection::InvalidHeaderValue),
        rejected("A: b\x0bc\r\n", Rejection::InvalidHeaderValue),
        rejected("A: b\x7fc\r\n", Rejection::InvalidHeaderValue),
        rejected("Transfer-Encoding: chunked\x0b\r\n", Rejection::InvalidHeaderValue),
        rejected("Transfer-Encoding:\x0bchunked\r\n", Rejection::InvalidHeaderValue),
        rejected("Content-Length: 5\x00\r\n", Rejection::InvalidHeaderValue),
    ]);
    assert_rejected(&[(&b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"[..], Rejection::ObsoleteFold)]);
}

#[test]
fn missing_duplicate_or_invalid_host_is_rejected() {
    assert_rejected(&[
        ("GET / HTTP/1.1\r\n\r\n", Rejection::MissingHost),
        ("GET http://a/ HTTP/1.1\r\n\r\n", Rejection::MissingHost),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Rejection::DuplicateHost),
        ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", Rejection::DuplicateHost),
        ("GET / HTTP/1.1\r\nHost:\r\nHost: b\r\n\r\n", Rejection::DuplicateHost),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.1\r\nHost: \t\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.0\r\nHost:\r\n\r\n", Rejection::InvalidHost),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", Rejection::InvalidHost),
        ("GET / HTTP/1.0\r\nHost: a/../b\r\n\r\n", Rejection::InvalidHost),
    ]);
}

#[test]
fn ambiguous_content_length_is_rejected() {
    assert_eq!(parse(&with_lines("Content-Length: 0\r\n")).framing, RequestFraming::Length(0));
    assert_eq!(parse(&with_lines("content-length:\t42\t\r\n")).framing, RequestFraming::Length(42));
    assert_eq!(parse(&with_lines("Transfer-Encoding: Chunked\r\n")).framing, RequestFraming::Chunked);
    let rejected = |lines: &str, rejection| (with_lines(lines), rejection);
    assert_rejected(&[
        rejected("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Rejection::LengthAndTransferEncoding),
        rejected("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Rejection::LengthAndTransferEncoding),
        rejected(
            "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            Rejection::LengthAndTransferEncoding,
        ),
        rejected("Content-Length: 5\r\nContent-Length: 6\r\n", Rejection::DuplicateLength),
        rejected("Content-Length: 5\r\nContent-Length: 5\r\n", Rejection::DuplicateLength),
        rejected("Content-Length:\r\n", Rejection::InvalidLength),
        rejected("Content-Length: +5\r\n", Rejection::InvalidLength),
        rejected("Content-Length: -5\r\n", Rejection::InvalidLength),
        rejected("Content-Length: 5 5\r\n", Rejection::InvalidLength),
        rejected("Content-Length: 5, 5\r\n", Rejection::InvalidLength),
        rejected("Content-Length: 0x5\r\n", Rejection::InvalidLength),
        rejected("Content-Length: 18446744073709551617\r\n", Rejection::InvalidLength),
    ]);
}

#[test]
fn transfer_encoding_other_than_chunked_is_rejected() {
    let rejected = |lines: &str, rejection| (with_lines(lines), rejection);
    assert_rejected(&[
        rejected("Transfer-Encoding: xchunked\r\n", Rejection::UnsupportedTransferEncoding),
        rejected("Transfer-Encoding: identity\r\n", Rejection::UnsupportedTransferEncoding),
        rejected("Transfer-Encoding: gzip, chunked\r\n", Rejection::UnsupportedTransferEncoding),
        rejected(
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            Rejection::UnsupportedTransferEncoding,
        ),
        rejected("Transfer-Encoding: chunked, chunked\r\n", Rejection::InvalidTransferEncoding),
        rejected(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Rejection::InvalidTransferEncoding,
        ),
        rejected(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
            Rejection::InvalidTransferEncoding,
        ),
        rejected("Transfer-Encoding: chunked, identity\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: chunked,\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: ,chunked\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding:\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: \"chunked\"\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: chunked;q=1\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: chunked x\r\n", Rejection::InvalidTransferEncoding),
        rejected("Transfer-Encoding: chünked\r\n", Rejection::InvalidTransferEncoding),
    ]);
    // The name with an underscore is an unknown header, so it does not affect the framing.
    assert_eq!(parse(&with_lines("Transfer_Encoding: chunked\r\n")).framing, RequestFraming::None);
    let http10 = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_rejected(&[(&http10[..], Rejection::TransferEncodingInHttp10)]);
}

#[test]
fn http_version_and_connection_header_of_a_request_determine_keep_alive() {
    let cases = [
        ("HTTP/1.1", "", true),
        ("HTTP/1.1", "Connection: close\r\n", false),
        ("HTTP/1.1", "Connection: Close\r\n", false),
        ("HTTP/1.1", "Connection: keep-alive, foo ,CLOSE\r\n", false),
        ("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("HTTP/1.1", "Connection: foo,\t close\t\r\n", false),
        ("HTTP/1.1", "Connection: closed\r\n", true),
        ("HTTP/1.1", "Connection:\r\n", true),
        ("HTTP/1.0", "", false),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true),
        ("HTTP/1.0", "Connection: foo\r\nConnection: Keep-Alive\r\n", true),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", false),
        ("HTTP/1.0", "Keep-Alive: timeout=5\r\n", false),
        ("HTTP/1.0", "Proxy-Connection: keep-alive\r\n", false),
    ];
    for (version, lines, keep_alive) in cases {
        let head = parse(format!("GET / {version}\r\nHost: a\r\n{lines}\r\n").as_bytes());
        assert_eq!(head.keep_alive, keep_alive, "{version} {lines}");
    }
}

#[test]
fn parser_marks_hop_by_hop_headers() {
    let buf = with_lines(
        "Connection: keep-alive, X-Hop,, host, cookie, authorization, content-length\r\nX-HOP: 1\r\nX-End: 1\r\n\
         connection: x-hop-2\r\nCookie: c\r\nAuthorization: a\r\nContent-Length: 1\r\nTE: trailers\r\n\
         Trailer: x\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nUpgrade: x\r\nX-Hop-2: 2\r\nX-Hop: 3\r\n",
    );
    let head = parse(&buf);
    let forwarded: Vec<&str> = head
        .lines
        .iter()
        .filter(|line| !line.hop_by_hop)
        .map(|line| str::from_utf8(line.name.of(&buf)).unwrap())
        .collect();
    assert_eq!(forwarded, ["Host", "X-End", "Cookie", "Authorization", "Content-Length", "Trailer"]);
}

#[test]
fn request_with_too_many_connection_options_is_rejected() {
    let limits = HeadLimits { bytes: 8192, headers: 16 };
    let allowed = with_lines(&format!("Connection: {}\r\n", ["a"; 64].join(",")));
    assert!(matches!(parse_within(&allowed, &limits), Ok(Some(_))));
    let rejected = with_lines(&format!("Connection: {}\r\n", ["a"; 65].join(",")));
    assert_eq!(parse_within(&rejected, &limits), Err(Rejection::TooManyConnectionOptions));
}

#[test]
fn expect_continue_applies_only_to_http_1_1_requests_with_a_body() {
    let waits = |lines: &str| parse(&with_lines(lines)).expect_continue;
    assert!(waits("Expect: 100-Continue\r\nContent-Length: 1\r\n"));
    assert!(waits("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"));
    assert!(!waits("Expect: 100-continue\r\nContent-Length: 0\r\n"));
    assert!(!waits("Expect: 100-continue\r\n"));
    assert!(!waits("Content-Length: 1\r\n"));
    let http10 = parse(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert!(!http10.expect_continue);
    assert!(!parse(b"POST / HTTP/1.0\r\nExpect: more\r\n\r\n").expect_continue);
    let rejected = |lines: &str, rejection| (with_lines(lines), rejection);
    assert_rejected(&[
        rejected("Expect: more\r\n", Rejection::UnsupportedExpectation),
        rejected("Expect:\r\n", Rejection::UnsupportedExpectation),
        rejected("Expect: 100-continue, more\r\n", Rejection::UnsupportedExpectation),
        rejected("Expect: more\r\nExpect: 100-continue\r\n", Rejection::UnsupportedExpectation),
    ]);
}

#[test]
fn upgrade_requires_http_1_1_and_the_connection_option_upgrade() {
    let upgrade = |version: &str, lines: &str| {
        let buf = format!("GET / {version}\r\nHost: a\r\n{lines}\r\n");
        let head = parse(buf.as_bytes());
        head.upgrade.map(|span| String::from_utf8(span.of(buf.as_bytes()).to_vec()).unwrap())
    };
    let both = "Connection: foo, Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(upgrade("HTTP/1.1", both).as_deref(), Some("websocket"));
    assert_eq!(upgrade("HTTP/1.1", "Upgrade: h2c\r\nConnection: upgrade\r\n").as_deref(), Some("h2c"));
    assert_eq!(upgrade("HTTP/1.0", both), None);
    assert_eq!(upgrade("HTTP/1.1", "Upgrade: websocket\r\n"), None);
    assert_eq!(upgrade("HTTP/1.1", "Connection: upgrade\r\n"), None);
    assert_eq!(upgrade("HTTP/1.1", "Connection: upgrade\r\nUpgrade:\r\n"), None);
}

#[test]
fn oversized_request_head_is_rejected_before_it_is_complete() {
    let limits = HeadLimits { bytes: 32, headers: 2 };
    let exact = b"GET / HTTP/1.1\r\nHost: abcdef\r\n\r\n";
    assert_eq!(exact.len(), limits.bytes);
    assert!(matches!(parse_within(exact, &limits), Ok(Some(_))));
    let mut with_body = exact.to_vec();
    with_body.extend_from_slice(&[b'x'; 100]);
    assert!(matches!(parse_within(&with_body, &limits), Ok(Some(_))));
    assert_eq!(parse_within(&exact[..31], &limits), Ok(None));

    let cases: [(&[u8], Rejection); 5] = [
        (b"GET / HTTP/1.1\r\nHost: abcdefg\r\n\r\n", Rejection::HeadTooLarge),
        (b"GET / HTTP/1.1\r\nHost: abcdefghij", Rejection::HeadTooLarge),
        (b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: a\r\n\r\n", Rejection::RequestLineTooLong),
        (b"GETGETGETGETGETGETGETGETGETGETGET", Rejection::RequestLineTooLong),
        (b"GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\n\r\n", Rejection::TooManyHeaders),
    ];
    for (bytes, rejection) in cases {
        assert_eq!(parse_within(bytes, &limits), Err(rejection), "{}", bytes.escape_ascii());
        let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
        let in_pieces =
            (0..=bytes.len()).find_map(|seen| head.parse(&bytes[..seen], &mut scan, &limits).err());
        assert_eq!(in_pieces, Some(rejection), "{}", bytes.escape_ascii());
    }
    let statuses = cases.map(|(_, rejection)| rejection.status());
    assert_eq!(statuses, [431, 431, 414, 414, 431]);
}

#[test]
fn invalid_request_is_rejected_before_its_head_is_complete() {
    let cases: [(&[u8], Rejection); 6] = [
        (b"\x16", Rejection::TlsRecord),
        (b"\x80", Rejection::InvalidMethod),
        (b"GET / HTTP/2", Rejection::InvalidRequestLine),
        (b"GET / HTTP/2.0", Rejection::UnsupportedVersion),
        (b"GET / HTTP/1.1\r\nA: b\r\n c", Rejection::ObsoleteFold),
        (b"GET / HTTP/1.1\r\nA: b\n", Rejection::BareLf),
    ];
    for (bytes, rejection) in cases {
        assert_eq!(parse_within(bytes, &LIMITS), Err(rejection), "{}", bytes.escape_ascii());
    }
}

#[test]
fn reused_head_contains_nothing_of_the_previous_request() {
    let first = b"POST http://a/?q HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: x\r\n\
                  Expect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let second = b"GET / HTTP/1.0\r\n\r\n";
    let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
    assert_eq!(head.parse(first, &mut scan, &LIMITS), Ok(true));
    let room = head.lines.capacity();
    assert_eq!(head.parse(second, &mut scan, &LIMITS), Ok(true));
    assert_eq!(head, parse(second));
    assert_eq!(head.lines.capacity(), room);
}
