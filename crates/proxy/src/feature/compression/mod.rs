//! Compression of responses: the choice of responses and codings, and the changes to heads and bodies.
//!
//! | module | purpose |
//! |---|---|
//! | `accept` | the codings that the client accepts (`Accept-Encoding`) |
//! | `head` | the choice of responses to compress, and the changes to their heads |
//! | `body` | a body that passes through an encoder: bounded, flushed when the endpoint pauses |
//! | `encoder` | gzip, brotli and zstd behind one interface |

mod accept;
mod body;
mod encoder;
mod head;

pub(crate) use accept::choose;
pub(crate) use body::Compressor;
#[cfg(test)]
pub(crate) use body::TURN;
pub(crate) use head::{Eligible, is_grpc};
