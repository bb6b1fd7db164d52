//! The PROXY protocol, by which a proxy says whom it speaks for, with no I/O.
//!
//! What comes in: the first bytes of a connection. What goes out: the addresses that its header names, and how long the
//! header is. And the other way round. The rules are those of HAProxy's `proxy-protocol.txt` (sections 2.1 and 2.2),
//! read strictly: what they call reserved or unexpected is refused.
//!
//! | module | what is in it |
//! |---|---|
//! | [`text`] | version 1, a line of text |
//! | [`binary`] | version 2 |

use std::net::SocketAddr;

mod binary;
mod text;

/// The longest header of version 1, with its line end (2.1: "107 chars").
pub const MAX_V1: usize = 107;
/// The longest header of version 2 that is accepted. Beside 52 bytes with addresses it may have extensions: 4 KiB of
/// them, as in nginx.
pub const MAX_V2: usize = 16 + 4096;

/// Whom a connection is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Somebody for whom the proxy speaks.
    Proxied(Addresses),
    /// The proxy itself, as when it checks that somebody listens; or it does not say for whom it speaks. The
    /// connection's own addresses count.
    Local,
}

/// The two ends of a connection as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// Where the client connected to.
    pub destination: SocketAddr,
}

/// What the first bytes of a connection have to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// They are all of a header that is not at its end.
    Partial,
    /// The header is there, and so long.
    Whole(Header, usize),
}

/// Why the first bytes of a connection are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They begin as no header does.
    #[error("it does not begin with a PROXY header")]
    NoHeader,
    /// The header is longer than it may be.
    #[error("the PROXY header is too long")]
    TooLong,
    /// The header names addresses that are none, or a protocol or a command that does not exist.
    #[error("the PROXY header is malformed")]
    Fields,
}

/// Reads the header at the beginning of a connection.
///
/// # Errors
/// If what is there cannot become a header, however it goes on.
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
    /// Both as IPv4, or both as IPv6: a header has no room for one of each. IPv4 becomes IPv4-mapped IPv6 where the
    /// other is IPv6 (RFC 4291, 2.5.5.2).
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
    fn unlike_families_are_told_as_one() {
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
        fn what_is_written_is_read_in_whatever_pieces_it_comes(
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
        fn any_bytes_are_a_header_or_none(bytes: Vec<u8>, begins in 0..3_u8) {
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
