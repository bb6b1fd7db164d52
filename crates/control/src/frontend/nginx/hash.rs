//! Consistent hashing.

use sluicegate_model::feature::LoadBalancingAlgorithm;
use sluicegate_model::value::Number;

use super::{Context, Parts};

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.hash;
    let Some(by) = &settings.by else { return };
    let balancing = &mut parts.features.load_balancing;
    balancing.algorithm = Some(LoadBalancingAlgorithm::ConsistentHash);
    balancing.hash_text = Some(by.clone());
    balancing.hash_subset = settings.is_subset.then(|| settings.subset_size.unwrap_or(Number::of(3)));
}
