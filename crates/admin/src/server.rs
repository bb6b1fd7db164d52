//! Serves the connections of the admin interface, and limits their number and their age.
//!
//! The interface responds to probes under any load from other clients: the kubelet restarts a pod that does not respond
//! to its probe. The oldest connection without a request makes room for a new connection. If every connection has a
//! response in flight because its client does not read, some additional places serve only probes.

mod places;
#[cfg(test)]
mod tests;
mod watched;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Admin;
use crate::counters::{Closed, Counters};
use crate::pages::Pages;
use places::{Kind, Places};
use watched::{Watch, Watched, WatchedContent};

/// Limits of the connections of clients. README and `--help` name the same numbers.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Connections open at once for all pages. At the limit, the oldest silent connection is closed.
    connections: usize,
    /// Additional connections for `/healthz` and `/readyz`, used while no other connection is silent.
    reserve: usize,
    /// The timeout for the head of a request. The timeout includes the idle time before the head.
    head: Duration,
    /// The age at which a connection accepts no further request. The response in flight may then take the same time
    /// again.
    age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 64, reserve: 16, head: Duration::from_secs(2), age: Duration::from_secs(60) }
    }
}

/// The pause after an error of accept, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest accepted head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

impl Admin {
    /// Serves until the future is dropped, which closes every connection. Errors of accept are logged, and accept is
    /// retried.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        serve(Arc::new(Pages::new(self)), listener, Bounds::default()).await
    }
}

async fn serve(pages: Arc<Pages>, listener: TcpListener, bounds: Bounds) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "the admin interface serves");
    let places = Places::new(bounds, pages.counters().clone());
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let watch = Watch::new(places.take().await);
                let task = connections.spawn(connection(pages.clone(), stream, watch.clone(), bounds));
                watch.place.served_by(task);
            }
            Err(error) => {
                tracing::warn!(%error, %address, "cannot accept connections of the admin interface; trying again");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(pages: Arc<Pages>, stream: TcpStream, watch: Arc<Watch>, bounds: Bounds) {
    let service = service_fn(|request| {
        watch.place.is_busy();
        let response = match watch.place.kind {
            Kind::Ordinary => pages.respond(&request),
            Kind::Reserve => pages.respond_to_probe(&request),
        };
        let response = response.map(|content| WatchedContent { content, watch: watch.clone() });
        async move { Ok::<_, Infallible>(response) }
    });
    // If the peer has disconnected, the first read reports the error.
    let _ = stream.set_nodelay(true);
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.head)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(Watched { stream, watch: watch.clone() }), service)
    );
    let counters: &Counters = pages.counters();
    let ended = match timeout(bounds.age, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            counters.count_closed(Closed::Age);
            connection.as_mut().graceful_shutdown();
            timeout(bounds.age, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            counters.count_closed(Closed::HeadTimeout);
        }
        tracing::debug!(%error, "an admin connection ended early");
    }
}
