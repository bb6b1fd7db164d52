//! Classes of bytes, and the lists in header values.

/// `tchar` (RFC 9110, 5.6.2): the bytes of method names, header names and options.
static TCHAR: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// `unreserved / sub-delims` (RFC 3986, 2.2 and 2.3): a `reg-name` without its percent-escapes.
static REG_NAME: [bool; 256] = table(b"-._~!$&'()*+,;=");

/// A table of ASCII letters, digits and `others`.
const fn table(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
}

/// Whether `byte` may be part of a token.
#[inline]
pub(crate) fn is_tchar(byte: u8) -> bool {
    TCHAR[byte as usize]
}

/// Whether `bytes` is a token (RFC 9110, 5.6.2).
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_tchar(byte))
}

/// Whether a registered name may contain `byte` without an escape.
#[inline]
pub(crate) fn is_reg_name(byte: u8) -> bool {
    REG_NAME[byte as usize]
}

/// Whether `byte` may be part of a field value (RFC 9110, 5.5): no control character except HTAB.
#[inline]
pub(crate) fn is_field_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// The value of a hexadecimal digit.
#[inline]
pub(crate) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// `value` without the optional whitespace around it (RFC 9110, 5.6.3).
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a comma-separated list (RFC 9110, 5.6.1), trimmed, including empty elements.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}
