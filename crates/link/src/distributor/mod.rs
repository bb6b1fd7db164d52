//! The side of the control plane: many data planes, each of which gets what changes.
//!
//! | module | what |
//! |---|---|
//! | [`state`] | all resources, encoded once, and the difference between versions |
//! | [`session`] | one data plane, from its Hello to its end |
//! | [`telemetry`] | who is connected, and which version each serves |

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

/// How long a connection may take until its call has begun.
const OPENING: Duration = Duration::from_secs(10);
/// How long the end of a call may take to be written.
const CLOSING: Duration = Duration::from_secs(1);
/// Connections beyond the subscribers that there may be: those that are opening, or about to be refused.
const OPENING_MAX: usize = 256;
/// How many inventories are held at a time.
const INVENTORIES_MAX: usize = 8;
/// What a data plane may send ahead, in bytes.
const WINDOW: u32 = 256 << 10;
/// Between two log lines about connections that fail to open.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// How data planes are served.
#[derive(Clone, Debug)]
pub struct DistributorOptions {
    /// How many data planes there may be; further ones are refused, and try again. Default 2,000.
    pub max_subscribers: usize,
    /// How long a data plane that was sent nothing goes without a heartbeat. Default 5 s.
    pub heartbeat: Duration,
    /// How long a data plane may take to accept a message, and to serve what it was sent, before it is disconnected.
    /// Default 30 s.
    pub patience: Duration,
}

impl Default for DistributorOptions {
    fn default() -> Self {
        Self { max_subscribers: 2000, heartbeat: Duration::from_secs(5), patience: Duration::from_secs(30) }
    }
}

/// Distributes the configuration to data planes. Clones are the same one.
#[derive(Clone)]
pub struct Distributor(Arc<Shared>);

struct Shared {
    options: DistributorOptions,
    state: Mutex<State>,
    /// The newest version.
    version: watch::Sender<u64>,
    counters: Counters,
    records: Records,
    /// Changes whenever a data plane says what it serves, or goes.
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
    /// One without a configuration: data planes wait until there is one.
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

    /// Gives a change to all data planes, in order with other changes, and returns the version that it leads to. Does
    /// not wait for anybody. What changes nothing is not sent.
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

    /// Returns once this many data planes serve this version or a newer one.
    pub async fn served_by(&self, subscribers: usize, version: u64) {
        let mut heard = self.0.heard.subscribe();
        while self.0.records.at(version) < subscribers {
            // There is a sender in `self`.
            let _ = heard.changed().await;
        }
    }

    /// What is known of the data planes now.
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

    /// Serves data planes until the future is dropped, which disconnects them.
    pub async fn serve(self, listener: TcpListener, tls: PlaneTls) -> Infallible {
        let places = Arc::new(Semaphore::new(self.0.options.max_subscribers + OPENING_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            // It is never closed.
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
                    // Too many open files, say.
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
            // Whoever does not read the end does not get it.
            let _ = timeout(CLOSING, poll_fn(|context| connection.poll_closed(context))).await;
        }
        Ok(Err(error)) => complain(&shared, address, &error),
        Err(_) => complain(&shared, address, "it took too long"),
    }
}

type Connection = server::Connection<tokio_rustls::server::TlsStream<TcpStream>, Bytes>;
type Call = (http::Request<h2::RecvStream>, server::SendResponse<Bytes>);

/// The handshakes, until the call begins. Returns whom the certificate is for.
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

/// Strangers may knock as often as they like.
fn complain(shared: &Shared, address: SocketAddr, error: &str) {
    shared.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    let mut complained = shared.complained.lock().unwrap_or_else(PoisonError::into_inner);
    if complained.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
        *complained = Some(Instant::now());
        tracing::warn!(%address, "a connection to the control plane was not opened: {error}");
    }
}

/// One call. The connection is driven beside it, and ends it when it ends.
async fn serve(
    shared: Arc<Shared>,
    connection: &mut Connection,
    (request, mut respond): Call,
    identity: &str,
    address: SocketAddr,
) {
    if let Some(response) = grpc::fault(&request) {
        // Nobody may be there any more.
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
