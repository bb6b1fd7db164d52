//! Compression: which responses the gateway compresses, how it edits their heads, and how their bodies flow.
//!
//! | module | contents |
//! |---|---|
//! | `heads` | selection of responses, and their heads |
//! | `bodies` | pauses, back pressure, trailers, broken ends, limits |

mod bodies;
mod heads;

use sluicegate_model::{ContentCoding, Settings};
use sluicegate_proxy::counters::{Tally, WorkerStats};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::decode::decode;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

type TestResult = anyhow::Result<()>;

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Http2];

/// The gateway offers every coding.
fn all(settings: &mut Settings) {
    settings.compression.codings = "zstd, br, gzip".parse().expect("codings");
}

/// A gateway that compresses the responses of this backend.
async fn gateway_to(behaviour: Behaviour) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(behaviour).await?;
    let gateway = Gateway::builder().backends([&backend]).settings(all).start().await?;
    Ok((backend, gateway))
}

async fn connect(gateway: &Gateway, transport: Transport) -> anyhow::Result<Client> {
    Ok(Client::connect_by(gateway.addr_of(transport), transport).await?)
}

/// A GET with this `Accept-Encoding`.
fn get(accepted: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accepted}\r\n\r\n")
}

/// Text of this length without repetition.
fn text(length: usize) -> String {
    let mut text = String::new();
    for nth in 0_usize.. {
        text += &format!("line {nth} of the text, {} ", nth.wrapping_mul(2_654_435_761) % 1_000_003);
        if text.len() >= length {
            break;
        }
    }
    text.truncate(length);
    text
}

/// A response with these header lines, each with its line end, and this body with its Content-Length.
fn answer(lines: &str, body: &str) -> Behaviour {
    Behaviour::raw(format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// The decoded body. The body must be complete.
#[track_caller]
fn decoded(response: &Response) -> Vec<u8> {
    let Some(name) = response.header("Content-Encoding") else { return response.body.clone() };
    let coding = ContentCoding::ALL.into_iter().find(|coding| coding.name() == name).expect("a coding");
    let decoded = decode(coding, &response.body);
    assert!(decoded.is_whole, "{name} has an end");
    decoded.body
}

/// A counter, over all workers.
fn count(gateway: &Gateway, tally: impl Fn(&WorkerStats) -> &Tally) -> u64 {
    gateway.proxy().registry().counters().workers().sum(tally)
}
