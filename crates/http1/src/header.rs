//! Header lines, and the known headers.

use crate::span::Span;

/// The headers that the gateway acts on. The parser looks up each name once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any other header.
    #[default]
    Other,
    /// `Accept-Encoding`.
    AcceptEncoding,
    /// `Authorization`.
    Authorization,
    /// `Cache-Control`.
    CacheControl,
    /// `Connection`.
    Connection,
    /// `Content-Encoding`.
    ContentEncoding,
    /// `Content-Length`.
    ContentLength,
    /// `Content-Type`.
    ContentType,
    /// `Cookie`.
    Cookie,
    /// `Date`.
    Date,
    /// `Expect`.
    Expect,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `Host`.
    Host,
    /// `Keep-Alive`.
    KeepAlive,
    /// `Location`.
    Location,
    /// `Origin`.
    Origin,
    /// `Proxy-Authenticate`.
    ProxyAuthenticate,
    /// `Proxy-Authorization`.
    ProxyAuthorization,
    /// `Proxy-Connection`.
    ProxyConnection,
    /// `Referer`.
    Referer,
    /// `Server`.
    Server,
    /// `Set-Cookie`.
    SetCookie,
    /// `Strict-Transport-Security`.
    StrictTransportSecurity,
    /// `TE`.
    Te,
    /// `traceparent` (W3C Trace Context).
    Traceparent,
    /// `tracestate` (W3C Trace Context).
    Tracestate,
    /// `Trailer`.
    Trailer,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Upgrade`.
    Upgrade,
    /// `User-Agent`.
    UserAgent,
    /// `Via`.
    Via,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `X-Forwarded-Host`.
    XForwardedHost,
    /// `X-Forwarded-Port`.
    XForwardedPort,
    /// `X-Forwarded-Prefix`.
    XForwardedPrefix,
    /// `X-Forwarded-Proto`.
    XForwardedProto,
    /// `X-Forwarded-Scheme`.
    XForwardedScheme,
    /// `X-Original-Forwarded-For`.
    XOriginalForwardedFor,
    /// `X-Real-IP`.
    XRealIp,
    /// `X-Request-ID`.
    XRequestId,
    /// `X-Scheme`.
    XScheme,
}

/// A known name with its key.
struct Name {
    known: Known,
    key: Key,
    name: &'static str,
}

const fn name(name: &'static str, known: Known) -> Name {
    Name { known, key: Key::of(name.as_bytes()), name }
}

/// The known names in lower case, by length, frequent names first.
static BY_LENGTH: [&[Name]; 26] = [
    &[],
    &[],
    &[name("te", Known::Te)],
    &[name("via", Known::Via)],
    &[name("host", Known::Host), name("date", Known::Date)],
    &[],
    &[
        name("cookie", Known::Cookie),
        name("origin", Known::Origin),
        name("server", Known::Server),
        name("expect", Known::Expect),
    ],
    &[name("referer", Known::Referer), name("upgrade", Known::Upgrade), name("trailer", Known::Trailer)],
    &[name("location", Known::Location), name("x-scheme", Known::XScheme)],
    &[name("x-real-ip", Known::XRealIp), name("forwarded", Known::Forwarded)],
    &[
        name("connection", Known::Connection),
        name("user-agent", Known::UserAgent),
        name("keep-alive", Known::KeepAlive),
        name("set-cookie", Known::SetCookie),
        name("tracestate", Known::Tracestate),
    ],
    &[name("traceparent", Known::Traceparent)],
    &[name("content-type", Known::ContentType), name("x-request-id", Known::XRequestId)],
    &[name("authorization", Known::Authorization), name("cache-control", Known::CacheControl)],
    &[name("content-length", Known::ContentLength)],
    &[name("accept-encoding", Known::AcceptEncoding), name("x-forwarded-for", Known::XForwardedFor)],
    &[
        name("content-encoding", Known::ContentEncoding),
        name("x-forwarded-host", Known::XForwardedHost),
        name("x-forwarded-port", Known::XForwardedPort),
        name("proxy-connection", Known::ProxyConnection),
    ],
    &[name("transfer-encoding", Known::TransferEncoding), name("x-forwarded-proto", Known::XForwardedProto)],
    &[
        name("x-forwarded-scheme", Known::XForwardedScheme),
        name("x-forwarded-prefix", Known::XForwardedPrefix),
        name("proxy-authenticate", Known::ProxyAuthenticate),
    ],
    &[name("proxy-authorization", Known::ProxyAuthorization)],
    &[],
    &[],
    &[],
    &[],
    &[name("x-original-forwarded-for", Known::XOriginalForwardedFor)],
    &[name("strict-transport-security", Known::StrictTransportSecurity)],
];

impl Known {
    /// The header with this name, in any case.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let Some(candidates) = BY_LENGTH.get(name.len()) else {
            return Self::Other;
        };
        if candidates.is_empty() {
            return Self::Other;
        }
        let key = Key::of(name);
        for candidate in *candidates {
            if key == candidate.key && Key::covers(name)
                || name.eq_ignore_ascii_case(candidate.name.as_bytes())
            {
                return candidate.known;
            }
        }
        Self::Other
    }

    /// Whether the gateway removes the header from each forwarded message, even if Connection does not nominate the
    /// header (RFC 9110, 7.6.1).
    ///
    /// Not hop-by-hop: Trailer, because trailers are forwarded (RFC 9110, 6.6.2); Proxy-Authenticate and
    /// Proxy-Authorization, which RFC 9110, 7.6.1 does not list. These two headers have no meaning for the gateway, but
    /// an endpoint may be a proxy that uses them.
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::ProxyConnection
                | Self::Te
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }
}

/// The first and the last bytes of a name, up to eight of each, in lower case: two words to compare instead of a
/// string. The classification of the names of a request takes a third of the time of string comparisons.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u64, u64);

impl Key {
    const fn of(name: &[u8]) -> Self {
        if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            Self(lower(u64::from_le_bytes(*first)), lower(u64::from_le_bytes(*last)))
        } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            Self(lower(u32::from_le_bytes(*first) as u64), lower(u32::from_le_bytes(*last) as u64))
        } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            Self(lower(u16::from_le_bytes(*first) as u64), lower(u16::from_le_bytes(*last) as u64))
        } else {
            Self(0, 0)
        }
    }

    /// Whether the key holds every byte of `name`, so that names of one length differ if their keys do not.
    const fn covers(name: &[u8]) -> bool {
        name.len() <= 16
    }
}

/// Eight bytes with their ASCII letters in lower case.
const fn lower(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The high bit of each byte is set if its low seven bits are `A` or more, or over `Z`, respectively.
    let low = word & (0x7f * EACH);
    let from_a = low + (0x80 - b'A' as u64) * EACH;
    let over_z = low + (0x7f - b'Z' as u64) * EACH;
    let upper = from_a & !over_z & !word & (0x80 * EACH);
    word | upper >> 2
}

/// One header line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The name, at the beginning of the line.
    pub name: Span,
    /// The value, without the whitespace around it.
    pub value: Span,
    /// The position after the CRLF of the line.
    pub end: u32,
    /// The kind of the header.
    pub known: Known,
    /// Whether the line is hop-by-hop, so that the gateway does not forward the line: [`Known::is_hop_by_hop`], every
    /// header that a Connection option nominates, and Content-Length in a response without a body (1xx, 204). RFC 9110,
    /// 8.6 forbids this Content-Length, which may lead a lenient client to wait for a body.
    ///
    /// A Connection option removes only headers that are not [`Known`]. Otherwise a client could remove
    /// `Authorization`, `Cookie`, `Host` or an identity header before the endpoint reads the header.
    pub hop_by_hop: bool,
}

impl Line {
    /// The whole line with its CRLF.
    #[inline]
    pub fn span(&self) -> Span {
        Span { start: self.name.start, end: self.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_names_are_recognized_in_any_letter_case() {
        let mut seen = 0;
        for (length, candidates) in BY_LENGTH.iter().enumerate() {
            for Name { name, known, .. } in *candidates {
                assert_eq!(name.len(), length, "{name}");
                assert_eq!(Known::of(name.as_bytes()), *known);
                assert_eq!(Known::of(name.to_ascii_uppercase().as_bytes()), *known);
                seen += 1;
                for at in 0..length {
                    let mut other = name.as_bytes().to_vec();
                    other[at] ^= 0x20;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(Known::of(&other) == *known, same, "{}", other.escape_ascii());
                    other[at] ^= 0x80;
                    assert_eq!(Known::of(&other), Known::Other, "{}", other.escape_ascii());
                }
            }
        }
        assert_eq!(seen, Known::XScheme as usize, "the index of the last variant is the number of names");
    }

    #[test]
    fn lower_casing_eight_bytes_at_once_equals_lower_casing_each_byte() {
        for byte in 0..=u8::MAX {
            let word = u64::from_le_bytes([byte; 8]);
            assert_eq!(lower(word).to_le_bytes(), [byte.to_ascii_lowercase(); 8], "{byte:#x}");
        }
    }

    #[test]
    fn unknown_header_names_are_classified_as_other() {
        let others: [&[u8]; 6] = [b"", b"h", b"hosts", b"h\xf6st", b"x-forwarded-foo", &[b'x'; 300]];
        for name in others {
            assert_eq!(Known::of(name), Known::Other);
        }
    }
}
