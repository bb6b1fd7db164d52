//! Cache directives in heads: `Cache-Control`, `CDN-Cache-Control` and `Pragma`.

use std::borrow::Cow;
use std::time::Duration;

use sluicegate_http1::{Known, Line, RequestHead, ResponseHead};

use super::draft::is_understood;
use super::targeted::{Dictionary, Item};

/// The longest accepted time (RFC 9111, 1.2.2 requires at least 2^31 s for longer times): ten years.
pub(super) const LONGEST: u64 = 10 * 365 * 86_400;

/// The limit of header fields that `no-cache` and `private` of one response may name: each line of the head is compared
/// with each of them. A directive that names more applies to the whole response.
const UNSHARED_MAX: usize = 32;

/// The cache directives of a request (RFC 9111, 5.2.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<Duration>,
    pub(crate) min_fresh: Option<Duration>,
}

/// The directives of a response (RFC 9111, 5.2.2; RFC 5861), or its directives for CDN caches (RFC 9213).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives<'b> {
    pub(super) no_store: bool,
    /// `no-cache` for the whole response.
    pub(super) no_cache: bool,
    /// `private` for the whole response.
    pub(super) private: bool,
    /// The header fields that `no-cache` and `private` name. They are not stored, but the rest of the response is.
    pub(super) unshared: Vec<&'b [u8]>,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) max_age: Option<Duration>,
    pub(super) s_maxage: Option<Duration>,
    pub(super) stale_if_error: Option<Duration>,
    pub(super) stale_while_revalidate: Option<Duration>,
    /// The directives come from a targeted field, so that `Expires` is ignored (RFC 9213, 2.2).
    pub(super) is_targeted: bool,
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
                    // Of two values, the stricter value applies.
                    () if is(name, "min-fresh") => {
                        found.min_fresh =
                            found.min_fresh.max(Some(value.and_then(seconds).unwrap_or_default()));
                    }
                    () => {}
                }
            }
        }
        if !has_any {
            // RFC 9111, 5.4: the directive of HTTP/1.0.
            let pragma = head.find(buf, "pragma").unwrap_or_default();
            found.no_cache = directives(pragma).any(|(name, _)| is(name, "no-cache"));
        }
        found
    }
}

/// Whether a response forbids further use of older responses to the same request.
pub(crate) fn withdraws(head: &ResponseHead, buf: &[u8]) -> bool {
    let targeted = joined_targeted(&head.lines, buf);
    let directives = ResponseDirectives::of(&head.lines, buf, targeted.as_deref());
    head.status == 410 || head.status < 500 && directives.forbid_storing(head.status)
}

impl<'b> ResponseDirectives<'b> {
    /// `targeted`: the result of [`joined_targeted`].
    pub(super) fn of(lines: &[Line], buf: &'b [u8], targeted: Option<&'b [u8]>) -> Self {
        targeted.and_then(Self::parse_targeted).unwrap_or_else(|| Self::of_cache_control(lines, buf))
    }

    /// Whether the directives forbid every shared cache to store the response.
    pub(super) fn forbid_storing(&self, status: u16) -> bool {
        // RFC 9111, 5.2.2.3: `no-store` is then only for caches without support for `must-understand`.
        match self.must_understand {
            true => self.private || !is_understood(status),
            false => self.private || self.no_store,
        }
    }

    /// Whether `no-cache` or `private` names a field.
    pub(super) fn unshare_field(&self, name: &[u8]) -> bool {
        self.unshared.iter().any(|other| other.eq_ignore_ascii_case(name))
    }

    fn of_cache_control(lines: &[Line], buf: &'b [u8]) -> Self {
        let mut found = Self::default();
        let mut has_any = false;
        for line in lines.iter().filter(|line| line.known == Known::CacheControl) {
            has_any = true;
            for (name, value) in directives(line.value.of(buf)) {
                // A malformed directive may hide a directive that forbids sharing.
                found.private |= !is_well_formed(name, value);
                match () {
                    () if is(name, "no-store") => found.no_store = true,
                    () if is(name, "no-cache") => found.no_cache |= !found.unshare(value.and_then(unquoted)),
                    () if is(name, "private") => found.private |= !found.unshare(value.and_then(unquoted)),
                    () if is(name, "public") => found.public = true,
                    () if is(name, "must-revalidate") => found.must_revalidate = true,
                    () if is(name, "proxy-revalidate") => found.proxy_revalidate = true,
                    () if is(name, "must-understand") => found.must_understand = true,
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
        if !has_any {
            // RFC 9111, 5.4 defines `Pragma` only for requests. Old applications send it in responses against caching.
            found.no_cache = lines
                .iter()
                .filter(|line| line.known == Known::Other && is(line.name.of(buf), "pragma"))
                .flat_map(|line| directives(line.value.of(buf)))
                .any(|(name, _)| is(name, "no-cache"));
        }
        found
    }

    /// RFC 9213, 2.1. `None` if the field is ignored: it is empty, is no dictionary, or has a time that is no integer.
    fn parse_targeted(field: &'b [u8]) -> Option<Self> {
        let mut found = Self { is_targeted: true, ..Self::default() };
        let mut has_any = false;
        for member in Dictionary::new(field) {
            let (name, value) = member.ok()?;
            has_any = true;
            let is_set = value != Item::Boolean(false);
            let names = match value {
                Item::String(names) => Some(names),
                _ => None,
            };
            match name {
                b"no-store" => found.no_store = is_set,
                b"no-cache" => found.no_cache |= is_set && !found.unshare(names),
                b"private" => found.private |= is_set && !found.unshare(names),
                b"public" => found.public = value == Item::Boolean(true),
                b"must-revalidate" => found.must_revalidate = is_set,
                b"proxy-revalidate" => found.proxy_revalidate = is_set,
                b"must-understand" => found.must_understand = is_set,
                b"max-age" => found.max_age = Some(value.seconds()?),
                b"s-maxage" => found.s_maxage = Some(value.seconds()?),
                b"stale-if-error" => found.stale_if_error = Some(value.seconds()?),
                b"stale-while-revalidate" => found.stale_while_revalidate = Some(value.seconds()?),
                _ => {}
            }
        }
        has_any.then_some(found)
    }

    /// Adds the names of a qualified directive (RFC 9111, 5.2.2.4). False if there is no list of names, or if it names a
    /// field that is essential for the rest: the directive then applies to the whole response.
    fn unshare(&mut self, names: Option<&'b [u8]>) -> bool {
        let before = self.unshared.len();
        let names = names.unwrap_or_default().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        for name in names {
            let is_full = self.unshared.len() >= UNSHARED_MAX;
            if is_full || !is_token(name) || NEEDED.into_iter().any(|needed| is(name, needed)) {
                self.unshared.truncate(before);
                return false;
            }
            self.unshared.push(name);
        }
        true
    }
}

/// Fields without which a cached response would have another meaning.
const NEEDED: [&str; 15] = [
    "age",
    "cache-control",
    TARGETED,
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "pragma",
    "transfer-encoding",
    "vary",
];

/// The supported targeted field (RFC 9213, 3).
const TARGETED: &str = "cdn-cache-control";

/// The value of the targeted field, joined over all of its lines. `None` if there is none.
pub(super) fn joined_targeted<'b>(lines: &[Line], buf: &'b [u8]) -> Option<Cow<'b, [u8]>> {
    let is_targeted = |line: &&Line| line.known == Known::Other && is(line.name.of(buf), TARGETED);
    let mut values = lines.iter().filter(is_targeted).map(|line| line.value.of(buf));
    let mut joined = Cow::Borrowed(values.next()?);
    for value in values {
        let joined = joined.to_mut();
        joined.push(b',');
        joined.extend_from_slice(value);
    }
    Some(joined)
}

/// Of two times, the shortest applies. An invalid time counts as 0 (RFC 9111, 4.2.1).
fn shortest(time: &mut Option<Duration>, value: Option<&[u8]>) {
    let said = value.and_then(seconds).unwrap_or_default();
    *time = Some(time.map_or(said, |before| before.min(said)));
}

/// A number of seconds (RFC 9111, 1.2.2). Some applications put it into quotes.
pub(super) fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = std::str::from_utf8(digits).ok()?.parse().unwrap_or(LONGEST);
    Some(Duration::from_secs(seconds.min(LONGEST)))
}

/// The directives of a line, with their raw values. A comma within quotes does not separate directives, unless the quotes
/// have no end: then they hide no directive.
fn directives(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    // If one quote has no end, each later quote is escaped in that reading, and has no end either.
    let mut may_end = true;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut at = 0;
        while let Some(byte) = rest.get(at).filter(|byte| **byte != b',') {
            let text = if *byte == b'"' && may_end { quoted(&rest[at..]) } else { Some(1) };
            may_end &= text.is_some();
            at += text.unwrap_or(1);
        }
        let (directive, behind) = rest.split_at(at);
        rest = behind.get(1..).unwrap_or_default();
        Some(match directive.iter().position(|byte| *byte == b'=') {
            Some(at) => (directive[..at].trim_ascii(), Some(directive[at + 1..].trim_ascii())),
            None => (directive.trim_ascii(), None),
        })
    })
}

/// Whether a directive is a name, perhaps with a value (RFC 9111, 5.2). A list may have empty members. An unquoted value
/// may have bytes that no token allows, because applications write them, but no separators.
fn is_well_formed(name: &[u8], value: Option<&[u8]>) -> bool {
    match value {
        None => name.is_empty() || is_token(name),
        Some(value) if value.starts_with(b"\"") => is_token(name) && quoted(value) == Some(value.len()),
        Some(value) => is_token(name) && !value.iter().any(|byte| b" \t;\"".contains(byte)),
    }
}

/// The text of a quoted string. `None` if the value is no quoted string, or has escapes.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let text = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!text.contains(&b'\\')).then_some(text)
}

/// Whether this is a valid name of a header (RFC 9110, 5.6.2).
pub(super) fn is_token(name: &[u8]) -> bool {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_of_token)
}

/// The length of the quoted string at the beginning.
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
    use sluicegate_http1::{HeadLimits, HeadScan, Method};

    use super::*;

    fn all(text: &str) -> Vec<(String, Option<String>)> {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        directives(text.as_bytes()).map(|(name, value)| (text_of(name), value.map(text_of))).collect()
    }

    #[test]
    fn commas_in_quotes_do_not_separate_directives_but_unclosed_quotes_do_not_hide_them() {
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(
            all("private=\"a, no-store\", max-age=\"5\" ,public"),
            [pair("private", Some("\"a, no-store\"")), pair("max-age", Some("\"5\"")), pair("public", None)]
        );
        assert_eq!(all("x=\"a, no-store")[1], pair("no-store", None), "quotes without an end");
        assert_eq!(all("x=\"a\\\", b\", no-store")[1], pair("no-store", None));
        assert_eq!(all("x=\"a\\")[0], pair("x", Some("\"a\\")));
    }

    /// The directives of a response with these header lines, as text.
    fn said(lines: &str) -> String {
        let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n").into_bytes();
        let mut head = ResponseHead::default();
        assert!(head.parse(&bytes, &mut HeadScan::default(), Method::Get, &HeadLimits::default()).unwrap());
        let targeted = joined_targeted(&head.lines, &bytes);
        let found = ResponseDirectives::of(&head.lines, &bytes, targeted.as_deref());
        let mut said = Vec::new();
        for (name, is_set) in [
            ("no-store", found.no_store),
            ("no-cache", found.no_cache),
            ("private", found.private),
            ("public", found.public),
            ("must-understand", found.must_understand),
            ("targeted", found.is_targeted),
        ] {
            said.extend(is_set.then(|| name.to_owned()));
        }
        for (name, time) in [("max-age", found.max_age), ("s-maxage", found.s_maxage)] {
            said.extend(time.map(|time| format!("{name}={}", time.as_secs())));
        }
        said.extend(found.unshared.into_iter().map(|name| String::from_utf8(name.to_vec()).unwrap()));
        said.join(" ")
    }

    #[test]
    fn fields_named_by_no_cache_or_private_directives_are_not_stored() {
        for (value, expected) in [
            ("private=\"x-user\", max-age=5", "max-age=5 x-user"),
            ("no-cache=\"a, B\",private=\"Set-Cookie\"", "a B Set-Cookie"),
            // An unreadable list, or a list with a field that the cache itself needs, makes the directive apply to the
            // whole response.
            ("private=\"\"", "private"),
            ("private=x-user", "private"),
            ("no-cache=\"a b\"", "no-cache"),
            ("no-cache=\"a,\"", "no-cache"),
            ("no-cache=\"a\\, b\"", "no-cache"),
            ("no-cache=\"a", "no-cache private"),
            ("private=\"x-user, Vary\"", "private"),
            ("no-cache=\"content-encoding\"", "no-cache"),
            ("no-cache=\"a\", no-cache", "no-cache a"),
        ] {
            assert_eq!(said(&format!("Cache-Control: {value}\r\n")), expected, "{value}");
        }
    }

    #[test]
    fn directive_with_too_many_field_names_applies_to_the_whole_response() {
        let list = |count: usize| vec!["a"; count].join(",");
        for directive in ["private", "no-cache"] {
            let lines = |count| format!("Cache-Control: {directive}=\"{}\"\r\n", list(count));
            assert!(!said(&lines(UNSHARED_MAX)).contains(directive));
            assert_eq!(said(&lines(UNSHARED_MAX + 1)), directive);
            // The limit applies to the lists of all lines together.
            let two = [lines(UNSHARED_MAX), lines(1)].concat();
            assert!(said(&two).starts_with(directive));
            let targeted = lines(UNSHARED_MAX + 1).replace("Cache-Control", "CDN-Cache-Control");
            assert_eq!(said(&targeted), format!("{directive} targeted"));
        }
    }

    #[test]
    fn malformed_directive_makes_the_response_private() {
        for value in [
            "no-store; max-age=60",
            "max-age=60; no-store",
            "max-age=60 no-store",
            "no-store max-age=60",
            "no-store no-cache",
            "max-age=60, x=\"a\"; no-store",
            "max-age=60, x=\"a\" no-store",
            "max-age=60, x=a\"b\"",
            "max-age=60, \"no-store\"",
            "max-age=60, =no-store",
            "max-age=60, x=\"no-store",
        ] {
            let said = said(&format!("Cache-Control: {value}\r\n"));
            assert!(said.split(' ').any(|word| word == "private"), "{value}: {said}");
        }
        for value in [
            "max-age=60,, x",
            ",max-age=60,",
            "max-age = 60",
            "max-age=60, x=\"a;b c\", y=a:b/c=d",
            "x=",
            "x='a'",
        ] {
            assert!(!said(&format!("Cache-Control: {value}\r\n")).contains("private"), "{value}");
        }
    }

    #[test]
    fn cache_control_parser_reads_escaped_quotes_in_linear_time() {
        // A parser that reads each value to the end would take hours.
        let lines = ["x=\"".to_owned(), "\\\"".repeat(8 << 20), ", no-store".to_owned()].concat();
        let last = directives(lines.as_bytes()).last().unwrap();
        assert_eq!(last, (&b"no-store"[..], None));
    }

    #[test]
    fn pragma_no_cache_applies_only_without_cache_control() {
        assert_eq!(said("Pragma: No-Cache\r\n"), "no-cache");
        assert_eq!(said("Pragma: x\r\n"), "");
        assert_eq!(said("Pragma: no-cache\r\nCache-Control: max-age=5\r\n"), "max-age=5");
    }

    #[test]
    fn targeted_cache_control_field_overrides_cache_control() {
        for (value, expected) in [
            ("max-age=60", "targeted max-age=60"),
            ("public, max-age=60;x=1, s-maxage=-5", "public targeted max-age=60 s-maxage=0"),
            ("max-age=1, foo=(1 \"a\");b, max-age=2", "targeted max-age=2"),
            ("foo", "targeted"),
            ("no-store", "no-store targeted"),
            ("no-store=5, private=?1, no-cache=\"x\"", "no-store private targeted x"),
            ("no-store=?0, private=tok", "private targeted"),
            ("private=\"x-a, x-b\"", "targeted x-a x-b"),
            ("max-age=60\r\nCDN-Cache-Control: no-store", "no-store targeted max-age=60"),
            // Malformed fields are ignored as a whole.
            ("", "no-store max-age=9"),
            ("max-age=60, &&&", "no-store max-age=9"),
            ("max-age=\"60\"", "no-store max-age=9"),
            ("max-age", "no-store max-age=9"),
            ("max-age=1.5", "no-store max-age=9"),
            ("max-age =60", "no-store max-age=9"),
            ("max-age= 60", "no-store max-age=9"),
            ("MAX-AGE=60", "no-store max-age=9"),
            ("max-age=60,", "no-store max-age=9"),
            ("max-age=1234567890123456", "no-store max-age=9"),
        ] {
            let lines = format!("Cache-Control: no-store, max-age=9\r\nCDN-Cache-Control: {value}\r\n");
            assert_eq!(said(&lines), expected, "{value}");
        }
    }

    #[test]
    fn malformed_delta_seconds_in_cache_control_are_rejected() {
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
