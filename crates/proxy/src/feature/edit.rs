//! Edits of a request and of its response. Features write them, and the exchange applies them in one place.

use crate::name::is_same_name;
use crate::request::HeadView;

/// Edits of a request and of its response.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// The header lines of the request that are not forwarded, by index.
    pub(crate) removed_lines: Vec<usize>,
    /// Header lines for the request.
    pub(crate) request_lines: Vec<u8>,
    /// Header lines for the response, whether it comes from an endpoint or from the gateway.
    pub(crate) response_lines: Vec<u8>,
    /// Header lines for the response, if its status is one of those of `add_header` of nginx.
    pub(crate) success_lines: Vec<u8>,
    /// The query, if it changes.
    pub(crate) query: Option<Vec<u8>>,
    /// The number of removed headers that would override the path or the method.
    pub(crate) dropped_overrides: u64,
    /// Endpoints may treat trailers as headers (RFC 9110, 6.5.1), which would restore removed headers.
    pub(crate) discards_trailers: bool,
}

impl Edits {
    /// Removes a header line.
    pub(crate) fn remove(&mut self, index: usize) {
        if !self.removed_lines.contains(&index) {
            self.removed_lines.push(index);
        }
    }

    /// Removes headers with which an endpoint would serve another path or method than the policy has checked.
    /// Authorization services and mirrors do not receive them either.
    pub(super) fn drop_overrides(&mut self, HeadView { head, buf }: HeadView<'_>) {
        for (index, line) in head.lines.iter().enumerate() {
            if is_override(line.name.of(buf)) {
                self.remove(index);
                self.dropped_overrides += 1;
            }
        }
        self.discards_trailers = true;
    }

    /// The memory for header lines, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.request_lines.capacity() + self.response_lines.capacity() + self.success_lines.capacity()
    }

    /// Forgets the edits, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.removed_lines.clear();
        self.request_lines.clear();
        self.response_lines.clear();
        self.success_lines.clear();
        (self.query, self.dropped_overrides, self.discards_trailers) = (None, 0, false);
    }
}

/// Removes the lines with a name from header lines.
pub(crate) fn drop_lines(lines: &mut Vec<u8>, name: &[u8]) {
    if has_line(lines, name) {
        let others = lines.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_named(line, name));
        *lines = others.flatten().copied().collect();
    }
}

/// Writes a header line.
pub(super) fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Whether header lines have a line with this name.
pub(super) fn has_line(lines: &[u8], name: &[u8]) -> bool {
    lines.split_inclusive(|byte| *byte == b'\n').any(|line| is_named(line, name))
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.get(name.len()) == Some(&b':') && is_same_name(&line[..name.len()], name)
}

/// Whether some frameworks read another path or method from this header: Symfony, Zend, IIS (`X-Original-URL`,
/// `X-Rewrite-URL`); Rails, Express, Laravel, ASP.NET and others (the other three).
fn is_override(name: &[u8]) -> bool {
    const OVERRIDES: [&[u8]; 5] = [
        b"x-original-url",
        b"x-rewrite-url",
        b"x-http-method-override",
        b"x-http-method",
        b"x-method-override",
    ];
    OVERRIDES.iter().any(|other| is_same_name(name, other))
}
