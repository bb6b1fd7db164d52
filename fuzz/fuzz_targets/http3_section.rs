//! Field sections of HTTP/3: no panic, no field above the limit, and decoded fields survive encoding and decoding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_http3::{FrameReader, decode_request, decode_trailers, qpack};

const LIMIT: usize = 4096;

fn fields(section: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut fields = Vec::new();
    let decoded = qpack::decode(section, LIMIT, |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
        Ok::<_, ()>(())
    });
    decoded.ok().map(|()| fields)
}

fuzz_target!(|input: &[u8]| {
    let _ = decode_trailers(input, LIMIT);
    if let Ok(request) = decode_request(input, LIMIT) {
        assert!(request.headers().iter().all(|(name, _)| *name != "connection"));
    }
    let (mut reader, mut rest) = (FrameReader::default(), input);
    while !rest.is_empty() {
        let room = reader.room();
        let taken = room.len().min(rest.len());
        room[..taken].copy_from_slice(&rest[..taken]);
        rest = &rest[taken..];
        reader.advance(taken);
    }
    let Some(decoded) = fields(input) else { return };
    let size: usize = decoded.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    assert!(size <= LIMIT, "{size}");
    let mut encoded = Vec::new();
    qpack::begin(&mut encoded);
    for (name, value) in &decoded {
        let Ok(name) = str::from_utf8(name) else { return };
        qpack::encode(name, value, &mut encoded);
    }
    assert_eq!(fields(&encoded), Some(decoded));
});
