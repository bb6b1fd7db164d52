//! The options of a proxy, which cannot change while the proxy runs, and why a proxy does not start.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::record::access_log::AccessLog;
use crate::record::analytics::Analytics;

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
    /// The target of analytics. Default: none.
    pub analytics: Option<Analytics>,
    /// The number of the last refused requests that the workers remember together. 0: none. Default: 1000.
    pub refused_requests: usize,
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
            analytics: None,
            refused_requests: 1000,
            inherited: Vec::new(),
        }
    }
}

/// Why a data plane does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The proxy cannot listen at an address.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// An address is given twice.
    #[error("{0} is given twice; one port serves one protocol")]
    Twice(SocketAddr),
    /// A socket of the process that is being replaced cannot be used.
    #[error("cannot take over a listening socket: {0}")]
    Inherit(io::Error),
    /// A worker's thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
    /// The thread of analytics cannot be started.
    #[error("cannot start the thread of analytics: {0}")]
    Analytics(io::Error),
}
