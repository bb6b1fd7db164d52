//! Whether the last valid version of a resource would allow requests that a newer version denies. The program cannot
//! decode the newer version completely, so this module reads only the paths and their policies.

use std::cmp::Reverse;

use minicbor::{Decoder, decode};
use sluicegate_model::PathPattern;
use sluicegate_model::encoding::SKIPPED_FROM;
use sluicegate_model::policy::Security;
use sluicegate_model::rule::{PathMatch, Rule, RuleMatch, VirtualHost};

/// Indices of [`VirtualHost`] and of [`Rule`]. A test compares the indices with the model.
mod index {
    pub(super) const HOST_KNOWN: std::ops::RangeInclusive<i64> = 0..=4;
    pub(super) const RULES: i64 = 1;
    pub(super) const FALLBACK: i64 = 2;
    pub(super) const FILTERS: i64 = 4;
    pub(super) const RULE_KNOWN: std::ops::RangeInclusive<i64> = 0..=9;
    pub(super) const MATCHES: i64 = 1;
    pub(super) const SECURITY: i64 = 6;
    pub(super) const SUBSCRIPTIONS: i64 = 9;
}

/// The readable parts of a host.
#[derive(Debug, Default)]
pub(crate) struct HostOutline {
    /// The fallback comes first.
    rules: Vec<RuleOutline>,
    /// Whether the listener of the host has filters.
    has_filters: bool,
    /// Whether the host has an unknown field that this program may not skip.
    has_unknown: bool,
}

/// The readable parts of a rule.
#[derive(Debug, Default)]
pub(crate) struct RuleOutline {
    matches: Option<Vec<RuleMatch>>,
    has_security: bool,
    has_subscriptions: bool,
    /// Whether the rule has an unknown field that this program may not skip, such as a new kind of policy.
    has_unknown: bool,
}

/// Whether a policy admits every caller, such as a policy that only answers cross-origin requests.
fn is_open(policy: Option<&Security>) -> bool {
    policy.is_none_or(|policy| !policy.can_deny())
}

/// Whether a rule admits callers without a subscription.
fn is_without_subscription(rule: &Rule) -> bool {
    !rule.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.required)
}

/// The fields of a map, each as its index and its encoding.
fn fields<'b>(
    decoder: &mut Decoder<'b>,
    mut each: impl FnMut(i64, &'b [u8]) -> Result<(), decode::Error>,
) -> Result<(), decode::Error> {
    let length = decoder.map()?.ok_or_else(|| decode::Error::message("indefinite length"))?;
    for _ in 0..length {
        let index = decoder.i64()?;
        let begin = decoder.position();
        decoder.skip()?;
        each(index, decoder.input().get(begin..decoder.position()).unwrap_or_default())?;
    }
    Ok(())
}

impl HostOutline {
    /// `None` if the body is not a host.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut outline = Self::default();
        let mut others = Vec::new();
        let read = fields(&mut Decoder::new(body), |index, item| {
            let mut decoder = Decoder::new(item);
            match index {
                index::RULES => {
                    for _ in 0..decoder.array()?.unwrap_or_default() {
                        others.push(RuleOutline::decode(&mut decoder)?);
                    }
                }
                index::FALLBACK => outline.rules.push(RuleOutline::decode(&mut decoder)?),
                index::FILTERS => outline.has_filters = true,
                _ => outline.has_unknown |= is_unknown(index, &index::HOST_KNOWN),
            }
            Ok(())
        });
        read.ok()?;
        outline.rules.append(&mut others);
        Some(outline)
    }

    /// Whether the older version of the host would serve a path without its current policy: by the rule of the path, or
    /// by a rule for a shorter prefix of the path.
    pub(crate) fn is_opened_by(&self, older: &VirtualHost) -> bool {
        if self.has_unknown || self.has_filters && is_open(older.filters.as_deref()) {
            return true;
        }
        if !self.rules.iter().any(RuleOutline::is_guarded) {
            return false;
        }
        let of_older = || older.fallback.iter().chain(&older.rules);
        let are_plain = self.rules.iter().all(|rule| rule.matches.as_deref().is_some_and(is_plain))
            && of_older().all(|rule| is_plain(&rule.matches));
        if !are_plain {
            return self.is_opened_by_any(of_older());
        }
        let now = self.rules.iter().flat_map(|rule| {
            rule.matches.iter().flatten().filter_map(plain_path).map(move |path| (path, rule))
        });
        let before = of_older()
            .flat_map(|rule| rule.matches.iter().filter_map(plain_path).map(move |path| (path, rule)));
        let (now, before): (Vec<_>, Vec<_>) = (now.collect(), before.collect());
        let paths = now.iter().map(|(path, _)| *path).chain(before.iter().map(|(path, _)| *path));
        paths.map(PathPattern::as_str).any(|path| match (serves(&now, path), serves(&before, path)) {
            (Some(now), Some(older)) => now.is_opened_by(older),
            _ => false,
        })
    }
}

impl HostOutline {
    /// [`is_opened_by`](Self::is_opened_by) for hosts whose matches have conditions beside the path. The module cannot
    /// tell whether a request meets two matches. The older version must therefore have the same guarded rules, and no
    /// other rules without a policy.
    fn is_opened_by_any<'r>(&self, older: impl Iterator<Item = &'r Rule> + Clone) -> bool {
        let same = |now: &RuleOutline, older: &Rule| now.matches.as_ref() == Some(&older.matches);
        let loses_guard = self.rules.iter().filter(|now| now.is_guarded()).any(|now| {
            now.has_unknown || !older.clone().any(|older| same(now, older) && !now.is_opened_by(older))
        });
        let mut open =
            older.filter(|older| is_open(older.security.as_deref()) && is_without_subscription(older));
        loses_guard || open.any(|older| !self.rules.iter().any(|now| same(now, older) && !now.is_guarded()))
    }
}

impl RuleOutline {
    /// `None` if the body is not a rule.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        Self::decode(&mut Decoder::new(body)).ok()
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, decode::Error> {
        let mut outline = Self::default();
        fields(decoder, |index, item| {
            match index {
                index::MATCHES => outline.matches = decode(item).ok(),
                index::SECURITY => outline.has_security = true,
                index::SUBSCRIPTIONS => outline.has_subscriptions = true,
                _ => outline.has_unknown |= is_unknown(index, &index::RULE_KNOWN),
            }
            Ok(())
        })?;
        Ok(outline)
    }

    fn is_guarded(&self) -> bool {
        self.has_security || self.has_subscriptions || self.has_unknown
    }

    /// Whether an older rule for the same paths would be served without the current policy. An older rule without rate
    /// limits, or with other headers, allows no additional callers.
    pub(crate) fn is_opened_by(&self, older: &Rule) -> bool {
        self.has_unknown
            || self.has_security && is_open(older.security.as_deref())
            || self.has_subscriptions && is_without_subscription(older)
    }
}

fn is_unknown(index: i64, known: &std::ops::RangeInclusive<i64>) -> bool {
    !known.contains(&index) && index < SKIPPED_FROM
}

/// Whether all matches have only a path condition, with the precedence of its length.
fn is_plain(matches: &[RuleMatch]) -> bool {
    matches.iter().all(|of| plain_path(of).is_some())
}

fn plain_path(of: &RuleMatch) -> Option<&PathPattern> {
    match &of.path {
        PathMatch::Literal(path) => Some(path).filter(|path| RuleMatch::path((*path).clone()) == *of),
        PathMatch::Regex(_) | PathMatch::Template(_) => None,
    }
}

/// The rule of a path (see [`RuleMatch::path`]). Of equal rules, the last rule applies.
fn serves<R: Copy>(routes: &[(&PathPattern, R)], path: &str) -> Option<R> {
    let takes = |pattern: &PathPattern| match (pattern, path.strip_prefix(pattern.as_str())) {
        (_, None) => false,
        (PathPattern::Exact(_), Some(rest)) => rest.is_empty(),
        (PathPattern::Prefix(pattern), Some(rest)) => {
            rest.is_empty() || rest.starts_with('/') || &**pattern == "/"
        }
        (PathPattern::Starts(_), Some(_)) => true,
    };
    let taking = routes.iter().filter(|(pattern, _)| takes(pattern));
    let best = taking.max_by_key(|(pattern, _)| (pattern.as_str().len(), Reverse(pattern.rank())));
    best.map(|(_, route)| *route)
}
