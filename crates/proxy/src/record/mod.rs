//! The record of a finished request, and its sinks.
//!
//! | module | purpose |
//! |---|---|
//! | [`access_log`] | lines of the access log |
//! | [`trace`] | sampling of requests, and the export of spans to a collector |

pub mod access_log;
pub(crate) mod trace;
