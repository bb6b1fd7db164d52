//! A load over HTTP/3 that checks every response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use h3::error::{Code, StreamError};
use http::Request;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Http3Client, receive};
use crate::client::LIMIT;
use crate::tls::ClientOptions;

/// Clients that send one request after the other, each on a connection of its own. Like other clients of HTTP/3, they open a
/// new connection when the gateway ends a connection, and repeat requests that the gateway rejected unprocessed.
pub struct Http3Load {
    shared: Arc<Shared>,
    clients: JoinSet<anyhow::Result<()>>,
}

struct Shared {
    gateway: SocketAddr,
    served: AtomicU64,
    connections: AtomicU64,
    is_over: AtomicBool,
}

impl Http3Load {
    /// Starts a load of so many clients, which verify no certificate.
    ///
    /// # Errors
    /// If a client cannot connect.
    pub async fn start(gateway: SocketAddr, clients: usize) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            gateway,
            served: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for id in 0..clients {
            let shared = shared.clone();
            let client = shared.connect().await?;
            tasks.spawn(async move { shared.run(id, client).await });
        }
        Ok(Self { shared, clients: tasks })
    }

    /// Waits until so many requests were served.
    ///
    /// # Errors
    /// After the limit.
    pub async fn wait_for_ok(&self, served: u64, limit: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + limit;
        while self.shared.served.load(Ordering::Relaxed) < served {
            ensure!(Instant::now() < end, "{} requests served", self.shared.served.load(Ordering::Relaxed));
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Ends the load. Returns the number of connections.
    ///
    /// # Errors
    /// If a request failed.
    pub async fn stop(mut self) -> anyhow::Result<u64> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client??;
        }
        Ok(self.shared.connections.load(Ordering::Relaxed))
    }
}

/// The end of a request without an error.
enum Asked {
    Served,
    /// The gateway has not processed the request: the client may send it again.
    Unprocessed,
}

impl Shared {
    async fn connect(&self) -> anyhow::Result<Http3Client> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let options = ClientOptions::default();
        let connect = Http3Client::connect(self.gateway, &options, "localhost");
        timeout(LIMIT, connect).await.context("no connection")?.context("connecting")
    }

    async fn run(&self, id: usize, mut client: Http3Client) -> anyhow::Result<()> {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            let asked = timeout(LIMIT, ask(&client, &format!("{id}-{number}"), number % 3 == 0)).await;
            match asked.context("no response")?.with_context(|| format!("request {number} of client {id}"))? {
                Asked::Served => {
                    self.served.fetch_add(1, Ordering::Relaxed);
                }
                Asked::Unprocessed => client = self.connect().await?,
            }
        }
        Ok(())
    }
}

async fn ask(client: &Http3Client, id: &str, has_body: bool) -> anyhow::Result<Asked> {
    let method = if has_body { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri("https://localhost/").header("x-id", id).body(())?;
    // A client that knows the end of its connection sends nothing.
    let Ok(mut stream) = client.open(request).await else { return Ok(Asked::Unprocessed) };
    let asked = async {
        if has_body {
            stream.send_data(Bytes::from_static(&[b'x'; 3000])).await?;
        }
        stream.finish().await?;
        receive(&mut stream).await
    };
    let response = match asked.await {
        Ok(response) => response,
        Err(error) => match error.downcast_ref::<StreamError>() {
            // RFC 9114, 8.1.
            Some(StreamError::RemoteTerminate { code, .. }) if *code == Code::H3_REQUEST_REJECTED => {
                return Ok(Asked::Unprocessed);
            }
            _ => return Err(error),
        },
    };
    ensure!(response.status == 200, "{response:?}");
    if !String::from_utf8_lossy(&response.body).contains(id) {
        bail!("another response: {response:?}");
    }
    Ok(Asked::Served)
}
