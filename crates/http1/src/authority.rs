//! `host[:port]`.

use std::net::Ipv6Addr;

use memchr::memchr;

use crate::token::{hex, is_reg_name};

/// A host with an optional port, as in Host and in request targets (RFC 9110, 7.2; RFC 3986, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authority<'a> {
    /// Never empty: the http scheme has no empty host (RFC 9110, 4.2.1).
    pub(crate) host: &'a [u8],
    /// `None` without a port, and for a colon without digits.
    pub(crate) port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Parses an authority. `None` if the authority is invalid or contains user information.
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = if bytes.first() == Some(&b'[') { ip_literal(bytes)? } else { reg_name(bytes)? };
        let (host, rest) = bytes.split_at(end);
        let port = match rest {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(port(digits)?),
            _ => return None,
        };
        (!host.is_empty()).then_some(Self { host, port })
    }

    /// Whether both authorities have the same host and port. An absent port is `default` (RFC 9110, 4.2.3).
    pub(crate) fn same(&self, other: &Self, default: Option<u16>) -> bool {
        self.host.eq_ignore_ascii_case(other.host) && self.port.or(default) == other.port.or(default)
    }
}

/// The end of the registered name or IPv4 address at the beginning of `bytes`.
fn reg_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if is_reg_name(byte) {
            at += 1;
        } else if byte == b'%' {
            bytes.get(at + 1..at + 3)?.iter().all(|&digit| hex(digit).is_some()).then_some(())?;
            at += 3;
        } else if byte == b':' {
            break;
        } else {
            return None;
        }
    }
    Some(at)
}

/// The end of the `[IPv6]` at the beginning of `bytes`. Zones have no meaning beyond a host (RFC 6874, 1), and no later
/// version of IP exists.
fn ip_literal(bytes: &[u8]) -> Option<usize> {
    let close = memchr(b']', bytes)?;
    let address = str::from_utf8(&bytes[1..close]).ok()?;
    address.parse::<Ipv6Addr>().ok()?;
    Some(close + 1)
}

fn port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_split_into_host_and_port() {
        let cases: [(&str, &str, Option<u16>); 8] = [
            ("example.com", "example.com", None),
            ("example.com:", "example.com", None),
            ("example.com:8080", "example.com", Some(8080)),
            ("my_service-1.ns.svc:65535", "my_service-1.ns.svc", Some(65535)),
            ("127.0.0.1:0", "127.0.0.1", Some(0)),
            ("[::1]", "[::1]", None),
            ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
            ("a%2Fb", "a%2Fb", None),
        ];
        for (text, host, port) in cases {
            let parsed = Authority::parse(text.as_bytes());
            assert_eq!(parsed, Some(Authority { host: host.as_bytes(), port }), "{text}");
        }
    }

    #[test]
    fn invalid_authority_is_rejected() {
        let invalid = [
            "",
            ":80",
            "a:65536",
            "a:+1",
            "a:-1",
            "a:1 ",
            "a:000080",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "u@a",
            "u:p@a",
            "a:80:80",
            "::1",
            "[::1",
            "[::1]x",
            "[]",
            "[::g]",
            "[v1.a]",
            "[fe80::1%25eth0]",
            "a%2",
            "a%zz",
            "a[1]",
            "ä.example",
            "a,b ",
            "<a>",
            "\"a\"",
        ];
        for text in invalid {
            assert_eq!(Authority::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn authority_without_a_port_equals_the_authority_with_the_default_port() {
        let parse = |text: &'static str| Authority::parse(text.as_bytes()).unwrap();
        assert!(parse("A.example").same(&parse("a.EXAMPLE:80"), Some(80)));
        assert!(parse("a:").same(&parse("a:443"), Some(443)));
        assert!(!parse("a").same(&parse("a:443"), Some(80)));
        assert!(!parse("a").same(&parse("b"), Some(80)));
        assert!(!parse("a").same(&parse("a:80"), None));
    }
}
