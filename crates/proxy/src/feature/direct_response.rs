//! Fixed responses.

use sluicegate_model::feature::DirectResponse;

use super::traffic::TrafficPolicy;

impl TrafficPolicy {
    /// The fixed response of the policy, if any.
    pub(crate) fn direct_response(&self) -> Option<&DirectResponse> {
        self.source().features.direct_response.as_ref()
    }
}
