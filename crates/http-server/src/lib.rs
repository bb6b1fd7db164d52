//! A bounded HTTP/1.1 server for the few clients of the gateway itself: probes, scrapes, the API server.
//!
//! The server limits the number and the age of its connections. The oldest connection without a request makes room for a new
//! connection. If every connection has a response in flight because its client does not read, some additional places serve only
//! requests that the handler chooses, such as probes.
//!
//! The caller supplies a [`Transport`], such as plain TCP or TLS, and a [`Handler`] of requests.
//!
//! | module | contents |
//! |---|---|
//! | [`counters`] | the counters of the connections |
//! | `places` | the places of connections, and the choice of the connection to close |
//! | `watched` | detects when a connection is silent |

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub mod counters;
mod places;
mod watched;

pub use counters::{Closed, Counters};
pub use places::Kind;
pub use watched::Watched;

use places::Places;
use watched::{Watch, WatchedBody};

/// Limits of the connections of clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections open at once for all requests. At the limit, the oldest silent connection is closed.
    pub connections: usize,
    /// Additional connections of [`Kind::Reserve`], used while no other connection is silent.
    pub reserve: usize,
    /// The timeout for the transport, such as the TLS handshake, and the timeout for the head of a request. The timeout includes
    /// the idle time before the head.
    pub head: Duration,
    /// The age at which a connection accepts no further request. The response in flight may then take the same time
    /// again.
    pub age: Duration,
}

/// The pause after an error of accept, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest accepted head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The layer between TCP and HTTP.
pub trait Transport: Send + Sync + 'static {
    /// A connection that is ready for HTTP.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Opens a connection, such as by a TLS handshake.
    fn open(&self, stream: Watched) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// TCP without another layer.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Transport for Plain {
    type Stream = Watched;

    async fn open(&self, stream: Watched) -> io::Result<Watched> {
        Ok(stream)
    }
}

/// Responds to requests.
pub trait Handler: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static;

    /// Responds to a request on a connection of this kind.
    fn respond(
        &self,
        request: Request<Incoming>,
        kind: Kind,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A server before its start.
#[derive(Debug)]
pub struct Server<T, H> {
    /// The name in the log, such as `the admin interface`.
    pub name: &'static str,
    /// The limits.
    pub bounds: Bounds,
    /// The counters of the connections.
    pub counters: Arc<Counters>,
    /// The layer below HTTP.
    pub transport: T,
    /// The handler of requests.
    pub handler: H,
}

impl<T: Transport, H: Handler> Server<T, H> {
    /// Serves until the future is dropped, which closes every connection. Errors of accept are logged, and accept is
    /// retried.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let (address, name) = (listener.local_addr()?, self.name);
        tracing::info!(%address, "{name} serves");
        let places = Places::new(self.bounds, self.counters.clone());
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let watch = Watch::new(places.take().await);
                    let task = connections.spawn(server.clone().connection(stream, watch.clone()));
                    watch.place.served_by(task);
                }
                Err(error) => {
                    tracing::warn!(%error, %address, "cannot accept connections of {name}; trying again");
                    sleep(PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, watch: Arc<Watch>) {
        let (bounds, name) = (self.bounds, self.name);
        // If the peer has disconnected, the first read reports the error.
        let _ = stream.set_nodelay(true);
        let watched = Watched { stream, watch: watch.clone() };
        let stream = match timeout(bounds.head, self.transport.open(watched)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, "a connection to {name} did not open"),
            Err(_) => return self.counters.count_closed(Closed::HeadTimeout),
        };
        let service = service_fn(|request| {
            watch.place.is_busy();
            let responded = self.handler.respond(request, watch.place.kind);
            let watch = watch.clone();
            async move { Ok::<_, Infallible>(responded.await.map(|content| WatchedBody { content, watch })) }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(bounds.head)
                .max_buf_size(MAX_HEAD)
                .serve_connection(TokioIo::new(stream), service)
        );
        let ended = match timeout(bounds.age, connection.as_mut()).await {
            Ok(ended) => ended,
            Err(_) => {
                self.counters.count_closed(Closed::Age);
                connection.as_mut().graceful_shutdown();
                timeout(bounds.age, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            if error.is_timeout() {
                self.counters.count_closed(Closed::HeadTimeout);
            }
            tracing::debug!(%error, "a connection to {name} ended early");
        }
    }
}
