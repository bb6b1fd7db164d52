//! Paths: no panic, the normal form is its own normal form, and the normal form has no dot segments.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_http1::{Normalised, normalise};

fuzz_target!(|path: &[u8]| {
    let mut scratch = Vec::new();
    let normal = match normalise(path, &mut scratch) {
        Ok(Normalised::Plain | Normalised::AsIs) => path.to_vec(),
        Ok(Normalised::Rewritten(normal)) => normal.to_vec(),
        Err(rejection) => {
            assert_eq!(rejection.status(), 400);
            return;
        }
    };
    let is_plain = !normal.iter().any(|byte| matches!(byte, b'%' | b';'));
    let expected = if is_plain { Normalised::Plain } else { Normalised::AsIs };
    assert_eq!(normalise(&normal, &mut scratch), Ok(expected));
    if normal == b"*" {
        return;
    }
    let segments: Vec<&[u8]> = normal.split(|&byte| byte == b'/').collect();
    assert!(segments.len() > 1 && segments[0].is_empty(), "begins with a slash");
    let (last, inner) = segments[1..].split_last().unwrap();
    assert!(inner.iter().all(|segment| !segment.is_empty()), "no empty segment");
    assert!(
        segments.iter().all(|segment| !matches!(*segment, b"." | b"..")) && !matches!(*last, b"." | b"..")
    );
    assert!(normal.iter().all(u8::is_ascii_graphic));
    assert!(!normal.iter().any(|byte| b"\"<>\\^`{|}?#".contains(byte)));
});
