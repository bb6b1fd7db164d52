//! What back ends may make of a path that is not said in one way only.
//!
//! A path goes to the endpoint in the normal form in which it was matched. Some back ends take it further: they decode `%2F`,
//! take `\` for a slash, leave parameters of segments out (`/admin;x=1`), or look for files without regard to case. What
//! guards a path has to hold in these readings too.

/// The loosest reading of a path: all escapes decoded, as often as there are any, at most three times; `\` as `/`;
/// parameters of segments left out, and dots and spaces at their ends; dot segments and empty ones resolved; `fold_case`: in
/// lower case. It has no slash at its end, unless it is `/`.
pub(crate) fn loosest(path: &[u8], fold_case: bool, out: &mut Vec<u8>) {
    const ROUNDS: usize = 3;
    let mut decoded = path.to_vec();
    for _ in 0..ROUNDS {
        if !decode(&mut decoded) {
            break;
        }
    }
    out.clear();
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        if name == b".." {
            let parent = out.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            out.truncate(parent);
            continue;
        }
        let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
        if end > 0 {
            out.push(b'/');
            out.extend_from_slice(&name[..end]);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    if fold_case {
        out.make_ascii_lowercase();
    }
}

/// Whether a path in normal form may be read in another way than it is written, but for its case.
pub(crate) fn is_ambiguous(path: &[u8]) -> bool {
    memchr::memchr2(b'%', b';', path).is_some()
        || memchr::memmem::find(path, b"./").is_some()
        || path.last() == Some(&b'.')
}

/// Decodes all escapes in place. Returns whether there were any.
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
    use super::*;

    fn read(path: &str) -> String {
        let mut out = Vec::new();
        loosest(path.as_bytes(), true, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn ways_around_a_path_all_lead_to_it() {
        for way in [
            "/admin",
            "/admin/",
            "/Admin",
            "/ADMIN",
            "/x/..%2Fadmin",
            "/x%2F..%2Fadmin",
            "/%2Fadmin",
            "/x/%2E%2E/admin",
            "/x/..;/admin",
            "/x/..;a=b/admin",
            "/admin;jsessionid=1",
            "/;x=1/admin",
            "/admin.",
            "/admin..",
            "/admin%20",
            "/x%5C..%5Cadmin",
            "/%61dmin",
            "/%2561dmin",
            "/x%252F..%252Fadmin",
            "/admin%2F",
            "/.%2Fadmin",
            "/admin%3Bx",
        ] {
            assert_eq!(read(way), "/admin", "{way}");
        }
        assert_eq!(read("/"), "/");
        assert_eq!(read("/..%2F..%2F.."), "/");
        assert_eq!(read("/a%2Fb/C"), "/a/b/c");
        assert_eq!(read("/100%"), "/100%");
        assert_eq!(read("/a%zz"), "/a%zz");
    }

    #[test]
    fn what_is_said_in_one_way_only_is_not_ambiguous() {
        for path in ["/", "/admin/users", "/Admin", "/a.b/c", "/v1.0"] {
            assert!(!is_ambiguous(path.as_bytes()), "{path}");
        }
        for path in ["/a%2Fb", "/a;b", "/a./b", "/admin."] {
            assert!(is_ambiguous(path.as_bytes()), "{path}");
        }
    }
}
