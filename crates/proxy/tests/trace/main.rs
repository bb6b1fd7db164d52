//! Traces: the headers that endpoints receive, the spans that collectors receive, and collectors that misbehave.
//!
//! | module | contents |
//! |---|---|
//! | `context` | `traceparent` and `tracestate`, as received and as forwarded |
//! | `spans` | the contents of a request's span |
//! | `export` | collectors that are down, slow or wrong, or that respond too much |
//! | `collector` | a collector that decodes the spans that it receives |

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod collector;
mod context;
mod export;
mod spans;

use sluicegate_model::Tracing;
use sluicegate_testkit::backend::{Backend, Behaviour, Request};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::stream::Transport;

use collector::{Collector, Span};

type TestResult = anyhow::Result<()>;

/// A caller's trace id, and the id of its span.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Settings that record every request and export its span to this collector.
fn to(collector: std::net::SocketAddr) -> Tracing {
    let collector = format!("http://{collector}").parse().unwrap();
    Tracing { sample_percent: 100.0, ..Tracing::to(collector) }
}

fn traced(backend: &Backend, tracing: Tracing) -> Builder {
    Gateway::builder().backends([backend]).settings(|settings| settings.tracing = Some(tracing))
}

/// Sends a request on a new connection.
async fn ask_by(
    gateway: &Gateway,
    target: &str,
    lines: &[&str],
    transport: Transport,
) -> anyhow::Result<Response> {
    let mut client = Client::connect_by(gateway.addr_of(transport), transport).await?;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    Ok(client.request(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await?)
}

async fn ask(gateway: &Gateway, target: &str, lines: &[&str]) -> anyhow::Result<Response> {
    ask_by(gateway, target, lines, Transport::of_environment()).await
}

/// The last request that the backend received.
fn seen(backend: &Backend) -> Request {
    backend.last_request().unwrap()
}

/// The only value of this header field that the backend received; `None` if it received none.
fn got<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    let named: Vec<_> = request.headers.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name)).collect();
    assert!(named.len() <= 1, "{named:?}");
    named.first().map(|(_, value)| value.as_str())
}

/// Trace, span and flags of the `traceparent` that the backend received.
fn parent(request: &Request) -> (String, String, String) {
    let text = got(request, "traceparent").unwrap();
    let parts: Vec<_> = text.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { panic!("{text}") };
    assert_eq!((version, trace.len(), span.len(), flags.len()), ("00", 32, 16, 2), "{text}");
    (trace.into(), span.into(), flags.into())
}

/// Shuts down the gateway, and returns the spans that the collector received.
async fn all(gateway: &Gateway, collector: &Collector) -> Vec<Span> {
    gateway.stop().await;
    collector.spans()
}
