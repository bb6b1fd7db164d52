//! Version 1: a line of text (2.1).

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{Addresses, Header, MAX_V1, Malformed, Parsed};

pub(crate) const PREFIX: &[u8] = b"PROXY ";

pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let line = &bytes[..bytes.len().min(MAX_V1)];
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if line.len() == MAX_V1 { Err(Malformed::TooLong) } else { Ok(Parsed::Partial) };
    };
    let fields = std::str::from_utf8(&line[PREFIX.len()..end]).map_err(|_| Malformed::Fields)?;
    let header = header(fields).ok_or(Malformed::Fields)?;
    Ok(Parsed::Whole(header, end + 2))
}

fn header(fields: &str) -> Option<Header> {
    let mut fields = fields.split(' ');
    let parse_ip: fn(&str) -> Option<IpAddr> = match fields.next()? {
        // "the receiver must ignore anything presented before the CRLF"
        "UNKNOWN" => return Some(Header::Local),
        "TCP4" => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        "TCP6" => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => return None,
    };
    let ips = [parse_ip(fields.next()?)?, parse_ip(fields.next()?)?];
    let ports = [port(fields.next()?)?, port(fields.next()?)?];
    let [source, destination] = [0, 1].map(|end| SocketAddr::new(ips[end], ports[end]));
    fields.next().is_none().then_some(Header::Proxied(Addresses { source, destination }))
}

/// A decimal number of one to five digits: no sign, no leading zero.
fn port(text: &str) -> Option<u16> {
    let is_plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_plain)
}

pub(crate) fn write(out: &mut Vec<u8>, Addresses { source, destination }: Addresses) {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    // Writing to a Vec does not fail.
    let _ = write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_header_line_is_rejected() {
        let whole = |text: &[u8]| parse(text);
        let expected =
            Addresses { source: ([192, 0, 2, 1], 56324).into(), destination: ([192, 0, 2, 2], 443).into() };
        assert_eq!(
            whole(b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET / HTTP/1.1\r\n"),
            Ok(Parsed::Whole(Header::Proxied(expected), 42))
        );
        assert_eq!(whole(b"PROXY UNKNOWN\r\n"), Ok(Parsed::Whole(Header::Local, 15)));
        assert_eq!(whole(b"PROXY UNKNOWN ff:: whatever\r\n"), Ok(Parsed::Whole(Header::Local, 29)));
        for wrong in [
            "PROXY \r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 fe80::1%1 ::2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n",
        ] {
            assert_eq!(whole(wrong.as_bytes()), Err(Malformed::Fields), "{wrong:?}");
        }
    }

    #[test]
    fn header_line_longer_than_107_bytes_is_rejected() {
        let mut line = b"PROXY UNKNOWN ".to_vec();
        line.resize(MAX_V1 - 2, b'x');
        assert_eq!(parse(&line), Ok(Parsed::Partial));
        assert_eq!(parse(&[&*line, b"\r\n"].concat()), Ok(Parsed::Whole(Header::Local, MAX_V1)));
        assert_eq!(parse(&[&*line, b"x\r\n"].concat()), Err(Malformed::TooLong));
    }
}
