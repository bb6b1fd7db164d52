//! Canaries. A canary has no rules of its own: the rule of another Ingress with the same host and path sends a part of its
//! requests to the Service of the canary, under the annotations of that Ingress.

use std::cell::Cell;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::feature::{RequestMatch, Split, SplitBackend};
use sluicegate_model::value::{Entries, MatchValue, Weight};
use sluicegate_model::{HostPattern, UpstreamKey};

use super::Context;
use crate::intent::{At, Own, Place, Reference};
use crate::object::ingress::{Ingress, RulePath};
use crate::object::nginx::Settings;
use crate::object::nginx::canary;

/// The canaries of all hosts, by host, written path and type of the path.
pub(super) struct Canaries<'a>(HashMap<(&'a HostPattern, &'a str, u8), Vec<Canary<'a>>>);

/// A path of a canary.
struct Canary<'a> {
    at: At<'a>,
    place: Place,
    upstream: &'a UpstreamKey,
    settings: Arc<Settings>,
    /// Whether a rule sends requests to the canary.
    is_used: Cell<bool>,
}

impl<'a> Canaries<'a> {
    /// `ingresses` are the canaries, the oldest first.
    pub(super) fn new(ingresses: impl Iterator<Item = (At<'a>, &'a Ingress, Arc<Settings>)>) -> Self {
        let mut canaries: HashMap<_, Vec<Canary<'a>>> = HashMap::default();
        for (at, ingress, settings) in ingresses {
            for rule in &ingress.rules {
                for path in &rule.paths {
                    canaries.entry((&rule.host, &*path.written, path.pattern.rank())).or_default().push(
                        Canary {
                            at,
                            place: Place::Path(rule.index, path.index),
                            upstream: &path.upstream,
                            settings: settings.clone(),
                            is_used: Cell::new(false),
                        },
                    );
                }
            }
        }
        Self(canaries)
    }

    /// The parts of a path of a host, with its canary. A path has one canary: the oldest.
    pub(super) fn of_path(
        &self,
        own: Arc<Own>,
        context: &mut Context<'_, 'a>,
        (host, path): (&HostPattern, &RulePath),
        key: impl Fn(&UpstreamKey) -> UpstreamKey,
    ) -> Arc<Own> {
        let Some(canaries) = self.0.get(&(host, &*path.written, path.pattern.rank())) else { return own };
        let main = key(&path.upstream);
        let of_others = |canary: &&Canary<'a>| key(canary.upstream) != main;
        let Some(canary) = canaries.iter().find(of_others) else { return own };
        canary.is_used.set(true);
        let upstream = key(canary.upstream);
        context.references.push(Reference { at: canary.at, place: canary.place, upstream: upstream.clone() });
        let mut own = Own::clone(&own);
        let features = Arc::make_mut(&mut own.features);
        features.split = Some(split(&canary.settings.canary, upstream));
        if let Some(affinity) = &mut features.load_balancing.affinity {
            affinity.over_weights = !canary.settings.session.is_legacy;
        }
        Arc::new(own)
    }

    /// Reports the paths of canaries that receive no requests.
    pub(super) fn report_unused(&self, problems: &mut Vec<crate::problem::Problem>) {
        let mut unused: Vec<_> = self
            .0
            .iter()
            .flat_map(|((host, path, _), canaries)| canaries.iter().map(move |canary| (host, path, canary)))
            .filter(|(_, _, canary)| !canary.is_used.get())
            .collect();
        unused.sort_unstable_by_key(|(host, path, canary)| (canary.at.object, **host, **path));
        for (host, path, canary) in unused {
            let message = format!(
                "receives no requests: no other Ingress has {path:?} of host {host} with another Service, or an older canary has this path"
            );
            problems.push(canary.at.warning(&format!("{}.path", canary.place.field()), message));
        }
    }
}

/// The split of the requests, in the order of ingress-nginx: the header decides before the cookie, and the cookie before the
/// weight.
fn split(settings: &canary::Settings, upstream: UpstreamKey) -> Split {
    let mut matches = Vec::new();
    let of = |value: &str, refuses| RequestMatch {
        header: None,
        cookie: None,
        value: Some(MatchValue::of(value)),
        pattern: None,
        refuses,
    };
    if let Some(header) = &settings.header {
        let header = Some(header.clone());
        match (&settings.header_value, &settings.header_pattern) {
            (Some(value), _) => {
                matches.push(RequestMatch { header, value: Some(value.clone()), ..of("always", false) });
            }
            (None, Some(pattern)) => {
                let pattern = Some(pattern.clone());
                matches.push(RequestMatch { header, value: None, pattern, ..of("always", false) });
            }
            (None, None) => {
                matches.push(RequestMatch { header: header.clone(), ..of("always", false) });
                matches.push(RequestMatch { header, ..of("never", true) });
            }
        }
    }
    if let Some(cookie) = &settings.cookie {
        matches.push(RequestMatch { cookie: Some(cookie.clone()), ..of("always", false) });
        matches.push(RequestMatch { cookie: Some(cookie.clone()), ..of("never", true) });
    }
    let total = settings.total.unwrap_or(100).max(100);
    let weight = settings.weight.min(total);
    let backend = SplitBackend {
        upstream,
        weight: Weight::of(weight),
        matches: Entries::new(matches).unwrap_or_default(),
        exclude: Entries::default(),
    };
    Split {
        weight: Weight::of(total - weight),
        backends: Entries::new(vec![backend]).unwrap_or_default(),
        skips_empty: true,
    }
}
