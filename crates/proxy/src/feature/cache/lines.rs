//! Header lines of heads that the gateway has written.

use memchr::memmem;

use super::validators::is_condition;
use crate::name::is_same_name;

/// The header lines of a head that the gateway has written, without line ends.
pub(super) fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = memmem::find(head, b"\r\n").map_or(&[][..], |at| &head[at + 2..]);
    std::iter::from_fn(move || {
        let end = memmem::find(rest, b"\r\n")?;
        let line = &rest[..end];
        rest = &rest[end + 2..];
        (!line.is_empty()).then_some(line)
    })
}

pub(super) fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or_default()
}

/// The values of a request's headers with this name. Before each value is a separator that no value contains: LF, or CR
/// if the name is spelt with `_`. Some endpoints treat both spellings as the same name.
fn values<'r>(request: &'r [u8], name: &'r [u8]) -> impl Iterator<Item = (&'static [u8], &'r [u8])> {
    lines(request).filter_map(move |line| {
        let (found, value) = (name_of(line), line.get(name.len() + 1..)?);
        let mark: &[u8] = if found.eq_ignore_ascii_case(name) { b"\n" } else { b"\r" };
        is_same_name(found, name).then(|| (mark, value.trim_ascii()))
    })
}

/// The values in one byte string. They are not joined by commas, because some endpoints distinguish two lines from one.
pub(crate) fn sent(request: &[u8], name: &[u8]) -> Box<[u8]> {
    let mut sent = Vec::new();
    for (mark, value) in values(request, name) {
        sent.extend_from_slice(mark);
        sent.extend_from_slice(value);
    }
    sent.into()
}

/// Whether a request has the same values in the headers of this name.
pub(super) fn has_sent(request: &[u8], name: &[u8], mut sent: &[u8]) -> bool {
    for (mark, value) in values(request, name) {
        let Some(rest) = sent.strip_prefix(mark).and_then(|sent| sent.strip_prefix(value)) else {
            return false;
        };
        sent = rest;
    }
    sent.is_empty()
}

/// The length of the first line of a head, including its end.
pub(super) fn first_line(head: &[u8]) -> usize {
    memmem::find(head, b"\r\n").map_or(head.len(), |at| at + 2)
}

/// The value of a header line.
pub(super) fn value_of(line: &[u8]) -> &[u8] {
    line.get(name_of(line).len() + 1..).unwrap_or_default().trim_ascii()
}

/// A request for the endpoint without the client's conditions.
pub(crate) fn without_conditions(request: &[u8]) -> Vec<u8> {
    let mut asking = Vec::with_capacity(request.len() + 128);
    asking.extend_from_slice(&request[..first_line(request)]);
    for line in lines(request).filter(|line| !is_condition(name_of(line))) {
        asking.extend_from_slice(line);
        asking.extend_from_slice(b"\r\n");
    }
    asking.extend_from_slice(b"\r\n");
    asking
}
