//! Functions for the fuzz targets (`fuzz/`).

/// Parses replies of a server that shares limits.
pub fn check_reply(input: &[u8]) {
    crate::feature::rate_limit::shared::reply::check(input);
}
