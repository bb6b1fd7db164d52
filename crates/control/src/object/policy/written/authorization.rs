//! Who may do what.

use schemars::JsonSchema;
use serde::Deserialize;

use super::jwt::ClaimRequirement;

/// Rules, of which the first that a request meets decides.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Authorization {
    /// What becomes of requests that meet no rule: Deny or Allow. Default: Deny if a rule allows something, else Allow.
    pub(crate) default: Option<Action>,
    /// The rules, from 1 to 64.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum Action {
    Allow,
    Deny,
}

/// A rule. A request meets it if it meets all that is written here; one with an action alone is met by all.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Rule {
    /// Whether who meets it is let in: Allow or Deny.
    pub(crate) action: Action,
    /// The caller is one of these Consumers: name, or namespace/name for those of another namespace. From 1 to 64.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 317)))]
    pub(crate) consumers: Option<Vec<String>>,
    /// The caller is a Consumer of one of these groups: from 1 to 64.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
    /// The caller's token has all of these claims: from 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) claims: Option<Vec<ClaimRequirement>>,
    /// The method is one of these, in upper case: from 1 to 16.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 32)))]
    pub(crate) methods: Option<Vec<String>>,
    /// The path is one of these: from 1 to 64.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) paths: Option<Vec<PathMatch>>,
    /// The address of the client is one of these, as CIDRs or single addresses: from 1 to 256.
    #[schemars(length(min = 1, max = 256), inner(length(min = 2, max = 49)))]
    pub(crate) addresses: Option<Vec<String>>,
}

/// Paths.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PathMatch {
    /// Exact for this path alone, Prefix for all below it too, element by element as in an Ingress: /admin takes /admin/users,
    /// and not /administration.
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
