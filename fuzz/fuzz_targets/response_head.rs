//! Response heads: no panic, no bare CR or LF in an accepted head, and the same result for all pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_http1::{HeadLimits, HeadScan, Method, ResponseFraming, ResponseHead};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, headers: 32 };

fn parse(buf: &[u8], method: Method, ends: impl Iterator<Item = usize>) -> Option<ResponseHead> {
    let (mut head, mut scan) = (ResponseHead::default(), HeadScan::default());
    for end in ends {
        match head.parse(&buf[..end], &mut scan, method, &LIMITS) {
            Ok(true) => return Some(head),
            Ok(false) => {}
            Err(_) => return None,
        }
    }
    None
}

fuzz_target!(|buf: &[u8]| {
    for method in [Method::Get, Method::Head, Method::Connect] {
        let whole = parse(buf, method, [buf.len()].into_iter());
        assert_eq!(whole, parse(buf, method, 0..=buf.len()), "byte by byte");
        assert_eq!(whole, parse(buf, method, [buf.len() / 2, buf.len()].into_iter()), "in halves");
        let Some(head) = whole else { return };

        let bytes = &buf[..head.len];
        assert!(bytes.ends_with(b"\r\n\r\n"));
        for (at, &byte) in bytes.iter().enumerate() {
            assert!(byte != b'\n' || bytes[at - 1] == b'\r', "bare LF");
            assert!(byte != b'\r' || bytes[at + 1] == b'\n', "bare CR");
        }
        assert!((100..=999).contains(&head.status));
        assert!(!head.reason.of(buf).contains(&b'\r'));
        if method == Method::Head || matches!(head.status, 100..200 | 204 | 304) {
            assert_eq!(head.framing, ResponseFraming::None);
        }
        assert!(!(head.keep_alive && head.framing == ResponseFraming::UntilClose));
        for line in &head.lines {
            let text = line.span().of(buf);
            assert!(text.starts_with(line.name.of(buf)) && text.ends_with(b"\r\n"));
            assert_eq!(line.value.of(buf), line.value.of(buf).trim_ascii());
        }
    }
});
