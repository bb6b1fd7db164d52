//! HTTP/2 frames as bytes (RFC 9113), valid or invalid.

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// A frame (4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The client's preface (3.4), with these settings.
pub(crate) fn start(settings: &[u8]) -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, settings)].concat()
}

/// The head of a GET for `localhost`, in HPACK without its dynamic table.
pub(crate) fn get(path: &str) -> Vec<u8> {
    head(0x82, path)
}

/// The head of a POST for `localhost`.
pub(crate) fn post(path: &str) -> Vec<u8> {
    head(0x83, path)
}

/// RFC 7541, 6.1 and 6.2.2: :method and :scheme by index, :path and :authority with indexed names.
fn head(method: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap_or(u8::MAX);
    [&[method, 0x86, 0x04, length], path.as_bytes(), b"\x01\x09localhost"].concat()
}

/// The number of frames in these bytes.
pub(crate) fn count(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let &[a, b, c, ..] = bytes {
        count += 1;
        bytes = bytes.get(9 + u32::from_be_bytes([0, a, b, c]) as usize..).unwrap_or_default();
    }
    count
}
