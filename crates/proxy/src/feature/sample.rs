//! Random samples of requests.

/// Whether this request is among `percent` of 100 requests.
pub(super) fn is_sampled(percent: u8) -> bool {
    percent >= 100 || percent > 0 && fastrand::u8(..100) < percent
}
