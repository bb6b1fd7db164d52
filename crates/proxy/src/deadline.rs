//! One timer for each connection, however often its time limit changes.
//!
//! A request sets several limits in a millisecond, and nearly all of them pass unused. A registration with the runtime's
//! timer wheel for each limit would cost more than parsing the request. So the limit is a plain field. The timer below is
//! changed only if it would fire too late. When it fires early, it is set again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A time limit that is cheap to move.
pub(crate) struct Deadline {
    due: Instant,
    /// When the timer fires. Never later than `due`.
    registered: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Deadline {
    pub(crate) fn new(due: Instant) -> Self {
        Self { due, registered: due, sleep: Box::pin(sleep_until(due)) }
    }

    /// Sets the limit to `due`.
    pub(crate) fn set(&mut self, due: Instant) {
        self.due = due;
    }

    /// Sets the limit to `timeout` from now.
    pub(crate) fn set_after(&mut self, timeout: Duration) {
        self.set(after(Instant::now(), timeout));
    }

    /// Ready once the limit has passed. Wakes the task when it does.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.due < self.registered {
            self.register();
        }
        loop {
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= self.due {
                return Poll::Ready(());
            }
            self.register();
        }
    }

    fn register(&mut self) {
        self.registered = self.due;
        self.sleep.as_mut().reset(self.due);
    }
}

/// `timeout` from `start`. An extremely long timeout becomes a few decades.
pub(crate) fn after(start: Instant, timeout: Duration) -> Instant {
    start.checked_add(timeout).unwrap_or_else(|| start + Duration::from_secs(1 << 30))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn elapsed(deadline: &mut Deadline) -> Duration {
        let start = Instant::now();
        poll_fn(|cx| deadline.poll(cx)).await;
        start.elapsed()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_can_be_moved_later_and_earlier() {
        let mut deadline = Deadline::new(Instant::now() + ms(50));
        deadline.set_after(ms(500));
        assert!(elapsed(&mut deadline).await >= ms(500), "a later limit does not fire at the earlier one");
        deadline.set_after(ms(5000));
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx))).await.is_pending());
        deadline.set_after(ms(20));
        assert!(elapsed(&mut deadline).await < ms(100), "an earlier limit does not wait for the later one");
    }
}
