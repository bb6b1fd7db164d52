//! The data plane of Sluicegate.
//!
//! What comes in: client connections, and [`Change`](sluicegate_model::Change)s from a control plane. What goes out:
//! requests to endpoints, and [`telemetry`]. A [`Proxy`] has one worker for each CPU. A worker is a thread with its own
//! runtime, listeners, upstream connections and counters. Requests write no shared data, except on routes that cache
//! responses (`cache`).
//!
//! | module | purpose |
//! |---|---|
//! | [`proxy`](Proxy) | starts, changes and stops the data plane |
//! | `publish` | compiles the model for the workers |
//! | `worker` | threads, mailboxes, accepting, buffers |
//! | `listener` | listening sockets |
//! | `proxy_header` | the client IP from a load balancer's PROXY header |
//! | `rule` | the compiled routing table |
//! | `batch` | gathers the bytes of an HTTP/2 connection into few writes |
//! | `stream`, `tls` | connections in clear text and over TLS; handshakes, certificates |
//! | `relay` | copies bytes both ways, for tunnels |
//! | `http` | a client connection, and the life of a request |
//! | `layer4` | TCP, TLS passthrough, UDP |
//! | `policy` | authentication, authorization, rate limits, traffic |
//! | `cache` | cached responses |
//! | `trace` | sampling of requests, and the export of spans to a collector |
//! | `compression` | the choice of responses to compress, and their encoding |
//! | [`upstream`] | endpoints: load balancing, connections, health, pools |
//! | [`failure`] | why requests fail, and on whose side |
//! | [`telemetry`] | counters, histograms, access log |
//! | `deadline`, `date` | one cheap timer for each connection; the `Date` header |

mod buffer;
mod cache;
mod compression;
mod date;
mod deadline;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hash;
mod http;
mod layer4;
mod listener;
mod name;
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
