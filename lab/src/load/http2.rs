//! HTTP/2 (RFC 9113) for a client that repeats the same request. The crate h2 takes 1.7 times the CPU time
//! per request (docs/decisions/lab-http2.md), which the gateway on the same machine would lack. No I/O.
//!
//! | module | content |
//! |---|---|
//! | [`request`] | the request as a frame, in which only the id changes |
//! | [`session`] | a connection: streams, windows, settings |
//! | [`exchange`] | a request and its answer |
//! | [`frame`] | the frames of requests and responses |
//! | [`hpack`], [`huffman`] | header lists |

mod exchange;
mod frame;
mod hpack;
mod huffman;
pub(super) mod request;
mod session;
#[cfg(test)]
mod tests;

pub(super) use exchange::Checks;
pub(super) use session::{Finished, Session};
