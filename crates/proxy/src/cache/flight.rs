//! Requests on their way to endpoints whose responses several may get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_model::UpstreamKey;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::draft::Asked;
use super::entry::Entry;
use super::store::Cache;

/// How long anybody waits for what another one asks for (nginx: `proxy_cache_lock_timeout`). Whoever comes after that asks
/// in its place: its client may be one that reads slowly on purpose.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// How many requests may wait for what one of them asks for.
pub(super) const WAITING_MAX: usize = 1024;

/// What an endpoint is being asked for.
#[derive(Debug)]
pub(crate) struct UnderWay {
    upstream: UpstreamKey,
    lines: Box<[u8]>,
    begun: Instant,
    /// Whether something has changed what it asks for. Written and read while the shard is locked.
    is_outdated: AtomicBool,
    /// Whether its response is most likely for nobody else.
    pub(super) is_private: bool,
    /// Closed when it ends.
    done: Semaphore,
    waiting: AtomicUsize,
    outcome: AtomicU8,
}

/// How it ended to ask an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// Whoever asked went away.
    Lost,
    /// There is a response for others.
    Kept,
    /// There is a response, and not for others.
    OfNoUse,
    /// There is no response.
    Failed,
}

/// Who asks an endpoint for what several want. What others wait for ends with it.
#[derive(Debug)]
pub(crate) struct Flight {
    cache: Arc<Cache>,
    key: Arc<[u8]>,
    state: Arc<UnderWay>,
}

impl UnderWay {
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

    /// Whether the endpoint that is asked would be asked for the same.
    pub(super) fn is_for(&self, asked: &Asked) -> bool {
        self.upstream == asked.upstream && self.lines == asked.lines
    }

    /// Until when it is waited for.
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

    /// Waits for its end.
    pub(crate) async fn end(&self) -> Outcome {
        struct Place<'u>(&'u UnderWay);
        impl Drop for Place<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let _place = Place(self);
        // It gives nothing, and is closed.
        let _ = self.done.acquire().await;
        match self.outcome.load(Ordering::Acquire) {
            1 => Outcome::Kept,
            2 => Outcome::OfNoUse,
            3 => Outcome::Failed,
            _ => Outcome::Lost,
        }
    }
}

impl Flight {
    pub(super) fn new(cache: Arc<Cache>, key: Arc<[u8]>, state: Arc<UnderWay>) -> Self {
        Self { cache, key, state }
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Says how it will have ended.
    pub(crate) fn ends(&self, outcome: Outcome) {
        self.state.outcome.store(outcome as u8, Ordering::Release);
    }

    /// What has come is of no use to others, nor will be what comes next.
    pub(crate) fn is_of_no_use(&self) {
        self.ends(Outcome::OfNoUse);
        if !self.state.is_private {
            self.cache.remember_of_no_use(&self.key, Instant::now());
        }
    }

    /// Keeps the response that was asked for, in place of those that would have answered the same. Says how many others had to
    /// go; nothing if it is not kept itself.
    pub(crate) fn keep(self, entry: Arc<Entry>) -> Option<u64> {
        self.ends(Outcome::OfNoUse);
        let evicted = self.cache.insert(&self.key, &self.state, entry)?;
        self.ends(Outcome::Kept);
        Some(evicted)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.cache.land(&self.key, &self.state);
        self.state.done.close();
    }
}
