//! Random samples of requests.

use sluicegate_model::value::Percent;

/// Whether this request is among `percent` of 100 requests.
pub(super) fn is_sampled(percent: Percent) -> bool {
    percent.get() >= 100 || fastrand::u8(..100) < percent.get()
}
