//! Rewrites of the path.

use sluicegate_http1::Rejection;
use sluicegate_model::feature::{PathRewrite, PathRewriteType, RegexRewrite, TargetRewrite, UrlRewrite};
use sluicegate_model::rule::{PathMatch, Pattern};
use sluicegate_model::value::Template;

use crate::path::readings;
use crate::template::{Captured, Place, TemplateView, TooLong};

/// A compiled rewrite with variables.
#[derive(Debug)]
pub(super) struct Target {
    pattern: Pattern,
    path: Template,
    /// The query before the query of the request.
    query: Option<Template>,
    /// Whether the query of the request stays.
    keeps_query: bool,
    continues: bool,
    /// Whether the new path is in normal form.
    merges_slashes: bool,
}

/// The path and the query for the endpoint.
#[derive(Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) path: Option<Vec<u8>>,
    /// The query without its `?`, if it changes; empty: no query.
    pub(crate) query: Option<Vec<u8>>,
    /// The captures of the last rewrite that applied.
    pub(crate) captured: Option<Box<Captured>>,
}

impl Rewritten {
    /// The request with the new path and query.
    pub(super) fn view<'r>(&'r self, view: &TemplateView<'r>) -> TemplateView<'r> {
        let mut view = *view;
        view.request.path = self.path.as_deref().unwrap_or(view.request.path);
        view.query = match &self.query {
            Some(query) => Some(&**query).filter(|query| !query.is_empty()),
            None => view.query,
        };
        view.captured = self.captured.as_deref().or(view.captured);
        view
    }
}

impl From<TooLong> for Rejection {
    fn from(_: TooLong) -> Self {
        Self::HeadTooLarge
    }
}

impl Target {
    fn new(TargetRewrite { pattern, target, continues }: &TargetRewrite) -> Self {
        let (pattern, continues) = (pattern.clone(), *continues);
        let without_mark = target.strip_end('?');
        let keeps_query = without_mark.is_none();
        let (path, query) = without_mark.as_ref().unwrap_or(target).split_at('?');
        Self { pattern, path, query, keeps_query, continues, merges_slashes: false }
    }

    /// The rewrite of a policy.
    fn of_regex(RegexRewrite { pattern, value }: &RegexRewrite) -> Option<Self> {
        let (pattern, path) = (Pattern::new(pattern.as_str(), false).ok()?, Template::new(value).ok()?);
        Some(Self { pattern, path, query: None, keeps_query: true, continues: false, merges_slashes: true })
    }

    /// The rewrites with variables or captures.
    pub(super) fn all(rewrites: &UrlRewrite) -> Vec<Self> {
        let of_annotations = rewrites.targets.iter().map(Self::new);
        of_annotations.chain(rewrites.regex.iter().filter_map(Self::of_regex)).collect()
    }
}

/// Rewrites the path and the query of a request. The gateway rejects a request whose new path does not begin with `/`, or
/// would have a dot segment in any reading.
pub(super) fn rewrite(targets: &[Target], view: &TemplateView<'_>) -> Result<Rewritten, Rejection> {
    let mut rewritten = Rewritten::default();
    for target in targets {
        let view = rewritten.view(view);
        let Some(captured) = Captured::of(&target.pattern, view.request.path) else { continue };
        let view = TemplateView { captured: Some(&captured), ..view };
        let (mut path, mut query) = (Vec::new(), Vec::new());
        view.render(&target.path, Place::Path, &mut path)?;
        if target.merges_slashes {
            path.dedup_by(|next, before| (*next, *before) == (b'/', b'/'));
        }
        if let Some(own) = &target.query {
            view.render(own, Place::Query, &mut query)?;
        }
        let of_request = view.query.filter(|_| target.keeps_query);
        let query = match (&target.query, of_request) {
            // nginx writes no `?` before an empty query.
            (None, Some(b"")) => Some(Vec::new()),
            (None, Some(_)) => None,
            (Some(_), Some(of_request)) => Some([&query, of_request].join(&b'&')),
            (_, None) => Some(query),
        };
        if path.first() != Some(&b'/') {
            return Err(Rejection::InvalidTarget);
        }
        if may_have_dots(&path) && readings(&path).is_none() {
            return Err(Rejection::PathAboveRoot);
        }
        rewritten.path = Some(path);
        rewritten.query = query.or(rewritten.query);
        rewritten.captured = Some(Box::new(captured));
        if !target.continues {
            break;
        }
    }
    Ok(rewritten)
}

/// Whether a path may have dot segments in some reading.
fn may_have_dots(path: &[u8]) -> bool {
    memchr::memchr2(b'.', b'%', path).is_some()
}

/// The part of a path that a route matched, which a prefix rewrite replaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MatchedPrefix(usize);

impl MatchedPrefix {
    pub(crate) fn of(path: &PathMatch) -> Self {
        Self(match path {
            PathMatch::Literal(path) => path.as_str().trim_end_matches('/').len(),
            // The others name no prefix: the rewrite replaces the whole path.
            PathMatch::Regex(_) | PathMatch::Template(_) => usize::MAX,
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
