//! The state of policies, for readers.

use std::sync::Arc;

use sluicegate_model::ObjectId;

use crate::counters::{PolicyStats, TrafficStats};

/// The state of a policy for security or limits.
#[derive(Clone, Debug)]
pub struct PolicyState {
    /// The object that defines the policy.
    pub id: ObjectId,
    /// Whether the policy denies all requests, because it cannot be applied.
    pub refuses: bool,
    /// The state of sharing, if the policy's limits are shared.
    pub shared: Option<SharedState>,
    /// The name of each limit, and the number of requests beyond it, including the dry run.
    pub limits: Vec<(Box<str>, u64)>,
    /// The counters of the policy.
    pub stats: Arc<PolicyStats>,
}

/// The state of sharing limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedState {
    /// Whether the limits are shared now; otherwise each data plane counts separately.
    pub is_up: bool,
    /// The number of successful exchanges with the server.
    pub exchanged: u64,
    /// The number of failed exchanges.
    pub failed: u64,
}

/// The state of a traffic policy.
#[derive(Clone, Debug)]
pub struct TrafficState {
    /// The object that defines the policy.
    pub id: ObjectId,
    /// The counters of the policy.
    pub stats: Arc<TrafficStats>,
    /// The state of the cache, if the policy caches responses.
    pub cache: Option<CacheState>,
}

/// The state of a policy's cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheState {
    /// The memory in use, in bytes.
    pub bytes: u64,
    /// The number of responses.
    pub entries: u64,
}
