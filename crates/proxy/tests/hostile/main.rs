//! Hostile clients and backends. The gateway rejects an ambiguous message with a clear status, forwards unambiguous
//! messages only, ends everything in bounded time, and serves the next request as usual.
//!
//! | module | contents |
//! |---|---|
//! | `smuggling` | requests that two parsers might read differently |
//! | `chunks` | the same for bodies |
//! | `refusals` | requests that are rejected although their end is clear |
//! | `forwarded` | requests as endpoints receive them: one reading only, no forged header |
//! | `protocol` | versions, bodiless and interim responses, expectations, pipelining |
//! | `streaming` | bodies both ways, responses before the request has ended |
//! | `tunnels` | upgrades |
//! | `slow_clients` | clients that send or read slowly, or disconnect |
//! | `slow_uploads` | request bodies that arrive slowly, and how many of them an endpoint holds |
//! | `bad_backends` | endpoints that send malformed, oversized, incomplete or no responses |
//! | `any_bytes` | properties: any valid request arrives intact, any bytes do no harm |
//!
//! `tests/memory.rs` tests the cost in memory.

mod any_bytes;
mod bad_backends;
mod chunks;
mod forwarded;
mod protocol;
mod refusals;
mod slow_clients;
mod slow_uploads;
mod smuggling;
mod streaming;
mod tunnels;

use sluicegate_proxy::failure::{ClientFault, Failure};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::gateway::{Builder, Gateway};
use tokio::net::TcpListener;

type TestResult = anyhow::Result<()>;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// The bytes that an attacker wants a backend to parse as a separate request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Id: smuggled\r\n\r\n";

/// A backend, and a gateway in front of it.
async fn gateway_to(behaviour: Behaviour) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let gateway = Gateway::of([&backend]).await?;
    Ok((backend, gateway))
}

/// A gateway whose only endpoint is a socket of the test.
struct Stage {
    gateway: Gateway,
    listener: TcpListener,
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(Builder) -> Builder) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let builder = Gateway::builder().endpoints([listener.local_addr()?]);
        Ok(Self { gateway: change(builder).start().await?, listener })
    }

    /// Accepts the gateway's next connection, as the endpoint.
    async fn accept(&self) -> anyhow::Result<Client> {
        let (stream, _) = tokio::time::timeout(client::LIMIT, self.listener.accept()).await??;
        Ok(Client::over(stream)?)
    }

    /// Sends a request on a new connection. Returns the client, the endpoint's side of the connection, and the head
    /// that the endpoint received.
    async fn play(&self, request: impl AsRef<[u8]>) -> anyhow::Result<(Client, Client, String)> {
        let mut client = self.gateway.connect().await?;
        client.send(request).await?;
        let mut endpoint = self.accept().await?;
        let head = endpoint.read_until("\r\n\r\n").await?;
        Ok((client, endpoint, String::from_utf8(head)?))
    }
}

/// Checks that the gateway serves a new client and has closed the connections of earlier clients.
async fn serves_on(gateway: &Gateway) -> TestResult {
    assert_eq!(gateway.connect().await?.request(GET).await?.status, 200);
    gateway.wait_until_idle().await
}

/// The number of requests that failed with this failure in the default upstream.
fn failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.failures[failure.index()])
}

/// The number of requests that ended with this fault of the client.
fn client_faults(gateway: &Gateway, fault: ClientFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.client_faults[fault.index()])
}
