//! What signals ask of a gateway.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals of a gateway, from the moment that it listens for them.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Returns at the next signal that asks for an end. What nginx takes as reload, reopen and upgrade is sent
    /// by every logrotate and deploy script, and would kill a process that does not expect it.
    pub(crate) async fn recv(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::info!(
                    "SIGHUP changes nothing: changes of manifests are followed by themselves, other options need \
                     a new process, which takes over from this one"
                ),
                _ = self.user1.recv() => tracing::info!(
                    "SIGUSR1 changes nothing: the access log is opened anew by itself once its file was renamed"
                ),
                _ = self.user2.recv() => tracing::info!(
                    "SIGUSR2 changes nothing: to upgrade, start the new binary with the same options; it takes \
                     over from this one"
                ),
            }
        }
    }
}

/// Returns at SIGTERM or SIGINT.
pub(crate) async fn terminated() -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
