//! The target of a request: the targets that the gateway rejects, and the form of a path for the lookup of its route.

use sluicegate_http1::{Normalised, Rejection, RequestHead, normalise};
use sluicegate_model::Settings;

use crate::path::has_encoded_dot_segment;
use crate::tls::CHALLENGE_PATH;

/// The path as the client sent it.
pub(crate) fn raw_path<'b>(head: &RequestHead, buf: &'b [u8]) -> &'b [u8] {
    match head.path.of(buf) {
        [] => b"/",
        raw => raw,
    }
}

/// Rejects a target that endpoints may read in another way than this gateway, unless the settings allow the target. `raw`
/// is the path as the client sent it.
#[inline]
pub(crate) fn check_target(
    raw: &[u8],
    normalised: &Normalised<'_>,
    query: Option<&[u8]>,
    settings: &Settings,
) -> Result<(), Rejection> {
    let is_plain_query = query.is_none_or(<[u8]>::is_ascii);
    match normalised {
        Normalised::Plain if is_plain_query => Ok(()),
        Normalised::Plain | Normalised::AsIs => check_odd_target(raw, raw, is_plain_query, settings),
        Normalised::Rewritten(path) => check_odd_target(raw, path, is_plain_query, settings),
    }
}

#[cold]
fn check_odd_target(
    raw: &[u8],
    path: &[u8],
    is_plain_query: bool,
    settings: &Settings,
) -> Result<(), Rejection> {
    if !(settings.allow_non_ascii_targets || is_plain_query && raw.is_ascii()) {
        return Err(Rejection::NonAsciiTarget);
    }
    if !settings.allow_encoded_dot_segments && has_encoded_dot_segment(path) {
        return Err(Rejection::EncodedDotSegment);
    }
    Ok(())
}

/// Whether a path in normal form has an encoded slash.
pub(crate) fn has_encoded_slash(path: &[u8]) -> bool {
    memchr::memmem::find(path, b"%2F").is_some()
}

/// A path in normal form with `/` in place of `%2F`.
pub(crate) fn with_decoded_slashes(path: &[u8]) -> Result<Vec<u8>, Rejection> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr::memmem::find(rest, b"%2F") {
        decoded.extend_from_slice(&rest[..at]);
        decoded.push(b'/');
        rest = &rest[at + 3..];
    }
    decoded.extend_from_slice(rest);
    // The decoded path may have empty segments.
    let mut normal = Vec::new();
    Ok(match normalise(&decoded, &mut normal)? {
        Normalised::Plain | Normalised::AsIs => decoded,
        Normalised::Rewritten(_) => normal,
    })
}

/// Whether a certificate authority requests a proof of control, which must be served over plain HTTP (RFC 8555, 8.3).
pub(crate) fn is_acme_challenge(path: &[u8]) -> bool {
    path.starts_with(CHALLENGE_PATH)
}
