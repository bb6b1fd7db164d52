//! The HTTP/3 wire protocol, with no I/O.
//!
//! Input: the bytes of streams, in pieces of any size. Output: the headers of frames, the heads of requests, and the code
//! with which a stream or a connection must end. The crate follows RFC 9114, and RFC 9204 without a dynamic table. No
//! length that a peer announces makes it allocate memory.
//!
//! | module | contents |
//! |---|---|
//! | [`head`](decode_request) | heads of requests and responses, and trailers |
//! | [`qpack`] | field sections |
//! | [`frame`](FrameReader) | the headers of frames |
//! | [`control`](Control) | control streams, and the streams of QPACK |
//! | [`code`](Code) | error codes |
//! | [`varint`] | integers |

mod code;
mod control;
mod frame;
mod head;
pub mod qpack;
pub mod varint;

pub use code::Code;
pub use control::{Control, DecoderInstructions, StreamKind, check_encoder, write_control_stream};
pub use frame::{
    FrameHeader, FrameKind, FrameReader, write_data_header, write_goaway, write_header, write_headers,
};
pub use head::{Malformed, Protocol, decode_request, decode_trailers, encode_response, encode_trailers};
