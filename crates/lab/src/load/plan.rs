//! What a load does: options that were understood and belong together.

use std::net::SocketAddr;

use super::nanos::Nanos;
use super::request::{Posts, Request};
use super::schedule::Schedule;
use super::target::Target;
use super::tls::TlsOptions;

/// What is spoken on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2 {
        /// How many requests a connection carries at once.
        streams: usize,
        /// Whether requests are calls of gRPC.
        is_grpc: bool,
    },
}

/// What a load does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsOptions>,
    /// From 1 to the number of connections.
    pub(crate) threads: usize,
    pub(crate) schedule: Schedule,
    /// Of connecting with the handshake, and of a request.
    pub(crate) timeout: Nanos,
    pub(crate) get: Request,
    pub(crate) post: Request,
    /// Which requests are POSTs.
    pub(crate) posts: Posts,
    pub(crate) protocol: Protocol,
    /// Whether each request has a connection of its own, which is opened when it is due.
    pub(crate) is_new_each: bool,
    /// How finely latency over time is told.
    pub(crate) interval: Nanos,
    /// Whether the echo of ids is looked at.
    pub(crate) verify: bool,
    /// The run's own number, in each id.
    pub(crate) run: u32,
}
