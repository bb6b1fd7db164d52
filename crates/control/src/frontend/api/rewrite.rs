//! The base path for endpoints.

use sluicegate_model::Features;
use sluicegate_model::feature::{RegexRewrite, UrlRewrite};
use sluicegate_model::value::{CapturePath, RewritePattern};

use crate::object::path::literal;

/// Replaces the base path of requests by the base path of endpoints. Both are without a final slash. `None` if one of them is
/// too long.
pub(super) fn base_path(from: &str, to: &str) -> Option<Features> {
    let pattern = RewritePattern::new(&format!("^{}/(.*)$", literal(from))).ok()?;
    let value = CapturePath::new(&format!("{to}/$1")).ok()?;
    let url_rewrite = UrlRewrite { regex: Some(RegexRewrite { pattern, value }), ..UrlRewrite::default() };
    Some(Features { url_rewrite, ..Features::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_path_is_replaced_as_plain_text() {
        let rewritten = |from: &str, to: &str, path: &str| {
            let features = base_path(from, to).unwrap();
            let RegexRewrite { pattern, value } = features.url_rewrite.regex.unwrap();
            let pattern = sluicegate_model::rule::Pattern::new(&*pattern, false).unwrap();
            pattern.replacement(path.as_bytes(), &value).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(rewritten("/v1.0", "/api", "/v1.0/pets"), Some("/api/pets".to_owned()));
        assert_eq!(rewritten("/v1.0", "", "/v1.0/pets"), Some("/pets".to_owned()));
        assert_eq!(rewritten("", "/x", "/pets"), Some("/x/pets".to_owned()));
        assert_eq!(rewritten("/v1.0", "/api", "/v1x0/pets"), None);
        assert_eq!(rewritten("/a+b", "/api", "/a+b/"), Some("/api/".to_owned()));
    }
}
