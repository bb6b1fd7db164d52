//! The listeners of a pod, and what is served at each.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::answer::Pod;
use super::connections::{Activity, Connections, Socket};

/// The largest head of a request, and so what an unread one takes; it is answered 431 beyond.
const LARGEST_HEAD: usize = 64 * 1024;

/// A pod's listeners and connections.
pub(super) struct Server {
    pod: Arc<Pod>,
    /// Where it listens; ports are what they became if 0 was asked for.
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

    /// Listens at its addresses, unless it does.
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

    /// Refuses connects from now on, and closes each connection once its request is answered.
    pub(super) async fn drain(&mut self, limit: Duration) {
        self.accepting.shutdown().await;
        // What takes longer is cut off when the process ends.
        let _ = tokio::time::timeout(limit, self.connections.drain()).await;
    }

    pub(super) fn close_idle(&self) {
        self.connections.close_idle();
    }
}

async fn accept(listener: TcpListener, pod: Arc<Pod>, connections: Arc<Connections>) {
    loop {
        // An error is one of the connection, or this process has no file for it.
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        // It only matters for speed.
        let _ = stream.set_nodelay(true);
        let about = about(&pod, &stream, peer);
        let pod = pod.clone();
        connections
            .spawn(stream, |socket, activity, is_draining| serve(socket, pod, about, activity, is_draining));
    }
}

fn about(pod: &Pod, stream: &TcpStream, peer: SocketAddr) -> Arc<str> {
    // Where all addresses are listened at, that of the connection.
    stream.local_addr().map_or_else(|_| String::new(), |address| pod.about(address, peer)).into()
}

async fn serve(
    socket: Socket,
    pod: Arc<Pod>,
    about: Arc<str>,
    activity: Arc<Activity>,
    mut is_draining: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let (pod, about, under_way) = (pod.clone(), about.clone(), activity.clone().begin());
        async move {
            let answer = pod.answer(&about, request).await;
            drop(under_way);
            answer
        }
    });
    let mut connection =
        pin!(http1::Builder::new().max_buf_size(LARGEST_HEAD).serve_connection(socket, service));
    tokio::select! {
        biased;
        // A client that breaks off is its own affair.
        _ = connection.as_mut() => return,
        () = async { let _ = is_draining.wait_for(|is| *is).await; } => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
