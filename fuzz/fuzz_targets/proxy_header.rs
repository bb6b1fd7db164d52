//! PROXY headers: no panic, the same result for all pieces, and a parsed header survives writing and parsing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_proxy_protocol::{Header, MAX_V2, Malformed, Parsed, parse, write_v1, write_v2};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    for end in 0..bytes.len().min(256) {
        match (parse(&bytes[..end]), whole) {
            (Ok(Parsed::Partial), _) => {}
            (piece @ (Ok(Parsed::Whole(..)) | Err(_)), whole) => assert_eq!(piece, whole, "{end}"),
        }
    }
    match whole {
        Ok(Parsed::Partial) => assert!(bytes.len() < MAX_V2),
        Ok(Parsed::Whole(header, length)) => {
            assert!(length <= bytes.len() && length <= MAX_V2);
            let Header::Proxied(addresses) = header else { return };
            for write in [write_v1, write_v2] {
                let mut written = Vec::new();
                write(&mut written, addresses);
                let Ok(Parsed::Whole(Header::Proxied(read), length)) = parse(&written) else { panic!() };
                assert_eq!(length, written.len());
                for (read, told) in
                    [(read.source, addresses.source), (read.destination, addresses.destination)]
                {
                    assert_eq!(
                        (read.ip().to_canonical(), read.port()),
                        (told.ip().to_canonical(), told.port())
                    );
                }
            }
        }
        Err(Malformed::NoHeader | Malformed::TooLong | Malformed::Fields) => {}
    }
});
