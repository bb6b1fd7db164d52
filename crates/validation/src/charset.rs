//! The charset of JSON and of forms. JSON between systems is UTF-8 (RFC 8259, 8.1), and the gateway reads all bodies as UTF-8. An
//! endpoint that follows another charset would read other values than the values that the gateway validated.

use crate::media::{essence, is_form, is_json};

/// The names of UTF-8 and of its subset.
const UTF8: [&str; 3] = ["utf-8", "utf8", "us-ascii"];

/// Whether a `Content-Type` names another charset than UTF-8 for JSON or a form.
#[must_use]
pub fn has_foreign_charset(content_type: &[u8]) -> bool {
    essence(content_type).is_some_and(|media_type| is_json(&media_type) || is_form(&media_type))
        && names_foreign_charset(content_type)
}

/// Whether a `Content-Type` names another charset than UTF-8.
pub(crate) fn names_foreign_charset(content_type: &[u8]) -> bool {
    // A semicolon in a quoted value makes a part without a name, or with one name more: no charset is lost.
    let parameters = content_type.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let charsets = parameters.filter_map(|parameter| {
        let end = parameter.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (parameter[..end].trim_ascii(), parameter[end + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"charset").then_some(value)
    });
    let mut charsets = charsets.map(|value| {
        value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value).trim_ascii()
    });
    charsets.any(|value| UTF8.iter().all(|name| !value.eq_ignore_ascii_case(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charset_of_json_is_utf_8() {
        for (content_type, expected) in [
            ("application/json", false),
            ("application/json; charset=utf-8", false),
            ("application/json;charset=\"UTF-8\"", false),
            ("application/json; version=1; Charset = us-ascii", false),
            ("application/json; charset=utf-16", true),
            ("application/problem+json; CHARSET=\"ISO-8859-1\"", true),
            ("application/json; charset=utf-8; charset=utf-16", true),
            ("application/json; a=\"b;charset=utf-16\"", true),
            ("application/json; charset=", true),
            ("application/json; charset=\"utf-8", true),
            ("application/x-www-form-urlencoded; charset=latin1", true),
            ("text/plain; charset=utf-16", false),
            ("", false),
        ] {
            assert_eq!(has_foreign_charset(content_type.as_bytes()), expected, "{content_type}");
        }
    }
}
