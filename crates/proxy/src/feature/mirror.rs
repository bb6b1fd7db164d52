//! The choice of requests to mirror. `http/mirror.rs` sends the copies.

use sluicegate_model::feature::Mirror;

use super::sample::is_sampled;

/// The slot of the upstream that receives a copy of this request, if the request is among the mirrored requests.
pub(super) fn receiver(mirror: Option<&Mirror>, slot: Option<usize>) -> Option<usize> {
    slot.filter(|_| mirror.is_some_and(|mirror| is_sampled(mirror.percent)))
}
