//! HTTP/2 (RFC 9113) as a client that sends the same request again and again: written for that, because a library for all
//! uses takes several times the CPU time for each request, which the gateway beside it has not. No I/O.
//!
//! | module | what |
//! |---|---|
//! | [`request`] | the request as a frame, in which only the id changes |
//! | [`session`] | a connection: streams, windows, settings |
//! | [`exchange`] | a request and its answer |
//! | [`frame`] | what both are cut into |
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
