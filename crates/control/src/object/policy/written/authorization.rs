//! Authorization rules.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::value::{Entries, Network};

use super::jwt::ClaimRequirement;

/// Rules that allow or deny requests. The first rule that matches a request decides.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Authorization {
    /// The decision for requests that match no rule: Deny or Allow. Default: Deny if a rule has action Allow, otherwise
    /// Allow.
    pub(crate) default_action: Option<Action>,
    /// The rules, in the order of their precedence. 1 to 64 entries.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Action {
    Allow,
    Deny,
}

/// A rule. A request matches the rule if it matches every condition. A rule without conditions matches every request.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Rule {
    /// The decision for requests that match: Allow or Deny.
    pub(crate) action: Action,
    /// The caller is one of these Consumers: name, or namespace/name for a Consumer of another namespace. 1 to 64
    /// entries. Default: any caller.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 317)))]
    pub(crate) consumers: Option<Vec<String>>,
    /// The caller is a Consumer in one of these groups. 1 to 64 entries. Default: any caller.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// The caller's token has all of these claims. 1 to 16 entries. Default: no claims needed.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) claims: Option<Vec<ClaimRequirement>>,
    /// The request has one of these methods, in upper case. 1 to 16 entries. Default: any method.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 32)))]
    pub(crate) methods: Option<Vec<String>>,
    /// The request has one of these paths. 1 to 64 entries. Default: any path.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) paths: Option<Vec<PathMatch>>,
    /// The client IP is in one of these CIDRs, or is one of these addresses. 1 to 256 entries. Default: any client IP.
    #[serde(default)]
    pub(crate) addresses: Entries<Network, 256>,
}

/// A path, or a path with all paths below it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PathMatch {
    /// How the path is compared. Exact: the same path. Prefix: the path and all paths below it, element by element as
    /// in an Ingress. So /admin matches /admin/users, but not /administration.
    #[serde(rename = "type")]
    pub(crate) kind: PathType,
    /// The path, which begins with a slash.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum PathType {
    Exact,
    Prefix,
}
