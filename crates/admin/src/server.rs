//! The connections of the admin interface: how many there may be, and for how long.

#[cfg(test)]
mod tests;

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
use crate::pages::Pages;

/// What clients may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Connections open at once; further ones wait in the listen queue.
    connections: usize,
    /// How long a head may take, and an idle connection wait for one.
    head: Duration,
    /// For how long a connection takes requests; the response under way then has as long again.
    age: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 64, head: Duration::from_secs(10), age: Duration::from_secs(60) }
    }
}

/// How long accepting pauses after an error, such as a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 16 * 1024;

impl Admin {
    /// Serves until the future is dropped, and with it every connection. Errors of accepting are logged and
    /// tried again.
    ///
    /// # Errors
    /// If the listener is not one.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        serve(Arc::new(Pages::new(self)), listener, Bounds::default()).await
    }
}

async fn serve(pages: Arc<Pages>, listener: TcpListener, bounds: Bounds) -> io::Result<()> {
    let address = listener.local_addr()?;
    tracing::info!(%address, "admin interface");
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= bounds.connections {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(connection(pages.clone(), stream, bounds))),
            Err(error) => {
                tracing::warn!(%error, %address, "cannot accept admin connections, trying again");
                sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(pages: Arc<Pages>, stream: TcpStream, bounds: Bounds) {
    let service = service_fn(|request| {
        let response = pages.respond(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    // A peer that is gone already says so at the first read.
    let _ = stream.set_nodelay(true);
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
            connection.as_mut().graceful_shutdown();
            timeout(bounds.age, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection ended early");
    }
}
