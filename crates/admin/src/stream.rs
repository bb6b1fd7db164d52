//! A body that is written while it is sent.
//!
//! The metrics of 5,000 busy routes are tens of megabytes of text. Written piece by piece, with the client's
//! pace, they need two pieces of memory.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The bytes of a piece.
const PIECE: usize = 64 * 1024;

/// The pieces as the connection sends them.
pub(crate) struct Pieces(Receiver<Bytes>);

/// What makes the pieces. It blocks while the client does not read, and fails once the client is gone.
pub(crate) struct Writer {
    pieces: Sender<Bytes>,
    buffer: Vec<u8>,
}

impl Pieces {
    /// A body that `write` writes, on a thread that may block. What it writes before it fails is sent.
    pub(crate) fn written_by(write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static) -> Self {
        let (pieces, receiver) = channel(1);
        tokio::task::spawn_blocking(move || {
            let mut writer = Writer { pieces, buffer: Vec::with_capacity(PIECE) };
            // It fails only when nobody reads any more.
            let _ = write(&mut writer).and_then(|()| writer.send());
        });
        Self(receiver)
    }

    /// A body of unknown length without a byte: what HEAD gets.
    pub(crate) fn none() -> Self {
        Self(channel(1).1)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Writer {
    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        self.pieces.blocking_send(piece.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > PIECE {
            self.send()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        io::Write::write_all(self, text.as_bytes()).map_err(|_| fmt::Error)
    }
}
