//! The bytes that a cache takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a cache may take and takes: what it keeps, what is being collected for it, and what it has thrown out that clients are
/// still being sent.
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

/// Bytes that are taken, and given back in the end.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// None if there is no room for so many.
    pub(super) fn new(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        account.take(bytes).then(|| Self { account: account.clone(), bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there was room for so many more.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.account.take(bytes);
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Gives back what is over this many.
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
