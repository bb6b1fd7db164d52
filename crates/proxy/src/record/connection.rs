//! The record of a finished connection below HTTP.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use sluicegate_model::{ObjectId, UpstreamKey};

/// A finished connection below HTTP, or a finished exchange of datagrams.
pub(crate) struct ConnectionRecord<'e> {
    pub(crate) at: SystemTime,
    pub(crate) remote: SocketAddr,
    pub(crate) listener: SocketAddr,
    pub(crate) protocol: &'static str,
    /// The name that the client requested.
    pub(crate) name: Option<&'e str>,
    /// As in nginx' stream module: 200, 502, 503 or 504, and 500 for a connection that was cut off.
    pub(crate) status: u16,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) duration: Duration,
    pub(crate) route: &'e ObjectId,
    pub(crate) upstream: Option<&'e UpstreamKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) attempts: u32,
    /// Why the connection failed, if it did.
    pub(crate) reason: Option<&'static str>,
    /// Whether the access log has the connection.
    pub(crate) is_logged: bool,
}
