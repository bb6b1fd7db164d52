//! A range of the buffer that a head was parsed from.

/// A range of the buffer that a head was parsed from, in bytes.
///
/// Eight bytes instead of the sixteen of a slice, and free of a lifetime, so that a parsed head can be kept
/// beside the buffer it describes. A head is far shorter than 4 GiB: [`HeadLimits`](crate::HeadLimits) sees to
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where the range begins.
    pub start: u32,
    /// Just past where it ends.
    pub end: u32,
}

impl Span {
    /// The bytes of this range in `buf`, which must begin as the buffer did that the range was made from.
    ///
    /// # Panics
    ///
    /// If `buf` is shorter than that buffer's head.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }

    /// How many bytes it covers.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it covers no byte.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// From offsets that lie within the head limit, hence within `u32`.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Where `part`, a slice of `buf`, lies in it.
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
    fn a_part_of_a_buffer_is_found_again() {
        let buf = b"GET / HTTP/1.1";
        let span = Span::within(buf, &buf[4..5]);
        assert_eq!(span, Span { start: 4, end: 5 });
        assert_eq!(span.of(buf), b"/");
        assert_eq!(span.len(), 1);
        assert!(!span.is_empty());
        assert!(Span::within(buf, &buf[14..]).is_empty());
    }
}
