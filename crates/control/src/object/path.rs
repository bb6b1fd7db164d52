//! The path of a rule, converted to the normal form for comparisons with requests.

use sluicegate_model::PathPattern;
use sluicegate_model::value::syntax::normal_path;

/// Parses `spec.rules[].http.paths[].path` with its `pathType`. `Err` holds the faulty field (`path` or `pathType`) and
/// the reason.
pub(crate) fn parse(path: &str, path_type: &str) -> Result<PathPattern, (&'static str, String)> {
    let in_field = |message| ("path", message);
    match path_type {
        "Exact" => Ok(PathPattern::Exact(normal_path(path).map_err(in_field)?)),
        "Prefix" => {
            let mut path = normal_path(path).map_err(in_field)?.into_string();
            if path.len() > 1 && path.ends_with('/') {
                path.pop();
            }
            Ok(PathPattern::Prefix(path.into()))
        }
        // An empty path matches the whole host here, as in ingress-nginx.
        "ImplementationSpecific" => {
            let path = if path.is_empty() { "/" } else { path };
            Ok(PathPattern::Starts(normal_path(path).map_err(in_field)?))
        }
        "" => Err(("pathType", "is missing: write Exact, Prefix or ImplementationSpecific".to_owned())),
        other => {
            let known = ["Exact", "Prefix", "ImplementationSpecific"];
            let meant = known.iter().find(|known| known.eq_ignore_ascii_case(other));
            Err((
                "pathType",
                match meant {
                    Some(meant) => format!("{other:?} is unknown: did you mean {meant}?"),
                    None => format!("{other:?} is unknown: write Exact, Prefix or ImplementationSpecific"),
                },
            ))
        }
    }
}

/// A text as a regular expression that matches only this text.
pub(crate) fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if ".^$*+?()[]{}|\\".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn parser_normalizes_paths() {
        for (path, path_type, expected) in [
            ("/", "Prefix", "/"),
            ("/foo/", "Prefix", "/foo"),
            ("/foo/", "Exact", "/foo/"),
            ("/foo/", "ImplementationSpecific", "/foo/"),
            ("", "ImplementationSpecific", "/"),
            ("/%7euser/%c3%bc", "Exact", "/~user/%C3%BC"),
            ("/über mut", "Exact", "/%C3%BCber%20mut"),
            ("/a?b#c", "Exact", "/a%3Fb%23c"),
            ("/a+b=(1),2;x@y:z!$&'*", "Exact", "/a+b=(1),2;x@y:z!$&'*"),
            ("/a%2Bb", "Exact", "/a%2Bb"),
            ("/.well-known/...", "Prefix", "/.well-known/..."),
            ("/{a}|[b]^\"<>\\`", "Exact", "/%7Ba%7D%7C%5Bb%5D%5E%22%3C%3E%5C%60"),
        ] {
            let pattern = parse(path, path_type).unwrap();
            assert_eq!((pattern.as_str(), pattern.path_type()), (expected, path_type), "{path}");
        }
    }

    #[test]
    fn path_that_matches_no_request_is_rejected() {
        for (path, reason) in [
            ("", "begin with '/'"),
            ("foo", "begin with '/'"),
            ("//foo", "'//'"),
            ("/foo//", "'//'"),
            ("/./foo", "segment"),
            ("/foo/..", "segment"),
            ("/foo/.", "segment"),
            ("/%2e%2E/foo", "segment"),
            ("/a%2fb", "slash"),
            ("/a%2Fb", "slash"),
            ("/a%", "%25"),
            ("/a%2", "%25"),
            ("/a%zz", "%25"),
            ("/a%00", "control"),
            ("/a\n", "control"),
        ] {
            for path_type in ["Exact", "Prefix"] {
                let (field, message) = parse(path, path_type).unwrap_err();
                assert!(field == "path" && message.contains(reason), "{path}: {message}");
            }
        }
    }

    #[test]
    fn path_type_is_required_and_case_sensitive() {
        assert_eq!(parse("/", "").unwrap_err().0, "pathType");
        assert!(parse("/", "prefix").unwrap_err().1.contains("did you mean Prefix?"));
        assert!(parse("/", "Regex").unwrap_err().1.contains("unknown"));
    }
}
