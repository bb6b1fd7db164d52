//! The normal form of a path.

use memchr::memrchr;

use crate::rejection::Rejection;
use crate::token::hex;

/// A path in normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalised<'p> {
    /// The path was in normal form, without an escape and without a `;`: every endpoint parses the same segments.
    Plain,
    /// The path was in normal form.
    AsIs,
    /// The normal form, in the scratch buffer.
    Rewritten(&'p [u8]),
}

/// The handling of a byte of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Stays unchanged, as do `/` and `.`, which also affect segments.
    Plain,
    Slash,
    Percent,
    /// `;`, unchanged: it begins a parameter of a segment (RFC 3986, 3.3).
    Semicolon,
    /// Not allowed in a path (RFC 3986, 3.3), and therefore percent-encoded.
    Encode,
}

static CLASS: [Class; 256] = classes();

/// `pchar` (RFC 3986, 3.3) without letters, digits and escapes.
const PCHAR: &[u8] = b"-._~!$&'()*+,;=:@";

const fn classes() -> [Class; 256] {
    let mut classes = [Class::Encode; 256];
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            classes[byte] = Class::Plain;
        }
        byte += 1;
    }
    let mut i = 0;
    while i < PCHAR.len() {
        classes[PCHAR[i] as usize] = Class::Plain;
        i += 1;
    }
    classes[b'/' as usize] = Class::Slash;
    classes[b'%' as usize] = Class::Percent;
    classes[b';' as usize] = Class::Semicolon;
    classes
}

/// Converts `path` to the normal form, in which routes are matched and requests are forwarded. An endpoint therefore
/// receives the matched path:
///
/// - escapes of unreserved characters are decoded (RFC 3986, 6.2.2.2), all others stay, in upper case: `%2f` is not a
///   slash;
/// - `//` becomes `/`, as with `merge_slashes` of nginx;
/// - `.` and `..` segments are removed (RFC 3986, 5.2.4), also in the form `%2e`;
/// - bytes that a path cannot contain are percent-encoded.
///
/// `path` is without its query. The empty path of an absolute-form target becomes `/`; `*` stays. Normalisation is
/// idempotent. `scratch` is only written if the path is not in normal form.
///
/// # Errors
///
/// [`InvalidEscape`](Rejection::InvalidEscape), [`NulInPath`](Rejection::NulInPath),
/// [`PathAboveRoot`](Rejection::PathAboveRoot), and [`InvalidTarget`](Rejection::InvalidTarget) if the path does not
/// begin with `/`.
#[inline]
pub fn normalise<'s>(path: &[u8], scratch: &'s mut Vec<u8>) -> Result<Normalised<'s>, Rejection> {
    if let Some(normal) = as_it_is(path) {
        return Ok(normal);
    }
    rewrite(path, scratch)?;
    Ok(Normalised::Rewritten(scratch))
}

/// Checks in one pass whether `path` has normal form. Writes nothing.
fn as_it_is(path: &[u8]) -> Option<Normalised<'static>> {
    if path.first() != Some(&b'/') {
        return (path == b"*").then_some(Normalised::Plain);
    }
    let mut is_plain = true;
    let is_special = |byte: &u8| CLASS[*byte as usize] != Class::Plain;
    let mut rest = path;
    while let Some(at) = rest.iter().position(is_special) {
        let (byte, tail) = (rest[at], &rest[at + 1..]);
        rest = match CLASS[byte as usize] {
            Class::Slash if !matches!(tail, [b'/', ..]) && !begins_with_dots(tail) => tail,
            Class::Percent if is_normal_escape(tail) => {
                is_plain = false;
                &tail[2..]
            }
            Class::Semicolon => {
                is_plain = false;
                tail
            }
            _ => return None,
        };
    }
    Some(if is_plain { Normalised::Plain } else { Normalised::AsIs })
}

/// Whether the first segment is `.` or `..`.
#[inline]
fn begins_with_dots(rest: &[u8]) -> bool {
    let Some(after) = rest.strip_prefix(b".") else {
        return false;
    };
    matches!(after.strip_prefix(b".").unwrap_or(after), [] | [b'/', ..])
}

/// Whether a `%` before these bytes begins an escape that stays unchanged.
fn is_normal_escape(rest: &[u8]) -> bool {
    let is_upper = |digit: &u8| matches!(digit, b'0'..=b'9' | b'A'..=b'F');
    let is_kept = |byte: u8| byte != 0 && !is_unreserved(byte);
    match rest {
        [high, low, ..] => is_upper(high) && is_upper(low) && decode(*high, *low).is_some_and(is_kept),
        _ => false,
    }
}

#[cold]
fn rewrite(path: &[u8], out: &mut Vec<u8>) -> Result<(), Rejection> {
    out.clear();
    out.push(b'/');
    if path.is_empty() {
        return Ok(());
    }
    let mut rest = path.strip_prefix(b"/").ok_or(Rejection::InvalidTarget)?;
    // The beginning of the current segment in `out`.
    let mut segment = 1;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match CLASS[*byte as usize] {
            Class::Plain | Class::Semicolon => out.push(*byte),
            Class::Slash => segment = end_segment(out, segment, true)?,
            Class::Percent => {
                let [high, low, tail @ ..] = tail else {
                    return Err(Rejection::InvalidEscape);
                };
                rest = tail;
                match decode(*high, *low).ok_or(Rejection::InvalidEscape)? {
                    0 => return Err(Rejection::NulInPath),
                    decoded if is_unreserved(decoded) => out.push(decoded),
                    decoded => encode(out, decoded),
                }
            }
            Class::Encode if *byte == 0 => return Err(Rejection::NulInPath),
            Class::Encode => encode(out, *byte),
        }
    }
    end_segment(out, segment, false)?;
    Ok(())
}

/// Ends the segment that begins at `segment` of `out`, with a slash if another segment follows. Returns the beginning
/// of the next segment.
fn end_segment(out: &mut Vec<u8>, segment: usize, slash: bool) -> Result<usize, Rejection> {
    match &out[segment..] {
        b"" => Ok(segment),
        b"." => {
            out.truncate(segment);
            Ok(segment)
        }
        b".." => {
            // `segment` is the start of the current segment, after its slash. The parent segment ends before the slash,
            // unless the current segment is at the root.
            let parent = memrchr(b'/', &out[..segment - 1]).ok_or(Rejection::PathAboveRoot)? + 1;
            out.truncate(parent);
            Ok(parent)
        }
        _ => {
            if slash {
                out.push(b'/');
            }
            Ok(out.len())
        }
    }
}

fn decode(high: u8, low: u8) -> Option<u8> {
    Some(hex(high)? << 4 | hex(low)?)
}

fn encode(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// RFC 3986, 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(path: &str) -> Result<String, Rejection> {
        let mut scratch = b"left over".to_vec();
        Ok(match normalise(path.as_bytes(), &mut scratch)? {
            Normalised::Plain | Normalised::AsIs => path.to_owned(),
            Normalised::Rewritten(normal) => String::from_utf8(normal.to_vec()).unwrap(),
        })
    }

    #[test]
    fn path_in_normal_form_is_unchanged() {
        let plain = [
            "/",
            "/a",
            "/a/",
            "/a/b.html",
            "/.well-known/x",
            "/..a/b..",
            "/...",
            "/v1..2/x",
            "/a...b",
            "/a,b@c:d",
            "/~user/$&'()*+!=",
            "*",
        ];
        let others = ["/a%2Fb", "/%25", "/a;b=c", "/a/..;", "/a%20b", "/%C3%A4"];
        let plain = plain.map(|path| (path, Normalised::Plain)).into_iter();
        for (path, expected) in plain.chain(others.map(|path| (path, Normalised::AsIs))) {
            let mut scratch = Vec::new();
            assert_eq!(normalise(path.as_bytes(), &mut scratch), Ok(expected), "{path}");
            assert!(scratch.is_empty());
        }
    }

    #[test]
    fn path_not_in_normal_form_is_rewritten_to_its_normal_form() {
        let cases = [
            ("", "/"),
            ("//", "/"),
            ("//a///b//", "/a/b/"),
            ("/.", "/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/..", "/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../../c", "/c"),
            ("/a//../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/%2e/a", "/a"),
            ("/%41", "/A"),
            ("/%41%7e%2D", "/A~-"),
            ("/a%2fb", "/a%2Fb"),
            ("/%2f%3f", "/%2F%3F"),
            ("/a/%2f..", "/a/%2F.."),
            ("/%252e", "/%252e"),
            ("/a b", "/a%20b"),
            ("/ä", "/%C3%A4"),
            ("/\"<>\\^`{|}[]", "/%22%3C%3E%5C%5E%60%7B%7C%7D%5B%5D"),
            ("/a\x01\x7f", "/a%01%7F"),
            ("/a?b#c", "/a%3Fb%23c"),
        ];
        for (path, expected) in cases {
            assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
            assert_eq!(normal(expected).as_deref(), Ok(expected), "{expected}");
        }
    }

    #[test]
    fn path_above_the_root_or_with_invalid_escapes_is_rejected() {
        let cases = [
            ("a", Rejection::InvalidTarget),
            ("**", Rejection::InvalidTarget),
            ("/%", Rejection::InvalidEscape),
            ("/%4", Rejection::InvalidEscape),
            ("/%zz", Rejection::InvalidEscape),
            ("/%4z", Rejection::InvalidEscape),
            ("/%u0041", Rejection::InvalidEscape),
            ("/%00", Rejection::NulInPath),
            ("/a\0b", Rejection::NulInPath),
            ("/..", Rejection::PathAboveRoot),
            ("/../a", Rejection::PathAboveRoot),
            ("/%2e%2e/a", Rejection::PathAboveRoot),
            ("/a/../..", Rejection::PathAboveRoot),
            ("//..", Rejection::PathAboveRoot),
        ];
        for (path, rejection) in cases {
            assert_eq!(normal(path), Err(rejection), "{path}");
            assert_eq!(rejection.status(), 400);
        }
    }
}
