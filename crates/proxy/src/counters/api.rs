//! The counters of APIs.

use super::{Sharded, Tally};

/// The counters of an API.
pub type ApiStats = Sharded<ApiShard>;

/// A worker's part of [`ApiStats`].
#[derive(Debug, Default)]
pub struct ApiShard {
    /// Invalid requests that were forwarded.
    pub requests_reported: Tally,
    /// Invalid requests that were rejected.
    pub requests_rejected: Tally,
    /// Requests whose body was not validated.
    pub requests_skipped: Tally,
    /// Invalid responses that were forwarded.
    pub responses_reported: Tally,
    /// Invalid responses that were replaced.
    pub responses_rejected: Tally,
    /// Responses whose body was not validated.
    pub responses_skipped: Tally,
    /// Mock responses.
    pub mocked: Tally,
}
