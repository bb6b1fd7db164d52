//! The syntax of names and values in requests and manifests. Each function returns the reason for a rejection, as the rest of a
//! sentence about the field.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// The reason why `name` is no token (RFC 9110, 5.6.2), as the rest of a sentence. Methods and names of headers are tokens.
#[must_use]
pub fn token_fault(name: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match name {
        "" => Some("is empty"),
        name if name.bytes().all(is_token) => None,
        _ => Some("has invalid characters: write letters, digits and hyphens"),
    }
}

/// The name of a header in lower case.
///
/// # Errors
/// The name is no token.
pub fn header_name(name: &str) -> Result<Box<str>, String> {
    match token_fault(name) {
        None => Ok(name.to_ascii_lowercase().into()),
        Some(fault) => Err(format!("{name:?} {fault}")),
    }
}

/// The reason why no claim may set a header.
#[must_use]
pub fn reserved_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "host" | "content-length" | "content-type" | "content-encoding" | "transfer-encoding"
        | "connection" | "keep-alive" | "te" | "trailer" | "upgrade" | "expect" | "cookie"
        | "authorization" | "forwarded" | "x-real-ip" | "x-request-id" => {
            Some("is needed for the request itself")
        }
        name if ["proxy-", "x-forwarded-", "x-consumer-", "ssl-client-"]
            .iter()
            .any(|of| name.starts_with(of)) =>
        {
            Some("is set by the gateway itself")
        }
        _ => None,
    }
}

/// The reason why no rule may set, add or remove a header, as the rest of a sentence.
#[must_use]
pub fn framing_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "date" | "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-port"
        | "x-forwarded-proto" | "x-forwarded-scheme" | "x-real-ip" | "x-request-id" | "x-scheme"
        | "traceparent" | "tracestate" => Some("is set by the gateway itself"),
        name => own_fault(name),
    }
}

/// The reason why no rule and no annotation may set, add or remove a header, as the rest of a sentence.
#[must_use]
pub fn own_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "host" => Some("can only be changed by urlRewrite.hostname"),
        "content-length" | "transfer-encoding" | "connection" | "keep-alive" | "te" | "trailer"
        | "upgrade" | "expect" | "proxy-connection" => {
            Some("is a hop-by-hop header, which the gateway sets itself")
        }
        name if ["x-consumer-", "ssl-client-"].iter().any(|of| name.starts_with(of)) => {
            Some("is set by the gateway itself")
        }
        _ => None,
    }
}

/// The reason why `text` cannot be the whole value of a header (RFC 9110, 5.5), as a sentence about it.
#[must_use]
pub fn line_fault(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("is empty"),
        text if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) => {
            Some("has characters that a header cannot have: write letters, digits and punctuation of ASCII")
        }
        text if text.trim() != text => Some("begins or ends with a space"),
        _ => None,
    }
}

/// The reason why `text` cannot be a value among others in a header, as the rest of a sentence.
#[must_use]
pub fn value_fault(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("is empty"),
        text if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
            Some("has characters that a header cannot have: write letters, digits and punctuation of ASCII")
        }
        text if text.trim() != text => Some("begins or ends with a space"),
        text if text.contains(',') => Some("has a comma, which separates values"),
        _ => None,
    }
}

/// The reason why `name` is no DNS name (RFC 1123 subdomain, as Kubernetes checks it), as the rest of a sentence.
#[must_use]
pub fn dns_name_fault(name: &str) -> Option<&'static str> {
    name_fault(name, false)
}

/// The reason why `name` is no name of an endpoint, as the rest of a sentence. Beside DNS names, names with `_` are allowed:
/// resolvers accept them, and names of containers often have one.
#[must_use]
pub fn endpoint_name_fault(name: &str) -> Option<&'static str> {
    name_fault(name, true)
}

fn name_fault(name: &str, with_underscores: bool) -> Option<&'static str> {
    let is_known =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-') || (with_underscores && byte == b'_');
    let label_is_valid = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(is_known)
    };
    if name.len() > 253 {
        Some("is longer than 253 characters")
    } else if name.split('.').all(label_is_valid) {
        None
    } else if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some("has upper-case letters: write it in lower case")
    } else if !name.is_ascii() {
        Some("is not ASCII: write international names as xn--...")
    } else if name.contains("//") {
        Some("is a URL: write only the name")
    } else if name.contains(':') {
        Some("has a port or a ':': write only the name")
    } else {
        Some(
            "is not a DNS name: write labels of a-z, 0-9 and '-' that begin and end with a letter or a digit, \
             separated by single dots",
        )
    }
}

/// The host of an address with a port, without brackets.
///
/// # Errors
/// The reason why `address` is no host with a port, as the rest of a sentence.
pub fn server_host(address: &str) -> Result<&str, &'static str> {
    let form = "is not a host with a port: write it as valkey.default.svc:6379";
    if address.contains("//") {
        return Err("is a URL: write only the host and the port, and tls: {} for rediss");
    }
    let (host, port) = address.rsplit_once(':').ok_or(form)?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("has no port from 1 to 65535: write it as valkey.default.svc:6379");
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().map(|_| inner).map_err(|_| form);
    }
    dns_name_fault(host).map_or(Ok(host), Err)
}

/// Converts `path` to the normal form of `sluicegate_http1::path::normalise`: characters that RFC 3986 does not allow
/// in a path are percent-encoded, unreserved characters are not, escapes are in upper case. Dot segments and empty
/// segments are rejected rather than resolved, as in Kubernetes' validation.
///
/// # Errors
/// No request can have the path.
pub fn normal_path(path: &str) -> Result<Box<str>, String> {
    if !path.starts_with('/') {
        return Err(format!("{path:?} does not begin with '/'"));
    }
    let mut normal = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'%' => {
                let digits = (bytes.next(), bytes.next());
                let (Some(high), Some(low)) = (digits.0.and_then(hex_value), digits.1.and_then(hex_value))
                else {
                    return Err(format!(
                        "{path:?} has a '%' without two hexadecimal digits: write %25 for '%'"
                    ));
                };
                let value = high * 16 + low;
                if !is_unreserved(value) {
                    refuse_byte(path, value)?;
                    push_escape(&mut normal, value);
                    continue;
                }
                value
            }
            _ => byte,
        };
        if is_path_byte(decoded) {
            normal.push(char::from(decoded));
        } else {
            refuse_byte(path, decoded)?;
            push_escape(&mut normal, decoded);
        }
    }
    if normal.contains("//") {
        return Err(format!(
            "{path:?} has '//', which no request matches: the gateway merges slashes before routing"
        ));
    }
    if normal.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(format!(
            "{path:?} has a '.' or '..' segment, which no request matches: the gateway resolves dot segments before routing"
        ));
    }
    Ok(normal.into())
}

/// Bytes that no path may have, escaped or not.
fn refuse_byte(path: &str, byte: u8) -> Result<(), String> {
    match byte {
        b'/' => {
            Err(format!("{path:?} has an escaped slash (%2F), which Kubernetes does not allow in a path"))
        }
        0..=0x1f | 0x7f => Err(format!("{path:?} has a control character")),
        _ => Ok(()),
    }
}

fn push_escape(normal: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(normal, "%{byte:02X}");
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// RFC 3986, 2.3: these characters have the same meaning with and without an escape.
const fn is_unreserved(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986, 3.3: the characters that a path may contain without an escape (`pchar` and `/`).
const fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'/'
        )
}
