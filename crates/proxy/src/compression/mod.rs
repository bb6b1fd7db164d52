//! Compression of responses: which, by what, and how their heads and bodies change.
//!
//! | module | what |
//! |---|---|
//! | `accept` | what the client accepts (`Accept-Encoding`) |
//! | `head` | which responses are compressed, and what that changes of their heads |
//! | `body` | a body on its way through an encoder: bounded, flushed when the endpoint pauses |
//! | `encoder` | gzip, brotli and zstd behind one face |

mod accept;
mod body;
mod encoder;
mod head;

pub(crate) use accept::choose;
pub(crate) use body::Compressor;
#[cfg(test)]
pub(crate) use body::TURN;
pub(crate) use encoder::EncoderError;
pub(crate) use head::{Eligible, is_grpc};
