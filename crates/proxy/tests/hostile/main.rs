//! Whatever clients and back ends send: what is ambiguous is refused with a clear status, what goes on is
//! unambiguous, everything ends in bounded time, and the gateway serves on as if nothing had been.
//!
//! | module | what is in it |
//! |---|---|
//! | `smuggling` | requests that two parsers might read differently |
//! | `chunks` | the same for bodies |
//! | `refusals` | requests that are refused although their end is clear |
//! | `forwarded` | what an endpoint gets: one reading only, and nothing that the client made up |
//! | `protocol` | versions, bodiless and interim responses, expectations, pipelining |
//! | `streaming` | bodies both ways, answers before the request has ended |
//! | `tunnels` | upgrades |
//! | `slow_clients` | clients that take their time, or leave |
//! | `slow_uploads` | request bodies that come slowly, and how many of them an endpoint holds |
//! | `bad_backends` | endpoints that answer nonsense, too much, too little or nothing |
//! | `any_bytes` | properties: any valid request arrives intact, any bytes do no harm |
//!
//! What memory costs is in `tests/memory.rs`.

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

/// What an attacker wants a back end to take for a request of its own.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Id: smuggled\r\n\r\n";

/// A back end and a gateway before it.
async fn gateway_to(behaviour: Behaviour) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let gateway = Gateway::of([&backend]).await?;
    Ok((backend, gateway))
}

/// A gateway whose only endpoint is played by the test.
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

    /// The next connection that the gateway makes, as the endpoint has it.
    async fn accept(&self) -> anyhow::Result<Client> {
        let (stream, _) = tokio::time::timeout(client::LIMIT, self.listener.accept()).await??;
        Ok(Client::over(stream)?)
    }

    /// Sends a request on a connection of its own. Gives its client, the endpoint's side of the connection that
    /// it came by, and its head as it came.
    async fn play(&self, request: impl AsRef<[u8]>) -> anyhow::Result<(Client, Client, String)> {
        let mut client = self.gateway.connect().await?;
        client.send(request).await?;
        let mut endpoint = self.accept().await?;
        let head = endpoint.read_until("\r\n\r\n").await?;
        Ok((client, endpoint, String::from_utf8(head)?))
    }
}

/// The gateway serves a new client, and nothing is left of earlier ones.
async fn serves_on(gateway: &Gateway) -> TestResult {
    assert_eq!(gateway.connect().await?.request(GET).await?.status, 200);
    gateway.wait_until_idle().await
}

/// How many requests the default upstream failed for good like this.
fn failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.failures[failure.index()])
}

/// How many requests their clients ended like this.
fn client_faults(gateway: &Gateway, fault: ClientFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.client_faults[fault.index()])
}
