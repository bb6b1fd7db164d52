//! Traffic policies: the parts of a `TrafficPolicy`.
//!
//! | module | purpose |
//! |---|---|
//! | `budget` | the retry budget |
//! | `split` | the choice between several upstreams |
//!
//! `http/steer.rs` applies the policies to requests.

pub(crate) mod budget;
pub(crate) mod split;

use std::sync::Arc;

use sluicegate_http1::Known;
use sluicegate_model::feature::{
    self, DirectResponse, FaultInjection, HashPart, HashPartType, HeaderEdits, PathRewrite, PathRewriteType,
    RequestMatch, Retries,
};
use sluicegate_model::policy::{self as model, Credential};
use sluicegate_model::rule::PathMatch;
use sluicegate_model::value::Timeout;
use sluicegate_model::{Settings, UpstreamKey};

use super::Policy;
use super::credential::{Place, line_has_name};
use super::reading::readings;
use crate::cache::Cache;
use crate::counters::TrafficStats;
use budget::Budget;
use split::Split;

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
    pub(crate) hash: Vec<(HashPartType, Option<Place>)>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) faults: FaultInjection,
    /// The cached responses. A changed policy begins with an empty cache.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Whether responses state the effect of the cache: unless the policy itself sets or removes that header.
    pub(crate) reports_cache_status: bool,
}

/// A cookie for session affinity.
#[derive(Debug)]
pub(crate) struct Affinity {
    pub(crate) place: Place,
    pub(crate) cookie: feature::Affinity,
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
        let features = &source.features;
        let cache = features.cache.as_ref().map(|rules| {
            let shared =
                beside.and_then(|beside| beside.cache.clone()).filter(|cache| cache.rules() == rules);
            shared.unwrap_or_else(|| Arc::new(Cache::new(rules)))
        });
        let before = beside.or(before);
        let budget = features.retries.as_ref().and_then(|retries| retries.budget).map(|budget| {
            let before = before.and_then(|before| before.budget.as_ref());
            before
                .filter(|before| before.is_of(budget))
                .cloned()
                .unwrap_or_else(|| Arc::new(Budget::new(budget)))
        });
        let hash = features.load_balancing.hash.iter().map(|part| (part.kind, place_of(part)));
        Self {
            settings: Arc::new(adapted(settings, source)),
            request: HeaderEdit::new(&features.request_headers),
            response: HeaderEdit::new(&features.response_headers),
            budget,
            split: features.split.as_ref().map(Split::new),
            hash: hash.collect(),
            affinity: features.load_balancing.affinity.as_ref().map(|affinity| Affinity {
                place: Place::new(&Credential::Cookie(affinity.cookie.as_str().into())),
                cookie: affinity.clone(),
            }),
            faults: features.fault,
            cache,
            reports_cache_status: !features
                .response_headers
                .removed()
                .any(|name| name.eq_ignore_ascii_case("cache-status")),
        }
    }
}

impl TrafficPolicy {
    pub(crate) fn retries(&self) -> Option<&Retries> {
        self.source().features.retries.as_ref()
    }

    /// The fixed response of the policy, if any.
    pub(crate) fn direct_response(&self) -> Option<&DirectResponse> {
        self.source().features.direct_response.as_ref()
    }
}

/// The settings for the policy's routes.
fn adapted(settings: &Settings, source: &model::Traffic) -> Settings {
    let mut settings = settings.clone();
    let (timeouts, of_route) = (&mut settings.timeouts, &source.features.timeouts);
    for (place, time) in [
        (&mut timeouts.connect, of_route.connect),
        (&mut timeouts.response_head, of_route.response),
        (&mut timeouts.upstream_idle, of_route.idle),
        (&mut timeouts.request_body, of_route.request_body),
        (&mut timeouts.tunnel_idle, of_route.tunnel),
    ] {
        *place = time.map_or(*place, Timeout::get);
    }
    if let Some(retries) = &source.features.retries {
        settings.resilience.attempts = u32::from(retries.attempts.get()) + 1;
    }
    if let Some(most) = source.features.limits.request_body {
        settings.limits.request_body = Some(most.get()).filter(|most| *most > 0);
    }
    settings
}

fn place_of(part: &HashPart) -> Option<Place> {
    let name = part.name.as_deref()?;
    let credential = match part.kind {
        HashPartType::Address | HashPartType::Path => return None,
        HashPartType::Header => header(&name.to_ascii_lowercase()),
        HashPartType::Cookie => Credential::Cookie(name.into()),
        HashPartType::Query => Credential::Query(name.into()),
    };
    Some(Place::new(&credential))
}

fn header(name: &str) -> Credential {
    Credential::Header { name: name.into(), prefix: Box::default() }
}

/// The place in a request that a match reads.
fn match_place(of: &RequestMatch) -> Place {
    let cookie = || Credential::Cookie(of.cookie.as_deref().unwrap_or_default().into());
    Place::new(&of.header.as_deref().map_or_else(cookie, header))
}

impl RouteTrafficPolicy {
    pub(crate) fn new(
        policy: Arc<TrafficPolicy>,
        path: &PathMatch,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Self {
        let features = &policy.source().features;
        let branches = features.split.iter().flat_map(|split| &split.backends);
        Self {
            branches: branches.map(|branch| slot(&branch.upstream)).collect(),
            mirror: features.mirror.as_ref().map(|mirror| slot(&mirror.upstream)),
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
        slots.eq(self.policy.source().features.upstreams().map(slot))
    }

    /// The slot of another upstream.
    pub(crate) fn branch(&self, index: usize) -> Option<usize> {
        self.branches.get(index).copied()
    }

    /// Whether a prefix rewrite creates a dot segment from the rest of the path, in any reading: `/img../x` below
    /// `/static/`.
    pub(crate) fn makes_dots(&self, rewrite: &PathRewrite, path: &[u8]) -> bool {
        if rewrite.kind != PathRewriteType::ReplacePrefixMatch {
            return false;
        }
        let rest = path.get(self.matched..).unwrap_or_default();
        let first = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        !first.is_empty() && rewrite.value.ends_with('/') && readings(&[b"/", first].concat()).is_none()
    }

    /// Writes the rewritten path.
    pub(crate) fn rewrite(&self, rewrite: &PathRewrite, path: &[u8], out: &mut Vec<u8>) {
        let PathRewrite { kind, value } = rewrite;
        match kind {
            PathRewriteType::ReplaceFullPath => out.extend_from_slice(value.as_bytes()),
            PathRewriteType::ReplacePrefixMatch => {
                let rest = path.get(self.matched..).unwrap_or_default();
                let prefix = match rest {
                    [] | [b'/', ..] => value.trim_end_matches('/'),
                    _ => value,
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
    fn new(edits: &HeaderEdits) -> Self {
        let names = edits.removed();
        let mut lines = Vec::new();
        for feature::Header { name, value } in edits.set.iter().chain(&edits.add) {
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        Self {
            names: names.map(|name| (Known::of(name.as_bytes()), name.as_str().into())).collect(),
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
    use sluicegate_model::value::RewritePath;
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
            let value = RewritePath::new(prefix).unwrap();
            let rewrite = PathRewrite { kind: PathRewriteType::ReplacePrefixMatch, value };
            let mut out = Vec::new();
            course.rewrite(&rewrite, path.as_bytes(), &mut out);
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
