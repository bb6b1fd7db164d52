//! Names and values that policies add to heads of requests, or remove from them.

/// The reason why `name` is no token (RFC 9110, 5.6.2), as the rest of a sentence. Methods and names of headers are tokens.
pub(crate) fn token_fault(name: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match name {
        "" => Some("is empty"),
        name if name.bytes().all(is_token) => None,
        _ => Some("has invalid characters: write letters, digits and hyphens"),
    }
}

/// The name of a header in lower case.
pub(crate) fn name(name: &str) -> Result<Box<str>, String> {
    match token_fault(name) {
        None => Ok(name.to_ascii_lowercase().into()),
        Some(fault) => Err(format!("{name:?} {fault}")),
    }
}

/// The reason why no claim may set a header.
pub(crate) fn reserved_fault(lower_case: &str) -> Option<&'static str> {
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
pub(crate) fn framing_fault(lower_case: &str) -> Option<&'static str> {
    match lower_case {
        "host" => Some("can only be changed by rewrite.hostname"),
        "content-length" | "transfer-encoding" | "connection" | "keep-alive" | "te" | "trailer"
        | "upgrade" | "expect" | "proxy-connection" => {
            Some("is a hop-by-hop header, which the gateway sets itself")
        }
        "date" | "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-port"
        | "x-forwarded-proto" | "x-forwarded-scheme" | "x-real-ip" | "x-request-id" | "x-scheme"
        | "traceparent" | "tracestate" => Some("is set by the gateway itself"),
        name if ["x-consumer-", "ssl-client-"].iter().any(|of| name.starts_with(of)) => {
            Some("is set by the gateway itself")
        }
        _ => None,
    }
}

/// The reason why `text` cannot be the whole value of a header (RFC 9110, 5.5), as a sentence about it.
pub(crate) fn line_fault(text: &str) -> Option<&'static str> {
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
pub(crate) fn value_fault(text: &str) -> Option<&'static str> {
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
