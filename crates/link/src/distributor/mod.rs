//! The control plane's side of the link: sends each change to many data planes.
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | all resources, encoded once, and the difference between versions |
//! | [`session`] | one data plane, from its Hello to its end |
//! | [`telemetry`] | the connected data planes, with the version that each serves |

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::{Reason, server};
use sluicegate_model::Change;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::grpc;
use crate::tls::{PlaneTls, name_of};

mod session;
mod state;
pub(crate) mod telemetry;

use session::Session;
use state::{Prepared, State};
use telemetry::{Counters, LinkTelemetry, Records};

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

/// The options of a distributor.
#[derive(Clone, Debug)]
pub struct DistributorOptions {
    /// The maximum number of data planes. The control plane rejects additional data planes, which retry. Default 2,000.
    pub max_subscribers: usize,
    /// The interval of heartbeats to a data plane that receives no batch. Default 5 s.
    pub heartbeat: Duration,
    /// The timeout for a data plane to accept a message, and to serve a batch. The control plane then disconnects the
    /// data plane. Default 30 s.
    pub patience: Duration,
}

impl Default for DistributorOptions {
    fn default() -> Self {
        Self { max_subscribers: 2000, heartbeat: Duration::from_secs(5), patience: Duration::from_secs(30) }
    }
}

/// Distributes the configuration to data planes. Clones share the same state.
#[derive(Clone)]
pub struct Distributor(Arc<Shared>);

struct Shared {
    options: DistributorOptions,
    state: Mutex<State>,
    /// The newest version.
    version: watch::Sender<u64>,
    counters: Counters,
    records: Records,
    /// Changes when a data plane reports its version, or disconnects.
    heard: watch::Sender<()>,
    numbers: AtomicU64,
    inventories: Semaphore,
    complained: Mutex<Option<Instant>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Distributor {
    /// A distributor without a configuration: data planes wait for the first configuration.
    #[must_use]
    pub fn new(options: DistributorOptions) -> Self {
        Self(Arc::new(Shared {
            options,
            state: Mutex::new(State::new()),
            version: watch::Sender::new(0),
            counters: Counters::default(),
            records: Records::default(),
            heard: watch::Sender::new(()),
            numbers: AtomicU64::new(0),
            inventories: Semaphore::new(INVENTORIES_MAX),
            complained: Mutex::new(None),
        }))
    }

    /// Sends a change to all data planes, in order with other changes, and returns the resulting version. Does not
    /// block. The distributor does not send a change without effect.
    pub fn publish(&self, change: &Change) -> u64 {
        let prepared = Prepared::from(change);
        let version = {
            let mut state = self.0.state();
            state.publish(prepared, Instant::now());
            state.version
        };
        self.0.version.send_if_modified(|newest| std::mem::replace(newest, version) != version);
        version
    }

    /// Returns when this many data planes serve this version or a newer version.
    pub async fn served_by(&self, subscribers: usize, version: u64) {
        let mut heard = self.0.heard.subscribe();
        while self.0.records.at(version) < subscribers {
            // `self` holds a sender.
            let _ = heard.changed().await;
        }
    }

    /// Returns when a data plane is connected, and all connected data planes serve this version or a newer version.
    pub async fn served_by_all(&self, version: u64) {
        let mut heard = self.0.heard.subscribe();
        while !self.0.records.are_all_at(version) {
            // `self` holds a sender.
            let _ = heard.changed().await;
        }
    }

    /// The current state of the data planes.
    #[must_use]
    pub fn telemetry(&self) -> LinkTelemetry {
        let (version, resources) = {
            let state = self.0.state();
            (state.version, state.resources())
        };
        let (lag, lag_sum) = self.0.counters.lag();
        let (subscribers, counts) = (self.0.records.status(), self.0.counters.counts());
        LinkTelemetry { version, resources, subscribers, counts, lag, lag_sum }
    }

    /// Serves data planes until the future is dropped. Dropping the future disconnects the data planes.
    pub async fn serve(self, listener: TcpListener, tls: PlaneTls) -> Infallible {
        let places = Arc::new(Semaphore::new(self.0.options.max_subscribers + OPENING_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            // The semaphore is never closed.
            let Ok(place) = places.clone().acquire_owned().await else { continue };
            let accepted = listener.accept().await;
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, address)) => {
                    let (shared, tls) = (self.0.clone(), TlsAcceptor::from(tls.server()));
                    connections.spawn(async move {
                        connection(shared, tls, stream, address).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // A possible cause is the limit of open files.
                    tracing::warn!(%error, "cannot accept a data plane's connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, tls: TlsAcceptor, stream: TcpStream, address: SocketAddr) {
    match timeout(OPENING, open(&tls, stream)).await {
        Ok(Ok((identity, mut connection, call))) => {
            serve(shared, &mut connection, call, &identity, address).await;
            connection.graceful_shutdown();
            // A data plane that does not read misses the status.
            let _ = timeout(CLOSING, poll_fn(|context| connection.poll_closed(context))).await;
        }
        Ok(Err(error)) => complain(&shared, address, &error),
        Err(_) => complain(&shared, address, "it took too long"),
    }
}

type Connection = server::Connection<tokio_rustls::server::TlsStream<TcpStream>, Bytes>;
type Call = (http::Request<h2::RecvStream>, server::SendResponse<Bytes>);

/// Makes the handshakes, and accepts the call. Returns the name in the client's certificate.
async fn open(tls: &TlsAcceptor, stream: TcpStream) -> Result<(String, Connection, Call), String> {
    // Endpoint changes are small, and must not wait for acknowledgements.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let stream = tls.accept(stream).await.map_err(|error| error.to_string())?;
    let certificates = stream.get_ref().1.peer_certificates();
    let identity = certificates.and_then(|chain| chain.first()).map(name_of).unwrap_or_default();
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

/// Logs a failed handshake, at a limited rate because any client can cause failures.
fn complain(shared: &Shared, address: SocketAddr, error: &str) {
    shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
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
    identity: &str,
    address: SocketAddr,
) {
    if let Some(response) = grpc::fault(&request) {
        // The data plane may have disconnected.
        let _ = respond.send_response(response, true);
        return;
    }
    let session = Session::begin(shared, request.into_body(), respond, identity, address);
    let mut session = std::pin::pin!(session);
    loop {
        tokio::select! {
            () = &mut session => return,
            next = connection.accept() => match next {
                Some(Ok((_, mut further))) => further.send_reset(Reason::REFUSED_STREAM),
                Some(Err(_)) | None => return,
            },
        }
    }
}
