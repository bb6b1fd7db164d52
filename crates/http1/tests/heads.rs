//! Property tests: the result of parsing a head is independent of its pieces, and no accepted head has a bare CR or LF.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sluicegate_http1::{HeadLimits, HeadScan, Method, RequestHead, ResponseHead, Span};

const LIMITS: HeadLimits = HeadLimits { bytes: 2048, headers: 12 };

/// Pieces of requests and responses, valid and invalid, for nearly valid heads.
const PIECES: &[&str] = &[
    "GET",
    "POST",
    "CONNECT",
    "OPTIONS",
    " ",
    "  ",
    "/",
    "/a?b=c",
    "*",
    "http://a/",
    "a:80",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 204\r\n",
    "HTTP/1.1 ",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "Host: a\r\n",
    "Host: [::1]:80\r\n",
    "Connection: close\r\n",
    "Connection: x, keep-alive, upgrade\r\n",
    "Upgrade: h2c\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "X: y\r\n",
    "X",
    ":",
    "\t",
    "\r\n",
    "\r",
    "\n",
    "\0",
    "ä",
    "\r\n\r\n",
];

fn request(buf: &[u8]) -> Option<RequestHead> {
    let mut head = RequestHead::default();
    matches!(head.parse(buf, &mut HeadScan::default(), &LIMITS), Ok(true)).then_some(head)
}

/// Parses `buf` in pieces that end at `cuts`.
fn request_in_pieces(buf: &[u8], cuts: &[usize]) -> Option<RequestHead> {
    let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
    for end in ends(buf, cuts) {
        match head.parse(&buf[..end], &mut scan, &LIMITS) {
            Ok(false) => {}
            Ok(true) => return Some(head),
            Err(_) => return None,
        }
    }
    None
}

fn response(buf: &[u8], method: Method) -> Option<ResponseHead> {
    let mut head = ResponseHead::default();
    matches!(head.parse(buf, &mut HeadScan::default(), method, &LIMITS), Ok(true)).then_some(head)
}

fn response_in_pieces(buf: &[u8], cuts: &[usize], method: Method) -> Option<ResponseHead> {
    let (mut head, mut scan) = (ResponseHead::default(), HeadScan::default());
    for end in ends(buf, cuts) {
        match head.parse(&buf[..end], &mut scan, method, &LIMITS) {
            Ok(false) => {}
            Ok(true) => return Some(head),
            Err(_) => return None,
        }
    }
    None
}

/// The ends of the pieces of `buf`, in order: `cuts` modulo the length, and the length.
fn ends(buf: &[u8], cuts: &[usize]) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (buf.len() + 1)).chain([buf.len()]).collect();
    ends.sort_unstable();
    ends
}

fn has_bare_line_end(head: &[u8]) -> bool {
    let lf_alone = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    let cr_alone = |at: usize| head[at] == b'\r' && head.get(at + 1) != Some(&b'\n');
    (0..head.len()).any(|at| lf_alone(at) || cr_alone(at))
}

/// A header without a meaning for the parser, and its whitespace.
fn header() -> impl Strategy<Value = (String, String, String)> {
    ("x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,12}", "[ \t]{0,2}", "([!-~]([ -~\t]{0,20}[!-~])?)?")
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let pieces = vec(select(PIECES), 0..24).prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![pieces, vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn parsed_request_equals_the_parts_that_were_written(
        method in "[A-Z]{1,8}",
        path in "/[!-\"$-=@-~]{0,30}",
        query in proptest::option::of("[!-\"$-~]{0,20}"),
        host in "[a-z0-9.-]{1,20}(:[0-9]{1,4})?",
        headers in vec(header(), 0..10),
        empty_lines in 0..3usize,
        body in vec(any::<u8>(), 0..20),
        cuts in vec(any::<usize>(), 0..6),
    ) {
        prop_assume!(method != "CONNECT");
        let query_text = query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let mut text = "\r\n".repeat(empty_lines);
        text += &format!("{method} {path}{query_text} HTTP/1.1\r\nhOST: {host}\r\n");
        for (name, space, value) in &headers {
            text += &format!("{name}:{space}{value}{space}\r\n");
        }
        text += "\r\n";
        let mut buf = text.into_bytes();
        let len = buf.len();
        buf.extend_from_slice(&body);

        let head = request_in_pieces(&buf, &cuts);
        prop_assert_eq!(&head, &request(&buf));
        let head = head.expect("valid");
        prop_assert_eq!(head.len, len);
        prop_assert_eq!(head.method_name.of(&buf), method.as_bytes());
        prop_assert_eq!(head.path.of(&buf), path.as_bytes());
        prop_assert_eq!(head.query.map(|span| span.of(&buf)), query.as_deref().map(str::as_bytes));
        prop_assert_eq!(head.authority.map(|span| span.of(&buf)), Some(host.as_bytes()));
        prop_assert_eq!(head.lines.len(), headers.len() + 1);
        for (line, (name, _, value)) in head.lines[1..].iter().zip(&headers) {
            prop_assert_eq!(line.name.of(&buf), name.as_bytes());
            prop_assert_eq!(line.value.of(&buf), value.as_bytes());
        }
        let spans: Vec<Span> = head.lines.iter().map(|line| line.span()).collect();
        prop_assert!(spans.windows(2).all(|pair| pair[0].end == pair[1].start), "lines are adjacent");
        prop_assert_eq!(spans.last().map(|span| span.end as usize), Some(len - 2));
    }

    #[test]
    fn parsing_a_request_in_any_pieces_gives_the_same_result(buf in bytes(), cuts in vec(any::<usize>(), 0..8)) {
        let head = request(&buf);
        prop_assert_eq!(&head, &request_in_pieces(&buf, &cuts));
        let every: Vec<usize> = (0..buf.len()).collect();
        prop_assert_eq!(&head, &request_in_pieces(&buf, &every));
        if let Some(head) = head {
            prop_assert!(!has_bare_line_end(&buf[..head.len]));
        }
    }

    #[test]
    fn parsing_a_response_in_any_pieces_gives_the_same_result(
        buf in bytes(),
        cuts in vec(any::<usize>(), 0..8),
        method in select(&[Method::Get, Method::Head, Method::Connect][..]),
    ) {
        let head = response(&buf, method);
        prop_assert_eq!(&head, &response_in_pieces(&buf, &cuts, method));
        let every: Vec<usize> = (0..buf.len()).collect();
        prop_assert_eq!(&head, &response_in_pieces(&buf, &every, method));
        if let Some(head) = head {
            prop_assert!(!has_bare_line_end(&buf[..head.len]));
        }
    }
}
