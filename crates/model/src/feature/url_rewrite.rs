//! The rewrite of the path and host of requests.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::rule::Pattern;
use crate::value::{CapturePath, EndpointName, Entries, RewritePath, RewritePattern, Template};

/// The path and host that endpoints receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.path) || !has(self.regex)",
    "message": "path cannot be combined with regex: remove one of them"
}]))]
#[cbor(map)]
pub struct UrlRewrite {
    /// The new path. The gateway keeps the query. Default: the client's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub path: Option<PathRewrite>,
    /// The new host. The client's host goes into X-Forwarded-Host. Default: the client's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub hostname: Option<EndpointName>,
    /// Rewrites with variables of nginx, which annotations of ingress-nginx set. They apply in their order, in place of
    /// path.
    #[serde(skip_deserializing, skip_serializing_if = "super::is_default")]
    #[schemars(skip)]
    #[cbor(n(2), default, skip_if = "super::is_default")]
    pub targets: Entries<TargetRewrite, { TargetRewrite::MAX }, 0>,
    /// The host in place of hostname, with variables of nginx, which annotations of ingress-nginx set.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(3)]
    pub host: Option<Template>,
    /// The new path of requests whose path matches a regular expression. Other paths do not change. The gateway keeps
    /// the query. Not allowed with path. Default: the client's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub regex: Option<RegexRewrite>,
}

impl Check for UrlRewrite {
    fn check(&self, at: &mut Faults<'_>) {
        if self.path.is_some() && self.regex.is_some() {
            at.error("regex", "cannot be combined with path: remove one of them");
        }
    }
}

/// A new path for paths that match a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct RegexRewrite {
    /// The regular expression, which is searched in the path, with regard to case. Write ^ and $ to match the whole
    /// path. Backreferences and look-around are not supported.
    #[n(0)]
    pub pattern: RewritePattern,
    /// The new path, which begins with /. $1 to $9 stand for the groups of pattern. With pattern ^/users/([^/]+)$ and
    /// value /accounts/$1, /users/7 becomes /accounts/7.
    #[n(1)]
    pub value: CapturePath,
}

/// A new path and query for requests whose path matches a pattern (nginx: `rewrite`). The target replaces the whole path. A
/// query of the target comes before the query of the request; a `?` at the end of the target removes the query of the
/// request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct TargetRewrite {
    /// The pattern, which is searched in the path.
    #[n(0)]
    pub pattern: Pattern,
    /// The new path, with an optional query.
    #[n(1)]
    pub target: Template,
    /// Whether the rewrites behind this rewrite apply to its result (nginx: `rewrite` without `break`).
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(2), default, skip_if = "super::is_default")]
    pub continues: bool,
}

impl TargetRewrite {
    /// The maximum number of rewrites of a rule.
    pub const MAX: usize = 16;
}

/// A new path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct PathRewrite {
    /// The part of the path that value replaces. ReplaceFullPath: the whole path. ReplacePrefixMatch: the route's own
    /// path. With value /app and a route of /shop, /shop/cart becomes /app/cart.
    #[serde(rename = "type")]
    #[n(0)]
    pub kind: PathRewriteType,
    /// The new path or prefix, which begins with /.
    #[n(1)]
    pub value: RewritePath,
}

/// The part of a path that a rewrite replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum PathRewriteType {
    /// The whole path.
    #[n(0)]
    ReplaceFullPath,
    /// The path of the rule. The rest of the path follows.
    #[n(1)]
    ReplacePrefixMatch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;
    use crate::feature::is_valid;

    #[test]
    fn regex_rewrite_with_an_invalid_pattern_value_or_a_path_is_rejected() {
        let rewrite =
            |yaml: &str| serde_json::from_str::<UrlRewrite>(yaml).map_err(|fault| fault.to_string());
        let regex = |pattern: &str, value: &str| {
            rewrite(&format!(r#"{{"regex": {{"pattern": "{pattern}", "value": "{value}"}}}}"#))
        };
        assert_eq!(&*regex("^/(.*)$", "/a b/${1}2").unwrap().regex.unwrap().value, "/a%20b/$12");
        for (pattern, value, message) in [
            ("(", "/a", "\"(\" is not a regular expression: unclosed group"),
            ("(?=a)", "/a", "look-around"),
            ("a", "a", "does not begin with '/'"),
            ("a", "/$host", "has another variable than $1 to $9"),
            ("a", "/a$", "has a '$' without the name of a variable"),
            ("a", "/a?b=$1", "has a '?', which ends a path"),
        ] {
            let fault = regex(pattern, value).unwrap_err();
            assert!(fault.contains(message), "{pattern} {value}: {fault}");
        }
        let both = r#"{"path": {"type": "ReplaceFullPath", "value": "/"}, "regex": {"pattern": "a", "value": "/a"}}"#;
        let features = Features { url_rewrite: rewrite(both).unwrap(), ..Features::default() };
        assert!(!is_valid(&features));
    }
}
