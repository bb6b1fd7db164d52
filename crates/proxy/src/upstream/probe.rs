//! Unhealthy endpoints, and their recovery.

use std::rc::Rc;
use std::time::Duration;

use sluicegate_model::Protocol;
use tokio::time::{sleep, timeout};

use super::local::{LocalEndpoint, LocalUpstream};
use crate::failure::Failure;
use crate::net::connect;

/// How many consecutive new connections are closed without a response before an endpoint becomes unhealthy.
const RESETS_BEFORE_EJECTION: u32 = 3;

/// The time limit of a probe's connect.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a waiting probe checks whether the endpoint was removed.
const EJECTED_LOOK: Duration = Duration::from_secs(5);

impl LocalUpstream {
    /// An attempt at the endpoint failed: closes connections that are likely dead too, and marks the endpoint unhealthy
    /// if the failure requires it.
    pub(crate) fn note_failure(self: &Rc<Self>, endpoint: &Rc<LocalEndpoint>, failure: Failure) {
        endpoint.stats().failures.add(1);
        if self.ejects.get() && !matches!(failure, Failure::Stale | Failure::Refused | Failure::Drained) {
            self.note_error(endpoint);
        }
        match failure {
            Failure::Stale => endpoint.purge(),
            Failure::Reset => {
                endpoint.purge();
                endpoint.resets.set(endpoint.resets.get() + 1);
                if endpoint.resets.get() >= RESETS_BEFORE_EJECTION {
                    self.eject(endpoint);
                }
            }
            Failure::Unacknowledged
            | Failure::ConnectRefused
            | Failure::ConnectUnreachable
            | Failure::ConnectTimeout
            | Failure::TlsHandshake
            | Failure::NoHttp2 => self.eject(endpoint),
            _ => {}
        }
    }

    /// A connect or a response came from the endpoint.
    pub(crate) fn note_success(&self, endpoint: &LocalEndpoint) {
        if endpoint.shared.is_unhealthy()
            && endpoint.shared.ejected_for().is_none()
            && endpoint.shared.readmit()
        {
            self.stats().readmissions.add(1);
            tracing::info!(upstream = %self.shared.key(), endpoint = %endpoint.shared.address(), "the endpoint is healthy again");
        }
    }

    /// The endpoint responded with this status.
    pub(crate) fn note_status(self: &Rc<Self>, endpoint: &Rc<LocalEndpoint>, status: u16) {
        if !self.ejects.get() {
            return;
        }
        if status >= 500 {
            return self.note_error(endpoint);
        }
        endpoint.errors.set(0);
        endpoint.shared.reset_ejections();
    }

    /// Counts one more consecutive error.
    fn note_error(self: &Rc<Self>, endpoint: &Rc<LocalEndpoint>) {
        let Some(ejection) = self.ejection() else { return };
        endpoint.errors.set(endpoint.errors.get() + 1);
        if endpoint.errors.get() < u32::from(ejection.consecutive_errors.get())
            || endpoint.shared.is_unhealthy()
        {
            return;
        }
        endpoint.errors.set(0);
        let eligible = self.eligible();
        let unhealthy = eligible.iter().filter(|endpoint| endpoint.shared.is_unhealthy()).count();
        if (unhealthy + 1) * 100 <= eligible.len() * usize::from(ejection.max_percent.get()) {
            endpoint.shared.eject_for(ejection.time.get());
            self.eject(endpoint);
        }
    }

    /// Marks the endpoint unhealthy until it responds.
    pub(crate) fn eject(self: &Rc<Self>, endpoint: &Rc<LocalEndpoint>) {
        if endpoint.is_removed() || !endpoint.shared.mark_unhealthy() {
            return;
        }
        endpoint.purge();
        self.stats().ejections.add(1);
        tracing::info!(upstream = %self.shared.key(), endpoint = %endpoint.shared.address(), "the endpoint is unhealthy; the gateway avoids it while other endpoints are healthy");
        tokio::task::spawn_local(probe(self.clone(), endpoint.clone()));
    }
}

/// Tries to connect until the endpoint responds, is removed, or became healthy by other means.
async fn probe(upstream: Rc<LocalUpstream>, endpoint: Rc<LocalEndpoint>) {
    let resilience = upstream.context.settings().resilience.clone();
    let mut interval = resilience.probe_interval;
    while let Some(left) = endpoint.shared.ejected_for().filter(|_| !endpoint.is_removed()) {
        // The endpoint may be removed during the wait, so the wait is split.
        sleep(left.min(EJECTED_LOOK)).await;
    }
    if upstream.shared.key().transport.protocol == Protocol::Udp {
        // No datagram makes every endpoint respond: the next client's datagram shows the result.
        sleep(resilience.probe_interval_max).await;
        return upstream.note_success(&endpoint);
    }
    loop {
        // Jitter, so that the probes of many upstreams do not coincide.
        sleep(interval.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        if endpoint.is_removed() || !endpoint.shared.is_unhealthy() {
            return;
        }
        if let Ok(Ok(_)) = timeout(PROBE_TIMEOUT, connect(endpoint.shared.address())).await {
            upstream.note_success(&endpoint);
            return;
        }
        interval = (interval * 2).min(upstream.context.settings().resilience.probe_interval_max);
    }
}
