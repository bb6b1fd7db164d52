//! The counters of policies.

use super::{Sharded, Tallies, Tally};
use crate::failure::Denial;

/// The counters of a policy.
pub type PolicyStats = Sharded<PolicyShard>;

/// A worker's part of [`PolicyStats`].
#[derive(Debug, Default)]
pub struct PolicyShard {
    /// Requests that the policy allowed.
    pub admitted: Tally,
    /// Requests that the policy denied, by [`Denial::index`].
    pub denied: Tallies<{ Denial::COUNT }>,
    /// Preflights that the policy served.
    pub preflights: Tally,
    /// Requests over a limit in a dry run.
    pub dry_runs: Tally,
    /// The results of external authorization, by [`Check`].
    pub checks: Tallies<{ Check::ALL.len() }>,
    /// The events of browser sessions, by [`SessionEvent`].
    pub sessions: Tallies<{ SessionEvent::ALL.len() }>,
}

/// An event of the session of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The gateway redirected a browser to the provider.
    LoginStarted,
    /// A browser returned from the provider, and has a session.
    LoginCompleted,
    /// A browser returned from the provider, and has no session.
    LoginFailed,
    /// A session was refreshed.
    Refreshed,
    /// The provider did not refresh a session.
    RefreshFailed,
    /// A browser ended its session.
    LoggedOut,
}

impl SessionEvent {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::LoginStarted,
        Self::LoginCompleted,
        Self::LoginFailed,
        Self::Refreshed,
        Self::RefreshFailed,
        Self::LoggedOut,
    ];

    /// The stable name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LoginStarted => "login_started",
            Self::LoginCompleted => "login_completed",
            Self::LoginFailed => "login_failed",
            Self::Refreshed => "refreshed",
            Self::RefreshFailed => "refresh_failed",
            Self::LoggedOut => "logged_out",
        }
    }
}

/// The result of external authorization for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The service allowed the request.
    Admitted,
    /// The service denied the request.
    Refused,
    /// The service gave no valid answer.
    Failed,
    /// A remembered answer was used: the service was not asked.
    Remembered,
    /// The same question was in flight: one answer serves both.
    Shared,
}

impl Check {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Admitted, Self::Refused, Self::Failed, Self::Remembered, Self::Shared];

    /// The stable name for metrics.
    #[must_use]
    pub fn result(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Remembered => "remembered",
            Self::Shared => "shared",
        }
    }
}

/// The counters of a traffic policy.
pub type TrafficStats = Sharded<TrafficShard>;

/// A worker's part of [`TrafficStats`].
#[derive(Debug, Default)]
pub struct TrafficShard {
    /// Requests of the policy's routes.
    pub requests: Tally,
    /// Requests that went to another upstream than the route's.
    pub diverted: Tally,
    /// Requests that the policy served by a redirect or a fixed response.
    pub answered: Tally,
    /// Requests that the policy delayed on purpose.
    pub delayed: Tally,
    /// Requests that the policy aborted on purpose.
    pub aborted: Tally,
    /// Requests that were not retried because the retry budget was used up.
    pub over_budget: Tally,
    /// Copies that were sent.
    pub mirrored: Tally,
    /// Copies that were not sent, or received no response.
    pub mirror_failures: Tally,
    /// Error pages that a Service served in place of a response.
    pub pages: Tally,
    /// Error pages that a Service did not serve, so that the client received the original response.
    pub page_failures: Tally,
    /// Requests that a cached response served without a request to an endpoint.
    pub cache_hits: Tally,
    /// Requests that went to an endpoint because no cached response could serve them.
    pub cache_misses: Tally,
    /// Requests that bypassed the cache.
    pub cache_bypassed: Tally,
    /// Requests that a stale response served because the endpoint failed.
    pub cache_stale: Tally,
    /// Stale responses that endpoints confirmed as still valid.
    pub cache_revalidated: Tally,
    /// Stale responses that were revalidated in the background.
    pub cache_refreshes: Tally,
    /// Revalidations in the background without a response to cache.
    pub cache_refresh_failures: Tally,
    /// Responses that were cached.
    pub cache_stored: Tally,
    /// Responses that were evicted.
    pub cache_evicted: Tally,
}
