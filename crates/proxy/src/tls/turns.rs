//! The turns of handshakes on a worker.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// The time of other work after a turn, as a multiple of the turn.
const OTHER_WORK: u32 = 2;

/// If a task yields and runs again within this time, twice in a row, the worker has no other work. Once is not enough: the worker may
/// run this task again before another task that is ready.
const IDLE: Duration = Duration::from_micros(10);

/// The turns of handshakes on a worker: one at a time, and at most a third of the worker's time while it always has other work.
///
/// A key exchange and a signature take at least as long as ten requests. Without turns, open connections would wait until all new
/// clients have finished their handshakes. Without other work, the next turn follows at once.
pub(crate) struct Turns {
    /// The one turn.
    turn: Semaphore,
    /// Until this time, other work goes before the next handshake.
    next: Cell<Option<Instant>>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { turn: Semaphore::new(1), next: Cell::new(None) }
    }

    /// Waits for a turn, then computes. The future `compute` finishes in its first poll: it never waits for a client.
    pub(crate) async fn take<T>(&self, compute: impl Future<Output = T>) -> T {
        // An error means that the semaphore is closed, which never happens.
        let permit = self.turn.acquire().await;
        self.let_others_work().await;
        let start = Instant::now();
        let computed = compute.await;
        let end = Instant::now();
        self.next.set(end.checked_add((end - start) * OTHER_WORK));
        // The worker checks its sockets before the next turn, even if there is no other work.
        yield_now().await;
        drop(permit);
        computed
    }

    /// Lets the worker do other work until the next turn, if there is other work.
    async fn let_others_work(&self) {
        let Some(next) = self.next.get() else { return };
        let mut was_idle = false;
        loop {
            let left = Instant::now();
            if next <= left {
                return;
            }
            yield_now().await;
            let is_idle = left.elapsed() < IDLE;
            if is_idle && was_idle {
                return;
            }
            was_idle = is_idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    const COMPUTED: Duration = Duration::from_millis(1);

    fn busy_for(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// The starts and ends of turns that compete for the worker.
    async fn turns(count: usize) -> Vec<(Instant, Instant)> {
        let (turns, times) = (Rc::new(Turns::new()), Rc::new(RefCell::new(Vec::new())));
        let tasks: Vec<_> = (0..count)
            .map(|_| {
                let (turns, times) = (turns.clone(), times.clone());
                spawn_local(async move {
                    let time = turns.take(async {
                        let start = Instant::now();
                        busy_for(COMPUTED);
                        (start, Instant::now())
                    });
                    let time = time.await;
                    times.borrow_mut().push(time);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        times.take()
    }

    #[tokio::test]
    async fn other_work_has_two_thirds_of_a_busy_worker() {
        let work = async {
            let other = spawn_local(async {
                loop {
                    busy_for(IDLE * 5);
                    yield_now().await;
                }
            });
            let times = turns(20).await;
            other.abort();
            times
        };
        let times = LocalSet::new().run_until(work).await;
        for pair in times.windows(2) {
            let [(start, end), (next, _)] = pair else { unreachable!() };
            assert!(
                *next - *end >= (*end - *start) * OTHER_WORK,
                "{:?} after {:?}",
                *next - *end,
                *end - *start
            );
        }
    }

    #[tokio::test]
    async fn handshakes_follow_at_once_on_a_worker_without_other_work() {
        let times = LocalSet::new().run_until(turns(50)).await;
        let followed = |pair: &&[(Instant, Instant)]| pair[1].0 - pair[0].1 < COMPUTED;
        // The operating system may have interrupted some turns.
        assert!(times.windows(2).filter(followed).count() > 10, "{times:?}");
    }
}
