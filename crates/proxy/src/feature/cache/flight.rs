//! Requests in flight whose responses may serve several clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_model::UpstreamKey;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::draft::Asked;
use super::entry::Entry;
use super::store::Cache;

/// How long a request waits for the response to another request (nginx: `proxy_cache_lock_timeout`). A request that comes
/// after that time takes the place of the first request: the first client may read slowly on purpose.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// The limit of requests that wait for one request.
pub(super) const WAITING_MAX: usize = 1024;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    upstream: UpstreamKey,
    lines: Box<[u8]>,
    begun: Instant,
    /// Whether an invalidation has outdated the request. Written and read while the shard is locked.
    is_outdated: AtomicBool,
    /// Whether the response is most likely for one client only.
    pub(super) is_private: bool,
    /// Closed when the request ends.
    done: Semaphore,
    waiting: AtomicUsize,
    outcome: AtomicU8,
}

/// The outcome of a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// The client of the request went away.
    Lost,
    /// The response was cached.
    Stored,
    /// The response is not for other clients.
    NotShareable,
    /// There is no response.
    Failed,
}

/// The request that asks an endpoint for several clients. When the value is dropped, the waiting requests continue.
#[derive(Debug)]
pub(crate) struct Flight {
    cache: Arc<Cache>,
    key: Arc<[u8]>,
    state: Arc<InFlight>,
}

impl InFlight {
    pub(super) fn new(asked: &Asked, is_private: bool, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            upstream: asked.upstream.clone(),
            lines: asked.lines.clone(),
            begun: now,
            is_outdated: AtomicBool::new(false),
            is_private,
            done: Semaphore::new(0),
            waiting: AtomicUsize::new(0),
            outcome: AtomicU8::new(Outcome::Lost as u8),
        })
    }

    pub(super) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Whether another request would ask the endpoint for the same.
    pub(super) fn is_for(&self, asked: &Asked) -> bool {
        self.upstream == asked.upstream && self.lines == asked.lines
    }

    /// The end of the time that other requests wait.
    pub(crate) fn until(&self) -> Instant {
        self.begun + WAIT
    }

    pub(super) fn take_place(&self) -> bool {
        let taken = self.waiting.fetch_add(1, Ordering::Relaxed);
        if taken >= WAITING_MAX {
            self.leave();
        }
        taken < WAITING_MAX
    }

    fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for the outcome.
    pub(crate) async fn end(&self) -> Outcome {
        struct Place<'u>(&'u InFlight);
        impl Drop for Place<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let _place = Place(self);
        // The semaphore has no permits, and the end closes it.
        let _ = self.done.acquire().await;
        match self.outcome.load(Ordering::Acquire) {
            1 => Outcome::Stored,
            2 => Outcome::NotShareable,
            3 => Outcome::Failed,
            _ => Outcome::Lost,
        }
    }
}

impl Flight {
    pub(super) fn new(cache: Arc<Cache>, key: Arc<[u8]>, state: Arc<InFlight>) -> Self {
        Self { cache, key, state }
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Sets the outcome.
    pub(crate) fn ends(&self, outcome: Outcome) {
        self.state.outcome.store(outcome as u8, Ordering::Release);
    }

    /// The response is not for other clients, and neither are later responses.
    pub(crate) fn is_of_no_use(&self) {
        self.ends(Outcome::NotShareable);
        if !self.state.is_private {
            self.cache.remember_not_shareable(&self.key, Instant::now());
        }
    }

    /// Caches the response, in place of responses that would serve the same requests. Returns the number of evicted
    /// responses; `None` if the response is not cached.
    pub(crate) fn keep(self, entry: Arc<Entry>) -> Option<u64> {
        self.ends(Outcome::NotShareable);
        let evicted = self.cache.insert(&self.key, &self.state, entry)?;
        self.ends(Outcome::Stored);
        Some(evicted)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.cache.end_flight(&self.key, &self.state);
        self.state.done.close();
    }
}
