//! Fixed responses.

use sluicegate_model::policy::traffic::{Answer, Fixed};

use super::traffic::TrafficPolicy;

impl TrafficPolicy {
    /// The fixed response of the policy, if any.
    pub(crate) fn fixed(&self) -> Option<&Fixed> {
        match &self.source().answer {
            Some(Answer::Fixed(fixed)) => Some(fixed),
            Some(Answer::Redirect(_)) | None => None,
        }
    }
}
