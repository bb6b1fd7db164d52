//! The effect of signals on a gateway.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A further SIGINT within this time of the first signal is a duplicate of the same signal: `timeout`, shells and process
/// groups send duplicates.
const DUPLICATE: Duration = Duration::from_millis(500);

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To drain without losing a request.
    Drain,
    /// To end at once.
    EndNow,
}

/// The signals of a gateway, from the moment that it listens for them.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    /// The time of the first request to drain.
    first: Option<Instant>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            first: None,
        })
    }

    /// Returns at the next signal that asks for an end; [`Wish::Drain`] comes once. The signals of nginx for reload, reopen
    /// and upgrade are ignored. Logrotate and deploy scripts send these signals, which would kill a process without a
    /// handler.
    pub(crate) async fn recv(&mut self) -> Wish {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {
                    if self.is_first() {
                        return Wish::Drain;
                    }
                    tracing::info!("a further SIGTERM has no effect: draining continues; send SIGINT to end at once");
                }
                // nginx' graceful shutdown, and therefore the stop signal of its images and of many unit files.
                _ = self.quit.recv() => {
                    if self.is_first() {
                        return Wish::Drain;
                    }
                }
                _ = self.interrupt.recv() => {
                    if self.is_first() {
                        return Wish::Drain;
                    }
                    if self.first.is_some_and(|first| first.elapsed() > DUPLICATE) {
                        return Wish::EndNow;
                    }
                }
                _ = self.hangup.recv() => tracing::info!(
                    "SIGHUP has no effect: the gateway follows changes of the configuration; to change options, start a \
                     new process, which takes over from this one"
                ),
                _ = self.user1.recv() => tracing::info!(
                    "SIGUSR1 has no effect: the gateway opens a renamed access log again by itself"
                ),
                _ = self.user2.recv() => tracing::info!(
                    "SIGUSR2 has no effect: to upgrade, start the new binary with the same options; it takes over from \
                     this process"
                ),
            }
        }
    }

    /// Returns when a draining process must end at once.
    pub(crate) async fn end_now(&mut self) {
        while self.recv().await != Wish::EndNow {}
    }

    fn is_first(&mut self) -> bool {
        let is_first = self.first.is_none();
        self.first.get_or_insert_with(Instant::now);
        is_first
    }
}
