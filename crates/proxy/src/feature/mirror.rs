//! The choice of requests to mirror. `http/mirror.rs` sends the copies.

use sluicegate_model::feature::Mirror;

use super::sample::is_sampled;

/// The slots of the upstreams that receive a copy of this request. `slots` are the slots of the mirrors.
pub(super) fn receivers(mirrors: &[Mirror], slots: &[usize]) -> Vec<usize> {
    let sampled = mirrors.iter().zip(slots).filter(|(mirror, _)| is_sampled(mirror.percent));
    sampled.map(|(_, slot)| *slot).collect()
}
