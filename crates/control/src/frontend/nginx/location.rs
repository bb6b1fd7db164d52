//! The matches of paths, in the order of nginx.
//!
//! If a path of a host uses a regular expression, all paths of the host do, of all Ingresses: `location ~* "^PATH"`, the longest
//! text first. Otherwise `Exact` is `location = PATH`, `Prefix` is `location = PATH` and `location PATH/`, and
//! `ImplementationSpecific` is `location PATH`: the exact path first, then the longest prefix.

use std::cmp::Reverse;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::feature::Return;
use sluicegate_model::rule::{PathMatch, Pattern, PatternError, RuleMatch};
use sluicegate_model::value::{Entries, Template};
use sluicegate_model::{HostPattern, PathPattern};

use super::redirect;
use super::snippet::ServerSnippet;
use crate::intent::Own;
use crate::object::ingress::{Ingress, RulePath};
use crate::object::nginx::Settings;

/// The paths of all hosts of the dialect.
pub(super) struct Locations<'a>(HashMap<&'a HostPattern, Server<'a>>);

/// A host.
#[derive(Default)]
struct Server<'a> {
    uses_regex: bool,
    snippet: ServerSnippet,
    /// The texts of all paths.
    paths: HashSet<&'a str>,
    /// The place of each path in the order of nginx, if the host uses regular expressions.
    order: HashMap<&'a str, u32>,
}

/// A location.
pub(super) struct Path {
    pub(super) of: RuleMatch,
    /// The location redirects to the path with a final slash.
    pub(super) redirect: Option<Return>,
}

/// A precedence before all matches of other dialects. The place in the order of the host follows.
const REGEX: u32 = 1 << 29;

impl<'a> Locations<'a> {
    pub(super) fn new(ingresses: impl Iterator<Item = (&'a Ingress, Arc<Settings>)>) -> Self {
        let mut servers: HashMap<&HostPattern, Server<'a>> = HashMap::default();
        for (ingress, settings) in ingresses {
            for rule in &ingress.rules {
                let server = servers.entry(&rule.host).or_default();
                server.snippet.add(&settings);
                for path in &rule.paths {
                    server.uses_regex |= settings.rewrite.uses_regex(path);
                    server.paths.insert(text(path));
                }
            }
        }
        for server in servers.values_mut().filter(|server| server.uses_regex) {
            let mut paths: Vec<&str> = server.paths.iter().copied().collect();
            paths.sort_unstable_by_key(|path| (Reverse(path.len()), Reverse(*path)));
            server.order = paths.into_iter().zip(0..).collect();
        }
        Self(servers)
    }

    /// Whether an Ingress has rules for a host.
    pub(super) fn has(&self, host: &HostPattern) -> bool {
        self.0.contains_key(host)
    }

    /// The snippet for a host.
    pub(super) fn snippet(&self, host: &HostPattern) -> Option<&ServerSnippet> {
        self.0.get(host).map(|server| &server.snippet)
    }

    /// The locations of a path of a host. The error is a fault in a regular expression.
    pub(super) fn matches(
        &self,
        host: &HostPattern,
        path: &RulePath,
        settings: &Settings,
    ) -> Result<Vec<Path>, String> {
        let Some(server) = self.0.get(host) else { return Ok(Vec::new()) };
        match server.uses_regex {
            true => server.regexes(path, settings),
            false => Ok(server.literals(path, settings)),
        }
    }
}

impl Server<'_> {
    fn regexes(&self, path: &RulePath, settings: &Settings) -> Result<Vec<Path>, String> {
        let text = text(path);
        let place = self.order.get(text).copied().unwrap_or_default();
        let is_prefix = matches!(path.pattern, PathPattern::Prefix(_));
        let regex = |pattern: Result<Pattern, PatternError>, further| -> Result<Path, String> {
            let pattern = pattern
                .map_err(|fault| format!("{text:?} is not supported as a regular expression: {fault}"))?;
            let of = RuleMatch::new(PathMatch::Regex(pattern), None, Vec::new(), Vec::new());
            Ok(Path { of: RuleMatch { precedence: REGEX + place * 2 + further, ..of }, redirect: None })
        };
        match is_prefix && text != "/" && !settings.rewrite.uses_regex(path) {
            false => Ok(vec![regex(path.patterns.anchored(text), 0)?]),
            true => Ok(vec![regex(path.patterns.below(text), 0)?, regex(path.patterns.anchored(text), 1)?]),
        }
    }

    fn literals(&self, path: &RulePath, settings: &Settings) -> Vec<Path> {
        let alone = |pattern: PathPattern| Path { of: RuleMatch::path(pattern), redirect: None };
        let text = text(path);
        let Some(bare) = text.strip_suffix('/').filter(|bare| !bare.is_empty()) else {
            return vec![alone(path.pattern.clone())];
        };
        let (pattern, bare_pattern) = match &path.pattern {
            PathPattern::Exact(normal) => {
                let bare = normal.strip_suffix('/').unwrap_or(normal);
                (path.pattern.clone(), PathPattern::Exact(bare.into()))
            }
            PathPattern::Prefix(normal) => {
                (PathPattern::Starts(format!("{normal}/").into()), PathPattern::Exact(normal.clone()))
            }
            PathPattern::Starts(normal) => {
                let bare = normal.strip_suffix('/').unwrap_or(normal);
                (path.pattern.clone(), PathPattern::Exact(bare.into()))
            }
        };
        let mut paths = vec![alone(pattern)];
        // nginx redirects a request that lacks only the final slash, unless a location has that path.
        let is_free = !self.paths.contains(bare) && !bare.contains('$');
        let target = Template::new(&format!("{}/$is_args$args", bare_pattern.as_str()));
        if let Some(target) = target.ok().filter(|_| is_free) {
            let redirect = redirect::returned(&settings.redirect, 301, Some(target));
            paths.push(Path { redirect: Some(redirect), ..alone(bare_pattern) });
        }
        paths
    }
}

/// The parts of a location that redirects.
pub(super) fn redirecting(own: &Own, redirect: Return) -> Arc<Own> {
    let mut own = own.clone();
    Arc::make_mut(&mut own.features).returns = Entries::new(vec![redirect]).unwrap_or_default();
    Arc::new(own)
}

/// The text of a path, as ingress-nginx orders paths.
fn text(path: &RulePath) -> &str {
    match &*path.written {
        "" => "/",
        written => written,
    }
}
