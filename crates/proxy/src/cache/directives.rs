//! What heads say of caching: `Cache-Control`, `Pragma` and dates.

use std::time::Duration;

use sluicegate_http1::{Known, Line, RequestHead, ResponseHead};

/// The longest time that is believed (RFC 9111, 1.2.2 wants 2^31 s at least for what is too long): ten years.
const LONGEST: u64 = 10 * 365 * 86_400;

/// What a request says (RFC 9111, 5.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<Duration>,
    pub(crate) min_fresh: Option<Duration>,
}

/// What a response says (RFC 9111, 5.2.2; RFC 5861).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) max_age: Option<Duration>,
    pub(super) s_maxage: Option<Duration>,
    pub(super) stale_if_error: Option<Duration>,
    pub(super) stale_while_revalidate: Option<Duration>,
}

impl RequestDirectives {
    pub(crate) fn of(head: &RequestHead, buf: &[u8]) -> Self {
        let mut found = Self::default();
        let mut has_any = false;
        for line in head.lines.iter().filter(|line| line.known == Known::CacheControl) {
            has_any = true;
            for (name, value) in directives(line.value.of(buf)) {
                match () {
                    () if is(name, "no-store") => found.no_store = true,
                    () if is(name, "no-cache") => found.no_cache = true,
                    () if is(name, "only-if-cached") => found.only_if_cached = true,
                    () if is(name, "max-age") => shortest(&mut found.max_age, value),
                    // Of two, what asks for more.
                    () if is(name, "min-fresh") => {
                        found.min_fresh =
                            found.min_fresh.max(Some(value.and_then(seconds).unwrap_or_default()));
                    }
                    () => {}
                }
            }
        }
        if !has_any {
            // RFC 9111, 5.4: what HTTP/1.0 had.
            let pragma = head.find(buf, "pragma").unwrap_or_default();
            found.no_cache = directives(pragma).any(|(name, _)| is(name, "no-cache"));
        }
        found
    }
}

/// Whether a response says that it is gone, or for nobody else, so that nothing that was kept for the same may be used any more.
pub(crate) fn withdraws(head: &ResponseHead, buf: &[u8]) -> bool {
    let directives = ResponseDirectives::of(&head.lines, buf);
    head.status == 410 || head.status < 500 && (directives.no_store || directives.private)
}

impl ResponseDirectives {
    pub(super) fn of(lines: &[Line], buf: &[u8]) -> Self {
        let mut found = Self::default();
        for line in lines.iter().filter(|line| line.known == Known::CacheControl) {
            for (name, value) in directives(line.value.of(buf)) {
                match () {
                    () if is(name, "no-store") => found.no_store = true,
                    // With names of headers, too: they are kept by nobody who does not know what they are.
                    () if is(name, "no-cache") => found.no_cache = true,
                    () if is(name, "private") => found.private = true,
                    () if is(name, "public") => found.public = true,
                    () if is(name, "must-revalidate") => found.must_revalidate = true,
                    () if is(name, "proxy-revalidate") => found.proxy_revalidate = true,
                    () if is(name, "max-age") => shortest(&mut found.max_age, value),
                    () if is(name, "s-maxage") => shortest(&mut found.s_maxage, value),
                    () if is(name, "stale-if-error") => shortest(&mut found.stale_if_error, value),
                    () if is(name, "stale-while-revalidate") => {
                        shortest(&mut found.stale_while_revalidate, value);
                    }
                    () => {}
                }
            }
        }
        found
    }
}

/// Of a time that is said twice the shortest holds, and one that cannot be read is none at all (RFC 9111, 4.2.1).
fn shortest(time: &mut Option<Duration>, value: Option<&[u8]>) {
    let said = value.and_then(seconds).unwrap_or_default();
    *time = Some(time.map_or(said, |before| before.min(said)));
}

/// A number of seconds (RFC 9111, 1.2.2), which some put into quotes.
pub(super) fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = std::str::from_utf8(digits).ok()?.parse().unwrap_or(LONGEST);
    Some(Duration::from_secs(seconds.min(LONGEST)))
}

/// The directives of a line, with their values as they are. A comma within quotes separates nothing, unless the quotes have no
/// end: then nothing is hidden behind them.
fn directives(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut at = 0;
        while let Some(byte) = rest.get(at).filter(|byte| **byte != b',') {
            at += match byte {
                b'"' => quoted(&rest[at..]).unwrap_or(1),
                _ => 1,
            };
        }
        let (directive, behind) = rest.split_at(at);
        rest = behind.get(1..).unwrap_or_default();
        Some(match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (directive[..at].trim_ascii(), Some(directive[at + 1..].trim_ascii())),
            None => (directive.trim_ascii(), None),
        })
    })
}

/// How long the quoted string at the beginning is.
fn quoted(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

pub(super) fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(String, Option<String>)> {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        directives(text.as_bytes()).map(|(name, value)| (text_of(name), value.map(text_of))).collect()
    }

    #[test]
    fn nothing_hides_in_quotes() {
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(
            all("private=\"a, no-store\", max-age=\"5\" ,public"),
            [pair("private", Some("\"a, no-store\"")), pair("max-age", Some("\"5\"")), pair("public", None)]
        );
        assert_eq!(all("x=\"a, no-store")[1], pair("no-store", None), "quotes without an end");
        assert_eq!(all("x=\"a\\\", b\", no-store")[1], pair("no-store", None));
        assert_eq!(all("x=\"a\\")[0], pair("x", Some("\"a\\")));
    }

    #[test]
    fn times_are_read_strictly() {
        for (text, expected) in
            [("60", Some(60)), ("\"60\"", Some(60)), ("99999999999999999999", Some(LONGEST)), ("0", Some(0))]
        {
            assert_eq!(seconds(text.as_bytes()), expected.map(Duration::from_secs), "{text}");
        }
        for text in ["", "-1", "1.5", "6 0", "\"", "\"\"", "+5"] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }
}
