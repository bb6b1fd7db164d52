//! An HTTP/2 server with a behaviour that the test sets. It uses another HTTP/2 implementation than the program under
//! test.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// A received request.
pub(crate) struct Seen {
    pub(crate) head: Request<()>,
    pub(crate) body: Vec<u8>,
    /// Its number among the requests of its connection, from 0.
    pub(crate) number: usize,
    /// The number of requests in flight on its connection when it arrived, including itself.
    pub(crate) under_way: usize,
}

/// The behaviour of a server beside its responses.
pub(crate) struct Habits {
    pub(crate) builder: Builder,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The delay before each response.
    pub(crate) pause: Duration,
    /// The server sends GOAWAY after this many requests of a connection.
    pub(crate) most: usize,
}

impl Default for Habits {
    fn default() -> Self {
        Self { builder: Builder::new(), tls: None, pause: Duration::ZERO, most: usize::MAX }
    }
}

/// Runs this function for each request. The server ends with the process.
pub(crate) fn answering(
    habits: Habits,
    answer: impl Fn(&Seen, SendResponse<Bytes>) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let (habits, answer) = (Arc::new(habits), Arc::new(answer));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (habits, answer) = (habits.clone(), answer.clone());
                tokio::spawn(async move {
                    let Some(config) = &habits.tls else { return serve(stream, &habits, answer).await };
                    // Failed handshakes are expected: some tests provoke them.
                    if let Ok(stream) = TlsAcceptor::from(config.clone()).accept(stream).await {
                        serve(stream, &habits, answer).await;
                    }
                });
            }
        });
    });
    addr
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    habits: &Habits,
    answer: Arc<impl Fn(&Seen, SendResponse<Bytes>) + Send + Sync + 'static>,
) {
    let Ok(mut connection) = habits.builder.handshake::<_, Bytes>(stream).await else { return };
    let mut number = 0;
    let under_way = Arc::new(AtomicUsize::new(0));
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        let mut seen = Seen { head: Request::from_parts(head, ()), body: Vec::new(), number, under_way: 0 };
        number += 1;
        if number == habits.most {
            connection.graceful_shutdown();
        }
        let (under_way, answer, pause) = (under_way.clone(), answer.clone(), habits.pause);
        seen.under_way = under_way.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::spawn(async move {
            while let Some(Ok(data)) = body.data().await {
                seen.body.extend_from_slice(&data);
                let _ = body.flow_control().release_capacity(data.len());
            }
            tokio::time::sleep(pause).await;
            answer(&seen, respond);
            under_way.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Responds with this status and body, echoes the id, and sends the trailers, if any.
pub(crate) fn respond(
    seen: &Seen,
    mut to: SendResponse<Bytes>,
    status: u16,
    body: Bytes,
    trailers: &HeaderMap,
) {
    let id = seen.head.headers().get("x-lab-id").unwrap();
    let head = Response::builder().status(status).header("x-lab-id", id).body(()).unwrap();
    // The client may have disconnected: some tests provoke that.
    let Ok(mut stream) = to.send_response(head, false) else { return };
    let _ = stream.send_data(body, trailers.is_empty());
    if !trailers.is_empty() {
        let _ = stream.send_trailers(trailers.clone());
    }
}

/// Responds with 200 and two bytes.
pub(crate) fn ok(seen: &Seen, to: SendResponse<Bytes>) {
    respond(seen, to, 200, Bytes::from_static(b"ok"), &HeaderMap::new());
}
