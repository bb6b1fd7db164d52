//! The ways in which endpoints may read an ambiguous path.
//!
//! The gateway forwards a path in the normal form that it matched. Some endpoints read the path further. They decode
//! `%2F`, once or more often, read `\` as a slash, or remove parameters of segments (`/admin;x=1`). Others ignore case
//! when they look for files. A security policy must hold in all of these readings.
//!
//! **Dot segments that appear by further reading are rejected.** Their effect depends on the reader:
//! `/admin%2F%252e%252e/x` is `/admin/%2e%2e/x` to one endpoint and `/x` to another. Without dot segments a path has few
//! readings for each round of decoding. The first elements that any endpoint sees are the first elements of one of these
//! readings.

/// How often escapes are decoded. The readings of a path with more levels of escapes cannot be listed.
const ROUNDS: usize = 3;

/// A path as one kind of endpoint reads it: without empty segments, and without dots, spaces and controls at the ends of
/// segments. The path has no slash at its end, unless it is `/`.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The way of reading: the sum of some of [`BACKSLASHES`], [`PARAMETERS`] and [`ENDS`].
    pub(crate) way: usize,
    pub(crate) path: Vec<u8>,
}

/// The reader treats `\` as a slash.
const BACKSLASHES: usize = 1;
/// The reader removes parameters of segments.
const PARAMETERS: usize = 2;
/// The reader ends the path at the first `?`, `#` or NUL.
const ENDS: usize = 4;

/// The number of ways.
pub(crate) const WAYS: usize = 8;

/// All different readings of a path. `None` if the readings cannot be listed, for one of these reasons: a reading has dot
/// segments; the path has bytes that old UTF-8 decoders read as ASCII (RFC 3629, 10); the path has too many levels of
/// escapes.
pub(crate) fn readings(path: &[u8]) -> Option<Vec<Reading>> {
    let mut readings = Vec::new();
    for decoded in rounds(path)? {
        let has = |byte| memchr::memchr(byte, &decoded).is_some();
        let has_end = memchr::memchr3(b'?', b'#', 0, &decoded).is_some();
        let differing = [(has(b'\\'), BACKSLASHES), (has(b';'), PARAMETERS), (has_end, ENDS)];
        let differing: usize =
            differing.into_iter().filter(|(differs, _)| *differs).map(|(_, way)| way).sum();
        let ways = (0..WAYS).filter(|way| way & differing == *way);
        readings.extend(ways.map(|way| Reading { way, path: read(&decoded, way) }));
    }
    Some(readings)
}

/// The readings of a pattern in each way, after each round of decoding.
pub(crate) fn readings_of_pattern(pattern: &[u8]) -> [Vec<Vec<u8>>; WAYS] {
    // A pattern without a list of readings matches no path with such a list.
    let rounds = rounds(pattern).unwrap_or_else(|| vec![pattern.to_vec()]);
    std::array::from_fn(|way| rounds.iter().map(|decoded| read(decoded, way)).collect())
}

/// Whether a path in normal form has a dot segment for endpoints that decode the path once, read `\` as a slash or remove
/// parameters of segments. nginx, Tomcat and IIS do: `/x/..%2Fadmin`, `/x%5C..%5Cadmin`, `/x/..;a=b/admin`.
pub(crate) fn has_encoded_dot_segment(path: &[u8]) -> bool {
    // The normal form has no escaped dots.
    if memchr::memchr(b'.', path).is_none() {
        return false;
    }
    let mut decoded = path.to_vec();
    has_dot_segment(path) || decode(&mut decoded) && has_dot_segment(&decoded)
}

/// A path after zero, one and more rounds of decoding; `None` if the readings cannot be listed. Each round is listed with
/// parameters and, for readers that remove parameters first, without parameters.
fn rounds(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut round = vec![path.to_vec()];
    for decodings in 0.. {
        let stripped = |form: &Vec<u8>| names(form, PARAMETERS).collect::<Vec<_>>().join(&b'/');
        let without: Vec<_> = round.iter().map(stripped).filter(|form| !round.contains(form)).collect();
        round.extend(without);
        if !round.iter().all(|form| can_be_told(form)) {
            return None;
        }
        let mut next: Vec<Vec<u8>> = Vec::new();
        for form in &round {
            let mut decoded = form.clone();
            if decode(&mut decoded) && !next.contains(&decoded) {
                next.push(decoded);
            }
        }
        all.append(&mut round);
        if next.is_empty() {
            break;
        }
        if decodings >= ROUNDS {
            return None;
        }
        round = next;
    }
    Some(all)
}

fn can_be_told(decoded: &[u8]) -> bool {
    let is_overlong =
        |pair: &[u8]| matches!(pair, [0xc0 | 0xc1, 0x80..=0xbf] | [0xe0, 0x80..=0x9f] | [0xf0, 0x80..=0x8f]);
    !decoded.windows(2).any(is_overlong) && !has_dot_segment(decoded)
}

/// Whether a segment is `.` or `..` to some endpoint. Blanks beside the dots count too.
fn has_dot_segment(decoded: &[u8]) -> bool {
    let is_dots = |name: &[u8]| {
        let is_made_of = name.contains(&b'.') && name.iter().all(|byte| *byte == b'.' || is_blank(byte));
        // Three dots are a name, which some readers remove.
        is_made_of && (name.len() < 3 || name.iter().any(is_blank))
    };
    names(decoded, BACKSLASHES | PARAMETERS).any(is_dots)
}

fn is_blank(byte: &u8) -> bool {
    *byte <= b' ' || *byte == 0x7f
}

/// The segments of a path.
fn names(decoded: &[u8], way: usize) -> impl Iterator<Item = &[u8]> {
    let is_slash = move |byte: &u8| *byte == b'/' || way & BACKSLASHES != 0 && *byte == b'\\';
    decoded.split(is_slash).map(move |segment| match way & PARAMETERS {
        0 => segment,
        _ => segment.split(|byte| *byte == b';').next().unwrap_or_default(),
    })
}

fn read(decoded: &[u8], way: usize) -> Vec<u8> {
    let end = match way & ENDS {
        0 => None,
        _ => memchr::memchr3(b'?', b'#', 0, decoded),
    };
    let decoded = &decoded[..end.unwrap_or(decoded.len())];
    let mut out = Vec::with_capacity(decoded.len());
    for name in names(decoded, way) {
        let last = name.iter().rposition(|byte| *byte != b'.' && !is_blank(byte));
        if let Some(last) = last {
            out.push(b'/');
            out.extend_from_slice(&name[..=last]);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Whether endpoints may read a path in normal form in another way than written, apart from case.
pub(crate) fn is_ambiguous(path: &[u8]) -> bool {
    let ends_element = |at: usize| path.get(at + 1).is_none_or(|next| *next == b'/');
    memchr::memchr2(b'%', b';', path).is_some() || memchr::memchr_iter(b'.', path).any(ends_element)
}

/// Decodes all escapes in place. Returns whether the path had escapes.
fn decode(path: &mut Vec<u8>) -> bool {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut read, mut written, mut found) = (0, 0, false);
    while read < path.len() {
        let escape = match path[read..] {
            [b'%', high, low, ..] => hex(high).zip(hex(low)),
            _ => None,
        };
        (path[written], read) = match escape {
            Some((high, low)) => {
                found = true;
                (high << 4 | low, read + 3)
            }
            None => (path[read], read + 1),
        };
        written += 1;
    }
    path.truncate(written);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The last reading of the path, which decodes the most.
    fn loosest(path: &[u8]) -> Option<Vec<u8>> {
        readings(path)?.pop().map(|reading| reading.path)
    }

    fn loosest_of(path: &str) -> Option<String> {
        loosest(path.as_bytes()).map(|read| String::from_utf8_lossy(&read).into_owned())
    }

    #[test]
    fn encoded_variants_of_a_path_share_their_most_decoded_reading() {
        for way in [
            "/admin",
            "/admin/",
            "/%2Fadmin",
            "/admin;jsessionid=1",
            "/;x=1/admin",
            "/admin.",
            "/admin..",
            "/admin%20",
            "/admin%09",
            "/admin%0a",
            "/admin%2500",
            "/admin%3Fx",
            "/admin%23/x",
            "/%5Cadmin",
            "/%61dmin",
            "/%2561dmin",
            "/%252561dmin",
            "/admin%2F",
            "/admin%3Bx",
        ] {
            assert_eq!(loosest_of(way).as_deref(), Some("/admin"), "{way}");
        }
        assert_eq!(loosest_of("/").as_deref(), Some("/"));
        assert_eq!(loosest_of("/a%2Fb/C").as_deref(), Some("/a/b/C"));
        assert_eq!(loosest_of("/100%").as_deref(), Some("/100%"));
        assert_eq!(loosest_of("/a%zz").as_deref(), Some("/a%zz"));
        assert!(loosest_of("/%C0%20la%20carte").is_some(), "ISO 8859-1");
        let shown = |path: &[u8]| {
            let readings = readings(path).unwrap().into_iter();
            readings.map(|read| String::from_utf8(read.path).unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(b"/a%2F%2562"), "/a%2F%2562 /a/%62 /a/b");
        assert_eq!(shown(b"/a%3F/b"), "/a%3F/b /a?/b /a");
        assert_eq!(shown(b"/a;b/.../c."), "/a;b/c /a/c /a/c");
    }

    #[test]
    fn no_readings_are_listed_for_a_path_with_encoded_dot_segments() {
        for way in [
            "/x/..%2Fadmin",
            "/x%2F..%2Fadmin",
            "/admin%2F%252e%252e/y",
            "/x%2F..%2Fadmin%2F%252e%252e%2Fy",
            "/public/..%2Fadmin%2F%252e%252e%2Fpublic/x",
            "/x/..;/admin",
            "/x/..;a=b/admin",
            "/Admin/..%2fx",
            "/x/..;/admin/%252e%252e/y",
            "/admin;a/%252e%252e/y",
            "/admin./..%2fy",
            "/x%5C..%5Cadmin",
            "/x/..%20/admin",
            "/.%2Fadmin",
            "/x%2525252f..%2525252fadmin",
            "/%2525252561dmin",
            "/x/%c0%ae%c0%ae/admin",
            "/x/%e0%80%ae%e0%80%ae/admin",
            "/x%3F/..%2Fadmin",
            "/x%23%2F..%2Fadmin",
            "/x%3F%2F..;a%2Fadmin",
        ] {
            assert_eq!(loosest_of(way), None, "{way}");
        }
    }

    #[test]
    fn encoded_dot_segments_are_detected_after_one_round_of_decoding() {
        for path in [
            "/pub/..%2Fadmin",
            "/pub/%2E%2E%5Cx",
            "/pub/..;/admin",
            "/pub/..;x=1/admin",
            "/x%2F..",
            "/x%2F../y",
            "/x%5C..%5Cy",
            "/..%3Bx/admin",
            "/.%2Fadmin",
            "/search/a%2F.%2Fb",
            "/x/..%20/admin",
            "/x/.;/y",
        ] {
            assert!(has_encoded_dot_segment(path.replace("%2E", ".").as_bytes()), "{path}");
        }
        for path in [
            "/",
            "/v1..2/x",
            "/a...b",
            "/...",
            "/100%25",
            "/a%2Fb",
            "/a%2Fb.html",
            "/.well-known%2Fx",
            "/a;v=1.2/b",
            "/a;..",
            "/x%252F..%252Fy",
            "/%252e%252e/x",
            "/%C0%AE%C0%AE/x",
            "/files/..a%20b",
            "/a%2F..b",
        ] {
            assert!(!has_encoded_dot_segment(path.as_bytes()), "{path}");
        }
    }

    proptest! {
        /// The promise of the module documentation, for arbitrary paths.
        #[test]
        fn listed_readings_of_a_path_cover_any_decoding_by_an_endpoint(
            path in r"/(/|%2F|%252f|a|B|%41|%2542|;|%3b|\.|%2e|a\.|%5c|%20|%3f|%25){0,12}",
            rounds in 0..4,
            elements in 1..4_usize,
            leaves_parameters_out: bool,
            strips_first: bool,
            whole: bool,
            takes_backslashes: bool,
        ) {
            let mut read = path.clone().into_bytes();
            for _ in 0..rounds {
                if strips_first {
                    let stripped: Vec<&[u8]> =
                        read.split(|byte| *byte == b'/').map(|segment| segment.split(|byte| *byte == b';').next().unwrap_or_default()).collect();
                    read = stripped.join(&b'/');
                }
                decode(&mut read);
            }
            let is_slash = |byte: &u8| *byte == b'/' || takes_backslashes && *byte == b'\\';
            let segments = read.split(is_slash).map(|segment| match leaves_parameters_out {
                true => segment.split(|byte| *byte == b';').next().unwrap_or_default(),
                false => segment,
            });
            let most = if whole { usize::MAX } else { elements };
            let begins: Vec<&[u8]> = segments.filter(|segment| !segment.is_empty()).take(most).collect();
            let begins = [b"/", &begins.join(&b'/')[..]].concat();
            let Some(readings) = readings(path.as_bytes()) else { return Ok(()) };
            // No pattern contains these characters.
            if begins.iter().any(|byte| matches!(byte, b'?' | b'#' | 0)) {
                return Ok(());
            }
            let patterns = readings_of_pattern(&begins);
            let is_met = readings.iter().any(|Reading { way, path }| {
                patterns[*way].iter().any(|pattern| {
                    let rest = path.strip_prefix(&pattern[..]);
                    if whole { rest == Some(&[]) } else { pattern == b"/" || matches!(rest, Some([] | [b'/', ..])) }
                })
            });
            prop_assert!(is_met, "{}: {:?} in {readings:?}", String::from_utf8_lossy(&begins), patterns);
        }
    }

    #[test]
    fn path_is_ambiguous_only_if_it_has_several_readings() {
        for path in ["/", "/admin/users", "/Admin", "/a.b/c", "/v1.0"] {
            assert!(!is_ambiguous(path.as_bytes()), "{path}");
        }
        for path in ["/a%2Fb", "/a;b", "/a./b", "/admin."] {
            assert!(is_ambiguous(path.as_bytes()), "{path}");
        }
    }
}
