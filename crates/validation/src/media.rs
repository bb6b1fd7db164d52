//! Media types (RFC 9110, 8.3.1).

/// Whether content of this media type is JSON (RFC 8259, RFC 6839). The media type is in lower case, without parameters.
#[must_use]
pub fn is_json(media_type: &str) -> bool {
    matches!(media_type, "application/json" | "text/json")
        || media_type.contains('/') && media_type.ends_with("+json")
}

/// Whether content of this media type, in lower case and without parameters, is a form whose fields are checked.
#[must_use]
pub fn is_form(media_type: &str) -> bool {
    media_type == "application/x-www-form-urlencoded" || is_multipart(media_type)
}

/// Whether content of this media type, in lower case and without parameters, is a form of several parts (RFC 7578).
#[must_use]
pub fn is_multipart(media_type: &str) -> bool {
    media_type == "multipart/form-data"
}

/// The media type of a `Content-Type` in lower case, without parameters; `None` if the value is no media type.
pub(crate) fn essence(content_type: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(content_type).ok()?;
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (kind, sub) = essence.split_once('/')?;
    let is_token = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    (is_token(kind) && is_token(sub)).then_some(essence)
}

/// Whether a media type, in lower case and without parameters, is in a range such as `image/*` or `*/*`.
pub(crate) fn is_in(media_type: &str, range: &str) -> bool {
    match range.strip_suffix('*') {
        Some("*/") => true,
        Some(prefix) => prefix.ends_with('/') && media_type.starts_with(prefix),
        None => media_type == range,
    }
}

/// Whether a `Content-Type` is in one of these ranges.
#[must_use]
pub fn matches<R: AsRef<str>>(content_type: &[u8], ranges: &[R]) -> bool {
    essence(content_type)
        .is_some_and(|media_type| ranges.iter().any(|range| is_in(&media_type, range.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_matches_a_media_type_or_a_range() {
        for (content_type, range, expected) in [
            ("Application/JSON; charset=utf-8", "application/json", true),
            ("application/json", "application/*", true),
            ("image/png", "*/*", true),
            ("image/png", "image/p*", false),
            ("text/plain", "application/json", false),
            ("json", "*/*", false),
            ("", "*/*", false),
            ("a/b, c/d", "*/*", false),
        ] {
            assert_eq!(matches(content_type.as_bytes(), &[range]), expected, "{content_type} {range}");
        }
    }

    #[test]
    fn json_has_several_media_types() {
        assert!(["application/json", "application/problem+json", "text/json"].into_iter().all(is_json));
        assert!(!["application/xml", "+json", "application/*", "application/jsonl"].into_iter().any(is_json));
    }
}
