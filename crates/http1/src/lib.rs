//! The HTTP/1.x wire protocol, with no I/O.
//!
//! What comes in: the bytes that a socket delivered, in whatever pieces. What goes out: where the parts of a head
//! lie in those bytes, how the body after it is framed, whether the connection can be used again; or the reason
//! why a message is refused. Nothing is copied and, once its vectors have grown, nothing is allocated.
//!
//! The rules are those of RFC 9110 and RFC 9112, read strictly: where recipients are known to differ, a message is
//! refused, for a difference between this gateway and what stands behind it is what request smuggling lives on.
//! Line ends are CRLF, a request has one length, a name ends at its colon, a fold is an error.
//!
//! | module | what is in it |
//! |---|---|
//! | [`request`](RequestHead) | request heads: target, authority, framing, persistence |
//! | [`response`](ResponseHead) | response heads |
//! | [`header`](Line) | header lines, and the headers a gateway [knows](Known) |
//! | [`rejection`](Rejection) | why a request is refused, with the status to answer; [`ResponseError`] is its counterpart |
//! | [`scan`](HeadScan), [`limits`](HeadLimits) | heads that come in pieces, and how large they may be |
//! | [`chunked`](ChunkedDecoder) | the chunked coding, both ways |
//! | [`path`](normalise()) | the normal form of a path, in which routes are matched |
//! | `target`, `authority`, `fields` | the parts of a head's meaning: its target, its host, its framing and connection headers |
//! | `head`, `request_fault`, `fault` | from `httparse` to lines, and what was wrong if it refused |

mod authority;
mod chunked;
mod fault;
mod fields;
mod head;
mod header;
mod limits;
mod method;
mod path;
mod rejection;
mod request;
mod request_fault;
mod response;
mod response_error;
mod scan;
mod span;
mod target;
mod token;

pub use chunked::{Chunk, ChunkError, ChunkedDecoder, LAST_CHUNK, is_trailer, write_chunk_header};
pub use fields::canonical_length;
pub use header::{Known, Line};
pub use limits::{HeadLimits, MAX_HEADERS};
pub use method::Method;
pub use path::{Normalised, normalise};
pub use rejection::Rejection;
pub use request::{RequestFraming, RequestHead, Version};
pub use response::{ResponseFraming, ResponseHead};
pub use response_error::ResponseError;
pub use scan::HeadScan;
pub use span::Span;
pub use target::TargetForm;
pub use token::is_token;
