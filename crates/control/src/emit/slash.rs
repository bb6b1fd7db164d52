//! Paths that a policy guards with a final slash, but not without it, or the other way round.

use foldhash::HashMap;
use sluicegate_model::rule::PathMatch;
use sluicegate_model::{PathPattern, Rule};

use crate::merge::rule;
use crate::problem::Problem;

/// Warns if a policy guards an exact path, and a rule without the policy serves the same path with or without a final
/// slash: many servers treat both paths alike.
///
/// A rule that takes `/admin/` without naming it, such as the rule of `/`, is left out: the data plane refuses such
/// requests.
pub(super) fn warn_of_variants(rules: &[Rule], origins: &[rule::Rule<'_, '_>], problems: &mut Vec<Problem>) {
    let guards = rules.iter().zip(origins).filter_map(|(rule, origin)| {
        let PathPattern::Exact(path) = path_of(rule)? else { return None };
        let guard = rule.security.as_ref().filter(|security| security.can_deny() && path.len() > 1)?;
        Some((path, guard, origin))
    });
    let mut by_path = None;
    for (path, guard, origin) in guards {
        let by_path = by_path.get_or_insert_with(|| ByPath::new(rules));
        let (twin, other) = match path.strip_suffix('/') {
            Some(bare) => (bare.to_owned(), by_path.longest(bare)),
            None => {
                let twin = format!("{path}/");
                let other = by_path.naming(&twin);
                (twin, other)
            }
        };
        let Some(other) = other.filter(|other| other.security.as_ref() != Some(guard)) else { continue };
        problems.push(origin.intent.at.warning(
            &origin.rule.place.path_field(),
            format!(
                "is protected by {}, which does not apply to {twin}: {} serves that path by its path {} ({}). Attach one policy to both",
                guard.id,
                other.id,
                other.matches[0].path,
                other.matches[0].path.path_type(),
            ),
        ));
    }
}

/// The path of a rule with one match.
fn path_of(rule: &Rule) -> Option<&PathPattern> {
    match &rule.matches.first()?.path {
        PathMatch::Literal(path) => Some(path),
        PathMatch::Regex(_) | PathMatch::Template(_) => None,
    }
}

/// The rules of a host by their paths: exact ones, prefixes by element, plain prefixes.
struct ByPath<'r>(HashMap<&'r str, [Option<&'r Rule>; 3]>);

impl<'r> ByPath<'r> {
    fn new(rules: &'r [Rule]) -> Self {
        let mut by_path: HashMap<&str, [Option<&Rule>; 3]> = HashMap::default();
        for (rule, path) in rules.iter().filter_map(|rule| Some((rule, path_of(rule)?))) {
            by_path.entry(path.as_str()).or_default()[usize::from(path.rank())].get_or_insert(rule);
        }
        Self(by_path)
    }

    /// The route that names a path with a final slash: `/admin/`, or `/admin` as a prefix.
    fn naming(&self, twin: &str) -> Option<&'r Rule> {
        let [exact, _, starts] = self.0.get(twin).copied().unwrap_or_default();
        let [_, prefix, bare_starts] = self.0.get(twin.trim_end_matches('/')).copied().unwrap_or_default();
        exact.or(starts).or(prefix).or(bare_starts)
    }

    /// The route of a path without a final slash.
    fn longest(&self, path: &str) -> Option<&'r Rule> {
        let ends = (1..=path.len()).rev().filter(|end| path.is_char_boundary(*end));
        ends.filter_map(|end| {
            let [exact, prefix, starts] = self.0.get(&path[..end]).copied().unwrap_or_default();
            let at_boundary = end == 1 || path[end..].is_empty() || path[end..].starts_with('/');
            exact.filter(|_| end == path.len()).or(prefix.filter(|_| at_boundary)).or(starts)
        })
        .next()
    }
}
