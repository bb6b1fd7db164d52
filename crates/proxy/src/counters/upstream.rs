//! The counters of upstreams and endpoints.

use super::{Histogram, Tallies, Tally};
use crate::failure::Failure;

/// A worker's part of the counters of an upstream.
#[derive(Debug, Default)]
pub struct UpstreamShard {
    /// Requests in flight.
    pub in_flight: Tally,
    /// Attempts: requests written to an endpoint, retries included.
    pub attempts: Tally,
    /// Attempts that used a connection of the pool.
    pub reused: Tally,
    /// Connections made.
    pub connects: Tally,
    /// Connects that failed, by [`Failure::index`].
    pub connect_failures: Tallies<{ Failure::COUNT }>,
    /// Connects that started because an earlier connect was slow.
    pub hedges: Tally,
    /// Attempts that failed and were repeated, by [`Failure::index`].
    pub retries: Tallies<{ Failure::COUNT }>,
    /// Requests that failed finally, by [`Failure::index`].
    pub failures: Tallies<{ Failure::COUNT }>,
    /// Requests that failed although another endpoint might have served them, because they may have been
    /// processed and are not idempotent (RFC 9110, 9.2.2).
    pub not_repeated: Tally,
    /// Endpoints that became unhealthy.
    pub ejections: Tally,
    /// Endpoints that became healthy again.
    pub readmissions: Tally,
    /// Health checks.
    pub checks: Tally,
    /// Failed health checks.
    pub checks_failed: Tally,
    /// Idle connections that were closed because the endpoint closed them.
    pub pool_closed: Tally,
    /// The time from sending the request to the head of its response.
    pub latency: Histogram,
}

/// A worker's part of the counters of an endpoint.
#[derive(Debug, Default)]
pub struct EndpointShard {
    /// Requests in flight.
    pub in_flight: Tally,
    /// Attempts.
    pub attempts: Tally,
    /// Attempts that failed.
    pub failures: Tally,
    /// Idle connections.
    pub idle: Tally,
    /// The worker's estimate of the response time, in microseconds.
    pub ewma_micros: Tally,
}
