//! The paths of the formats 1.1 and 2.1, in which a path with a special character is a regular expression.

use crate::path;

/// The path in format 3.0.
pub(super) fn path(written: &str) -> String {
    // A path of these characters is plain.
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~' | b'/' | b'%');
    match written.bytes().all(is_plain) {
        true => path::normal(written),
        false => format!("~{}", expression(written)),
    }
}

/// The expression with its escapes decoded, because format 3.0 compares expressions as they are written.
fn expression(written: &str) -> String {
    let mut out = String::with_capacity(written.len());
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let code = after.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                match byte {
                    b'!' | b'#'..=b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => {
                        out.push('%');
                        out.push_str(&after[..2].to_ascii_uppercase());
                    }
                    b'.' | b'^' | b'-' | b'{' | b'}' | b'\\' | b'|' => {
                        out.push('\\');
                        out.push(char::from(byte));
                    }
                    0x80.. => {
                        // A byte of a longer character: requests have the escape in upper case.
                        out.push('%');
                        out.push_str(&after[..2].to_ascii_uppercase());
                    }
                    byte => out.push(char::from(byte)),
                }
                rest = &after[2..];
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn path_with_a_special_character_becomes_a_regular_expression() {
        for (written, expected) in [
            ("/shop", "/shop"),
            ("/shop/v1.0/~user-1_x", "/shop/v1.0/~user-1_x"),
            ("/a//b/../%7ec", "/a/~c"),
            ("/user-$", "~/user-$"),
            ("/users/\\d+/profile", "~/users/\\d+/profile"),
            ("/a+b", "~/a+b"),
            ("/(x)%2e%2f%41%7c", "~/(x)\\.%2FA\\|"),
            ("/*%C3%bc", "~/*%C3%BC"),
        ] {
            assert_eq!(path(written), expected, "{written}");
        }
    }
}
