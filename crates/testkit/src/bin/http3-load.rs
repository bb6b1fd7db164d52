//! A load over HTTP/3 for `make bench-http3`, by the crates quinn and h3: a closed loop on open connections, or a connection for
//! each request. Prints the number of served requests as JSON. Exits with 1 after a failed request.

#![allow(clippy::print_stdout, reason = "the result of this program is what it prints")]

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use http::Request;
use sluicegate_testkit::http3::{self, Http3Client};
use sluicegate_testkit::tls::ClientOptions;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

/// The timeout of a connect, and of a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends GET requests over HTTP/3, and verifies no certificate.
#[derive(Debug, Parser)]
#[command(name = "http3-load")]
struct Arguments {
    /// The IP address and UDP port of the gateway.
    gateway: SocketAddr,
    /// The URL of the requests: `https`, a name, and a path.
    url: http::Uri,
    /// The number of connections.
    #[arg(long, default_value_t = 10)]
    connections: usize,
    /// The number of requests in flight on one connection.
    #[arg(long, default_value_t = 10)]
    streams: usize,
    /// The duration in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Open a connection for each request. Each has a full handshake.
    #[arg(long, conflicts_with = "streams")]
    new_connections: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Rc::new(Arguments::parse());
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let local = LocalSet::new();
    let served = local.run_until(async {
        let mut connections = JoinSet::new();
        for _ in 0..arguments.connections {
            let arguments = arguments.clone();
            connections.spawn_local(async move {
                match arguments.new_connections {
                    true => arguments.open_and_ask(end).await,
                    false => arguments.ask_on_one(end).await,
                }
            });
        }
        let mut served = 0;
        while let Some(of_connection) = connections.join_next().await {
            served += of_connection??;
        }
        anyhow::Ok(served)
    });
    println!("{}", serde_json::json!({"served": served.await?}));
    Ok(())
}

impl Arguments {
    async fn connect(&self) -> anyhow::Result<Http3Client> {
        let name = self.url.host().context("the URL has no host")?;
        let options = ClientOptions::default();
        timeout(PATIENCE, Http3Client::connect(self.gateway, &options, name))
            .await
            .context("no connection")?
    }

    /// Keeps requests in flight on one connection. Returns the number of served requests.
    async fn ask_on_one(self: Rc<Self>, end: Instant) -> anyhow::Result<u64> {
        let client = Rc::new(self.connect().await?);
        let mut streams = JoinSet::new();
        for _ in 0..self.streams {
            let (arguments, client) = (self.clone(), client.clone());
            streams.spawn_local(async move {
                let mut served = 0;
                while Instant::now() < end {
                    arguments.ask(&client).await?;
                    served += 1;
                }
                anyhow::Ok(served)
            });
        }
        let mut served = 0;
        while let Some(of_stream) = streams.join_next().await {
            served += of_stream??;
        }
        Ok(served)
    }

    /// Opens a connection for each request. Returns the number of served requests.
    async fn open_and_ask(&self, end: Instant) -> anyhow::Result<u64> {
        let mut served = 0;
        while Instant::now() < end {
            let client = self.connect().await?;
            self.ask(&client).await?;
            client.connection.close(0u32.into(), b"");
            served += 1;
        }
        Ok(served)
    }

    async fn ask(&self, client: &Http3Client) -> anyhow::Result<()> {
        let asked = async {
            let mut stream = client.open(Request::get(&self.url).body(())?).await?;
            stream.finish().await?;
            http3::receive(&mut stream).await
        };
        let response = timeout(PATIENCE, asked).await.context("no response")??;
        ensure!(response.status == 200, "the status is {}", response.status);
        Ok(())
    }
}
