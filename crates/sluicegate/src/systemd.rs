//! The report to systemd that the process serves (sd_notify(3)).

use sd_notify::NotifyState;

/// Reports that this process serves, and that it is the main process of its unit. After a takeover, systemd then follows this process
/// in place of the process before. Without a unit of `Type=notify`, the function has no effect.
pub(crate) fn report_ready() {
    let states = [NotifyState::MainPid(std::process::id()), NotifyState::Ready];
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!(%error, "cannot report to systemd that this process serves (NOTIFY_SOCKET); systemd may end the process");
    }
}
