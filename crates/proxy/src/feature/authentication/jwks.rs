//! Keys that issuers publish: fetched beside the workers. If a fetch fails, the last keys stay in use.
//!
//! One task fetches each URL, however many policies name the URL. The task fetches at the start, when the keys are due,
//! and when a token names an unknown key, but never twice within five seconds. Each response is limited in time and
//! length, and redirects are not followed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION};
use http::{HeaderValue, StatusCode};
use sluicegate_jwt::{Algorithm, KeyFault, KeySet};
use sluicegate_model::feature::authentication::jwt::RemoteKeys;
use sluicegate_model::value::secret;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::http_client::{HttpClient, HttpError, HttpLimits, Server, ServerError};

/// The longest key set, in bytes.
const LENGTH_MAX: usize = 256 * 1024;

/// The shortest time between two fetches.
const BETWEEN: Duration = Duration::from_secs(5);

/// The pause after the first failed fetch while no keys are known. The pause doubles up to [`BETWEEN`].
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// All URLs with published keys.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Weak<Published>>>);

/// The published keys of a URL.
pub(crate) struct Published {
    source: Arc<RemoteKeys>,
    algorithms: Vec<Algorithm>,
    keys: Mutex<Option<Arc<KeySet>>>,
    /// How often the keys have changed: read with each token, rarely written.
    changes: AtomicU64,
    /// Notified when a token names an unknown key.
    wanted: Arc<Notify>,
    fetched: AtomicU64,
    failed: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Exchange(#[from] HttpError),
    #[error("the server responds with {0}, not 200; the gateway does not follow redirects")]
    Status(StatusCode),
    #[error("the keys {0}")]
    Keys(#[from] KeyFault),
}

impl Places {
    /// The keys of a URL, for these algorithms. The first call starts the fetching.
    pub(super) fn at(&self, source: &Arc<RemoteKeys>, algorithms: &[Algorithm]) -> Arc<Published> {
        // A published key is no shared secret.
        let wanted = Algorithm::ALL.into_iter().filter(|algorithm| {
            !algorithm.is_shared() && (algorithms.is_empty() || algorithms.contains(algorithm))
        });
        let algorithms: Vec<_> = wanted.collect();
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() > 0);
        let is_it = |place: &Arc<Published>| *place.source == **source && place.algorithms == algorithms;
        if let Some(known) = places.iter().filter_map(Weak::upgrade).find(is_it) {
            return known;
        }
        let published = Arc::new(Published {
            source: source.clone(),
            algorithms,
            keys: Mutex::default(),
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

    /// Every URL: the URL, the number of known keys, of fetches, and of failed fetches.
    pub(crate) fn states(&self) -> Vec<(Box<str>, usize, u64, u64)> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |place: Arc<Published>| {
            let keys = place.keys().map_or(0, |keys| keys.len());
            let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
            (place.source.url.as_str().into(), keys, count(&place.fetched), count(&place.failed))
        };
        places.iter().filter_map(Weak::upgrade).map(state).collect()
    }
}

impl Published {
    /// The keys, once they are known.
    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of changes of the keys.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Requests new keys: a token names an unknown key.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    fn set(&self, keys: KeySet) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").field("url", &self.source.url).finish_non_exhaustive()
    }
}

/// Fetches keys until no policy uses them.
async fn follow(published: Weak<Published>, wanted: Arc<Notify>) {
    let (mut text, mut told, mut retry) = (Bytes::new(), String::new(), RETRY_FIRST);
    while let Some(source) = published.upgrade().map(|published| published.source.clone()) {
        let fetched = fetch(&source).await;
        let Some(published) = published.upgrade() else { return };
        let read = fetched.and_then(|new| match new == text {
            true => Ok(None),
            false => Ok(Some((KeySet::given(&new, &published.algorithms)?, new))),
        });
        let pause = match read {
            Ok(new) => {
                published.fetched.fetch_add(1, Ordering::Relaxed);
                if let Some((keys, new)) = new {
                    tracing::info!(
                        url = &*source.url,
                        keys = keys.len(),
                        "fetched the keys of a token issuer"
                    );
                    published.set(keys);
                    text = new;
                }
                told.clear();
                retry = RETRY_FIRST;
                source.refresh_interval.get()
            }
            Err(error) => {
                published.failed.fetch_add(1, Ordering::Relaxed);
                let error = error.to_string();
                if error != told {
                    let known = if text.is_empty() {
                        "requests with its tokens receive 503"
                    } else {
                        "the last keys stay in use"
                    };
                    tracing::warn!(
                        url = &*source.url,
                        error,
                        "cannot fetch the keys of a token issuer; {known}; trying again"
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

/// The text of the key set.
async fn fetch(source: &RemoteKeys) -> Result<Bytes, FetchError> {
    let authorities =
        secret::authorities(&source.ca_certificate_ref).map_err(|_| ServerError::NoAuthorities)?;
    let server = Server::new(&source.url, authorities)?;
    let limits = HttpLimits { timeout: source.timeout.get(), body: LENGTH_MAX };
    let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
    let lines = [(ACCEPT, accept), (CONNECTION, HeaderValue::from_static("close"))];
    let response = HttpClient::new(server, limits).get(&lines).await?;
    match response.status {
        StatusCode::OK => Ok(response.body?),
        status => Err(FetchError::Status(status)),
    }
}
