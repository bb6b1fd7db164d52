//! Queries, and other lists of pairs: their parts, their decoding, and masks for logs.

use std::borrow::Cow;

/// The request target with masked values of these parameters; `None` if the target has none of these parameters.
pub(crate) fn mask(target: &[u8], names: &[Box<str>]) -> Option<Vec<u8>> {
    let question = memchr::memchr(b'?', target)?;
    let (path, query) = (&target[..=question], &target[question + 1..]);
    let is_secret = |part: &[u8]| {
        let name = decoded(split(part).0);
        names.iter().any(|secret| *secret.as_bytes() == *name)
    };
    if !query.split(|byte| *byte == b'&').any(is_secret) {
        return None;
    }
    let parts: Vec<Vec<u8>> = query
        .split(|byte| *byte == b'&')
        .map(|part| if is_secret(part) { [split(part).0, b"=***"].concat() } else { part.to_vec() })
        .collect();
    Some([path, &parts.join(&b'&')].concat())
}

/// The names and values of a list of pairs.
pub(crate) fn pairs(list: &[u8], between: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
    list.split(move |byte| *byte == between).map(|pair| {
        let (name, value) = split(pair);
        (name.trim_ascii(), value.trim_ascii())
    })
}

/// The name and the value of a pair.
pub(crate) fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (pair, &[]),
    }
}

/// A part of a query without its escapes (application/x-www-form-urlencoded).
pub(crate) fn decoded(part: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', part).is_none() {
        return Cow::Borrowed(part);
    }
    let hex = |byte: &u8| char::from(*byte).to_digit(16);
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((first, tail)) = rest.split_first() {
        let escape = match (first, tail) {
            (b'%', [high, low, ..]) => hex(high).zip(hex(low)),
            _ => None,
        };
        rest = match escape {
            // Two digits are a byte.
            Some((high, low)) => {
                out.push((high * 16 + low) as u8);
                &tail[2..]
            }
            None => {
                out.push(if *first == b'+' { b' ' } else { *first });
                tail
            }
        };
    }
    Cow::Owned(out)
}

/// Escapes text for a query (RFC 3986, 2.3).
pub(crate) fn escape(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => {
                out.extend_from_slice(&[
                    b'%',
                    DIGITS[usize::from(byte >> 4)],
                    DIGITS[usize::from(byte & 15)],
                ]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_logged_request_target_are_masked() {
        let names = ["k".into()];
        let masked = |target: &str| mask(target.as_bytes(), &names).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(masked("/a?x=1&k=secret&%6b=secret&k").unwrap(), "/a?x=1&k=***&%6b=***&k=***");
        assert_eq!(masked("/a?x=k"), None);
        assert_eq!(masked("/k=1"), None);
    }
}
