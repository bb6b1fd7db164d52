//! The fault in a request head that `httparse` rejected.

use httparse::Error;
use memchr::memchr;

use crate::head::section_fault;
use crate::rejection::Rejection;
use crate::scan::{HeadScan, Start};
use crate::token::is_token;

/// The fault in the request head at the beginning of `window`. `httparse` reports only the part of the head. The
/// request is already rejected, and this code only finds the reason.
#[cold]
pub(crate) fn request_fault(window: &[u8], error: Error) -> Rejection {
    if window.first() == Some(&0x16) {
        return Rejection::TlsRecord;
    }
    if error == Error::TooManyHeaders {
        return Rejection::TooManyHeaders;
    }
    let start = window.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(window.len());
    if start > 0
        && let Err(fault) = HeadScan::default().advance(window, Start::Request)
    {
        return fault.into();
    }
    let rest = &window[start..];
    let line_end = memchr(b'\n', rest).unwrap_or(rest.len());
    let (line, section) = rest.split_at(line_end);
    match error {
        Error::Token => token_fault(line),
        Error::Version => version_fault(line),
        Error::HeaderName | Error::HeaderValue | Error::NewLine => {
            if let Some(rejection) = line_end_fault(line) {
                return rejection;
            }
            let fault = section.get(1..).and_then(section_fault);
            fault.map_or(Rejection::InvalidHeaderValue, Rejection::from)
        }
        Error::Status | Error::TooManyHeaders => Rejection::InvalidRequestLine,
    }
}

/// The method or the target is wrong.
fn token_fault(line: &[u8]) -> Rejection {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let method = parts.next().unwrap_or_default();
    let Some(target) = parts.next() else {
        let method = method.strip_suffix(b"\r").unwrap_or(method);
        return if is_token(method) { Rejection::InvalidRequestLine } else { Rejection::InvalidMethod };
    };
    if !is_token(method) {
        return Rejection::InvalidMethod;
    }
    // HTTP/0.9, or two spaces.
    let only_two_parts = parts.next().is_none() && line.ends_with(b"\r");
    if target.is_empty() || only_two_parts { Rejection::InvalidRequestLine } else { Rejection::InvalidTarget }
}

/// The version is neither HTTP/1.0 nor HTTP/1.1.
fn version_fault(line: &[u8]) -> Rejection {
    let version = line.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    let version = version.strip_suffix(b"\r").unwrap_or(version);
    match version {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Rejection::UnsupportedVersion
        }
        _ => Rejection::InvalidRequestLine,
    }
}

/// The line does not end after the version.
fn line_end_fault(line: &[u8]) -> Option<Rejection> {
    let version = line.splitn(3, |&byte| byte == b' ').nth(2)?;
    match version.get(8..)? {
        [] | [b'\r'] => None,
        [b'\r', ..] => Some(Rejection::BareCr),
        _ => Some(Rejection::InvalidRequestLine),
    }
}
