//! Measures the hot functions, in nanoseconds: `cargo run --release -p sluicegate-http1 --example speed`.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::hint::black_box;
use std::time::Instant;

use sluicegate_http1::{
    Chunk, ChunkedDecoder, HeadLimits, HeadScan, Method, RequestHead, ResponseHead, normalise,
};

const REQUEST: &[u8] = b"GET /api/v1/items/42?page=2&sort=name HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://shop.example.com/api/v1/items\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Connection: keep-alive\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Mon, 01 Jun 2026 12:00:00 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    ETag: \"0123456789\"\r\n\
    Cache-Control: no-store\r\n\r\n";

/// The shortest time of several runs, because other work of the machine affects the shortest run least.
fn time(what: &str, mut run: impl FnMut()) {
    const LOOPS: u32 = 200_000;
    let mut least = f64::MAX;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..LOOPS {
            run();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(LOOPS));
    }
    println!("{what:32} {least:7.1} ns");
}

fn main() {
    let limits = HeadLimits::default();
    let mut scan = HeadScan::default();
    let mut request = RequestHead::default();
    time("request head, 8 headers", || {
        assert_eq!(black_box(request.parse(black_box(REQUEST), &mut scan, &limits)), Ok(true));
    });
    time("request head in two pieces", || {
        let half = &REQUEST[..REQUEST.len() / 2];
        assert_eq!(black_box(request.parse(black_box(half), &mut scan, &limits)), Ok(false));
        assert_eq!(black_box(request.parse(black_box(REQUEST), &mut scan, &limits)), Ok(true));
    });
    time("httparse alone, for comparison", || {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; 64];
        let mut parsed = httparse::Request::new(&mut []);
        assert!(black_box(parsed.parse_with_uninit_headers(black_box(REQUEST), &mut headers)).is_ok());
    });
    let mut response = ResponseHead::default();
    time("response head, 7 headers", || {
        assert_eq!(black_box(response.parse(black_box(RESPONSE), &mut scan, Method::Get, &limits)), Ok(true));
    });
    let mut scratch = Vec::new();
    time("path that is normal, 17 bytes", || {
        assert!(black_box(normalise(black_box(b"/api/v1/items/42x"), &mut scratch)).is_ok());
    });
    time("path that is not", || {
        assert!(black_box(normalise(black_box(b"/api//v1/./items/%34"), &mut scratch)).is_ok());
    });
    let mut body = b"400\r\n".to_vec();
    body.extend_from_slice(&[b'x'; 1024]);
    body.extend_from_slice(b"\r\n0\r\n\r\n");
    time("chunked body of one 1 KiB chunk", || {
        let (mut decoder, mut rest) = (ChunkedDecoder::default(), black_box(&body[..]));
        while let Ok((used, chunk)) = decoder.next(rest) {
            rest = &rest[used..];
            if black_box(chunk) == Chunk::End {
                break;
            }
        }
    });
}
