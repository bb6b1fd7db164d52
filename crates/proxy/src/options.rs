//! What a proxy is started with and cannot change while it runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::telemetry::access_log::AccessLog;

/// What a proxy is started with.
#[derive(Debug)]
pub struct Options {
    /// Where HTTP is served. Port 0 takes a free one.
    pub http: Vec<SocketAddr>,
    /// Where HTTPS is served.
    pub https: Vec<SocketAddr>,
    /// How many workers. Default: one for each CPU that the process may use.
    pub workers: usize,
    /// Where requests are logged, if anywhere. Default: nowhere.
    pub access_log: Option<AccessLog>,
    /// The sockets of a process that is being replaced, which this one goes on to take connections and datagrams from:
    /// at the addresses above, and at those of the first configuration.
    pub inherited: Vec<OwnedFd>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http: Vec::new(),
            https: Vec::new(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            access_log: None,
            inherited: Vec::new(),
        }
    }
}
