//! Rewrites of the path.

use sluicegate_http1::Rejection;
use sluicegate_model::feature::{PathRewrite, PathRewriteType};
use sluicegate_model::rule::PathMatch;

use crate::path::readings;

/// The part of a path that a route matched, which a prefix rewrite replaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MatchedPrefix(usize);

impl MatchedPrefix {
    pub(crate) fn of(path: &PathMatch) -> Self {
        Self(match path {
            PathMatch::Literal(path) => path.as_str().trim_end_matches('/').len(),
            // A regular expression names no prefix: the rewrite replaces the whole path.
            PathMatch::Regex(_) => usize::MAX,
        })
    }

    /// The rewritten path. The gateway rejects a request whose new path would have a dot segment.
    pub(crate) fn apply(self, rewrite: &PathRewrite, path: &[u8]) -> Result<Vec<u8>, Rejection> {
        if self.makes_dots(rewrite, path) {
            Err(Rejection::PathAboveRoot)
        } else {
            Ok(self.rewrite(rewrite, path))
        }
    }

    /// Whether a prefix rewrite creates a dot segment from the rest of the path, in any reading: `/img../x` below
    /// `/static/`.
    fn makes_dots(&self, rewrite: &PathRewrite, path: &[u8]) -> bool {
        if rewrite.kind != PathRewriteType::ReplacePrefixMatch {
            return false;
        }
        let rest = path.get(self.0..).unwrap_or_default();
        let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        !first.is_empty() && rewrite.value.ends_with('/') && readings(&[b"/", first].concat()).is_none()
    }

    pub(super) fn rewrite(self, rewrite: &PathRewrite, path: &[u8]) -> Vec<u8> {
        let PathRewrite { kind, value } = rewrite;
        match kind {
            PathRewriteType::ReplaceFullPath => value.as_bytes().to_vec(),
            PathRewriteType::ReplacePrefixMatch => {
                let rest = path.get(self.0..).unwrap_or_default();
                let prefix = match rest {
                    [] | [b'/', ..] => value.trim_end_matches('/'),
                    _ => value,
                };
                let rewritten = [prefix.as_bytes(), rest].concat();
                if rewritten.is_empty() { b"/".to_vec() } else { rewritten }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::PathPattern;
    use sluicegate_model::value::RewritePath;

    use super::*;

    #[test]
    fn rewritten_prefixes_match_the_examples_of_gateway_api() {
        let rewritten = |pattern: PathPattern, prefix: &str, path: &str| {
            let matched = MatchedPrefix::of(&PathMatch::Literal(pattern));
            let value = RewritePath::new(prefix).unwrap();
            let rewrite = PathRewrite { kind: PathRewriteType::ReplacePrefixMatch, value };
            String::from_utf8(matched.rewrite(&rewrite, path.as_bytes())).unwrap()
        };
        let prefix = |path: &str| PathPattern::Prefix(path.into());
        for (pattern, with, path, expected) in [
            (prefix("/foo"), "/xyz", "/foo/bar", "/xyz/bar"),
            (prefix("/foo"), "/xyz/", "/foo/bar", "/xyz/bar"),
            (prefix("/foo"), "/xyz", "/foo", "/xyz"),
            (prefix("/foo"), "/xyz", "/foo/", "/xyz/"),
            (prefix("/foo"), "/", "/foo", "/"),
            (prefix("/foo"), "/", "/foo/", "/"),
            (prefix("/foo"), "/", "/foo/bar", "/bar"),
            (prefix("/"), "/app", "/foo", "/app/foo"),
            (prefix("/"), "/app", "/", "/app/"),
            (PathPattern::Exact("/foo".into()), "/xyz", "/foo", "/xyz"),
            (PathPattern::Starts("/fo".into()), "/xyz/", "/foo/bar", "/xyz/o/bar"),
        ] {
            assert_eq!(rewritten(pattern, with, path), expected, "{path} with {with}");
        }
    }
}
