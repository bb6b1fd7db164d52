//! The PROXY protocol, by which a proxy sends the client's address, with no I/O.
//!
//! The crate parses the first bytes of a connection to the addresses in the header and the length of the header, and
//! writes headers. The crate follows HAProxy's `proxy-protocol.txt` (sections 2.1 and 2.2) strictly, and rejects
//! reserved and unexpected values.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | version 1, a line of text |
//! | [`binary`] | version 2 |

use std::net::SocketAddr;

mod binary;
mod text;

/// The longest header of version 1, with its line end (2.1: "107 chars").
pub const MAX_V1: usize = 107;
/// The longest accepted header of version 2, in bytes. Beside 52 bytes with addresses a header may have extensions: 4
/// KiB, as in nginx.
pub const MAX_V2: usize = 16 + 4096;

/// The source of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A client of the proxy.
    Proxied(Addresses),
    /// The proxy itself, as in a health check, or an unknown client. The addresses of the connection apply.
    Local,
}

/// The two ends of a connection, as seen by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// The result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The bytes are the beginning of a header. The parser needs more bytes.
    Partial,
    /// The complete header, with its length.
    Whole(Header, usize),
}

/// The reason why the first bytes of a connection are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The first bytes are not the beginning of a header.
    #[error("it does not begin with a PROXY header")]
    NoHeader,
    /// The header is too long.
    #[error("the PROXY header is too long")]
    TooLong,
    /// The header has an invalid address, or an unknown protocol or command.
    #[error("the PROXY header is malformed")]
    Fields,
}

/// Parses the header at the beginning of a connection.
///
/// # Errors
/// If the bytes cannot become a header with any further bytes.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |with: &[u8]| {
        bytes.len().min(with.len()) > 0 && with.starts_with(&bytes[..bytes.len().min(with.len())])
    };
    match bytes {
        [] => Ok(Parsed::Partial),
        _ if begins(text::PREFIX) => text::parse(bytes),
        _ if begins(&binary::SIGNATURE) => binary::parse(bytes),
        _ => Err(Malformed::NoHeader),
    }
}

/// Appends the header of version 1 for these addresses (2.1).
pub fn write_v1(out: &mut Vec<u8>, addresses: Addresses) {
    text::write(out, addresses.of_one_family());
}

/// Appends the header of version 2 for these addresses (2.2).
pub fn write_v2(out: &mut Vec<u8>, addresses: Addresses) {
    binary::write(out, addresses.of_one_family());
}

impl Addresses {
    /// Converts both addresses to IPv4, or both to IPv6: a header has addresses of one family. IPv4 becomes IPv4-mapped
    /// IPv6 if the other address is IPv6 (RFC 4291, 2.5.5.2).
    fn of_one_family(self) -> Self {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (source, destination) = (canonical(self.source), canonical(self.destination));
        if source.is_ipv4() == destination.is_ipv4() {
            return Self { source, destination };
        }
        let mapped = |address: SocketAddr| match address {
            SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
            SocketAddr::V6(_) => address,
        };
        Self { source: mapped(source), destination: mapped(destination) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn addresses(source: &str, destination: &str) -> Addresses {
        let address = |text: &str| text.parse().expect("an address");
        Addresses { source: address(source), destination: address(destination) }
    }

    #[test]
    fn addresses_of_different_families_are_both_written_as_ipv6() {
        let mixed = addresses("192.0.2.1:5", "[2001:db8::1]:443");
        let (mut one, mut two) = (Vec::new(), Vec::new());
        write_v1(&mut one, mixed);
        write_v2(&mut two, mixed);
        assert_eq!(one, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 5 443\r\n");
        for (bytes, length) in [(&one, one.len()), (&two, two.len())] {
            let Ok(Parsed::Whole(Header::Proxied(read), whole)) = parse(bytes) else { panic!("{bytes:?}") };
            assert_eq!((read.source.ip().to_canonical(), whole), (mixed.source.ip(), length));
        }
        let mut mapped = Vec::new();
        write_v1(&mut mapped, addresses("[::ffff:192.0.2.1]:5", "192.0.2.2:6"));
        assert_eq!(mapped, b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n");
    }

    fn any_ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).into()),
            any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from(bits)).to_canonical()),
        ]
    }

    proptest! {
        #[test]
        fn parser_reads_each_written_header_and_reports_its_prefixes_as_partial(
            ips in (any_ip(), any_ip()), ports in any::<(u16, u16)>(), is_v2: bool, rest: Vec<u8>,
        ) {
            let written = Addresses {
                source: SocketAddr::new(ips.0, ports.0),
                destination: SocketAddr::new(ips.1, ports.1),
            };
            let mut bytes = Vec::new();
            if is_v2 { write_v2(&mut bytes, written) } else { write_v1(&mut bytes, written) }
            let length = bytes.len();
            for end in 0..length {
                prop_assert_eq!(parse(&bytes[..end]), Ok(Parsed::Partial), "{} of {}", end, length);
            }
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(parse(&bytes), Ok(Parsed::Whole(Header::Proxied(written.of_one_family()), length)));
        }

        #[test]
        fn parser_never_reads_beyond_the_maximum_header_of_arbitrary_bytes(bytes: Vec<u8>, begins in 0..3_u8) {
            let mut all = match begins {
                0 => text::PREFIX.to_vec(),
                1 => binary::SIGNATURE.to_vec(),
                _ => Vec::new(),
            };
            all.extend_from_slice(&bytes);
            match parse(&all) {
                Ok(Parsed::Partial) => prop_assert!(all.len() < MAX_V2),
                Ok(Parsed::Whole(_, length)) => prop_assert!(length <= all.len() && length <= MAX_V2),
                Err(_) => {}
            }
        }
    }
}
