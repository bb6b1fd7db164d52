//! The zero-loss contract, rule by rule: endpoints, routes and whole back ends come, go and die, and no
//! request is lost. Each test fails when what it is about is taken out of the gateway.
//!
//! | module | rules |
//! |---|---|
//! | `changes` | Z1 to Z3: changes take effect everywhere at once, and nobody notices |
//! | `removal` | Z4: what is removed gets nothing new and finishes what it has |
//! | `connecting` | Z5: no connect stalls a request |
//! | `repeating` | Z6, Z7: what is repeated, and what must not be |
//! | `health` | Z8: suspicion, and the way out of it |
//! | `idle` | Z9: unused connections to endpoints |
//! | `shutdown` | Z10: the gateway's own end, and its replacement |
//! | `sharing` | limits, balancing, slow start, balance between workers |
//! | `churn` | all of it at once, under load |
//!
//! Addresses that swallow packets are in `tests/blackhole.rs`.
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

/// Longer than any test runs: for what must not happen by itself.
const NEVER: Duration = Duration::from_secs(3600);

/// `count` back ends.
async fn backends(count: usize, behaviour: Behaviour) -> anyhow::Result<Vec<Backend>> {
    let mut backends = Vec::new();
    for _ in 0..count {
        backends.push(Backend::start(behaviour.clone()).await?);
    }
    Ok(backends)
}

/// An address that refuses connections: its port is taken, so that no other test comes to listen there, and nobody
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

/// Makes this many unused connections to the back ends, which have to take their time. Gives the clients.
async fn fill_pools(gateway: &Gateway, connections: usize) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(gateway.connect().await?);
    }
    let answered = at_once(clients, GET).await?;
    Ok(answered.into_iter().map(|(client, _)| client).collect())
}

/// How many requests were repeated after this failure.
fn retries(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.retries[failure.index()])
}

/// How many connects failed like this.
fn connect_failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.connect_failures[failure.index()])
}

/// How many requests failed for good like this.
fn failures(gateway: &Gateway, failure: Failure) -> u64 {
    gateway.count(|upstream| &upstream.failures[failure.index()])
}

/// How many unused connections the gateway keeps to this address.
fn unused(gateway: &Gateway, address: SocketAddr) -> u64 {
    gateway.endpoint(address).shards().sum(|endpoint| &endpoint.idle)
}
