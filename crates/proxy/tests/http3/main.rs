//! HTTP/3 with clients: requests, connections that move, malformed messages, and takeovers.
//!
//! | module | contents |
//! |---|---|
//! | `requests` | requests and responses of every kind |
//! | `connections` | handshakes, limits, new addresses of clients, shutdown |
//! | `early_data` | requests before the end of the handshake |
//! | `tunnels` | WebSocket |
//! | `malformed` | messages that RFC 9114 forbids, and messages that it tells to ignore |

mod connections;
mod early_data;
mod malformed;
mod requests;
mod tunnels;

use http::Request;
use sluicegate_model::tls::Http3;
use sluicegate_proxy::counters::{Http3Stats, Tally};
use sluicegate_testkit::backend::Backend;
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::http3::Http3Client;
use sluicegate_testkit::tls::Authority;

type TestResult = anyhow::Result<()>;

const URI: &str = "https://localhost/";

/// A gateway with HTTP/3.
fn with_http3() -> Builder {
    Gateway::builder().settings(|settings| settings.tls.http3 = Some(Http3::default()))
}

/// A gateway with HTTP/3 in front of a backend.
async fn before(backend: &Backend) -> anyhow::Result<Gateway> {
    with_http3().backends([backend]).start().await
}

/// A client of the gateway.
async fn client(gateway: &Gateway) -> anyhow::Result<Http3Client> {
    Http3Client::connect(gateway.https_addr(), &Authority::of_process().client(), "localhost").await
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("https://localhost{path}")).body(()).expect("a request")
}

/// The sum of a counter over all workers.
fn count(gateway: &Gateway, tally: impl Fn(&Http3Stats) -> &Tally) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| tally(&worker.http3))
}
