//! Documents that issuers publish, such as their keys: fetched beside the workers. If a fetch fails, the last document stays
//! in use.
//!
//! One task fetches each URL, however many policies name the URL. The task fetches at the start, when the document is due,
//! and when a token names an unknown key, but never twice within five seconds. Each response is limited in time and
//! length, and redirects are not followed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION};
use http::{HeaderValue, StatusCode};
use sluicegate_jwt::KeySet;
use sluicegate_model::feature::authentication::jwt::RemoteKeys;
use sluicegate_model::value::secret;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::provider::Metadata;
use crate::http_client::{HttpClient, HttpError, HttpLimits, Server, ServerError};

/// The longest document, in bytes.
pub(super) const LENGTH_MAX: usize = 256 * 1024;

/// The shortest time between two fetches.
const BETWEEN: Duration = Duration::from_secs(5);

/// The pause after the first failed fetch while no document is known. The pause doubles up to [`BETWEEN`].
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// The kind of a published document.
pub(crate) trait Document: Sized + Send + Sync + 'static {
    /// The requirements on the document.
    type Terms: PartialEq + Send + Sync;

    /// The name of the document in logs.
    const NAME: &'static str;
    /// What happens while no document is known, for logs.
    const UNKNOWN: &'static str;
    /// The value of `Accept`.
    const MEDIA_TYPES: &'static str;

    /// Reads the document.
    ///
    /// # Errors
    /// The fault of the document, as a sentence.
    fn read(text: &[u8], terms: &Self::Terms) -> Result<Self, String>;
}

/// All URLs with published documents of a kind.
pub(crate) struct Places<D: Document>(Arc<Mutex<Vec<Weak<Published<D>>>>>);

/// The published document of a URL.
pub(crate) struct Published<D: Document> {
    source: Arc<RemoteKeys>,
    terms: D::Terms,
    document: watch::Sender<Option<Arc<D>>>,
    /// How often the document has changed: read with each token, rarely written.
    changes: AtomicU64,
    /// Notified when a token names an unknown key.
    wanted: Arc<Notify>,
    fetched: AtomicU64,
    failed: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// The state of a published document.
pub(crate) struct State<D> {
    pub(crate) url: Box<str>,
    pub(crate) document: Option<Arc<D>>,
    /// The number of fetches.
    pub(crate) fetched: u64,
    /// The number of failed fetches.
    pub(crate) failed: u64,
}

/// Why there is no new document.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Exchange(#[from] HttpError),
    #[error("the server responds with {0}, not 200; the gateway does not follow redirects")]
    Status(StatusCode),
    #[error("{0}")]
    Document(String),
}

impl<D: Document> Default for Places<D> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<D: Document> Clone for Places<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Document> PartialEq for Places<D> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<D: Document> fmt::Debug for Places<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

impl<D: Document> Places<D> {
    /// The document of a URL. The first call starts the fetching.
    pub(crate) fn at(&self, source: &Arc<RemoteKeys>, terms: D::Terms) -> Arc<Published<D>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() > 0);
        let is_it = |place: &Arc<Published<D>>| *place.source == **source && place.terms == terms;
        if let Some(known) = places.iter().filter_map(Weak::upgrade).find(is_it) {
            return known;
        }
        let published = Arc::new(Published {
            source: source.clone(),
            terms,
            document: watch::Sender::new(None),
            changes: AtomicU64::new(0),
            wanted: Arc::default(),
            fetched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            task: OnceLock::new(),
        });
        places.push(Arc::downgrade(&published));
        // A table that is compiled without a runtime serves no requests.
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(follow(Arc::downgrade(&published), published.wanted.clone()));
            // The task cell was created above and is empty.
            let _ = published.task.set(task.abort_handle());
        }
        published
    }

    /// The state of the document of each URL.
    pub(crate) fn states(&self) -> Vec<State<D>> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |place: Arc<Published<D>>| State {
            url: place.source.url.as_str().into(),
            document: place.document(),
            fetched: place.fetched.load(Ordering::Relaxed),
            failed: place.failed.load(Ordering::Relaxed),
        };
        places.iter().filter_map(Weak::upgrade).map(state).collect()
    }
}

impl<D: Document> Published<D> {
    /// The document, once it is known.
    pub(crate) fn document(&self) -> Option<Arc<D>> {
        self.document.borrow().clone()
    }

    /// The document. If the first fetch is in flight, its result is awaited.
    pub(crate) async fn first(&self) -> Option<Arc<D>> {
        if self.failed.load(Ordering::Acquire) > 0 {
            return self.document();
        }
        // A failed fetch also wakes up the receivers.
        let mut document = self.document.subscribe();
        let is_settled = |_: &Option<Arc<D>>| {
            self.fetched.load(Ordering::Acquire) + self.failed.load(Ordering::Acquire) > 0
        };
        timeout(self.source.timeout.get(), document.wait_for(is_settled)).await.ok()?.ok()?.clone()
    }

    /// The next version of the document, which an unknown key requests, if it arrives in time.
    pub(crate) async fn next(&self) -> Option<Arc<D>> {
        let mut document = self.document.subscribe();
        self.want();
        // The last fetch may have been less than `BETWEEN` ago.
        timeout(BETWEEN + self.source.timeout.get(), document.changed()).await.ok()?.ok()?;
        self.document()
    }

    /// The number of changes of the document.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Requests a new document: a token names an unknown key.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Counts a fetch, and sets the document if it is another one. Both happen at once: a request that waits for the first fetch
    /// would otherwise see that the fetch is over, but no document.
    fn set(&self, document: Option<D>) {
        self.document.send_if_modified(|known| {
            let is_new = document.is_some();
            if let Some(document) = document {
                *known = Some(Arc::new(document));
                self.changes.fetch_add(1, Ordering::Release);
            }
            self.fetched.fetch_add(1, Ordering::Release);
            is_new
        });
    }
}

impl<D: Document> Drop for Published<D> {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl<D: Document> fmt::Debug for Published<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").field("url", &self.source.url).finish_non_exhaustive()
    }
}

/// Fetches a document until no policy uses it.
async fn follow<D: Document>(published: Weak<Published<D>>, wanted: Arc<Notify>) {
    let (mut text, mut told, mut retry) = (Bytes::new(), String::new(), RETRY_FIRST);
    while let Some(source) = published.upgrade().map(|published| published.source.clone()) {
        let fetched = fetch::<D>(&source).await;
        let Some(published) = published.upgrade() else { return };
        let read = fetched.and_then(|new| match new == text {
            true => Ok(None),
            false => {
                let document = D::read(&new, &published.terms).map_err(FetchError::Document)?;
                Ok(Some((document, new)))
            }
        });
        let pause = match read {
            Ok(new) => {
                let document = new.map(|(document, new)| {
                    tracing::info!(url = &*source.url, "fetched {}", D::NAME);
                    text = new;
                    document
                });
                published.set(document);
                told.clear();
                retry = RETRY_FIRST;
                source.refresh_interval.get()
            }
            Err(error) => {
                published.failed.fetch_add(1, Ordering::Release);
                // Requests that wait for the first fetch go on.
                published.document.send_modify(|_| {});
                let error = error.to_string();
                if error != told {
                    let known = if text.is_empty() { D::UNKNOWN } else { "the last version stays in use" };
                    tracing::warn!(
                        url = &*source.url,
                        error,
                        "cannot fetch {}; {known}; trying again",
                        D::NAME
                    );
                    told = error;
                }
                retry = (retry * 2).min(BETWEEN);
                if text.is_empty() { retry } else { source.refresh_interval.get().min(BETWEEN) }
            }
        };
        drop(published);
        sleep(pause.min(BETWEEN)).await;
        // A request during the pause is served now.
        let _ = timeout(pause.saturating_sub(BETWEEN), wanted.notified()).await;
    }
}

/// The text of the document.
async fn fetch<D: Document>(source: &RemoteKeys) -> Result<Bytes, FetchError> {
    let authorities =
        secret::authorities(&source.ca_certificate_ref).map_err(|_| ServerError::NoAuthorities)?;
    let server = Server::new(&source.url, authorities)?;
    let limits = HttpLimits { timeout: source.timeout.get(), body: LENGTH_MAX };
    let accept = HeaderValue::from_static(D::MEDIA_TYPES);
    let lines = [(ACCEPT, accept), (CONNECTION, HeaderValue::from_static("close"))];
    let response = HttpClient::new(server, limits).get(&lines).await?;
    match response.status {
        StatusCode::OK => Ok(response.body?),
        status => Err(FetchError::Status(status)),
    }
}

/// The places of all published documents.
#[derive(Debug, Default)]
pub struct PublishedPlaces {
    /// The keys of token issuers.
    pub(crate) keys: Places<KeySet>,
    /// The configurations of OpenID providers.
    pub(crate) providers: Places<Metadata>,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text;

    impl Document for Text {
        type Terms = ();

        const NAME: &'static str = "a text";
        const UNKNOWN: &'static str = "nothing is known";
        const MEDIA_TYPES: &'static str = "text/plain";

        fn read(_: &[u8], (): &()) -> Result<Self, String> {
            Ok(Self)
        }
    }

    #[tokio::test]
    async fn request_at_the_end_of_the_first_fetch_receives_the_document() {
        let source: Arc<RemoteKeys> =
            Arc::new(serde_json::from_str(r#"{"url": "https://a.test/keys"}"#).unwrap());
        let published = || {
            Arc::new(Published {
                source: source.clone(),
                terms: (),
                document: watch::Sender::new(None),
                changes: AtomicU64::new(0),
                wanted: Arc::default(),
                fetched: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                task: OnceLock::new(),
            })
        };
        let all: Vec<_> = (0..20_000).map(|_| published()).collect();
        // Both threads reach each document at the same time.
        let together = Arc::new(std::sync::Barrier::new(2));
        let fetches = std::thread::spawn({
            let (all, together) = (all.clone(), together.clone());
            move || {
                for published in all {
                    together.wait();
                    published.set(Some(Text));
                }
            }
        });
        let mut without = 0;
        for published in all {
            together.wait();
            without += usize::from(published.first().await.is_none());
        }
        fetches.join().unwrap();
        assert_eq!(without, 0);
    }
}
