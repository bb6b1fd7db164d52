//! The election of the process that writes into the cluster: the holder of a Lease (`coordination.k8s.io/v1`), by the
//! rules of Kubernetes' own components. The election never compares clocks of different machines: a Lease expires when
//! it has not changed for its duration, by the clock of the observer.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch as state;
use tokio::time::{sleep, timeout};

use super::watch::in_words;
use crate::translate::ObjectName;

/// The lifetime of a Lease without a renewal.
const DURATION: Duration = Duration::from_secs(15);

/// A holder that cannot renew the Lease for this long gives it up, well before others may take it.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// The timeout of one look at the Lease.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// The time between two looks at the Lease.
const RETRY: Duration = Duration::from_secs(2);

/// Takes part in the election for a Lease.
pub(super) struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    seen: Seen,
    /// The time of the last renewal, if this process holds the Lease.
    held_since: Option<Instant>,
    /// Whether another process held the Lease at the last look.
    is_of_other: bool,
}

/// A Lease as last observed, and the time of its last change.
#[derive(Debug, Default)]
struct Seen {
    version: Option<String>,
    since: Option<Instant>,
}

/// The next step for a Lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Create,
    /// Write our name and the time into the Lease.
    Hold,
    /// Another process holds the Lease.
    Wait,
}

impl Elector {
    pub(super) fn new(client: Client, lease: &ObjectName, identity: String) -> Self {
        let leases = Api::namespaced(client, &lease.namespace);
        Self {
            leases,
            name: lease.name.to_string(),
            identity,
            seen: Seen::default(),
            held_since: None,
            is_of_other: false,
        }
    }

    /// Takes part until the future is dropped, and reports whether this process is the holder, and whether another process is.
    pub(super) async fn run(
        mut self,
        holds: &state::Sender<bool>,
        other: &state::Sender<bool>,
    ) -> Infallible {
        let mut has_failed = false;
        loop {
            match timeout(self.left().unwrap_or(LOOK_MAX).min(LOOK_MAX), self.look()).await {
                Ok(Ok(())) => has_failed = false,
                Ok(Err(error)) if !has_failed && !is_conflict(&error) => {
                    has_failed = true;
                    tracing::warn!(
                        lease = self.name,
                        error = in_words(&error),
                        "cannot read or write the Lease; only its holder writes status and Events; trying again"
                    );
                }
                Ok(Err(_)) | Err(_) => {}
            }
            self.tell(holds);
            other.send_if_modified(|other| std::mem::replace(other, self.is_of_other) != self.is_of_other);
            let pause = RETRY.mul_f64(0.9 + fastrand::f64() / 5.0);
            if let Some(left) = self.left().filter(|left| *left < pause) {
                // The renewal deadline ends before the next attempt: this process then stops being the holder at the
                // deadline.
                sleep(left).await;
                self.tell(holds);
                sleep(pause.saturating_sub(left)).await;
            } else {
                sleep(pause).await;
            }
        }
    }

    /// The rest of the hold, if this process holds the Lease.
    fn left(&self) -> Option<Duration> {
        let left = RENEW_DEADLINE.checked_sub(self.held_since?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Reports whether this process is the holder.
    fn tell(&self, holds: &state::Sender<bool>) {
        let is_holder = self.left().is_some();
        if holds.send_if_modified(|holds| std::mem::replace(holds, is_holder) != is_holder) {
            let what = if is_holder { "holds" } else { "does not hold" };
            tracing::info!(lease = self.name, identity = self.identity, "this process {what} the Lease");
        }
    }

    /// Releases the Lease, so that the next holder need not wait for its expiry.
    pub(super) async fn release(client: Client, lease: &ObjectName, identity: &str) -> kube::Result<()> {
        let leases: Api<Lease> = Api::namespaced(client, &lease.namespace);
        loop {
            let mut held = leases.get(&lease.name).await?;
            let spec = held.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            match leases.replace(&lease.name, &PostParams::default(), &held).await {
                // A renewal was in progress at the start of the release.
                Err(error) if is_conflict(&error) => {}
                other => return other.map(|_| ()),
            }
        }
    }

    async fn look(&mut self) -> kube::Result<()> {
        // A failed look proves nothing.
        self.is_of_other = false;
        let lease = self.leases.get_opt(&self.name).await?;
        let begun = Instant::now();
        let step = self.seen.step(lease.as_ref(), &self.identity, begun);
        let written = match (step, lease) {
            (Step::Wait, _) => {
                self.is_of_other = true;
                self.held_since = None;
                return Ok(());
            }
            (Step::Hold, Some(lease)) => {
                let lease = self.held(lease);
                self.leases.replace(&self.name, &PostParams::default(), &lease).await
            }
            (Step::Create | Step::Hold, _) => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let lease = self.held(Lease { metadata, spec: None });
                self.leases.create(&PostParams::default(), &lease).await
            }
        };
        match written {
            Ok(lease) => {
                self.seen = Seen { version: lease.metadata.resource_version, since: Some(begun) };
                self.held_since = Some(begun);
                Ok(())
            }
            Err(error) => {
                // Another process was first.
                if is_conflict(&error) {
                    self.held_since = None;
                }
                Err(error)
            }
        }
    }

    /// The Lease with this process as its holder.
    fn held(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1) + 1);
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }
}

impl Seen {
    fn step(&mut self, lease: Option<&Lease>, identity: &str, now: Instant) -> Step {
        let Some(lease) = lease else { return Step::Create };
        if self.version != lease.metadata.resource_version || self.since.is_none() {
            *self = Self { version: lease.metadata.resource_version.clone(), since: Some(now) };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        let is_over = self.since.is_some_and(|since| now.duration_since(since) >= duration);
        if holder.is_empty() || holder == identity || is_over { Step::Hold } else { Step::Wait }
    }
}

/// Whether another process has written the object in the meantime.
pub(super) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str, holder: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.into()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn gateway_acquires_a_free_lease_and_renews_the_lease() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        assert_eq!(seen.step(None, "a", now), Step::Create);
        assert_eq!(seen.step(Some(&lease("1", "")), "a", now), Step::Hold);
        assert_eq!(seen.step(Some(&lease("2", "a")), "a", now), Step::Hold);
    }

    #[test]
    fn lease_of_another_holder_expires_by_the_local_clock() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(seen.step(Some(&lease("1", "b")), "a", now), Step::Wait);
        assert_eq!(seen.step(Some(&lease("1", "b")), "a", after(14)), Step::Wait);
        assert_eq!(seen.step(Some(&lease("2", "b")), "a", after(16)), Step::Wait, "it was renewed");
        assert_eq!(seen.step(Some(&lease("2", "b")), "a", after(30)), Step::Wait);
        assert_eq!(seen.step(Some(&lease("2", "b")), "a", after(31)), Step::Hold);
    }
}
