//! The listeners of a pod, and the service at each.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::answer::{Broken, Pod};
use super::connections::{Activity, Connections, Socket};

/// The largest head of a request, and therefore the memory for an unread request; for a larger head the response is
/// 431.
const LARGEST_HEAD: usize = 64 * 1024;

/// Requests in flight on an HTTP/2 connection.
const MOST_STREAMS: u32 = 1000;
/// The time for which a connection without a request stays open while the pod drains.
const GRACE: Duration = Duration::from_millis(100);

/// A pod's listeners and connections.
pub(super) struct Server {
    pod: Arc<Pod>,
    /// The addresses of the listeners; with the actual port if port 0 was requested.
    addresses: Vec<SocketAddr>,
    accepting: JoinSet<()>,
    connections: Arc<Connections>,
}

impl Server {
    pub(super) fn new(pod: Pod, addresses: &[SocketAddr]) -> Self {
        let connections = Arc::new(Connections::new());
        Self { pod: Arc::new(pod), addresses: addresses.to_vec(), accepting: JoinSet::new(), connections }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Listens at its addresses, unless the listeners are already open.
    pub(super) async fn accept(&mut self) -> anyhow::Result<()> {
        if !self.accepting.is_empty() {
            return Ok(());
        }
        for address in &mut self.addresses {
            let listening = || format!("cannot listen at {address}");
            let listener = TcpListener::bind(*address).await.with_context(listening)?;
            *address = listener.local_addr().with_context(listening)?;
            self.accepting.spawn(accept(listener, self.pod.clone(), self.connections.clone()));
        }
        Ok(())
    }

    /// Refuses connects from now on, and resets all connections.
    pub(super) async fn refuse(&mut self) {
        self.accepting.shutdown().await;
        self.connections.reset().await;
    }

    /// Refuses connects from now on, and closes each connection after the response to its request.
    pub(super) async fn drain(&mut self, limit: Duration) {
        self.connections.drain();
        let ended = async {
            while self.accepting.join_next().await.is_some() {}
            self.connections.all_closed().await;
        };
        // Requests that take longer are cut off when the process ends.
        let _ = tokio::time::timeout(limit, ended).await;
    }

    pub(super) fn close_idle(&self) {
        self.connections.close_idle();
    }
}

/// Accepts until the pod drains.
async fn accept(listener: TcpListener, pod: Arc<Pod>, connections: Arc<Connections>) {
    let mut draining = pin!(connections.draining());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = draining.as_mut() => break,
        };
        match accepted {
            Ok((stream, peer)) => begin(stream, peer, &pod, &connections),
            // The error concerns only this connection, or the process has no free file descriptor.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    // The kernel would reset connections that the process has not accepted yet.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, peer)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(stream, peer, &pod, &connections);
        }
    }
}

/// Begins to serve a connection.
fn begin(stream: TcpStream, peer: SocketAddr, pod: &Arc<Pod>, connections: &Arc<Connections>) {
    // A failure affects only the speed.
    let _ = stream.set_nodelay(true);
    // If the listener has the wildcard address, this is the address of the connection.
    let about = stream.local_addr().map_or_else(|_| String::new(), |address| pod.about(address, peer));
    let pod = pod.clone();
    connections.spawn(stream, |socket, activity| serve(socket, pod, about.into(), activity));
}

async fn serve(socket: Socket, pod: Arc<Pod>, about: Arc<str>, activity: Arc<Activity>) {
    let mut draining = pin!(activity.draining());
    let service = service_fn(move |request: Request<Incoming>| {
        let (pod, about, under_way) = (pod.clone(), about.clone(), activity.clone().begin());
        let is_http1 = request.version() != Version::HTTP_2;
        async move {
            let mut answer = pod.answer(&about, request).await?;
            // HTTP/2 announces the close in another way, which hyper implements.
            if is_http1 && under_way.is_last() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Broken>(answer)
        }
    });
    // The preface identifies HTTP/2. The check costs HTTP/1.1 almost no time.
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(LARGEST_HEAD);
    builder.http2().max_header_list_size(LARGEST_HEAD as u32).max_concurrent_streams(MOST_STREAMS);
    let mut connection = pin!(builder.serve_connection(socket, service));
    let last = async {
        draining.as_mut().await;
        // The backend responds to a request that the client sent before it learned of the close.
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        // The pod ignores a client that aborts.
        _ = connection.as_mut() => return,
        () = last => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
