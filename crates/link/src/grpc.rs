//! gRPC over HTTP/2 streams: one call that sends messages both ways.
//!
//! The code drives the h2 crate directly. All data planes therefore receive the same bytes without a copy. The control
//! plane builds a message only when the stream has room for the message.

use std::future::poll_fn;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use minicbor::{Decode, Encode};
use sluicegate_model::encoding::Fault;

use crate::messages;

/// The only method of the service.
pub(crate) const METHOD: &str = "/sluicegate.link.v1.Configuration/Follow";

/// Messages are CBOR (see `messages`).
const CONTENT_TYPE: &str = "application/grpc+cbor";

/// The length of a message's prefix: a flag for compression, and the length of the payload (gRPC over HTTP/2,
/// Length-Prefixed-Message).
const PREFIX: usize = 5;

/// The status of a call's end (gRPC status codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Aborted = 10,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The error of a message that cannot be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Http2(#[from] h2::Error),
    #[error("a message of {0} bytes exceeds the size limit")]
    TooLong(usize),
    #[error("a message is compressed, but no compression was negotiated")]
    Compressed,
    #[error("a message is truncated")]
    Cut,
    #[error("a message is malformed: {0}")]
    Malformed(#[from] Fault),
}

/// The head of the call, with the value of the header `authorization` of a data plane without a client certificate.
pub(crate) fn request(authority: &str, token: Option<HeaderValue>) -> Result<Request<()>, http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("https://{authority}{METHOD}"))
        .header("content-type", CONTENT_TYPE)
        .header("te", "trailers")
        .body(())?;
    request.headers_mut().extend(token.map(|token| (AUTHORIZATION, token)));
    Ok(request)
}

/// The error response to a call for another method or content type.
pub(crate) fn fault<B>(request: &Request<B>) -> Option<Response<()>> {
    let kind = request.headers().get("content-type").map_or(&[][..], HeaderValue::as_bytes);
    if request.method() != Method::POST || kind != CONTENT_TYPE.as_bytes() {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Some(response);
    }
    (request.uri().path() != METHOD).then(|| refusal(Code::Unimplemented, "there is no such method"))
}

/// A response that consists of a status.
pub(crate) fn refusal(code: Code, message: &'static str) -> Response<()> {
    let mut response = accepted();
    response.headers_mut().extend(status(code, message));
    response
}

/// The head of a response with messages.
pub(crate) fn accepted() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// The trailers that end a response.
pub(crate) fn status(code: Code, message: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code as u32));
    trailers.insert("grpc-message", HeaderValue::from_static(message));
    trailers
}

/// The text of a status.
pub(crate) fn status_in_words(trailers: &HeaderMap) -> String {
    let text = |name| trailers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match (text("grpc-message"), text("grpc-status")) {
        (Some(message), _) if !message.is_empty() => message.to_owned(),
        (_, Some(status)) => format!("gRPC status {status}"),
        _ => "no status".to_owned(),
    }
}

/// The message of a call that ends so that the data plane looks for another control plane.
pub(crate) const ELSEWHERE: &str = "another control plane holds the Lease";

/// A message with its prefix.
pub(crate) fn encoded(message: &impl Encode<()>) -> Bytes {
    let message = messages::encoded(message);
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    put_prefix(&mut bytes, message.len());
    bytes.extend_from_slice(&message);
    bytes.freeze()
}

/// The prefix of a message of this length.
pub(crate) fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    // Messages are far shorter than 4 GiB.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Sends bytes as flow control allows. A dropped future leaves the rest in `bytes`, to be sent before any other message.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, bytes: &mut Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await;
        // The stream is closed.
        let room = room.ok_or_else(|| h2::Error::from(h2::Reason::STREAM_CLOSED))??;
        stream.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    Ok(())
}

/// The incoming messages.
pub(crate) struct Incoming {
    stream: RecvStream,
    buffer: BytesMut,
    /// The longest accepted message.
    max: usize,
}

impl Incoming {
    pub(crate) fn new(stream: RecvStream, max: usize) -> Self {
        Self { stream, buffer: BytesMut::new(), max }
    }

    /// The next message, or `None` at the end. Cancel safe: a dropped future loses no bytes.
    pub(crate) async fn next<M: for<'b> Decode<'b, ()>>(&mut self) -> Result<Option<M>, ReceiveError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(messages::decoded(&message)?));
            }
            match poll_fn(|context| self.stream.poll_data(context)).await {
                Some(data) => {
                    let data = data?;
                    self.buffer.extend_from_slice(&data);
                    self.stream.flow_control().release_capacity(data.len())?;
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(ReceiveError::Cut),
            }
        }
    }

    /// The trailers of the call.
    pub(crate) async fn trailers(&mut self) -> Result<HeaderMap, h2::Error> {
        let trailers = poll_fn(|context| self.stream.poll_trailers(context)).await?;
        Ok(trailers.unwrap_or_default())
    }

    fn take(&mut self) -> Result<Option<Bytes>, ReceiveError> {
        let Some((&[compressed, a, b, c, d], _)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > self.max {
            return Err(ReceiveError::TooLong(length));
        }
        if compressed != 0 {
            return Err(ReceiveError::Compressed);
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}
