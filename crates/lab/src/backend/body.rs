//! Bodies of answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A large body is this, again and again: a gigabyte costs no memory.
static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    Text(Bytes),
    /// So many bytes of no meaning.
    Filler(u64),
}

impl Body {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Filler(left) => *left,
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
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}
