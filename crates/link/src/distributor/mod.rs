//! The control plane's side of the link: sends each change to many data planes.
//!
//! | module | contents |
//! |---|---|
//! | [`scopes`] | the data planes that receive the same configuration |
//! | [`state`] | all resources of a scope, encoded once, and the difference between versions |
//! | [`session`] | one data plane, from its Hello to its end |
//! | [`token`] | the identity of data planes without a client certificate |
//! | [`telemetry`] | the connected data planes, with the version that each serves |

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::{Reason, server};
use sluicegate_model::{Build, Change};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::grpc;
use crate::quotas::QuotaLedger;
use crate::reports::ReportStore;
use crate::tls::{PlaneTls, name_of};

mod scopes;
mod session;
mod state;
pub(crate) mod telemetry;
pub(crate) mod token;

use scopes::{Scope, Scopes};
use session::Session;
use telemetry::{Counters, LinkTelemetry, Progress, Records};
use token::Reviewer;

/// The timeout from a connection to the start of its call.
const OPENING: Duration = Duration::from_secs(10);
/// The timeout for the last bytes of a call.
const CLOSING: Duration = Duration::from_secs(1);
/// Connections above the limit of subscribers: opening connections, and connections that the control plane is about to
/// reject.
const OPENING_MAX: usize = 256;
/// The maximum number of inventories in memory at once.
const INVENTORIES_MAX: usize = 8;
/// The flow control window of a data plane, in bytes.
const WINDOW: u32 = 256 << 10;
/// The minimum time between two log lines about failed handshakes.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time for which the data planes of single Gateways delay [`Distributor::served_by_all`], so that a Gateway does
/// not delay the status of others.
const OWN_PATIENCE: Duration = Duration::from_secs(5);
/// The interval between two checks for data planes that are behind.
const OWN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest session after a review of a token. The data plane then connects again with its current token.
const REVIEW_LASTS: Duration = Duration::from_secs(3600);

/// The options of a distributor.
#[derive(Clone, Debug)]
pub struct DistributorOptions {
    /// The version of the control plane, for the logs of data planes. Default: [`Build::PLAIN`].
    pub build: Build,
    /// The maximum number of data planes. The control plane rejects additional data planes, which retry. Default 2,000.
    pub max_subscribers: usize,
    /// The interval of heartbeats to a data plane that receives no batch. Default 5 s.
    pub heartbeat: Duration,
    /// The timeout for a data plane to accept a message, and to serve a batch. The control plane then disconnects the
    /// data plane. Default 30 s.
    pub patience: Duration,
    /// The mean time after which a data plane leaves a control plane that [yields](Distributor::set_yields), if there are few data planes.
    /// Default 1 s.
    pub yield_after: Duration,
    /// The review of the tokens of data planes without a client certificate, which serve one Gateway. Default: none, and every
    /// data plane needs a client certificate.
    pub reviewer: Option<Reviewer>,
    /// The store for reports of data planes. Default: none, and data planes send no reports.
    pub reports: Option<ReportStore>,
    /// The ledger for uses of quotas. Default: none, and each data plane counts by itself.
    pub quotas: Option<QuotaLedger>,
}

impl Default for DistributorOptions {
    fn default() -> Self {
        Self {
            build: Build::PLAIN,
            max_subscribers: 2000,
            heartbeat: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            yield_after: Duration::from_secs(1),
            reviewer: None,
            reports: None,
            quotas: None,
        }
    }
}

/// Distributes the configuration to data planes. Clones share the same state.
#[derive(Clone)]
pub struct Distributor(Arc<Shared>);

struct Shared {
    options: DistributorOptions,
    scopes: Scopes,
    counters: Counters,
    records: Records,
    /// Changes when a data plane reports its version, or disconnects.
    heard: watch::Sender<()>,
    /// Whether the data planes leave for another control plane.
    yields: watch::Sender<bool>,
    /// How often each data plane has left and come back since then, by its name.
    left: Mutex<HashMap<Arc<str>, u32>>,
    numbers: AtomicU64,
    inventories: Semaphore,
    complained: Mutex<Option<Instant>>,
}

impl Distributor {
    /// A distributor without a configuration: data planes wait for the first configuration.
    #[must_use]
    pub fn new(options: DistributorOptions) -> Self {
        Self(Arc::new(Shared {
            options,
            scopes: Scopes::default(),
            counters: Counters::default(),
            records: Records::default(),
            heard: watch::Sender::new(()),
            yields: watch::Sender::new(false),
            left: Mutex::default(),
            numbers: AtomicU64::new(0),
            inventories: Semaphore::new(INVENTORIES_MAX),
            complained: Mutex::new(None),
        }))
    }

    /// Sends a change to all data planes that it concerns, in order with other changes, and returns the resulting version. Does
    /// not block. The distributor does not send a change without effect.
    pub fn publish(&self, change: &Change) -> u64 {
        self.0.scopes.publish(change, Instant::now())
    }

    /// Sets whether another control plane should have the data planes, because it reports what they serve. While this is so,
    /// each connected data plane is asked to connect again after about a second. It serves requests and changes all the time, and
    /// reaches the other control plane sooner or later. A data plane that comes back often stays twice as long each time, up to
    /// some minutes: the other control plane may be unreachable.
    pub fn set_yields(&self, yields: bool) {
        self.0.left().clear();
        self.0.yields.send_if_modified(|known| std::mem::replace(known, yields) != yields);
    }

    /// Returns when this many data planes serve this version or a newer version.
    pub async fn served_by(&self, subscribers: usize, version: u64) {
        let mut heard = self.0.heard.subscribe();
        while self.0.records.at(version) < subscribers {
            // `self` holds a sender.
            let _ = heard.changed().await;
        }
    }

    /// Returns when a data plane is connected, and all connected data planes serve this version or a newer version. The data
    /// planes of single Gateways delay this by 5 s at most; see [`follow_own`](Self::follow_own).
    pub async fn served_by_all(&self, version: u64) {
        let mut heard = self.0.heard.subscribe();
        let mut own_until = None;
        loop {
            match self.0.records.progress(version, self.0.scopes.needs_shared()) {
                Progress::All => return,
                Progress::Shared => {
                    let until = *own_until.get_or_insert_with(|| tokio::time::Instant::now() + OWN_PATIENCE);
                    tokio::select! {
                        // `self` holds a sender.
                        _ = heard.changed() => {}
                        () = tokio::time::sleep_until(until) => return,
                    }
                }
                Progress::None => {
                    // `self` holds a sender.
                    let _ = heard.changed().await;
                }
            }
        }
    }

    /// Reports the scopes of Gateways with connected data planes of their own, and whether these data planes serve the Gateway:
    /// none is more than 5 s behind. Runs until the future is dropped.
    pub async fn follow_own(self, served: watch::Sender<BTreeMap<Arc<str>, bool>>) -> Infallible {
        let mut heard = self.0.heard.subscribe();
        loop {
            let new = self.0.records.own(OWN_PATIENCE);
            served.send_if_modified(|served| {
                let is_new = *served != new;
                *served = new;
                is_new
            });
            tokio::select! {
                // `self` holds a sender.
                _ = heard.changed() => {}
                () = sleep(OWN_INTERVAL) => {}
            }
        }
    }

    /// The current state of the data planes.
    #[must_use]
    pub fn telemetry(&self) -> LinkTelemetry {
        let (version, resources) = self.0.scopes.size();
        let (lag, lag_sum) = self.0.counters.lag();
        let (subscribers, counts) = (self.0.records.status(), self.0.counters.counts());
        LinkTelemetry { version, resources, subscribers, counts, lag, lag_sum }
    }

    /// Serves data planes until the future is dropped. Dropping the future disconnects the data planes.
    pub async fn serve(self, listener: TcpListener, tls: PlaneTls) -> Infallible {
        let kinds = if self.0.options.reviewer.is_some() { 2 } else { 1 };
        let places = Arc::new(Semaphore::new(kinds * self.0.options.max_subscribers + OPENING_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { continue };
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, address)) => {
                    let tls =
                        if self.0.options.reviewer.is_some() { tls.open_server() } else { tls.server() };
                    let (shared, tls) = (self.0.clone(), TlsAcceptor::from(tls));
                    connections.spawn(async move {
                        connection(shared, tls, stream, address).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // A possible cause is the limit of open files.
                    tracing::warn!(%error, "cannot accept a data plane's connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Shared {
    fn left(&self) -> MutexGuard<'_, HashMap<Arc<str>, u32>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connection(shared: Arc<Shared>, tls: TlsAcceptor, stream: TcpStream, address: SocketAddr) {
    match timeout(OPENING, open(&tls, stream)).await {
        Ok(Ok((identity, mut connection, call))) => {
            serve(shared, &mut connection, call, identity, address).await;
            connection.graceful_shutdown();
            // A data plane that does not read misses the status.
            let _ = timeout(CLOSING, poll_fn(|context| connection.poll_closed(context))).await;
        }
        failed => {
            let error = match failed {
                Ok(Err(error)) => error,
                _ => "it took too long".to_owned(),
            };
            shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            complain(&shared, address, &error);
        }
    }
}

type Connection = server::Connection<tokio_rustls::server::TlsStream<TcpStream>, Bytes>;
type Call = (http::Request<h2::RecvStream>, server::SendResponse<Bytes>);

/// Makes the handshakes, and accepts the call. Returns the name in the client's certificate; `None` without a certificate.
async fn open(tls: &TlsAcceptor, stream: TcpStream) -> Result<(Option<String>, Connection, Call), String> {
    // Endpoint changes are small, and must not wait for acknowledgements.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let stream = tls.accept(stream).await.map_err(|error| error.to_string())?;
    let certificates = stream.get_ref().1.peer_certificates();
    let identity = certificates.and_then(|chain| chain.first()).map(name_of);
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(1)
        .max_header_list_size(16 << 10)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let mut connection = builder.handshake(stream).await.map_err(|error| error.to_string())?;
    match connection.accept().await {
        Some(Ok(call)) => Ok((identity, connection, call)),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it ended without a call".to_owned()),
    }
}

/// Logs a failed handshake or review, at a limited rate because any client can cause failures.
fn complain(shared: &Shared, address: SocketAddr, error: &str) {
    let mut complained = shared.complained.lock().unwrap_or_else(PoisonError::into_inner);
    if complained.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
        *complained = Some(Instant::now());
        tracing::warn!(%address, "the handshake with a data plane failed: {error}");
    }
}

/// Serves one call. The connection runs concurrently, and its end ends the call.
async fn serve(
    shared: Arc<Shared>,
    connection: &mut Connection,
    (request, mut respond): Call,
    certificate: Option<String>,
    address: SocketAddr,
) {
    if let Some(response) = grpc::fault(&request) {
        // The data plane may have disconnected.
        let _ = respond.send_response(response, true);
        return;
    }
    let lasts = if certificate.is_some() { Duration::MAX } else { REVIEW_LASTS };
    let session = async {
        let identified = match certificate {
            Some(name) => Ok((name, shared.scopes.shared())),
            None => identify(&shared, request.headers()).await,
        };
        match identified {
            Ok((identity, scope)) => {
                Session::begin(shared, scope, request.into_body(), respond, &identity, address).await;
            }
            Err(error) => {
                shared.counters.reviews_failed.fetch_add(1, Ordering::Relaxed);
                complain(&shared, address, &error);
                let refusal = grpc::refusal(grpc::Code::Unauthenticated, "the token is not accepted");
                // The data plane may have disconnected.
                let _ = respond.send_response(refusal, true);
            }
        }
    };
    let mut session = std::pin::pin!(timeout(lasts, session));
    loop {
        tokio::select! {
            _ = &mut session => return,
            next = connection.accept() => match next {
                Some(Ok((_, mut further))) => further.send_reset(Reason::REFUSED_STREAM),
                Some(Err(_)) | None => return,
            },
        }
    }
}

/// The identity and the scope of a data plane without a client certificate.
async fn identify(shared: &Shared, headers: &http::HeaderMap) -> Result<(String, Arc<Scope>), String> {
    let Some(reviewer) = &shared.options.reviewer else { return Err("no client certificate".to_owned()) };
    let name = timeout(OPENING, reviewer.review(headers)).await.map_err(|_| "the review took too long")??;
    let scope = shared.scopes.find(&name);
    let scope =
        scope.ok_or_else(|| format!("ServiceAccount {name} is not of a Gateway with its own data planes"))?;
    Ok((name, scope))
}
