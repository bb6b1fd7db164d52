//! The choice between several upstreams for a request.

use sluicegate_http1::RequestHead;
use sluicegate_model::feature::{self as model, Credential, RequestMatch};
use sluicegate_model::rule::Pattern;

use crate::feature::authentication::credential::Place;
use crate::weight;

/// The weights of upstreams.
#[derive(Debug)]
pub(crate) struct Split {
    /// The weight of the route's own upstream.
    weight: u32,
    branches: Vec<Branch>,
    /// Whether the choice depends on the request.
    looks: bool,
}

#[derive(Debug)]
struct Branch {
    weight: u32,
    matches: Vec<Match>,
    excludes: Vec<Match>,
}

/// A condition on a request.
#[derive(Debug)]
struct Match {
    place: Option<Place>,
    value: Option<Box<[u8]>>,
    pattern: Option<Pattern>,
    /// Whether matching requests do not go to the upstream.
    refuses: bool,
}

impl Split {
    pub(crate) fn new(source: &model::Split) -> Self {
        let matches = |list: &[RequestMatch]| {
            let compiled = list.iter().map(|of| Match {
                place: match_place(of),
                value: of.value.as_ref().map(|value| value.as_bytes().into()),
                pattern: of.pattern.clone(),
                refuses: of.refuses,
            });
            compiled.collect::<Vec<_>>()
        };
        let branches = source.backends.iter().map(|branch| Branch {
            weight: branch.weight.get(),
            matches: matches(&branch.matches),
            excludes: matches(&branch.exclude),
        });
        let branches: Vec<_> = branches.collect();
        let looks = branches.iter().any(|branch| !branch.matches.is_empty() || !branch.excludes.is_empty());
        Self { weight: source.weight.get(), branches, looks }
    }

    /// The other upstream for a request; `None` for the route's own upstream. `random` returns a number below its
    /// argument.
    pub(crate) fn choose(
        &self,
        head: &RequestHead,
        buf: &[u8],
        random: impl FnOnce(u64) -> u64,
    ) -> Option<usize> {
        if let Some(matched) = self.matched(head, buf) {
            return Some(matched);
        }
        weight::choose(self.weights(head, buf), random)?.checked_sub(1)
    }

    /// The other upstream that a match of the request selects, whatever the weights are.
    pub(crate) fn matched(&self, head: &RequestHead, buf: &[u8]) -> Option<usize> {
        self.branches.iter().position(|branch| self.first(&branch.matches, head, buf) == Some(false))
    }

    /// The weights for a request that no match selects: of the route's own upstream, then of the other upstreams.
    pub(crate) fn weights<'s>(
        &'s self,
        head: &'s RequestHead,
        buf: &'s [u8],
    ) -> impl Iterator<Item = u32> + Clone + 's {
        let share = move |branch: &Branch| match branch.weight {
            0 => 0,
            _ if self.first(&branch.excludes, head, buf).is_some()
                || self.first(&branch.matches, head, buf) == Some(true) =>
            {
                0
            }
            weight => weight,
        };
        std::iter::once(self.weight).chain(self.branches.iter().map(share))
    }

    /// Whether the first match that holds refuses the upstream; `None` if none holds.
    fn first(&self, matches: &[Match], head: &RequestHead, buf: &[u8]) -> Option<bool> {
        let mut matches = matches.iter().filter(|_| self.looks);
        matches.find(|of| of.holds(head, buf)).map(|of| of.refuses)
    }
}

impl Match {
    /// A request with two values of a kind counts as a request without a value.
    fn holds(&self, head: &RequestHead, buf: &[u8]) -> bool {
        let found = self.place.as_ref().and_then(|place| place.find(head, buf).ok().flatten());
        found.is_some_and(|found| {
            self.value.as_ref().is_none_or(|value| **value == *found)
                && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&found))
        })
    }
}

/// The place in a request that a match reads.
fn match_place(of: &RequestMatch) -> Option<Place> {
    let header = of.header.clone().map(Credential::header);
    Some(Place::new(&header.or_else(|| of.cookie.clone().map(Credential::Cookie))?))
}
