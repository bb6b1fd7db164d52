//! Conversion of `httparse`'s header lines to [`Line`]s, and the faults of rejected lines.

use httparse::Header;
use memchr::{memchr, memrchr};

use crate::fault::Fault;
use crate::header::{Known, Line};
use crate::span::Span;
use crate::token::{is_field_value, is_tchar, is_token};

/// Overwrites `lines` with `headers` from a head that fills `head`, blank line included.
///
/// `httparse` accepts a bare LF as the end of a line, so this function checks the end of each line again. Each line
/// ends where the next line begins, because no bytes may stand between two lines.
#[inline]
pub(crate) fn fill(lines: &mut Vec<Line>, head: &[u8], headers: &[Header<'_>]) -> Result<(), Fault> {
    lines.clear();
    lines.reserve(headers.len());
    ensure_crlf(head, head.len())?;
    let mut ends = headers.iter().skip(1).map(|header| Span::within(head, header.name.as_bytes()).start);
    for header in headers {
        let end = ends.next().unwrap_or(head.len() as u32 - 2);
        ensure_crlf(head, end as usize)?;
        let known = Known::of(header.name.as_bytes());
        lines.push(Line {
            name: Span::within(head, header.name.as_bytes()),
            value: Span::within(head, header.value),
            end,
            known,
            hop_by_hop: known.is_hop_by_hop(),
        });
    }
    Ok(())
}

/// Checks that CRLF, not only LF, stands before `end`.
#[inline]
pub(crate) fn ensure_crlf(head: &[u8], end: usize) -> Result<(), Fault> {
    if head[..end].ends_with(b"\r\n") { Ok(()) } else { Err(Fault::BareLf) }
}

/// The fault in the header section at the beginning of `section`, whose end may be missing. `None` if the section is
/// valid so far.
#[cold]
pub(crate) fn section_fault(mut section: &[u8]) -> Option<Fault> {
    while let Some(lf) = memchr(b'\n', section) {
        let (line, rest) = section.split_at(lf + 1);
        let Some(line) = line.strip_suffix(b"\r\n") else {
            // A fold, an invalid name or a bare CR before the LF is the more precise fault.
            return Some(line_fault(&line[..lf]).unwrap_or(Fault::BareLf));
        };
        if line.is_empty() {
            return None;
        }
        if let Some(fault) = line_fault(line) {
            return Some(fault);
        }
        if memchr(b':', line).is_none() {
            return Some(Fault::InvalidName);
        }
        section = rest;
    }
    // The LF after this CR may be in the next piece.
    line_fault(section.strip_suffix(b"\r").unwrap_or(section))
}

/// The fault in a header line, or in the beginning of a header line.
fn line_fault(line: &[u8]) -> Option<Fault> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Some(Fault::ObsoleteFold);
    }
    if memrchr(b'\r', line).is_some() {
        return Some(Fault::BareCr);
    }
    let colon = memchr(b':', line);
    let (name, value) = line.split_at(colon.unwrap_or(line.len()));
    if colon.is_none() {
        return name.iter().any(|&byte| !is_tchar(byte)).then_some(Fault::InvalidName);
    }
    if !is_token(name) {
        let spaced = is_token(name.trim_ascii_end()) && !name.contains(&b'\x0c');
        return Some(if spaced { Fault::SpaceBeforeColon } else { Fault::InvalidName });
    }
    value.iter().any(|&byte| !is_field_value(byte)).then_some(Fault::InvalidValue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_recognizes_each_fault_of_a_header_section() {
        let cases: [(&[u8], Option<Fault>); 16] = [
            (b"A: b\r\nC: d\r\n\r\n", None),
            (b"A: b\r\nC: d\r", None),
            (b"A: b\r\n c\r\n\r\n", Some(Fault::ObsoleteFold)),
            (b"\tA: b\r\n\r\n", Some(Fault::ObsoleteFold)),
            (b"A : b\r\n\r\n", Some(Fault::SpaceBeforeColon)),
            (b"A\t: b\r\n\r\n", Some(Fault::SpaceBeforeColon)),
            (b"A b: c\r\n\r\n", Some(Fault::InvalidName)),
            (b": b\r\n\r\n", Some(Fault::InvalidName)),
            (b"A\r\n\r\n", Some(Fault::InvalidName)),
            (b"A\0: b\r\n\r\n", Some(Fault::InvalidName)),
            (b"A: b\0\r\n\r\n", Some(Fault::InvalidValue)),
            (b"A: b\x0b\r\n\r\n", Some(Fault::InvalidValue)),
            (b"A: b\x7f\r\n\r\n", Some(Fault::InvalidValue)),
            (b"A: b\rc\r\n\r\n", Some(Fault::BareCr)),
            (b"A: b\r\r\n\r\n", Some(Fault::BareCr)),
            (b"A: b\n\r\n", Some(Fault::BareLf)),
        ];
        for (section, fault) in cases {
            assert_eq!(section_fault(section), fault, "{}", section.escape_ascii());
        }
    }
}
