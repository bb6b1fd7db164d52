//! The data plane of Sluicegate.
//!
//! What comes in: clients' connections, and [`Change`](sluicegate_model::Change)s from a control plane. What
//! goes out: requests to endpoints, and [`telemetry`]. A [`Proxy`] has one worker for each CPU: a thread with
//! its own runtime, listeners, upstream connections and counters. Nothing shared is written on the path of a
//! request, but by routes that keep responses (`cache`).
//!
//! | module | what |
//! |---|---|
//! | [`proxy`](Proxy) | starting, changing and stopping it all |
//! | `publish` | from the model to what workers are given |
//! | `worker` | threads, mailboxes, accepting, buffers |
//! | `listener` | listening sockets |
//! | `proxy_header` | whom a load balancer speaks for |
//! | `rule` | the compiled routing table |
//! | `batch` | the bytes below an HTTP/2 connection, gathered |
//! | `stream`, `tls` | connections in clear text and over TLS; handshakes, certificates |
//! | `relay` | bytes both ways, for tunnels |
//! | `http` | a client connection, and the life of a request |
//! | `layer4` | TCP, TLS that is passed through, UDP |
//! | `policy` | who may call a route, and how often |
//! | `cache` | responses that are kept for others |
//! | `trace` | which requests have a span, and how it comes to a collector |
//! | `compression` | which responses are compressed, and how |
//! | [`upstream`] | endpoints: choosing, connecting, health, pools |
//! | [`failure`] | why requests fail, and who gets the blame |
//! | [`telemetry`] | counters, histograms, access log |
//! | `deadline`, `date` | one cheap timer for each connection; the `Date` header |

mod batch;
mod cache;
mod compression;
mod date;
mod deadline;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http;
mod layer4;
mod listener;
mod options;
mod policy;
mod proxy;
mod proxy_header;
mod publish;
mod relay;
mod rule;
mod stream;
pub mod telemetry;
mod tls;
mod trace;
pub mod upstream;
mod worker;

pub use options::Options;
pub use proxy::{Drain, Proxy, StartError};
