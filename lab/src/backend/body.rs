//! Bodies of responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};

/// A large body repeats these bytes, so that a gigabyte takes no memory.
static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// The body of a response.
#[derive(Debug)]
pub(super) enum Body {
    Text(Bytes),
    /// This many bytes of filler.
    Filler(u64),
    /// A gRPC message, followed by the trailers of success.
    Message(Bytes),
    /// The trailers after the message.
    Status,
    /// The end of the body.
    End,
}

impl Body {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Filler(left) => *left,
            Self::Message(message) => message.len() as u64,
            Self::Status | Self::End => 0,
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut *self {
            Self::Message(message) => {
                let message = std::mem::take(message);
                *self = Self::Status;
                return Poll::Ready(Some(Ok(Frame::data(message))));
            }
            Self::Status => {
                *self = Self::End;
                let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                return Poll::Ready(Some(Ok(Frame::trailers([status].into_iter().collect()))));
            }
            Self::End => return Poll::Ready(None),
            Self::Text(text) => std::mem::take(text),
            Self::Filler(left) => {
                let part = (*left).min(FILLER.len() as u64);
                *left -= part;
                Bytes::from_static(&FILLER[..part as usize])
            }
        };
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Filler(left) => *left == 0,
            Self::Message(_) | Self::Status => false,
            Self::End => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(_) | Self::Filler(_) | Self::End => SizeHint::with_exact(self.len()),
            // A call has trailers after its message, and no Content-Length.
            Self::Message(_) | Self::Status => SizeHint::default(),
        }
    }
}

/// A message with one field, number 1, a string of this length. The gRPC frame header has the length of the
/// uncompressed message; the field begins with its own length in the form of Protocol Buffers.
pub(super) fn message(length: u32) -> Bytes {
    let mut field = vec![0x0a];
    let mut rest = length;
    while rest >= 0x80 {
        field.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    field.push(rest as u8);
    field.resize(field.len() + length as usize, b'x');
    let mut message = vec![0];
    // The length is at most 4 MiB (the limit of the option) and some bytes.
    message.extend_from_slice(&(field.len() as u32).to_be_bytes());
    message.extend(field);
    message.into()
}
