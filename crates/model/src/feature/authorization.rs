//! Authorization rules.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::PathPattern;
use crate::value::{
    ClaimName, ClaimValue, ConditionPath, ConsumerName, Entries, GroupName, Network, RequestMethod,
};

/// Rules that allow or deny requests. The first rule that matches a request decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Authorization {
    /// The decision for requests that match no rule: Deny or Allow. Default: Deny if a rule has action Allow, otherwise
    /// Allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub default_action: Option<Action>,
    /// The rules, in the order of their precedence. 1 to 64 entries.
    #[n(1)]
    pub rules: Entries<AuthorizationRule, 64>,
}

impl Authorization {
    /// The decision for requests that match no rule.
    #[must_use]
    pub fn default_action(&self) -> Action {
        let is_allow = |rule: &AuthorizationRule| rule.action == Action::Allow;
        let derived = if self.rules.iter().any(is_allow) { Action::Deny } else { Action::Allow };
        self.default_action.unwrap_or(derived)
    }
}

/// The decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum Action {
    /// The request goes on.
    #[n(0)]
    Allow,
    /// The gateway responds with 403.
    #[n(1)]
    Deny,
}

/// A rule. A request matches the rule if it matches every condition. A rule without conditions matches every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct AuthorizationRule {
    /// The decision for requests that match: Allow or Deny.
    #[n(0)]
    pub action: Action,
    /// The caller is one of these Consumers: name, or namespace/name for a Consumer of another namespace. 1 to 64
    /// entries. Default: any caller.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub consumers: Entries<ConsumerName, 64>,
    /// The caller is a Consumer in one of these groups. 1 to 64 entries. Default: any caller.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(2)]
    pub groups: Entries<GroupName, 64>,
    /// The caller's token has all of these claims. 1 to 16 entries. Default: no claims needed.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(3)]
    pub claims: Entries<ClaimRequirement, 16>,
    /// The request has one of these methods, in upper case. 1 to 16 entries. Default: any method.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(4)]
    pub methods: Entries<RequestMethod, 16>,
    /// The request has one of these paths. 1 to 64 entries. Default: any path.
    // The data plane compares a path in each form in which an endpoint may read the path: `%2F` as `/`, without `;x=1`,
    // without regard to case. A rule that denies matches if any form matches, a rule that allows if all forms match.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(5)]
    pub paths: Entries<PathCondition, 64>,
    /// The client IP is in one of these CIDRs, or is one of these addresses. 1 to 256 entries. Default: any client IP.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(6)]
    pub addresses: Entries<Network, 256>,
}

impl AuthorizationRule {
    /// A rule that every request matches.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            action,
            consumers: Entries::default(),
            groups: Entries::default(),
            claims: Entries::default(),
            methods: Entries::default(),
            paths: Entries::default(),
            addresses: Entries::default(),
        }
    }
}

/// A claim that tokens must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct ClaimRequirement {
    /// The name of the claim. A dot leads into an object, as in realm_access.roles.
    #[n(0)]
    pub name: ClaimName,
    /// The accepted values. A list, or a text of words such as scope, must contain one of them. 1 to 64 entries.
    /// Default: any value.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub values: Entries<ClaimValue, 64>,
}

/// A path, or a path with all paths below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct PathCondition {
    /// How the path is compared. Exact: the same path. Prefix: the path and all paths below it, element by element as
    /// in an Ingress. So /admin matches /admin/users, but not /administration.
    #[serde(rename = "type")]
    #[n(0)]
    pub kind: PathConditionType,
    /// The path, which begins with a slash.
    #[n(1)]
    pub value: ConditionPath,
}

impl PathCondition {
    /// The pattern for comparisons with requests.
    #[must_use]
    pub fn pattern(&self) -> PathPattern {
        match (self.kind, &*self.value) {
            (PathConditionType::Exact, path) => PathPattern::Exact(path.into()),
            (PathConditionType::Prefix, "/") => PathPattern::Prefix("/".into()),
            (PathConditionType::Prefix, path) => PathPattern::Prefix(path.trim_end_matches('/').into()),
        }
    }
}

/// The comparison of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum PathConditionType {
    /// The same path.
    #[n(0)]
    Exact,
    /// The path and all paths below it.
    #[n(1)]
    Prefix,
}

impl Check for Authorization {
    fn check(&self, at: &mut Faults<'_>) {
        for (index, rule) in self.rules.iter().enumerate() {
            for (place, group) in rule.groups.iter().enumerate() {
                if rule.groups[..place].contains(group) {
                    at.warning(
                        &format!("rules[{index}].groups[{place}]"),
                        format!("{group:?} is written twice"),
                    );
                }
            }
            for (place, PathCondition { value, .. }) in rule.paths.iter().enumerate() {
                // The normal form of [, ^ and | is percent-encoded.
                if ["*", "(", "$", "%5B", "%5E", "%7C"].iter().any(|mark| value.contains(mark)) {
                    at.warning(
                        &format!("rules[{index}].paths[{place}].value"),
                        format!(
                            "{value:?} is matched as plain text, not as a pattern: use type: Prefix to match all paths below a path"
                        ),
                    );
                }
            }
        }
        let every_request = |rule: &AuthorizationRule| *rule == AuthorizationRule::new(rule.action);
        if let Some(first) = self.rules.iter().position(every_request)
            && first + 1 < self.rules.len()
        {
            at.warning(
                &format!("rules[{}]", first + 1),
                format!("is never reached: rules[{first}] has no conditions, so it matches every request"),
            );
        }
    }
}
