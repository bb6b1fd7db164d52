//! The backends of a rule.

use std::sync::Arc;

use sluicegate_model::rule::{Backend, PathMatch};
use sluicegate_model::{Rule, UpstreamKey};

use crate::feature::headers::BackendEdits;
use crate::feature::session_affinity::backend_mark;
use crate::weight;

/// The compiled backends of a rule.
#[derive(Debug, PartialEq)]
pub(crate) enum Backends {
    /// One backend without features: the slot of its upstream in every worker.
    One(usize),
    /// Several backends, or a backend with features.
    Weighted(Box<[WeightedBackend]>),
}

/// A backend with a weight.
#[derive(Debug, PartialEq)]
pub(crate) struct WeightedBackend {
    /// The slot of the upstream in every worker; `None` for an invalid backend, whose requests receive 500.
    pub(crate) slot: Option<usize>,
    pub(crate) weight: u32,
    /// See [`backend_mark`].
    pub(crate) mark: u32,
    pub(crate) edits: Option<Arc<BackendEdits>>,
}

impl Backends {
    /// `path` is the path that the route matches.
    pub(super) fn new(rule: &Rule, path: &PathMatch, slot: impl Fn(&UpstreamKey) -> usize) -> Self {
        match &rule.backends[..] {
            [Backend { upstream, weight, features: None, is_invalid: false }] if weight.get() > 0 => {
                Self::One(slot(upstream))
            }
            backends => Self::Weighted(
                backends
                    .iter()
                    .map(|backend| WeightedBackend {
                        slot: if backend.is_invalid { None } else { Some(slot(&backend.upstream)) },
                        weight: backend.weight.get(),
                        mark: backend_mark(&backend.upstream),
                        edits: backend.features.as_deref().map(|of| Arc::new(BackendEdits::new(of, path))),
                    })
                    .collect(),
            ),
        }
    }

    /// Whether the upstreams of an unchanged rule still have the same slots.
    pub(super) fn are_in_place(&self, rule: &Rule, slot: impl Fn(&UpstreamKey) -> usize) -> bool {
        match self {
            Self::One(own) => rule.upstreams().all(|upstream| slot(upstream) == *own),
            Self::Weighted(backends) => {
                backends.iter().filter_map(|backend| backend.slot).eq(rule.upstreams().map(slot))
            }
        }
    }
}

/// Chooses a backend at random, by weight.
pub(crate) fn choose(backends: &[WeightedBackend]) -> Option<&WeightedBackend> {
    let weights = backends.iter().map(|backend| backend.weight);
    backends.get(weight::choose(weights, |below| fastrand::u64(..below))?)
}
