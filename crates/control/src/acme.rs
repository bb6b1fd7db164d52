//! Certificates of an ACME server: the options, the part of the model for data planes, and the problems of orders.
//!
//! All state is in Secrets, so that each control plane computes the same configuration: the account Secret has the thumbprint that
//! data planes answer with, and another Secret has the certificates of challenges in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_acme::{Faults, Link, State, THUMBPRINT_KEY, Wish};
use sluicegate_model::{AcmeHost, Certificate};
use tokio::sync::{Notify, oneshot, watch};

use crate::object::secret::Data;
use crate::object::{ObjectRef, certificate};
use crate::problem::{Origin, Problem, Severity};
use crate::source::Served;
use crate::store::Store;
use crate::translate::ObjectName;

/// The length of a thumbprint: SHA-256 in base64url.
const THUMBPRINT_LENGTH: usize = 43;

/// Whether the gateway orders certificates from an ACME server.
#[derive(Clone, Debug, Default)]
pub enum Acme {
    /// The options of the gateway are unknown, such as for a check of manifests.
    #[default]
    Unknown,
    /// The gateway orders no certificates.
    Off,
    /// The gateway orders certificates.
    On(AcmeOptions),
}

/// The options of certificates of an ACME server.
#[derive(Clone, Debug)]
pub struct AcmeOptions {
    /// The Secret with the account's key.
    pub account: ObjectName,
    /// The Secret with the certificates of challenges in progress.
    pub challenges: ObjectName,
    /// The connection to the worker.
    pub link: Link,
    /// The manifests that the worker writes into a directory. Empty in a cluster.
    pub manifests: AcmeManifests,
}

/// The manifests that the worker has written, until a source takes them.
#[derive(Clone, Default)]
pub struct AcmeManifests(Arc<Manifests>);

#[derive(Default)]
struct Manifests {
    new: Mutex<BTreeMap<PathBuf, String>>,
    written: Notify,
}

/// Never shows the texts, which have keys.
impl fmt::Debug for AcmeManifests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcmeManifests(confidential)")
    }
}

impl AcmeManifests {
    /// Hands over a manifest.
    pub fn put(&self, path: &Path, text: &str) {
        let mut new = self.0.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.insert(path.to_owned(), text.to_owned());
        drop(new);
        self.0.written.notify_one();
    }

    pub(crate) fn take(&self) -> Vec<(PathBuf, String)> {
        let mut new = self.0.new.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *new).into_iter().collect()
    }
}

impl AcmeOptions {
    /// Tells the worker when the data planes serve a state, and returns a future that is ready then. `published` is ready when they
    /// serve the configuration of the state; `None` if the configuration is not new.
    pub(crate) fn follow(&self, published: Option<Served>, state: Arc<State>) -> Option<Served> {
        let Some(published) = published else {
            // The same configuration has the same state, apart from certificates that no data plane uses.
            return None;
        };
        let (told, served) = oneshot::channel();
        let link = self.link.clone();
        tokio::spawn(async move {
            published.await;
            link.set_served(state);
            // The receiver may be dropped.
            let _ = told.send(());
        });
        Some(Box::pin(async move { drop(served.await) }))
    }
}

/// A certificate that an object asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wished {
    pub(crate) wish: Wish,
    /// The object, and the field with the Secret.
    pub(crate) object: ObjectRef,
    pub(crate) origin: Origin,
    pub(crate) field: String,
}

/// The part of a translation for ACME.
#[derive(Clone, Debug, Default)]
pub(crate) struct Translated {
    pub(crate) state: Arc<State>,
    wished: Vec<Wished>,
}

impl Translated {
    /// Whether no object asks for a certificate.
    pub(crate) fn is_empty(&self) -> bool {
        self.wished.is_empty()
    }
}

/// The part of the model for ACME.
pub(crate) struct Emitted {
    pub(crate) hosts: Vec<Arc<AcmeHost>>,
    pub(crate) translated: Translated,
}

/// Emits the hosts whose certificates are ordered. Without a thumbprint, data planes answer nothing.
pub(crate) fn emit(store: &Store, acme: &Acme, wished: Vec<Wished>) -> Emitted {
    let Acme::On(options) = acme else {
        return Emitted { hosts: Vec::new(), translated: Translated::default() };
    };
    let wishes: Vec<Wish> = wished.iter().map(|wished| wished.wish.clone()).collect();
    let thumbprint = store.data(&options.account.secret()).and_then(thumbprint);
    let in_progress = store.data(&options.challenges.secret());
    let names: BTreeSet<&str> = wishes.iter().flat_map(|wish| &wish.hosts).map(|host| &**host).collect();
    let mut challenges = BTreeMap::new();
    let mut hosts = Vec::new();
    for (host, thumbprint) in names.into_iter().zip(thumbprint.iter().cycle()) {
        let challenge = in_progress.and_then(|data| challenge(data, host, &options.challenges));
        if let Some(first) = challenge.as_ref().and_then(|certificate| certificate.chain.first()) {
            challenges.insert(host.into(), first.to_vec());
        }
        hosts.push(Arc::new(AcmeHost { host: host.into(), thumbprint: thumbprint.clone(), challenge }));
    }
    let state = State { wishes, thumbprint, challenges };
    Emitted { hosts, translated: Translated { state: state.into(), wished } }
}

/// The thumbprint of the account's key.
fn thumbprint(data: &Data) -> Option<Box<str>> {
    let text = std::str::from_utf8(data.get(THUMBPRINT_KEY)?).ok()?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (text.len() == THUMBPRINT_LENGTH && text.bytes().all(is_valid)).then(|| text.into())
}

/// The certificate for a challenge in progress.
fn challenge(data: &Data, host: &str, of: &ObjectName) -> Option<Arc<Certificate>> {
    let (chain, key) = (data.get(&format!("{host}.crt"))?, data.get(&format!("{host}.key"))?);
    certificate::challenge(&of.secret().to_string(), chain, key).map(Arc::new)
}

/// News of the worker.
pub(crate) struct AcmeNews {
    faults: Option<watch::Receiver<Arc<Faults>>>,
    manifests: AcmeManifests,
}

impl AcmeNews {
    pub(crate) fn of(acme: &Acme) -> Self {
        match acme {
            Acme::On(options) => {
                Self { faults: Some(options.link.faults()), manifests: options.manifests.clone() }
            }
            Acme::Off | Acme::Unknown => Self { faults: None, manifests: AcmeManifests::default() },
        }
    }

    /// Waits for news. A dropped future loses nothing.
    pub(crate) async fn changed(&mut self) {
        let Some(faults) = &mut self.faults else { return pending().await };
        tokio::select! {
            changed = faults.changed() => if changed.is_err() { pending::<()>().await },
            () = self.manifests.0.written.notified() => {}
        }
    }

    /// The problems of orders.
    pub(crate) fn problems(&self, translated: &Translated) -> Vec<Problem> {
        let Some(faults) = self.faults.as_ref().map(|faults| faults.borrow().clone()) else {
            return Vec::new();
        };
        let of_account = faults.account.iter().map(|fault| {
            let message = format!(
                "no certificate is ordered or renewed: {fault}; current certificates stay in service, and the gateway tries again"
            );
            Problem::of_option("--acme-directory", message)
        });
        let of_orders = translated.wished.iter().filter_map(|Wished { wish, object, origin, field }| {
            let fault = faults.orders.get(&wish.secret)?;
            let (severity, consequence) = match wish.current {
                Some(_) => (Severity::Warning, "the current certificate stays in service"),
                None => (Severity::Error, "there is no certificate yet"),
            };
            let message =
                format!("the ACME order failed: {fault}; {consequence}, and the gateway tries again");
            Some(Problem {
                severity,
                origin: origin.clone(),
                object: Some(object.clone()),
                field: field.clone(),
                message,
                cause: None,
            })
        });
        of_account.chain(of_orders).collect()
    }
}
