//! The size limits of a head.

/// The maximum number of header lines that [`HeadLimits::headers`] can allow.
pub const MAX_HEADERS: usize = 256;

/// The size limits of a head. The parser rejects a larger head, and never truncates a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The maximum number of bytes of a head, from its first byte to the end of the blank line. Values over 4 GiB act
    /// as 4 GiB.
    pub bytes: usize,
    /// The maximum number of header lines. Values over 256 act as 256.
    pub headers: usize,
}

impl HeadLimits {
    /// The part of `buf` in which a head must end.
    #[inline]
    pub(crate) fn window<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        &buf[..buf.len().min(self.max_bytes())]
    }

    /// Whether `window` has the maximum size, so that a head without an end in `window` is too large.
    #[inline]
    pub(crate) fn exhausted_by(&self, window: &[u8]) -> bool {
        window.len() >= self.max_bytes()
    }

    #[inline]
    pub(crate) fn max_headers(&self) -> usize {
        self.headers.min(MAX_HEADERS)
    }

    #[inline]
    fn max_bytes(&self) -> usize {
        self.bytes.min(u32::MAX as usize)
    }
}

impl Default for HeadLimits {
    /// 32 KiB and 128 lines. nginx accepts 32 KiB with its default buffers (`large_client_header_buffers 4 8k`).
    fn default() -> Self {
        Self { bytes: 32 * 1024, headers: 128 }
    }
}
