//! The choice of requests to mirror. `http/mirror.rs` sends the copies.

use sluicegate_model::feature::Mirror;

use super::sample::is_sampled;

/// A mirror that receives a copy of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    /// The slot of its upstream.
    pub(crate) slot: usize,
    /// The place among the mirrors of the policy.
    pub(crate) index: usize,
}

/// The mirrors that receive a copy of this request. `slots` are the slots of the mirrors.
pub(super) fn receivers(mirrors: &[Mirror], slots: &[usize]) -> Vec<Receiver> {
    let sampled = mirrors.iter().zip(slots).enumerate().filter(|(_, (mirror, _))| is_sampled(mirror.percent));
    sampled.map(|(index, (_, slot))| Receiver { slot: *slot, index }).collect()
}
