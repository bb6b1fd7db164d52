//! Injected faults: delays and aborts.

use std::time::Duration;

use sluicegate_model::feature::FaultInjection;

use super::sample::is_sampled;

/// The delay of this request, if the request is among the delayed requests.
pub(crate) fn delay(faults: &FaultInjection) -> Option<Duration> {
    faults.delay.filter(|delay| is_sampled(delay.percent)).map(|delay| delay.time.get())
}

/// The status with which the gateway aborts this request, if the request is among the aborted requests.
pub(super) fn abort(faults: &FaultInjection) -> Option<u16> {
    faults.abort.filter(|abort| is_sampled(abort.percent)).map(|abort| abort.status_code.get())
}
