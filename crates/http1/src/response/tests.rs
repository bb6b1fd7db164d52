use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 16 };

fn parse_to(method: Method, bytes: &[u8]) -> Result<Option<ResponseHead>, ResponseError> {
    let mut head = ResponseHead::default();
    let complete = head.parse(bytes, &mut HeadScan::default(), method, &LIMITS)?;
    Ok(complete.then_some(head))
}

#[track_caller]
fn parse(text: &str) -> ResponseHead {
    match parse_to(Method::Get, text.as_bytes()) {
        Ok(Some(head)) => head,
        other => panic!("{}: {other:?}", text.escape_debug()),
    }
}

#[test]
fn response_head_is_parsed_into_its_parts() {
    let buf = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nX-A: \xe4\r\nContent-Length: 3\r\n\r\nabc";
    let head = parse_to(Method::Get, buf).unwrap().unwrap();
    assert_eq!(head.len, buf.len() - 3);
    assert_eq!((head.status, head.version), (404, Version::Http11));
    assert_eq!(head.reason.of(buf), b"Not Found");
    assert_eq!(head.header(buf, Known::Server), Some(&b"x"[..]));
    assert_eq!(head.find(buf, "x-a"), Some(&b"\xe4"[..]));
    assert_eq!(head.framing, ResponseFraming::Length(3));
    assert!(head.keep_alive && !head.upgrade);
}

#[test]
fn reason_phrase_may_be_absent_or_contain_other_bytes() {
    let cases: [(&[u8], &[u8]); 5] = [
        (b"HTTP/1.1 200\r\n\r\n", b""),
        (b"HTTP/1.1 200 \r\n\r\n", b""),
        (b"HTTP/1.1 200  OK \r\nA: b\r\n\r\n", b" OK "),
        (b"HTTP/1.1 999 Tr\xe8s \tbien\r\n\r\n", b"Tr\xe8s \tbien"),
        (b"HTTP/1.0 100 Continue\r\n\r\n", b"Continue"),
    ];
    for (bytes, reason) in cases {
        let head = parse_to(Method::Get, bytes).unwrap().unwrap();
        assert_eq!(head.reason.of(bytes), reason, "{}", bytes.escape_ascii());
    }
}

#[test]
fn status_method_and_headers_determine_the_framing_of_a_response() {
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    let cases = [
        (Method::Get, 200, length, ResponseFraming::Length(5)),
        (Method::Get, 200, "Content-Length: 0\r\n", ResponseFraming::Length(0)),
        (Method::Get, 200, chunked, ResponseFraming::Chunked),
        (Method::Get, 200, "", ResponseFraming::UntilClose),
        (Method::Post, 500, "", ResponseFraming::UntilClose),
        (Method::Head, 200, length, ResponseFraming::None),
        (Method::Head, 200, chunked, ResponseFraming::None),
        (Method::Head, 404, "", ResponseFraming::None),
        (Method::Get, 100, length, ResponseFraming::None),
        (Method::Get, 101, "", ResponseFraming::None),
        (Method::Get, 103, chunked, ResponseFraming::None),
        (Method::Get, 204, length, ResponseFraming::None),
        (Method::Get, 204, chunked, ResponseFraming::None),
        (Method::Get, 205, length, ResponseFraming::Length(5)),
        (Method::Get, 304, length, ResponseFraming::None),
        (Method::Get, 304, "", ResponseFraming::None),
        (Method::Connect, 200, length, ResponseFraming::None),
        (Method::Connect, 403, length, ResponseFraming::Length(5)),
    ];
    for (method, status, lines, framing) in cases {
        let text = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
        let head = parse_to(method, text.as_bytes()).unwrap().unwrap();
        assert_eq!(head.framing, framing, "{method:?} {status} {lines}");
    }
}

#[test]
fn content_length_of_an_interim_or_204_response_is_not_forwarded() {
    let forwarded = |status: u16| {
        let head = parse(&format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n"));
        !head.lines[0].hop_by_hop
    };
    assert!(!forwarded(103));
    assert!(!forwarded(204));
    assert!(forwarded(304));
    assert!(forwarded(200));
}

#[test]
fn http_version_and_connection_header_of_a_response_determine_keep_alive() {
    let cases = [
        ("HTTP/1.1 200", "Content-Length: 0\r\n", true),
        ("HTTP/1.1 200", "Content-Length: 0\r\nConnection: close\r\n", false),
        ("HTTP/1.1 200", "Content-Length: 0\r\nConnection: foo, Close\r\n", false),
        ("HTTP/1.1 200", "", false),
        ("HTTP/1.1 204", "", true),
        ("HTTP/1.1 304", "", true),
        ("HTTP/1.1 101", "Connection: upgrade\r\nUpgrade: x\r\n", false),
        ("HTTP/1.0 200", "Content-Length: 0\r\n", false),
        ("HTTP/1.0 200", "Content-Length: 0\r\nConnection: keep-alive\r\n", true),
        ("HTTP/1.0 200", "Connection: keep-alive\r\n", false),
    ];
    for (status, lines, keep_alive) in cases {
        assert_eq!(parse(&format!("{status} X\r\n{lines}\r\n")).keep_alive, keep_alive, "{status} {lines}");
    }
    assert!(parse("HTTP/1.1 101 X\r\n\r\n").upgrade);
    let protocols = |head: &str| {
        let head = format!("{head}\r\n\r\n");
        parse(&head).protocols.map(|span| String::from_utf8_lossy(span.of(head.as_bytes())).into_owned())
    };
    let switches = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket";
    assert_eq!(protocols(&format!("HTTP/1.1 101 X\r\n{switches}")).as_deref(), Some("websocket"));
    for head in [
        format!("HTTP/1.0 101 X\r\n{switches}"),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{switches}"),
        "HTTP/1.1 101 X\r\nUpgrade: websocket".to_owned(),
        "HTTP/1.1 101 X\r\nConnection: upgrade".to_owned(),
        "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade:".to_owned(),
    ] {
        assert_eq!(protocols(&head), None, "{head}");
    }
    let head = parse("HTTP/1.1 200 OK\r\nKeep-Alive: max=9, timeout=72\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(head.keep_alive_timeout, Some(Duration::from_secs(72)));
    assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\n").keep_alive_timeout, None);
}

#[test]
fn ambiguous_or_invalid_response_is_rejected() {
    let cases: &[(&[u8], ResponseError)] = &[
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"hello", ResponseError::InvalidStatusLine),
        (b"HELLO", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1\t200 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1  200 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1 20 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1 2000 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1 099 OK\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/1.1 200 O\0K\r\n\r\n", ResponseError::InvalidStatusLine),
        (b"HTTP/2.0 200 OK\r\n\r\n", ResponseError::UnsupportedVersion),
        (b"HTTP/1.1 200 OK\n\r\n", ResponseError::BareLf),
        (b"HTTP/1.1 200\nA: b\r\n\r\n", ResponseError::BareLf),
        (b"HTTP/1.1 200 OK\r\nA: b\n\r\n", ResponseError::BareLf),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\n", ResponseError::BareLf),
        (b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", ResponseError::BareCr),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", ResponseError::ObsoleteFold),
        (b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", ResponseError::SpaceBeforeColon),
        (b"HTTP/1.1 200 OK\r\nA b\r\n\r\n", ResponseError::InvalidHeaderName),
        (b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", ResponseError::InvalidHeaderValue),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5,5\r\n\r\n", ResponseError::InvalidLength),
        (b"HTTP/1.1 204 OK\r\nContent-Length: x\r\n\r\n", ResponseError::InvalidLength),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            ResponseError::DuplicateLength,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            ResponseError::LengthAndTransferEncoding,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            ResponseError::InvalidTransferEncoding,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ResponseError::UnsupportedTransferEncoding),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ResponseError::TransferEncodingInHttp10),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse_to(Method::Get, bytes), Err(*error), "{}", bytes.escape_ascii());
        let (mut head, mut scan) = (ResponseHead::default(), HeadScan::default());
        let in_pieces = (0..=bytes.len())
            .find_map(|seen| head.parse(&bytes[..seen], &mut scan, Method::Get, &LIMITS).err());
        assert!(in_pieces.is_some(), "accepted in pieces: {}", bytes.escape_ascii());
    }
}

#[test]
fn oversized_response_head_is_rejected() {
    let limits = HeadLimits { bytes: 32, headers: 2 };
    let parse =
        |bytes: &[u8]| ResponseHead::default().parse(bytes, &mut HeadScan::default(), Method::Get, &limits);
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA: aaaaaaaa\r\n\r\nx"), Ok(true));
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA: aaaaaaaa\r\n\r"), Ok(false));
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA: aaaaaaaaa\r\n\r\n"), Err(ResponseError::HeadTooLarge));
    assert_eq!(parse(b"HTTP/1.1 200\r\nA:\r\nB:\r\nC:\r\n\r\n"), Err(ResponseError::TooManyHeaders));
}

#[test]
fn parser_reads_interim_responses_before_the_final_response() {
    let buf =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    let (mut head, mut scan, mut rest) = (ResponseHead::default(), HeadScan::default(), &buf[..]);
    assert_eq!(head.parse(&buf[..20], &mut scan, Method::Get, &LIMITS), Ok(false));
    let mut statuses = Vec::new();
    while head.parse(rest, &mut scan, Method::Get, &LIMITS) == Ok(true) {
        statuses.push(head.status);
        rest = &rest[head.len..];
    }
    assert_eq!(statuses, [100, 103, 200]);
    assert_eq!(rest, b"");
}
