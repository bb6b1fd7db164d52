//! Version 2: a signature, a command, a family, a length, addresses, extensions (2.2).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{Addresses, Header, MAX_V2, Malformed, Parsed};

pub(crate) const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family and transport, and the length of the rest.
const FIXED: usize = 16;

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
        return match bytes.get(SIGNATURE.len()) {
            Some(command) if !matches!(*command, LOCAL | PROXY) => Err(Malformed::Fields),
            _ => Ok(Parsed::Partial),
        };
    };
    let [command, family, high, low] = [12, 13, 14, 15].map(|at| fixed[at]);
    let length = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, LOCAL | PROXY) {
        return Err(Malformed::Fields);
    }
    if length > MAX_V2 {
        return Err(Malformed::TooLong);
    }
    let Some(rest) = rest.get(..length - FIXED) else { return Ok(Parsed::Partial) };
    let header = match command {
        // "the receiver must accept this connection as valid and must use the real connection endpoints"
        LOCAL => Header::Local,
        _ => header(family, rest).ok_or(Malformed::Fields)?,
    };
    Ok(Parsed::Whole(header, length))
}

fn header(family: u8, bytes: &[u8]) -> Option<Header> {
    let proxied = |source, destination| Some(Header::Proxied(Addresses { source, destination }));
    // The parser ignores the transport: datagrams have the same addresses as streams.
    match (family >> 4, family & 0xf) {
        // An unspecified family, or Unix sockets: the header has no client IP.
        (0, 0..=2) => Some(Header::Local),
        (3, 1 | 2) => bytes.get(..216).map(|_| Header::Local),
        (1, 1 | 2) => {
            let (ips, ports) = bytes.get(..12)?.split_at(8);
            let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(&ips[at..at + 4]).ok()?));
            let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
            proxied(SocketAddr::from((ip(0)?, port(0))), SocketAddr::from((ip(4)?, port(2))))
        }
        (2, 1 | 2) => {
            let (ips, ports) = bytes.get(..36)?.split_at(32);
            let ip = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(&ips[at..at + 16]).ok()?));
            let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
            proxied(SocketAddr::from((ip(0)?, port(0))), SocketAddr::from((ip(16)?, port(2))))
        }
        _ => None,
    }
}

pub(crate) fn write(out: &mut Vec<u8>, Addresses { source, destination }: Addresses) {
    out.extend_from_slice(&SIGNATURE);
    match (source, destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            out.extend_from_slice(&[PROXY, TCP_OVER_IPV4, 0, 12]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
        }
        (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
            out.extend_from_slice(&[PROXY, TCP_OVER_IPV6, 0, 36]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
        }
        _ => {
            debug_assert!(false, "the addresses are of one family");
            out.extend_from_slice(&[LOCAL, 0, 0, 0]);
            return;
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("a short header");
        [&SIGNATURE[..], &[command, family], &length.to_be_bytes(), rest].concat()
    }

    #[test]
    fn parser_skips_extensions_within_the_maximum_header_length() {
        let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];
        let expected =
            Addresses { source: ([192, 0, 2, 1], 56324).into(), destination: ([192, 0, 2, 2], 443).into() };
        let bytes = header(PROXY, TCP_OVER_IPV4, &[&addresses[..], &[4, 0, 1, 0]].concat());
        assert_eq!(parse(&bytes), Ok(Parsed::Whole(Header::Proxied(expected), 32)));
        let largest = header(PROXY, TCP_OVER_IPV4, &[&addresses[..], &[0; 4084]].concat());
        assert_eq!(parse(&largest), Ok(Parsed::Whole(Header::Proxied(expected), MAX_V2)));
        let larger = header(PROXY, TCP_OVER_IPV4, &[&addresses[..], &[0; 4085]].concat());
        assert_eq!(parse(&larger), Err(Malformed::TooLong));
        assert_eq!(parse(&larger[..FIXED]), Err(Malformed::TooLong), "the parser does not wait for the rest");
    }

    #[test]
    fn header_with_local_command_or_unspecified_family_has_no_addresses() {
        for (command, family, rest) in
            [(LOCAL, 0, &[][..]), (LOCAL, 0xff, &[1, 2, 3]), (PROXY, 0, &[]), (PROXY, 0x31, &[0; 216])]
        {
            let bytes = header(command, family, rest);
            assert_eq!(
                parse(&bytes),
                Ok(Parsed::Whole(Header::Local, bytes.len())),
                "{command:x} {family:x}"
            );
        }
    }

    #[test]
    fn header_with_reserved_or_truncated_fields_is_rejected() {
        for (command, family, rest) in [
            (0x22, TCP_OVER_IPV4, &[0; 12][..]),
            (0x11, TCP_OVER_IPV4, &[0; 12]),
            (PROXY, 0x10, &[0; 12]),
            (PROXY, 0x13, &[0; 12]),
            (PROXY, 0x41, &[0; 216]),
            (PROXY, 0x03, &[]),
            (PROXY, TCP_OVER_IPV4, &[0; 11]),
            (PROXY, TCP_OVER_IPV6, &[0; 35]),
            (PROXY, 0x31, &[0; 215]),
        ] {
            let bytes = header(command, family, rest);
            assert_eq!(parse(&bytes), Err(Malformed::Fields), "{command:x} {family:x}");
        }
    }
}
