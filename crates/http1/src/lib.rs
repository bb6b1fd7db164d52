//! The HTTP/1.x wire protocol, with no I/O.
//!
//! Input: the bytes from a socket, in pieces of any size. Output: the positions of the parts of a head in these bytes,
//! the framing of the body, and whether the connection can be reused. For an invalid message the output is the reason
//! of the rejection. The crate copies nothing, and allocates nothing after its vectors have grown.
//!
//! The parser follows RFC 9110 and RFC 9112 strictly. It rejects messages that recipients are known to interpret
//! differently, because request smuggling exploits differences between a gateway and its endpoints. Line ends are CRLF,
//! a request has one length, a name ends at its colon, and a fold is an error.
//!
//! | module | contents |
//! |---|---|
//! | [`request`](RequestHead) | request heads: target, authority, framing, persistence |
//! | [`response`](ResponseHead) | response heads |
//! | [`header`](Line) | header lines, and the headers that a gateway [knows](Known) |
//! | [`rejection`](Rejection) | the reasons to reject a request, with their statuses; [`ResponseError`] for responses |
//! | [`scan`](HeadScan), [`limits`](HeadLimits) | heads in pieces, and their size limits |
//! | [`chunked`](ChunkedDecoder) | the chunked coding, both ways |
//! | [`path`](normalise()) | the normal form of a path, for matching routes |
//! | `target`, `authority`, `fields` | the request target, the host, and the framing and connection headers |
//! | `head`, `request_fault`, `fault` | conversion of `httparse`'s results to lines, and the faults of rejected heads |

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
