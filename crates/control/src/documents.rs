//! Documents of Apis that servers publish at URLs.
//!
//! The control plane fetches each document, and keeps the last valid version: a server that is away, or a version with an error,
//! changes nothing that the gateway serves. Only hosts that the operator allows are asked, because the author of an `Api` could
//! otherwise read pages that only the control plane reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest;
use sluicegate_model::HostPattern;
use sluicegate_model::value::Url;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::object::api::contract::Contract;

/// The longest document, in bytes.
pub const DOCUMENT_LENGTH_MAX: usize = 16 << 20;

/// The pause after the first failed fetch. The pause doubles up to [`DocumentOptions::interval`].
const RETRY_FIRST: Duration = Duration::from_secs(2);

/// The most documents. Further documents are not fetched.
const DOCUMENTS_MAX: usize = 1000;

/// The response of a server.
#[derive(Debug)]
pub enum Fetched {
    /// The document has not changed (304).
    Unchanged,
    /// The document, and its `ETag`.
    New {
        /// The text.
        text: String,
        /// The value of `ETag`.
        tag: Option<String>,
    },
}

/// Fetches a document, unless it still has the given `ETag`. The error is one line.
pub type Fetch = dyn Fn(Url, Option<String>) -> Pin<Box<dyn Future<Output = Result<Fetched, String>> + Send>>
    + Send
    + Sync;

/// How documents are fetched.
#[derive(Clone)]
pub struct DocumentOptions {
    /// The allowed hosts.
    pub hosts: Vec<HostPattern>,
    /// The time between two fetches of one document.
    pub interval: Duration,
    /// The directory that keeps the last valid versions over a restart.
    pub cache: Option<PathBuf>,
    /// Fetches a document.
    pub fetch: Arc<Fetch>,
}

impl fmt::Debug for DocumentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentOptions").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// The documents at URLs. By default, documents are not fetched, such as by `check`.
#[derive(Clone, Debug, Default)]
pub struct Documents(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    options: DocumentOptions,
    known: Mutex<BTreeMap<Url, Known>>,
    changed: Notify,
}

/// A document that an Api names, as far as the control plane has it.
#[derive(Debug, Default)]
struct Known {
    /// The last valid version.
    contract: Option<Arc<Contract>>,
    /// Why the last fetch brought no valid version.
    fault: Option<String>,
    task: Option<AbortHandle>,
}

/// The state of a document.
#[derive(Debug)]
pub(crate) enum DocumentState {
    /// This process fetches no documents.
    NotFetched,
    /// The document, and why there is no newer version.
    Known(Arc<Contract>, Option<String>),
    /// Why there is no document.
    Unknown(String),
}

impl Documents {
    /// The documents that are fetched with these options.
    #[must_use]
    pub fn new(options: DocumentOptions) -> Self {
        Self(Some(Arc::new(Inner { options, known: Mutex::default(), changed: Notify::new() })))
    }

    /// The state of a document.
    pub(crate) fn get(&self, url: &Url) -> DocumentState {
        let Some(inner) = &self.0 else { return DocumentState::NotFetched };
        if let Some(fault) = inner.forbids(url) {
            return DocumentState::Unknown(fault);
        }
        match inner.lock().get(url) {
            Some(Known { contract: Some(contract), fault, .. }) => {
                DocumentState::Known(contract.clone(), fault.clone())
            }
            Some(Known { contract: None, fault: Some(fault), .. }) => DocumentState::Unknown(fault.clone()),
            _ => DocumentState::Unknown("the document has not been fetched yet".to_owned()),
        }
    }

    /// Fetches exactly these documents from now on.
    pub(crate) fn want(&self, urls: &BTreeSet<Url>) {
        let Some(inner) = &self.0 else { return };
        let mut all = inner.lock();
        all.retain(|url, known| {
            let is_wanted = urls.contains(url);
            if let Some(task) = known.task.as_ref().filter(|_| !is_wanted) {
                task.abort();
            }
            is_wanted
        });
        let new: Vec<&Url> =
            urls.iter().filter(|url| !all.contains_key(*url) && inner.forbids(url).is_none()).collect();
        for url in new {
            let mut known = Known::default();
            if all.len() < DOCUMENTS_MAX {
                let task = tokio::spawn(follow(inner.clone(), url.clone()));
                known.task = Some(task.abort_handle());
            } else {
                known.fault = Some(format!("the gateway fetches at most {DOCUMENTS_MAX} documents"));
            }
            all.insert(url.clone(), known);
        }
    }

    /// Waits for a change of a document or of its fault. A dropped future loses nothing.
    pub(crate) async fn changed(&self) {
        match &self.0 {
            Some(inner) => inner.changed.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Whether each wanted document is known, or could not be fetched.
    pub(crate) fn is_settled(&self) -> bool {
        let is_settled = |known: &Known| known.contract.is_some() || known.fault.is_some();
        self.0.as_ref().is_none_or(|inner| inner.lock().values().all(is_settled))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Url, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the gateway must not fetch from a host.
    fn forbids(&self, url: &Url) -> Option<String> {
        let uri: Option<http::Uri> = url.parse().ok();
        let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default().to_ascii_lowercase();
        let is_allowed = self.options.hosts.iter().any(|allowed| allowed.matches(&host));
        (!is_allowed).then(|| {
            format!("the host {host:?} is not allowed: start the gateway with --api-document-host {host}")
        })
    }

    /// Takes a version, unless it has an error and another version is known. Returns whether it is valid.
    fn take(&self, url: &Url, contract: Contract) -> bool {
        let mut all = self.lock();
        let Some(known) = all.get_mut(url) else { return false };
        let error = contract.faults.iter().find(|fault| fault.is_error);
        let fault = error.map(|error| format!("the newest version has an error: {}", error.message));
        let is_valid = fault.is_none();
        let is_kept = known.contract.as_ref().is_some_and(|contract| !contract.has_errors());
        match is_kept && !is_valid {
            true => known.fault = fault,
            // The contract has its own faults.
            false => {
                known.fault = None;
                known.contract = Some(Arc::new(contract));
            }
        }
        drop(all);
        self.changed.notify_one();
        is_valid
    }

    fn fail(&self, url: &Url, fault: String) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(url).filter(|known| known.fault.as_ref() != Some(&fault)) else {
            return;
        };
        known.fault = Some(fault);
        drop(all);
        self.changed.notify_one();
    }

    /// The last fetch brought nothing new.
    fn confirm(&self, url: &Url, is_valid: bool) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(url).filter(|known| is_valid && known.fault.is_some()) else { return };
        known.fault = None;
        drop(all);
        self.changed.notify_one();
    }
}

/// Fetches a document again and again.
async fn follow(inner: Arc<Inner>, url: Url) {
    let file = inner.options.cache.as_ref().map(|dir| dir.join(file_name(&url)));
    if let Some(text) = file.as_deref().and_then(|file| fs::read_to_string(file).ok()) {
        read(&inner, &url, text).await;
    }
    let (mut last, mut tag, mut is_valid) = (None, None, false);
    let interval = inner.options.interval;
    let mut retry = RETRY_FIRST;
    loop {
        let mut is_retry = false;
        let pause = match (inner.options.fetch)(url.clone(), tag.clone()).await {
            Ok(Fetched::Unchanged) => {
                inner.confirm(&url, is_valid);
                interval
            }
            Ok(Fetched::New { text, tag: new_tag }) => {
                tag = new_tag;
                let digest = digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec();
                if last.as_ref() == Some(&digest) {
                    inner.confirm(&url, is_valid);
                } else {
                    is_valid = read(&inner, &url, text.clone()).await;
                    tracing::info!(url = &*url, bytes = text.len(), is_valid, "fetched a document of an Api");
                    if let Some(file) = file.as_deref().filter(|_| is_valid)
                        && let Err(error) = store(file, &text)
                    {
                        tracing::warn!(file = %file.display(), %error, "cannot store the document of an Api");
                    }
                    last = Some(digest);
                }
                interval
            }
            Err(fault) => {
                inner.fail(&url, fault);
                is_retry = true;
                retry.min(interval)
            }
        };
        retry = if is_retry { (retry * 2).min(interval) } else { RETRY_FIRST };
        tokio::time::sleep(pause).await;
    }
}

/// Reads a version of the document, beside the tasks of the control plane.
async fn read(inner: &Arc<Inner>, url: &Url, text: String) -> bool {
    let contract = tokio::task::spawn_blocking(move || Contract::read(&text)).await;
    contract.is_ok_and(|contract| inner.take(url, contract))
}

/// The name of the file with a document.
fn file_name(url: &Url) -> String {
    let digest = digest::digest(&digest::SHA256, url.as_bytes());
    let mut name: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    name.push_str(".yaml");
    name
}

/// Stores a document under its final name only when it is complete.
fn store(file: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    let draft = file.with_extension("new");
    fs::write(&draft, text)?;
    fs::rename(&draft, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Responses = Vec<Result<Option<String>, String>>;

    /// Documents of a server whose next responses are set by the test.
    struct Server {
        documents: Documents,
        responses: Arc<Mutex<Responses>>,
    }

    fn url() -> Url {
        Url::of("https://docs.example.com/pets.yaml")
    }

    fn document(title: &str) -> String {
        format!("openapi: 3.1.0\ninfo: {{title: {title}, version: '1'}}\npaths: {{}}\n")
    }

    impl Server {
        /// The responses, the last first. After the last response, all documents are unchanged.
        fn new(cache: Option<&Path>, responses: Responses) -> Self {
            let responses = Arc::new(Mutex::new(responses));
            let all = responses.clone();
            let fetch = move |_: Url, _: Option<String>| {
                let next = all.lock().unwrap().pop().unwrap_or(Ok(None));
                let next =
                    next.map(|text| text.map_or(Fetched::Unchanged, |text| Fetched::New { text, tag: None }));
                Box::pin(std::future::ready(next)) as Pin<Box<dyn Future<Output = _> + Send>>
            };
            let hosts = vec![HostPattern::Exact("docs.example.com".into())];
            let (interval, cache) = (Duration::from_secs(60), cache.map(Into::into));
            let options = DocumentOptions { hosts, interval, cache, fetch: Arc::new(fetch) };
            let server = Self { documents: Documents::new(options), responses };
            server.documents.want(&BTreeSet::from([url()]));
            server
        }

        fn title(&self) -> Option<String> {
            match self.documents.get(&url()) {
                DocumentState::Known(contract, _) => Some(contract.document.title.to_string()),
                _ => None,
            }
        }

        fn fault(&self) -> String {
            match self.documents.get(&url()) {
                DocumentState::Known(_, fault) => fault.unwrap_or_default(),
                DocumentState::Unknown(fault) => fault,
                DocumentState::NotFetched => "not fetched".to_owned(),
            }
        }

        /// Waits until a condition holds.
        async fn until(&self, holds: impl Fn(&Self) -> bool) {
            let waiting = async {
                while !holds(self) {
                    self.documents.changed().await;
                }
            };
            let limit = Duration::from_secs(24 * 3600);
            assert!(tokio::time::timeout(limit, waiting).await.is_ok(), "{}", self.fault());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn last_valid_version_stays_in_service() {
        let bad = "openapi: 3.1.0\npaths: {/a: {get: 7}}\n".to_owned();
        let responses = vec![
            Ok(Some(document("Dogs"))),
            Ok(Some("a: [".to_owned())),
            Ok(Some(bad)),
            Err("503".to_owned()),
            Ok(Some(document("Cats"))),
        ];
        let server = Server::new(None, responses);
        assert!(!server.documents.is_settled());
        server.until(|server| server.title().is_some()).await;
        assert!(server.documents.is_settled());
        for fault in ["503", "is no mapping", "cannot be read as YAML"] {
            server.until(|server| server.fault().contains(fault)).await;
            assert_eq!(server.title().as_deref(), Some("Cats"));
        }
        server.until(|server| server.title().as_deref() == Some("Dogs")).await;
        assert_eq!(server.fault(), "");
        assert!(server.responses.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn fault_ends_when_the_server_responds_again() {
        let server = Server::new(None, vec![Ok(None), Err("503".to_owned()), Ok(Some(document("Cats")))]);
        server.until(|server| server.fault() == "503").await;
        server.until(|server| server.fault().is_empty()).await;
        assert_eq!(server.title().as_deref(), Some("Cats"));
    }

    #[tokio::test(start_paused = true)]
    async fn last_valid_version_is_in_service_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("documents");
        let server = Server::new(Some(&cache), vec![Ok(Some("a: [".to_owned())), Ok(Some(document("Cats")))]);
        server.until(|server| server.fault().contains("cannot be read")).await;
        let restarted = Server::new(Some(&cache), vec![Err("away".to_owned()); 9]);
        restarted.until(|server| server.fault() == "away").await;
        assert_eq!(restarted.title().as_deref(), Some("Cats"));
    }

    #[tokio::test]
    async fn only_allowed_hosts_are_asked() {
        let server = Server::new(None, vec![Ok(Some(document("Cats")))]);
        for other in [
            "https://docs.example.com.evil.test/a",
            "http://169.254.169.254/",
            "https://docs.example.com@evil/",
        ] {
            let Ok(other) = Url::new(other) else { continue };
            server.documents.want(&BTreeSet::from([other.clone()]));
            let DocumentState::Unknown(fault) = server.documents.get(&other) else { panic!("{other}") };
            assert!(fault.contains("is not allowed: start the gateway with --api-document-host"), "{fault}");
        }
        assert_eq!(server.responses.lock().unwrap().len(), 1, "nothing was fetched");
        assert!(matches!(Documents::default().get(&url()), DocumentState::NotFetched));
    }

    #[tokio::test(start_paused = true)]
    async fn document_that_no_object_names_is_not_fetched_any_more() {
        let server = Server::new(None, vec![Ok(Some(document("Cats")))]);
        server.until(|server| server.title().is_some()).await;
        server.documents.want(&BTreeSet::new());
        assert_eq!(server.title(), None);
        assert!(server.documents.is_settled());
    }
}
