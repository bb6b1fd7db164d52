//! The states, faults and counters that the control plane and the worker share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::{Issued, SecretName};

/// A certificate that an object asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The Secret for the certificate.
    pub secret: SecretName,
    /// The names of the certificate, in lower case and in order; at most [`NAMES_MAX`](crate::NAMES_MAX).
    pub hosts: Vec<Box<str>>,
    /// The certificate in the Secret.
    pub current: Option<Issued>,
}

/// The part of a configuration for ACME.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The certificates that objects ask for.
    pub wishes: Vec<Wish>,
    /// The thumbprint that data planes answer with.
    pub thumbprint: Option<Box<str>>,
    /// The certificates of challenges in progress, in DER, by host.
    pub challenges: BTreeMap<Box<str>, Vec<u8>>,
}

impl State {
    /// Whether a host is among the hosts that data planes answer for.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.wishes.iter().any(|wish| wish.hosts.iter().any(|known| &**known == host))
    }
}

/// The connection between a control plane and the [`Worker`](crate::Worker).
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    wanted: watch::Sender<Arc<State>>,
    served: watch::Sender<Arc<State>>,
    faults: watch::Sender<Arc<Faults>>,
    counters: Counters,
}

/// The current faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Why no certificate can be ordered at all, and the remedy.
    pub account: Option<Box<str>>,
    /// Why the certificate of a Secret cannot be ordered, and the remedy.
    pub orders: BTreeMap<SecretName, Box<str>>,
}

/// The numbers for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Orders that led to a certificate.
    pub issued: AtomicU64,
    /// Orders that failed.
    pub failed: AtomicU64,
}

impl Link {
    /// Publishes the state of a new configuration.
    pub fn set_wanted(&self, state: Arc<State>) {
        self.0.wanted.send_if_modified(|known| {
            let is_new = **known != *state;
            *known = state;
            is_new
        });
    }

    /// Tells that all data planes serve the state.
    pub fn set_served(&self, state: Arc<State>) {
        self.0.served.send_replace(state);
    }

    /// The current faults, and every change of them.
    #[must_use]
    pub fn faults(&self) -> watch::Receiver<Arc<Faults>> {
        self.0.faults.subscribe()
    }

    /// The number of certificates that objects ask for, and of certificates whose last order failed.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let (wishes, faults) = (self.0.wanted.borrow().wishes.len(), self.0.faults.borrow().orders.len());
        (wishes as u64, faults as u64)
    }

    /// The numbers of orders that led to a certificate, and that failed.
    #[must_use]
    pub fn orders(&self) -> (u64, u64) {
        let Counters { issued, failed } = &self.0.counters;
        (issued.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self, has_succeeded: bool) {
        let Counters { issued, failed } = &self.0.counters;
        (if has_succeeded { issued } else { failed }).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wanted(&self) -> watch::Receiver<Arc<State>> {
        self.0.wanted.subscribe()
    }

    pub(crate) fn served(&self) -> watch::Receiver<Arc<State>> {
        self.0.served.subscribe()
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.0.faults.send_if_modified(|known| {
            let is_new = **known != faults;
            *known = Arc::new(faults);
            is_new
        });
    }
}
