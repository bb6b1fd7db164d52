//! Changes of the protocol (RFC 9110, 7.8): the protocols that endpoints may be asked for, and the responses that open a
//! tunnel.

use sluicegate_http1::is_token;

/// Whether an endpoint may be asked for these protocols, the value of an Upgrade header.
///
/// Requests inside a tunnel bypass all routes and policies. So the gateway forwards no protocol that carries HTTP. These
/// are HTTP/2 by any of its names (RFC 9113, 3.1 removed `h2c`), HTTP itself, and TLS, inside which HTTP continues (RFC
/// 2817). The gateway forwards only `name[/version]` in tokens: an endpoint may parse other values, such as `"h2c"`, less
/// strictly.
pub(crate) fn may_be_asked(protocols: &[u8]) -> bool {
    elements(protocols).all(|protocol| {
        let slash = memchr::memchr(b'/', protocol).unwrap_or(protocol.len());
        let (name, version) = protocol.split_at(slash);
        is_token(name) && version.strip_prefix(b"/").is_none_or(is_token) && !carries_http(name)
    })
}

/// Whether a 101 with these protocols changes only to protocols that the endpoint was asked for.
pub(super) fn are_among(answered: &[u8], asked: &[u8]) -> bool {
    let is_asked = |answer: &[u8]| elements(asked).any(|protocol| protocol.eq_ignore_ascii_case(answer));
    elements(answered).next().is_some() && elements(answered).all(is_asked)
}

fn carries_http(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"h2") || begins(b"http") || name.eq_ignore_ascii_case(b"tls")
}

/// The non-empty elements of a list (RFC 9110, 5.6.1.2).
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrade_to_http_or_tls_or_a_malformed_protocol_is_rejected() {
        for protocols in [
            "h2c",
            "H2C",
            "h2",
            "h2-14",
            "h2c/1",
            "HTTP/2.0",
            "http/2",
            "HTTP2",
            "HTTP/1.1",
            "TLS/1.2",
            "\"h2c\"",
            "websocket, h2c",
            "websocket,\tH2C ,x",
            "websocket, \"h2c\"",
            "web socket",
            "websocket;h2c",
            "/h2c",
            "x/",
            "x/y/z",
        ] {
            assert!(!may_be_asked(protocols.as_bytes()), "{protocols}");
        }
        for protocols in ["websocket", "WebSocket", "SPDY/3.1", "tcp", "websocket, x", "websocket,,", "oh2c"]
        {
            assert!(may_be_asked(protocols.as_bytes()), "{protocols}");
        }
    }

    #[test]
    fn response_101_names_only_requested_protocols() {
        for (answered, asked) in [
            ("websocket", "websocket"),
            ("WebSocket", "websocket"),
            ("websocket", "foo/1, WebSocket"),
            ("foo/1, websocket", "websocket,foo/1"),
            (" websocket ,", "websocket"),
        ] {
            assert!(are_among(answered.as_bytes(), asked.as_bytes()), "{answered} of {asked}");
        }
        for (answered, asked) in [
            ("", "websocket"),
            (",", "websocket"),
            ("h2c", "websocket"),
            ("websocket, h2c", "websocket"),
            ("websocket/13", "websocket"),
            ("web", "websocket"),
        ] {
            assert!(!are_among(answered.as_bytes(), asked.as_bytes()), "{answered} of {asked}");
        }
    }
}
