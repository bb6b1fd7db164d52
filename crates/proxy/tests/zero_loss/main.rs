//! The zero-loss contract, rule by rule: endpoints, routes and whole backends are added, removed and killed, and no
//! request is lost. Each test fails without the feature that it tests.
//!
//! | module | rules |
//! |---|---|
//! | `changes` | Z1 to Z3: changes take effect at every worker at once, and no client notices |
//! | `removal` | Z4: a removed endpoint receives no new request and finishes the requests in flight |
//! | `connecting` | Z5: no connect stalls a request |
//! | `repeating` | Z6, Z7: requests that are retried, and requests that must not be |
//! | `health` | Z8: unhealthy endpoints, and their recovery |
//! | `idle` | Z9: idle connections to endpoints |
//! | `shutdown` | Z10: shutdown and takeover of the gateway |
//! | `sharing` | limits, load balancing, slow start, balance between workers |
//! | `churn` | all of it at once, under load |
//!
//! `tests/blackhole.rs` has the tests with addresses that drop packets.
#![allow(clippy::print_stdout, reason = "the figures are worth reading also when they are good")]

mod changes;
mod churn;
mod connecting;
mod health;
mod idle;
mod removal;
mod repeating;
mod sharing;
mod shutdown;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::gateway::Gateway;
use socket2::{Domain, Socket, Type};
use tokio::task::JoinSet;

type TestResult = anyhow::Result<()>;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nX-Id: post\r\nContent-Length: 5\r\n\r\nhello";

/// Longer than any test runs, for events that must not occur by themselves.
const NEVER: Duration = Duration::from_secs(3600);

/// Starts `count` backends.
async fn backends(count: usize, behaviour: Behaviour) -> anyhow::Result<Vec<Backend>> {
    let mut backends = Vec::new();
    for _ in 0..count {
        backends.push(Backend::start(behaviour.clone()).await?);
    }
    Ok(backends)
}

/// An address that refuses connections. Its port is bound, so that no other test can listen there, but no socket
/// listens.
fn refusing() -> anyhow::Result<SocketAddr> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    let address = socket.local_addr()?.as_socket().context("an IP address")?;
    std::mem::forget(socket);
    Ok(address)
}

/// Sends the same request on every client at once.
async fn at_once(clients: Vec<Client>, request: &'static str) -> anyhow::Result<Vec<(Client, Response)>> {
    let mut requests = JoinSet::new();
    for mut client in clients {
        requests.spawn(async move {
            let response = client.request(request).await?;
            anyhow::Ok((client, response))
        });
    }
    requests.join_all().await.into_iter().collect()
}

/// Makes this many idle connections to the backends, whose responses must take a while. Returns the clients.
async fn fill_pools(gateway: &Gateway, connections: usize) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(gateway.connect().await?);
    }
    let answered = at_once(clients, GET).await?;
    Ok(answered.into_iter().map(|(client, _)| client).collect())
}

/// The number of requests that were retried after this failure.
fn retries(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.retries[failure.index()])
}

/// The number of connects with this failure.
fn connect_failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.connect_failures[failure.index()])
}

/// The number of requests that failed with this failure.
fn failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.failures[failure.index()])
}

/// The number of idle connections that the gateway keeps to this address.
fn unused(gateway: &Gateway, address: SocketAddr) -> u64 {
    gateway.endpoint(address).shards().sum(|endpoint| &endpoint.idle)
}
