//! A range of the parsed buffer.

/// A range of the parsed buffer, in bytes.
///
/// Eight bytes instead of the sixteen of a slice, and without a lifetime, so that a parsed head can be stored beside
/// its buffer. A head is far shorter than 4 GiB, because of [`HeadLimits`](crate::HeadLimits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first position of the range.
    pub start: u32,
    /// The position after the range.
    pub end: u32,
}

impl Span {
    /// The bytes of this range in `buf`, which must begin with the parsed bytes.
    ///
    /// # Panics
    ///
    /// If `buf` is shorter than the parsed head.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// The length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the range is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// A span from offsets within the head limit, hence within `u32`.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The position of `part`, a slice of `buf`, in `buf`.
    #[inline]
    pub(crate) fn within(buf: &[u8], part: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(buf.as_ptr() as usize);
        debug_assert!(start + part.len() <= buf.len(), "not a part of the buffer");
        Self::new(start, start + part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_returns_its_bytes_of_the_buffer() {
        let buf = b"GET / HTTP/1.1";
        let span = Span::within(buf, &buf[4..5]);
        assert_eq!(span, Span { start: 4, end: 5 });
        assert_eq!(span.of(buf), b"/");
        assert_eq!(span.len(), 1);
        assert!(!span.is_empty());
        assert!(Span::within(buf, &buf[14..]).is_empty());
    }
}
