//! Buffers for bytes that were read and not used yet.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The size of a read buffer, unless a head needs more.
pub(crate) const BUFFER: usize = 16 * 1024;
/// The size of a spare buffer: the largest TLS record (RFC 5246, 6.2.3), and a margin.
pub(crate) const SPARE_BUFFER: usize = 18 * 1024;
/// The bytes before the content of an empty buffer. Large memory begins at the start of a page of 4,096 bytes, and so do the records
/// of TLS and the frames of HTTP/2, with a header of some bytes before the content. On some processors (AMD Zen 4), a copy to a place
/// 1 to 15 bytes further within its page than the source takes 30 times as long.
const ORIGIN: usize = 64;
/// How many spare buffers a worker holds.
const MAX_SPARE_BUFFERS: usize = 64;

thread_local! {
    static SPARE_BUFFERS: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// A buffer for bytes that are in flight for a moment. Connections without such bytes have none.
pub(crate) fn spare_buffer() -> Buffer {
    SPARE_BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Buffer::with_size(SPARE_BUFFER))
}

/// Returns a buffer for reuse.
pub(crate) fn give_spare_buffer(mut buffer: Buffer) {
    // This fails only when the thread ends.
    let _ = SPARE_BUFFERS.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_SPARE_BUFFERS && buffer.size() == SPARE_BUFFER {
            buffer.clear();
            spare.push(buffer);
        }
    });
}

/// Bytes that were read and not used yet, with free room behind them.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self::with_size(BUFFER)
    }

    pub(crate) fn with_size(size: usize) -> Self {
        Self { bytes: vec![0; ORIGIN + size], start: ORIGIN, end: ORIGIN }
    }

    /// The number of bytes that the buffer can hold.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() - ORIGIN
    }

    /// The unused bytes.
    #[inline]
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The unused bytes, mutable.
    #[inline]
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Room for at least `room` bytes behind the filled part, to be written to and then [`add`](Self::add)ed.
    pub(crate) fn room(&mut self, room: usize) -> &mut [u8] {
        self.reserve(room, usize::MAX);
        &mut self.bytes[self.end..]
    }

    /// Counts `n` bytes of the room as filled.
    #[inline]
    pub(crate) fn add(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.bytes.len(), "added more than there was room for");
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (ORIGIN, ORIGIN);
    }

    /// Whether there is no room behind the filled part, wherever it lies.
    pub(crate) fn is_full(&self) -> bool {
        self.len() == self.size()
    }

    /// Discards the first `n` bytes.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end, "consumed more than there was");
        if self.start >= self.end {
            self.clear();
        }
    }

    /// Discards `n` bytes behind the first `at` bytes, which stay in place.
    pub(crate) fn cut(&mut self, at: usize, n: usize) {
        let from = self.start + at;
        self.bytes.copy_within(from + n..self.end, from);
        self.end -= n;
    }

    /// Replaces the first `n` bytes.
    pub(crate) fn replace(&mut self, n: usize, bytes: &[u8]) {
        let rest = self.filled()[n..].to_vec();
        self.clear();
        self.append(bytes);
        self.append(&rest);
    }

    /// Appends bytes as if they had been read.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len(), self.len() + bytes.len());
        self.bytes[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Makes room for at least `room` more bytes, up to `limit` bytes in all.
    pub(crate) fn reserve(&mut self, room: usize, limit: usize) {
        if self.bytes.len() - self.end >= room {
            return;
        }
        self.bytes.copy_within(self.start..self.end, ORIGIN);
        (self.start, self.end) = (ORIGIN, ORIGIN + self.len());
        let wanted = (self.len() + room).min(limit);
        if wanted > self.size() {
            self.bytes.resize(ORIGIN + wanted.next_power_of_two(), 0);
        }
    }

    /// Reads once into the room behind the filled part. Zero bytes mean the end of the stream: there must be room.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        if self.end == self.bytes.len() && self.start > ORIGIN {
            self.reserve(1, self.size());
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        debug_assert!(room.capacity() > 0, "no room to read into");
        ready!(Pin::new(from).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn fill(buffer: &mut Buffer, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            poll_fn(|cx| buffer.poll_fill(cx, &mut bytes)).await.expect("a slice can be read");
        }
    }

    #[tokio::test]
    async fn buffer_keeps_unconsumed_bytes_in_order() {
        let mut buffer = Buffer::new();
        fill(&mut buffer, b"headBODYnext").await;
        buffer.cut(4, 4);
        assert_eq!(buffer.filled(), b"headnext");
        buffer.consume(4);
        assert_eq!(buffer.filled(), b"next");
        let rest = vec![b'x'; BUFFER - 12];
        fill(&mut buffer, &rest).await;
        assert_eq!(buffer.filled().len(), 4 + rest.len());
        buffer.reserve(100_000, 40_000);
        assert!(buffer.filled().starts_with(b"nextxx"));
        assert_eq!(buffer.size(), 65536);
        buffer.consume(buffer.len() - 3);
        buffer.replace(1, b"head");
        assert_eq!(buffer.filled(), b"headxx");
        buffer.consume(buffer.len());
        assert!(buffer.is_empty());
    }
}
