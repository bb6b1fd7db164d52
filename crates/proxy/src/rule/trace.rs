//! The lookup of a request's route, with its steps: for people who ask why a request uses a route.
//!
//! The steps come from the lookup of the table itself ([`Hosts::search`](super::entry::Hosts)). Only the list of the
//! matches of a host beside the selected match is computed here, each match with the types of the table.

use sluicegate_model::HostPattern;
use sluicegate_model::rule::{PathMatch, Rule, RuleMatch, ValueMatch};

use super::conditions::Conditions;
use super::entry::Entrance;
use super::host::Host;
use super::tree::{Entry, PathKey, PathTree};
use super::{RouteIndex, Table};
use crate::request::HeadView;

/// At most this many matches of one host are listed.
const MATCHES_MAX: usize = 20;

/// At most this many regular expressions of one host are tried. Each tried expression takes memory until its rule changes.
const REGEXES_MAX: usize = 200;

/// A host that the lookup asked for the request.
#[derive(Debug)]
pub(crate) struct HostStep<'t> {
    pub(crate) pattern: &'t HostPattern,
    /// The selected route of this host.
    pub(crate) found: Option<RouteIndex>,
    /// Whether the next less specific host is asked if this host has no route for the request.
    pub(crate) continues: bool,
    /// The number of matches of the host.
    pub(crate) matches: usize,
    /// The matches whose path matches, in the order of their precedence.
    pub(crate) near: Vec<Near<'t>>,
}

/// A match whose path matches the request.
#[derive(Debug)]
pub(crate) struct Near<'t> {
    pub(crate) rule: &'t Rule,
    pub(crate) of: &'t RuleMatch,
    /// The conditions that the request does not meet.
    pub(crate) unmet: Vec<String>,
}

impl Table {
    /// The hosts that [`find`](Self::find) asks for a request, in this order.
    pub(crate) fn steps(
        &self,
        entrance: Entrance,
        authority: &[u8],
        path: &[u8],
        request: HeadView<'_>,
    ) -> Vec<HostStep<'_>> {
        let mut steps = Vec::new();
        let Some(hosts) = self.at(entrance) else { return steps };
        hosts.search(authority, |placed| {
            let found = placed.find(path, request);
            let (matches, near) = placed.host.near(path, request);
            let (pattern, continues) = (placed.host.pattern(), placed.host.continues());
            steps.push(HostStep { pattern, found, continues, matches, near });
            found
        });
        steps
    }

    /// The rule and the match of a route; no match for a fallback.
    pub(crate) fn source(&self, index: RouteIndex) -> Option<(&Rule, Option<&RuleMatch>)> {
        self.all.get(index.host as usize)?.source(index.route)
    }

    /// The host pattern of a route.
    pub(crate) fn pattern(&self, index: RouteIndex) -> Option<&HostPattern> {
        Some(self.all.get(index.host as usize)?.pattern())
    }
}

impl Host {
    /// The number of matches, and the matches whose path matches.
    fn near(&self, path: &[u8], request: HeadView<'_>) -> (usize, Vec<Near<'_>>) {
        let (mut count, mut regexes) = (0, 0);
        let mut near: Vec<Near<'_>> = Vec::new();
        for (rule, of) in self.written() {
            count += 1;
            regexes += usize::from(matches!(of.path, PathMatch::Regex(_)));
            if regexes > REGEXES_MAX && matches!(of.path, PathMatch::Regex(_))
                || !takes(&of.path, path, request)
            {
                continue;
            }
            near.push(Near { rule, of, unmet: unmet(of, request) });
        }
        near.sort_by(|one, other| {
            let key = |near: &Near<'_>| (near.of.precedence, std::cmp::Reverse(near.of.path.as_str().len()));
            key(one).cmp(&key(other))
        });
        near.truncate(MATCHES_MAX);
        (count, near)
    }
}

/// Whether a path condition alone accepts a path.
fn takes(of: &PathMatch, path: &[u8], request: HeadView<'_>) -> bool {
    let key = match of {
        PathMatch::Literal(pattern) => PathKey::from(pattern),
        PathMatch::Template(template) => PathKey::from(template),
        PathMatch::Regex(pattern) => return pattern.is_match(path),
    };
    let entry = Entry { order: 0, target: 0, conditions: None };
    PathTree::new(vec![(key, entry)]).find(path, request, None).is_some()
}

/// The conditions that a request does not meet.
fn unmet(of: &RuleMatch, request: HeadView<'_>) -> Vec<String> {
    let bare = RuleMatch { method: None, headers: Vec::new(), query: Vec::new(), ..of.clone() };
    let fails =
        |single: &RuleMatch| Conditions::of(single).is_some_and(|conditions| !conditions.are_met_by(request));
    let mut unmet = Vec::new();
    if let Some(method) = &of.method
        && fails(&RuleMatch { method: Some(method.clone()), ..bare.clone() })
    {
        unmet.push(format!("method is {method}"));
    }
    for header in &of.headers {
        if fails(&RuleMatch { headers: vec![header.clone()], ..bare.clone() }) {
            unmet.push(format!("header {} {}", header.name, words(&header.value)));
        }
    }
    for parameter in &of.query {
        if fails(&RuleMatch { query: vec![parameter.clone()], ..bare.clone() }) {
            unmet.push(format!("query parameter {} {}", parameter.name, words(&parameter.value)));
        }
    }
    unmet
}

/// All conditions of a match beside its path, in words.
pub(crate) fn conditions(of: &RuleMatch) -> Vec<String> {
    let method = of.method.iter().map(|method| format!("method is {method}"));
    let headers = of.headers.iter().map(|of| format!("header {} {}", of.name, words(&of.value)));
    let query = of.query.iter().map(|of| format!("query parameter {} {}", of.name, words(&of.value)));
    method.chain(headers).chain(query).collect()
}

fn words(value: &ValueMatch) -> String {
    match value {
        ValueMatch::Exact(text) => format!("is {text:?}"),
        ValueMatch::Regex(pattern) => format!("matches {:?}", pattern.as_str()),
        ValueMatch::Present => "is present".to_owned(),
    }
}
