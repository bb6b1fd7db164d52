//! The data plane of Sluicegate.
//!
//! Input: client connections, and [`Change`](sluicegate_model::Change)s from a control plane. Output: requests to
//! endpoints, and their metrics, logs and traces ([`registry`], [`record`]). A [`Proxy`] has one worker for each CPU. A
//! worker is a thread with its own runtime, listeners, upstream connections and counters. Requests write no shared
//! data, except for cached responses (`feature/cache`), and for limits and retry budgets over all workers.
//!
//! The modules form layers, from top to bottom. A module uses only modules below it; a test in `layers` checks that.
//!
//! | module | purpose |
//! |---|---|
//! | `simulation` | tests: the zero-loss contract in a simulated network |
//! | [`proxy`](Proxy) | starts, changes and stops the data plane |
//! | `publish` | compiles the model for the workers |
//! | [`explain`] | the route of a described request, and the reason |
//! | [`registry`] | the live state: configuration, counters, upstreams, policies, for readers |
//! | `runtime` | the thread of a worker: event loop, mailbox, accepting |
//! | `http` | a client connection, and the life of a request |
//! | `layer4` | TCP, TLS passthrough, UDP |
//! | `proxy_header` | the client IP from a load balancer's PROXY header |
//! | `relay` | copies bytes both ways, for tunnels |
//! | `worker` | the state of a worker: configuration, upstreams, buffers of requests |
//! | `listener` | listening sockets |
//! | `options` | the options of a proxy |
//! | [`record`] | the record of a finished request, and its sinks: access log, trace, analytics |
//! | `rule` | the compiled routing table |
//! | `fuzz` | functions for fuzz targets |
//! | `feature` | the treatment of the requests of a rule: authentication, rate limits, redirects, caching, and so on |
//! | [`openid`] | the gateway as a client of OpenID providers |
//! | [`upstream`] | endpoints: load balancing, connections, health, pools |
//! | [`http_client`] | the HTTP client for the gateway's own requests in the background |
//! | `quic` | QUIC: sockets, and the way of each datagram to the worker of its connection |
//! | `tls` | certificates, handshakes |
//! | `stream` | connections in clear text, over TLS, and shared over HTTP/2 |
//! | `net` | TCP sockets, which a simulated network replaces in tests |
//! | [`counters`] | counters and histograms |
//! | `buffer` | buffers for bytes in flight |
//! | `template` | texts with variables of nginx |
//! | `deadline`, `date` | one cheap timer for each connection; the `Date` header |
//! | `request` | borrowed views of a request |
//! | `protobuf` | the wire format of Protocol Buffers |
//! | `path`, `query` | the ways in which endpoints may read a path; queries, and other lists of pairs |
//! | `name`, `hash`, `weight` | host names and header names; a hash that is the same in every process; the choice by weight |
//! | [`failure`] | why requests fail, and on whose side |

mod buffer;
pub mod counters;
mod date;
mod deadline;
pub mod explain;
pub mod failure;
mod feature;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hash;
mod http;
pub mod http_client;
mod layer4;
#[cfg(test)]
mod layers;
mod listener;
mod name;
mod net;
pub mod openid;
mod options;
mod path;
mod protobuf;
mod proxy;
mod proxy_header;
mod publish;
mod query;
mod quic;
pub mod record;
pub mod registry;
mod relay;
mod request;
mod rule;
mod runtime;
#[cfg(test)]
mod simulation;
mod stream;
mod template;
mod tls;
pub mod upstream;
mod weight;
mod worker;

pub use options::{Options, StartError};
pub use proxy::{Drain, Proxy};
