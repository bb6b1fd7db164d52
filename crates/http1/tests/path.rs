//! Property tests: the normal form of a path is unique, and has no dot segments.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sluicegate_http1::{Normalised, normalise};

const PIECES: &[&str] = &[
    "/", "//", ".", "..", "/.", "/..", "/../", "%2e", "%2E", "%2f", "%2F", "%41", "%7e", "%25", "%00", "%",
    "%zz", "%5c", "a", "b.c", "~", ";", " ", "ä", "\\", "?", "#", "*", "[", "\0",
];

fn normal(path: &[u8]) -> Option<Vec<u8>> {
    let mut scratch = Vec::new();
    match normalise(path, &mut scratch).ok()? {
        Normalised::Plain | Normalised::AsIs => Some(path.to_vec()),
        Normalised::Rewritten(normal) => Some(normal.to_vec()),
    }
}

fn contains(path: &[u8], needle: &[u8]) -> bool {
    path.windows(needle.len()).any(|window| window == needle)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn normal_form_of_any_path_has_only_canonical_elements_and_escapes(
        path in prop_oneof![
            vec(select(PIECES), 0..12).prop_map(|pieces| format!("/{}", pieces.concat()).into_bytes()),
            vec(any::<u8>(), 0..40),
        ],
    ) {
        let Some(normal_form) = normal(&path) else {
            return Ok(());
        };
        let mut scratch = Vec::new();
        let is_plain = !contains(&normal_form, b"%") && !contains(&normal_form, b";");
        let expected = if is_plain { Normalised::Plain } else { Normalised::AsIs };
        prop_assert_eq!(normalise(&normal_form, &mut scratch), Ok(expected));
        prop_assert!(normal_form[0] == b'/' || normal_form == b"*");
        for needle in ["//", "/./", "/../"] {
            prop_assert!(!contains(&normal_form, needle.as_bytes()), "{}", normal_form.escape_ascii());
        }
        prop_assert!(!normal_form.ends_with(b"/.") && !normal_form.ends_with(b"/.."));
        prop_assert!(normal_form.iter().all(|byte| byte.is_ascii_graphic()));
        for (at, _) in normal_form.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
            let digits = str::from_utf8(&normal_form[at + 1..at + 3]).expect("two digits");
            let decoded = u8::from_str_radix(digits, 16).expect("hexadecimal");
            prop_assert_eq!(format!("{decoded:02X}"), digits, "in upper case");
            prop_assert!(decoded != 0 && !decoded.is_ascii_alphanumeric() && !b"-._~".contains(&decoded));
        }
    }

    #[test]
    fn path_of_plain_characters_is_already_in_normal_form(path in "(/[a-zA-Z0-9_~!$&'()*+,=:@-][a-z.-]{0,8}){1,5}/?") {
        let mut scratch = Vec::new();
        prop_assert_eq!(normalise(path.as_bytes(), &mut scratch), Ok(Normalised::Plain));
    }
}
