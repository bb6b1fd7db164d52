//! The plan of a load: its options after parsing and consistency checks.

use std::net::SocketAddr;

use super::nanos::Nanos;
use super::request::{Posts, Request};
use super::schedule::Schedule;
use super::target::Target;
use super::tls::TlsOptions;

/// The protocol of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2 {
        /// The maximum number of requests in flight on a connection.
        streams: usize,
        /// Whether requests are gRPC calls.
        is_grpc: bool,
    },
}

/// The plan of a load.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsOptions>,
    /// The number of threads, from 1 to the number of connections.
    pub(crate) threads: usize,
    pub(crate) schedule: Schedule,
    /// The timeout of a connect with its handshake, and of a request.
    pub(crate) timeout: Nanos,
    pub(crate) get: Request,
    pub(crate) post: Request,
    /// The requests that are POSTs.
    pub(crate) posts: Posts,
    pub(crate) protocol: Protocol,
    /// Whether each request has its own connection, which opens when the request is due.
    pub(crate) is_new_each: bool,
    /// The length of an interval of latency over time.
    pub(crate) interval: Nanos,
    /// Whether the echo of ids is checked.
    pub(crate) verify: bool,
    /// The number of the run, which is part of each id.
    pub(crate) run: u32,
}
