//! The options of a proxy, which cannot change while the proxy runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::telemetry::access_log::AccessLog;

/// The options of a proxy.
#[derive(Debug)]
pub struct Options {
    /// The addresses for HTTP. Port 0 selects a free port.
    pub http: Vec<SocketAddr>,
    /// The addresses for HTTPS.
    pub https: Vec<SocketAddr>,
    /// The number of workers. Default: one for each CPU that the process may use.
    pub workers: usize,
    /// The target of the access log. Default: no access log.
    pub access_log: Option<AccessLog>,
    /// The sockets of a process that is being replaced. The proxy continues to accept connections and datagrams from
    /// them: at the addresses above, and at the addresses of the first configuration.
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
