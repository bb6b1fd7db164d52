//! Traffic policies: the parts of a `TrafficPolicy`.
//!
//! | module | purpose |
//! |---|---|
//! | `budget` | the retry budget |
//! | `split` | the choice between several upstreams |
//!
//! `http/steer.rs` applies the policies to requests.

use std::sync::Arc;

use sluicegate_http1::Known;
use sluicegate_model::policy::traffic::{
    AffinityCookie, Answer, Faults, Fixed, HashPart, HeaderRules, MatchPlace, PathRewrite, RequestMatch,
    Retries,
};
use sluicegate_model::policy::{self as model, Credential};
use sluicegate_model::rule::PathMatch;
use sluicegate_model::{Settings, UpstreamKey};

use super::Policy;
use super::authentication::credential::{Place, line_has_name};
use super::retry::Budget;
use super::split::Split;
use crate::counters::TrafficStats;
use crate::feature::cache::Cache;
use crate::path::readings;

/// A compiled `TrafficPolicy`.
pub(crate) type TrafficPolicy = Policy<model::Traffic, Traffic, TrafficStats>;

/// The traffic policy of one route.
#[derive(Debug)]
pub(crate) struct RouteTrafficPolicy {
    pub(crate) policy: Arc<TrafficPolicy>,
    /// The slots of the other upstreams, in their order.
    branches: Box<[usize]>,
    /// The slot of the upstream that receives mirrored requests.
    pub(crate) mirror: Option<usize>,
    /// The length of the path prefix that the route matched.
    matched: usize,
}

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// All settings for requests of its routes.
    pub(crate) settings: Arc<Settings>,
    pub(crate) request: HeaderEdit,
    pub(crate) response: HeaderEdit,
    pub(crate) budget: Option<Arc<Budget>>,
    pub(crate) split: Option<Split>,
    /// The sources of the hash for consistent hashing. `None` stands for the client IP or the path.
    pub(crate) hash: Vec<(HashPart, Option<Place>)>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) faults: Faults,
    /// The cached responses. A changed policy begins with an empty cache.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Whether responses state the effect of the cache: unless the policy itself sets or removes that header.
    pub(crate) reports_cache_status: bool,
}

/// A cookie for session affinity.
#[derive(Debug)]
pub(crate) struct Affinity {
    pub(crate) place: Place,
    pub(crate) cookie: AffinityCookie,
}

/// Changes to headers.
#[derive(Debug)]
pub(crate) struct HeaderEdit {
    /// The names of headers to remove.
    names: Box<[(Known, Box<str>)]>,
    /// The header lines to add.
    pub(crate) lines: Box<[u8]>,
}

impl Traffic {
    /// Compiles `source` with these settings. `before` is the compiled previous version. `beside` is another form of the
    /// policy that is also in use, with which the new form shares what it can.
    pub(crate) fn new(
        source: &model::Traffic,
        settings: &Settings,
        before: Option<&Self>,
        beside: Option<&Self>,
    ) -> Self {
        let cache = source.cache.as_ref().map(|rules| {
            let shared =
                beside.and_then(|beside| beside.cache.clone()).filter(|cache| cache.rules() == rules);
            shared.unwrap_or_else(|| Arc::new(Cache::new(rules)))
        });
        let before = beside.or(before);
        let budget = source.retries.as_ref().and_then(|retries| retries.budget).map(|budget| {
            let before = before.and_then(|before| before.budget.as_ref());
            before
                .filter(|before| before.is_of(budget))
                .cloned()
                .unwrap_or_else(|| Arc::new(Budget::new(budget)))
        });
        let hash = source.choice.hash.iter().map(|part| (part.clone(), place_of(part)));
        Self {
            settings: Arc::new(adapted(settings, source)),
            request: HeaderEdit::new(&source.request_headers),
            response: HeaderEdit::new(&source.response_headers),
            budget,
            split: source.split.as_ref().map(Split::new),
            hash: hash.collect(),
            affinity: source.choice.cookie.as_ref().map(|cookie| Affinity {
                place: Place::new(&Credential::Cookie(cookie.name.clone())),
                cookie: cookie.clone(),
            }),
            faults: source.faults.clone(),
            cache,
            reports_cache_status: !source
                .response_headers
                .names()
                .any(|name| name.eq_ignore_ascii_case("cache-status")),
        }
    }
}

impl TrafficPolicy {
    pub(crate) fn retries(&self) -> Option<&Retries> {
        self.source().retries.as_ref()
    }

    /// The fixed response of the policy, if any.
    pub(crate) fn fixed(&self) -> Option<&Fixed> {
        match &self.source().answer {
            Some(Answer::Fixed(fixed)) => Some(fixed),
            Some(Answer::Redirect(_)) | None => None,
        }
    }
}

/// The settings for the policy's routes.
fn adapted(settings: &Settings, source: &model::Traffic) -> Settings {
    let mut settings = settings.clone();
    let timeouts = &mut settings.timeouts;
    for (place, time) in [
        (&mut timeouts.connect, source.timeouts.connect),
        (&mut timeouts.response_head, source.timeouts.response_head),
        (&mut timeouts.upstream_idle, source.timeouts.upstream_idle),
        (&mut timeouts.request_body, source.timeouts.request_body),
        (&mut timeouts.tunnel_idle, source.timeouts.tunnel_idle),
    ] {
        *place = time.unwrap_or(*place);
    }
    if let Some(retries) = &source.retries {
        settings.resilience.attempts = retries.attempts;
    }
    if let Some(most) = source.request_body {
        settings.limits.request_body = Some(most).filter(|most| *most > 0);
    }
    settings
}

fn place_of(part: &HashPart) -> Option<Place> {
    let credential = match part {
        HashPart::Address | HashPart::Path => return None,
        HashPart::Header(name) => header(name),
        HashPart::Cookie(name) => Credential::Cookie(name.clone()),
        HashPart::Query(name) => Credential::Query(name.clone()),
    };
    Some(Place::new(&credential))
}

fn header(name: &str) -> Credential {
    Credential::Header { name: name.into(), prefix: Box::default() }
}

/// The place in a request that a match reads.
pub(super) fn match_place(of: &RequestMatch) -> Place {
    Place::new(&match &of.place {
        MatchPlace::Header(name) => header(name),
        MatchPlace::Cookie(name) => Credential::Cookie(name.clone()),
    })
}

impl RouteTrafficPolicy {
    pub(crate) fn new(
        policy: Arc<TrafficPolicy>,
        path: &PathMatch,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Self {
        let source = policy.source();
        let branches = source.split.iter().flat_map(|split| &split.branches);
        Self {
            branches: branches.map(|branch| slot(&branch.upstream)).collect(),
            mirror: source.mirror.as_ref().map(|mirror| slot(&mirror.upstream)),
            matched: match path {
                PathMatch::Literal(path) => path.as_str().trim_end_matches('/').len(),
                // A regular expression names no prefix: the rewrite replaces the whole path.
                PathMatch::Regex(_) => usize::MAX,
            },
            policy,
        }
    }

    /// Whether the other upstreams still have the same slots.
    pub(crate) fn is_in_place(&self, slot: impl Fn(&UpstreamKey) -> usize) -> bool {
        let slots = self.branches.iter().copied().chain(self.mirror);
        slots.eq(self.policy.source().upstreams().map(slot))
    }

    /// The slot of another upstream.
    pub(crate) fn branch(&self, index: usize) -> Option<usize> {
        self.branches.get(index).copied()
    }

    /// Whether a prefix rewrite creates a dot segment from the rest of the path, in any reading: `/img../x` below
    /// `/static/`.
    pub(crate) fn makes_dots(&self, rewrite: &PathRewrite, path: &[u8]) -> bool {
        let PathRewrite::Prefix(prefix) = rewrite else { return false };
        let rest = path.get(self.matched..).unwrap_or_default();
        let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        !first.is_empty() && prefix.ends_with('/') && readings(&[b"/", first].concat()).is_none()
    }

    /// Writes the rewritten path.
    pub(crate) fn rewrite(&self, rewrite: &PathRewrite, path: &[u8], out: &mut Vec<u8>) {
        match rewrite {
            PathRewrite::Full(whole) => out.extend_from_slice(whole.as_bytes()),
            PathRewrite::Prefix(prefix) => {
                let rest = path.get(self.matched..).unwrap_or_default();
                let prefix = match rest {
                    [] | [b'/', ..] => prefix.trim_end_matches('/'),
                    _ => prefix,
                };
                let start = out.len();
                out.extend_from_slice(prefix.as_bytes());
                out.extend_from_slice(rest);
                if out.len() == start {
                    out.push(b'/');
                }
            }
        }
    }
}

impl HeaderEdit {
    fn new(rules: &HeaderRules) -> Self {
        let names = rules.names();
        let mut lines = Vec::new();
        for (name, value) in rules.set.iter().chain(&rules.add) {
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        Self {
            names: names.map(|name| (Known::of(name.as_bytes()), name.clone())).collect(),
            lines: lines.into(),
        }
    }

    /// Whether some header lines are removed.
    pub(crate) fn strips(&self) -> bool {
        !self.names.is_empty()
    }

    /// Marks the header lines to remove.
    pub(crate) fn strip(&self, lines: &mut [sluicegate_http1::Line], buf: &[u8]) {
        if self.names.is_empty() {
            return;
        }
        for line in lines {
            line.hop_by_hop |= self.names.iter().any(|(known, name)| line_has_name(line, *known, name, buf));
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::{ObjectId, PathPattern};

    use super::*;

    #[test]
    fn prefix_rewrite_follows_gateway_api() {
        let id = ObjectId { kind: "TrafficPolicy", namespace: "n".into(), name: "p".into() };
        let rewritten = |pattern: PathPattern, prefix: &str, path: &str| {
            let source = Arc::new(model::Traffic::new(id.clone()));
            let compiled = Traffic::new(&source, &Settings::default(), None, None);
            let policy = Arc::new(Policy { source, compiled, stats: Arc::new(TrafficStats::new(1)) });
            let course = RouteTrafficPolicy::new(policy, &PathMatch::Literal(pattern), |_| 0);
            let mut out = Vec::new();
            course.rewrite(&PathRewrite::Prefix(prefix.into()), path.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
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
