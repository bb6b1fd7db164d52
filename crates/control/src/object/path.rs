//! The path of a rule, converted to the normal form for comparisons with requests.

use std::fmt::Write as _;

use sluicegate_model::PathPattern;

/// Parses `spec.rules[].http.paths[].path` with its `pathType`. `Err` holds the faulty field (`path` or `pathType`) and
/// the reason.
pub(crate) fn parse(path: &str, path_type: &str) -> Result<PathPattern, (&'static str, String)> {
    let in_field = |message| ("path", message);
    match path_type {
        "Exact" => Ok(PathPattern::Exact(normalise(path).map_err(in_field)?)),
        "Prefix" => {
            let mut path = normalise(path).map_err(in_field)?.into_string();
            if path.len() > 1 && path.ends_with('/') {
                path.pop();
            }
            Ok(PathPattern::Prefix(path.into()))
        }
        // An empty path matches the whole host here, as in ingress-nginx.
        "ImplementationSpecific" => {
            let path = if path.is_empty() { "/" } else { path };
            Ok(PathPattern::Starts(normalise(path).map_err(in_field)?))
        }
        "" => Err(("pathType", "is missing: write Exact, Prefix or ImplementationSpecific".to_owned())),
        other => {
            let known = ["Exact", "Prefix", "ImplementationSpecific"];
            let meant = known.iter().find(|known| known.eq_ignore_ascii_case(other));
            Err((
                "pathType",
                match meant {
                    Some(meant) => format!("{other:?} is unknown: did you mean {meant}?"),
                    None => format!("{other:?} is unknown: write Exact, Prefix or ImplementationSpecific"),
                },
            ))
        }
    }
}

/// Converts `path` to the normal form of `sluicegate_http1::path::normalise`: characters that RFC 3986 does not allow
/// in a path are percent-encoded, unreserved characters are not, escapes are in upper case. Dot segments and empty
/// segments are rejected rather than resolved, as in Kubernetes' validation.
pub(crate) fn normalise(path: &str) -> Result<Box<str>, String> {
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

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn paths_are_normalized() {
        for (path, path_type, expected) in [
            ("/", "Prefix", "/"),
            ("/foo/", "Prefix", "/foo"),
            ("/foo/", "Exact", "/foo/"),
            ("/foo/", "ImplementationSpecific", "/foo/"),
            ("", "ImplementationSpecific", "/"),
            ("/%7euser/%c3%bc", "Exact", "/~user/%C3%BC"),
            ("/über mut", "Exact", "/%C3%BCber%20mut"),
            ("/a?b#c", "Exact", "/a%3Fb%23c"),
            ("/a+b=(1),2;x@y:z!$&'*", "Exact", "/a+b=(1),2;x@y:z!$&'*"),
            ("/a%2Bb", "Exact", "/a%2Bb"),
            ("/.well-known/...", "Prefix", "/.well-known/..."),
            ("/{a}|[b]^\"<>\\`", "Exact", "/%7Ba%7D%7C%5Bb%5D%5E%22%3C%3E%5C%60"),
        ] {
            let pattern = parse(path, path_type).unwrap();
            assert_eq!((pattern.as_str(), pattern.path_type()), (expected, path_type), "{path}");
        }
    }

    #[test]
    fn paths_that_no_request_can_have_are_rejected() {
        for (path, reason) in [
            ("", "begin with '/'"),
            ("foo", "begin with '/'"),
            ("//foo", "'//'"),
            ("/foo//", "'//'"),
            ("/./foo", "segment"),
            ("/foo/..", "segment"),
            ("/foo/.", "segment"),
            ("/%2e%2E/foo", "segment"),
            ("/a%2fb", "slash"),
            ("/a%2Fb", "slash"),
            ("/a%", "%25"),
            ("/a%2", "%25"),
            ("/a%zz", "%25"),
            ("/a%00", "control"),
            ("/a\n", "control"),
        ] {
            for path_type in ["Exact", "Prefix"] {
                let (field, message) = parse(path, path_type).unwrap_err();
                assert!(field == "path" && message.contains(reason), "{path}: {message}");
            }
        }
    }

    #[test]
    fn path_type_is_required_and_case_sensitive() {
        assert_eq!(parse("/", "").unwrap_err().0, "pathType");
        assert!(parse("/", "prefix").unwrap_err().1.contains("did you mean Prefix?"));
        assert!(parse("/", "Regex").unwrap_err().1.contains("unknown"));
    }
}
