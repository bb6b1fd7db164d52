//! Keys that issuers publish: fetched beside the workers, and kept while they cannot be.
//!
//! Each place is asked by one task, however many policies name it: at the first time, when its keys are due, and when a token
//! names a key that is not among them, but never twice within five seconds. Whatever answers is bounded in time and length,
//! and is not followed elsewhere.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sluicegate_jwt::{Algorithm, KeyFault, KeySet};
use sluicegate_model::policy::RemoteKeys;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::service::{Service, ServiceError};

/// The longest set of keys, in bytes.
const LENGTH_MAX: usize = 256 * 1024;

/// The time between two fetches, at least.
const BETWEEN: Duration = Duration::from_secs(5);

/// The time after the first fetch that failed while no keys are known; it doubles up to [`BETWEEN`].
const RETRY_FIRST: Duration = Duration::from_millis(500);

/// Every place that is asked.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Weak<Published>>>);

/// The keys that are published at a place.
pub(crate) struct Published {
    source: Arc<RemoteKeys>,
    algorithms: Vec<Algorithm>,
    keys: Mutex<Option<Arc<KeySet>>>,
    /// How often the keys have changed: read with each token, and hardly ever written.
    changes: AtomicU64,
    /// Told when a token names a key that is not among them.
    wanted: Arc<Notify>,
    fetched: AtomicU64,
    failed: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("the HTTP exchange failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("it responds with {0}, not 200; the gateway does not follow redirects")]
    Status(StatusCode),
    #[error("its response is incomplete, or longer than {LENGTH_MAX} bytes")]
    Body,
    #[error("it did not respond within {0:?}")]
    Timeout(Duration),
    #[error("its keys {0}")]
    Keys(#[from] KeyFault),
}

impl Places {
    /// The keys of a place, for these algorithms. Fetching them begins with the first who asks.
    pub(super) fn at(&self, source: &Arc<RemoteKeys>, algorithms: &[Algorithm]) -> Arc<Published> {
        // Whoever publishes a secret has none.
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
        // A table that is compiled without a runtime is not served.
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(follow(Arc::downgrade(&published), published.wanted.clone()));
            // It was made just now.
            let _ = published.task.set(task.abort_handle());
        }
        published
    }

    /// Every place: its URL, how many keys are known, how often they were fetched, and how often that failed.
    pub(crate) fn states(&self) -> Vec<(Box<str>, usize, u64, u64)> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |place: Arc<Published>| {
            let keys = place.keys().map_or(0, |keys| keys.len());
            let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
            (place.source.url.clone(), keys, count(&place.fetched), count(&place.failed))
        };
        places.iter().filter_map(Weak::upgrade).map(state).collect()
    }
}

impl Published {
    /// The keys, once they are known.
    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often they have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Asks for new keys: a token names one that is not among them.
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

/// Fetches keys until nobody needs them.
async fn follow(published: Weak<Published>, wanted: Arc<Notify>) {
    let (mut text, mut told, mut retry) = (Vec::new(), String::new(), RETRY_FIRST);
    while let Some(source) = published.upgrade().map(|published| published.source.clone()) {
        let fetched = match timeout(source.timeout, fetch(&source)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::Timeout(source.timeout)),
        };
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
                source.refresh
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
                if text.is_empty() { retry } else { source.refresh.min(BETWEEN) }
            }
        };
        drop(published);
        sleep(pause.min(BETWEEN)).await;
        // What was asked for meanwhile is asked for now.
        let _ = timeout(pause.saturating_sub(BETWEEN), wanted.notified()).await;
    }
}

/// The text of the keys.
async fn fetch(source: &RemoteKeys) -> Result<Vec<u8>, FetchError> {
    let service = Service::new(&source.url, &source.authorities)?;
    let stream = TcpStream::connect((&*service.host, service.port)).await?;
    match &service.tls {
        None => ask(stream, &service).await,
        Some((config, name)) => {
            let connector = TlsConnector::from(config.clone());
            ask(connector.connect(name.clone(), stream).await?, &service).await
        }
    }
}

async fn ask<S>(stream: S, service: &Service) -> Result<Vec<u8>, FetchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this function.
    let mut driving = JoinSet::new();
    driving.spawn(connection);
    let request = Request::get(&*service.target)
        .header(HOST, &*service.authority)
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .header(USER_AGENT, concat!("sluicegate/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close");
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|_| ServiceError::Url)?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), LENGTH_MAX).collect().await;
    Ok(body.map_err(|_| FetchError::Body)?.to_bytes().to_vec())
}
