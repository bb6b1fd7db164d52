//! The memory of a cache, in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The memory limit and use of a cache: cached responses, responses that are being collected, and evicted responses that
/// clients are still receiving.
#[derive(Debug)]
pub(super) struct Account {
    max: usize,
    used: AtomicUsize,
    pub(super) entries: AtomicU64,
}

impl Account {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0), entries: AtomicU64::new(0) })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// `None` if there is no room for `bytes`.
    pub(super) fn new(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        account.take(bytes).then(|| Self { account: account.clone(), bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `bytes` more. Returns whether there was room.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.account.take(bytes);
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Releases the bytes beyond `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let over = self.bytes.saturating_sub(bytes);
        self.bytes -= over;
        self.account.used.fetch_sub(over, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
