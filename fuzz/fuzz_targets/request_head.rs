//! Request heads: no panic, no bare CR or LF in an accepted head, and the same result for all pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_http1::{HeadLimits, HeadScan, Known, RequestFraming, RequestHead, normalise};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, headers: 32 };

fn parse(buf: &[u8], ends: impl Iterator<Item = usize>) -> Option<RequestHead> {
    let (mut head, mut scan) = (RequestHead::default(), HeadScan::default());
    for end in ends {
        match head.parse(&buf[..end], &mut scan, &LIMITS) {
            Ok(true) => return Some(head),
            Ok(false) => {}
            Err(rejection) => {
                assert!(rejection.status() >= 400);
                return None;
            }
        }
    }
    None
}

fuzz_target!(|buf: &[u8]| {
    let whole = parse(buf, [buf.len()].into_iter());
    assert_eq!(whole, parse(buf, 0..=buf.len()), "byte by byte");
    assert_eq!(whole, parse(buf, [buf.len() / 2, buf.len()].into_iter()), "in halves");
    let Some(head) = whole else { return };

    let bytes = &buf[..head.len];
    assert!(bytes.ends_with(b"\r\n\r\n"));
    for (at, &byte) in bytes.iter().enumerate() {
        assert!(byte != b'\n' || bytes[at - 1] == b'\r', "bare LF");
        assert!(byte != b'\r' || bytes[at + 1] == b'\n', "bare CR");
        assert!(byte != 0, "NUL");
    }
    let count = |known| head.lines.iter().filter(|line| line.known == known).count();
    let (lengths, codings) = (count(Known::ContentLength), count(Known::TransferEncoding));
    match head.framing {
        RequestFraming::None => assert_eq!((lengths, codings), (0, 0)),
        RequestFraming::Length(length) => {
            assert_eq!((lengths, codings), (1, 0));
            assert!(length <= i64::MAX as u64);
        }
        RequestFraming::Chunked => assert_eq!((lengths, codings), (0, 1)),
    }
    assert!(count(Known::Host) <= 1);
    for line in &head.lines {
        let text = line.span().of(buf);
        assert!(text.starts_with(line.name.of(buf)) && text.ends_with(b"\r\n"));
        assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), 1, "one line");
        assert_eq!(line.value.of(buf), line.value.of(buf).trim_ascii());
    }
    let _ = normalise(head.path.of(buf), &mut Vec::new());
});
