//! A backend for HTTP/2 by prior knowledge.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The handling of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Responds with 200, the request's body and its trailers; without a body, with the request's `x-id`.
    Echo,
    /// Rejects every stream before processing it.
    Refuse,
    /// Never responds.
    Silent,
    /// Ends each connection with GOAWAY after this many requests, and rejects later streams.
    GoAwayAfter(u64),
    /// Responds with a head alone, with this value in `grpc-status`.
    GrpcStatus(u8),
    /// Responds like grpc.health.v1; the value is the reported health.
    GrpcHealth(bool),
    /// Accepts WebSocket (RFC 8441) and echoes the bytes of the tunnel; responds with 403 to a request without a
    /// protocol.
    WebSocket,
}

/// A backend for HTTP/2.
#[derive(Debug)]
pub struct Http2Backend {
    addr: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    manner: Mutex<Manner>,
    streams: u32,
    connections: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    most_at_once: AtomicU64,
    /// The count of each `x-id` of a POST.
    ids: Mutex<HashMap<String, u64>>,
    last: Mutex<Option<HeaderMap>>,
}

impl Http2Backend {
    /// Starts a backend on a free port; `streams` is the limit of concurrent requests on a connection.
    ///
    /// # Errors
    /// If the backend cannot listen.
    pub async fn start(manner: Manner, streams: u32) -> io::Result<Self> {
        Self::start_on(std::net::TcpListener::bind("127.0.0.1:0")?, manner, streams)
    }

    /// Starts a backend on a listener, which may be in another network namespace.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn start_on(listener: std::net::TcpListener, manner: Manner, streams: u32) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let addr = listener.local_addr()?;
        let state = Arc::new(State {
            manner: Mutex::new(manner),
            streams,
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            most_at_once: AtomicU64::new(0),
            ids: Mutex::default(),
            last: Mutex::default(),
        });
        let task = tokio::spawn({
            let state = state.clone();
            async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    state.connections.fetch_add(1, Ordering::Relaxed);
                    state.open.fetch_add(1, Ordering::Relaxed);
                    let state = state.clone();
                    connections.spawn(async move {
                        serve(stream, state.clone()).await;
                        state.open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        Ok(Self { addr, state, task })
    }

    /// The address of the listener.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the handling of the next requests.
    pub fn set(&self, manner: Manner) {
        *self.state.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.state.open.load(Ordering::Relaxed)
    }

    /// The number of processed requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// The maximum number of requests in flight at once on one connection.
    #[must_use]
    pub fn most_at_once(&self) -> u64 {
        self.state.most_at_once.load(Ordering::Relaxed)
    }

    /// The ids of more than one request.
    #[must_use]
    pub fn repeated_ids(&self) -> Vec<String> {
        let ids = self.state.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id.clone()).collect()
    }

    /// The header fields of the last request.
    #[must_use]
    pub fn last(&self) -> HeaderMap {
        self.state.last.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Ends the backend at once, with all its connections.
    pub fn kill(&self) {
        self.task.abort();
    }
}

impl Drop for Http2Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let mut builder = h2::server::Builder::new();
    if *state.manner.lock().unwrap_or_else(PoisonError::into_inner) == Manner::WebSocket {
        builder.enable_connect_protocol();
    }
    let Ok(mut connection) =
        builder.max_concurrent_streams(state.streams).handshake::<_, Bytes>(stream).await
    else {
        return;
    };
    let mut streams = JoinSet::new();
    let mut taken = 0;
    let most = Arc::new(AtomicU64::new(0));
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let manner = *state.manner.lock().unwrap_or_else(PoisonError::into_inner);
        taken += 1;
        match manner {
            Manner::Refuse => respond.send_reset(Reason::REFUSED_STREAM),
            Manner::GoAwayAfter(limit) if taken > limit => respond.send_reset(Reason::REFUSED_STREAM),
            _ => {
                if manner == Manner::GoAwayAfter(taken) {
                    connection.graceful_shutdown();
                }
                streams.spawn(answer(request, respond, state.clone(), most.clone(), manner));
            }
        }
    }
    while streams.join_next().await.is_some() {}
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    state: Arc<State>,
    now: Arc<AtomicU64>,
    manner: Manner,
) {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let at_once = now.fetch_add(1, Ordering::Relaxed) + 1;
    state.most_at_once.fetch_max(at_once, Ordering::Relaxed);
    let (parts, mut body) = request.into_parts();
    let id = parts.headers.get("x-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    if parts.method == http::Method::POST {
        *state.ids.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default() += 1;
    }
    *state.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(parts.headers.clone());
    let served = async {
        if manner == Manner::Silent {
            return std::future::pending().await;
        }
        let mut response = Response::new(());
        if manner == Manner::WebSocket {
            let is_asked =
                parts.extensions.get::<Protocol>().is_some_and(|asked| asked.as_str() == "websocket");
            if parts.method != http::Method::CONNECT || !is_asked || id == "refused" {
                *response.status_mut() = http::StatusCode::FORBIDDEN;
                return respond.send_response(response, true).map(drop);
            }
            response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("chat"));
        }
        if let Manner::GrpcStatus(status) = manner {
            response.headers_mut().insert("grpc-status", HeaderValue::from(u16::from(status)));
            return respond.send_response(response, true).map(drop);
        }
        if let Manner::GrpcHealth(serves) = manner {
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            let mut sink = respond.send_response(response, false)?;
            let status = if serves { 1 } else { 2 };
            sink.send_data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, status]), false)?;
            return sink.send_trailers(
                [(http::HeaderName::from_static("grpc-status"), HeaderValue::from(0))].into_iter().collect(),
            );
        }
        let mut sink = respond.send_response(response, false)?;
        let mut is_empty = true;
        while let Some(data) = body.data().await {
            let data = data?;
            let _ = body.flow_control().release_capacity(data.len());
            is_empty &= data.is_empty();
            sink.send_data(data, false)?;
        }
        match body.trailers().await? {
            Some(trailers) => sink.send_trailers(trailers),
            None if is_empty => sink.send_data(Bytes::from(id), true),
            None => sink.send_data(Bytes::new(), true),
        }
    };
    // The client may have disconnected.
    let _: Result<(), h2::Error> = served.await;
    now.fetch_sub(1, Ordering::Relaxed);
}
