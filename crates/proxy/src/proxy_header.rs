//! The PROXY header at the beginning of a connection from a load balancer.

use std::rc::Rc;

use crate::net::TcpStream;
use sluicegate_proxy_protocol::{Header, MAX_V2, Parsed, parse};
use tokio::time::timeout;

use crate::failure::ProxyHeaderFault;
use crate::listener::Arrival;
use crate::worker::Worker;

/// How many bytes are parsed at first. Nearly all headers are shorter.
const LOOK: usize = 256;

/// Reads the header and replaces the addresses of the connection. False if there is no valid header, so that the
/// connection must be closed.
pub(crate) async fn read(worker: &Rc<Worker>, arrival: &mut Arrival) -> bool {
    let limit = worker.settings().timeouts.proxy_protocol;
    match timeout(limit, header(&arrival.tcp)).await.unwrap_or(Err(ProxyHeaderFault::Timeout)) {
        Ok(Header::Proxied(addresses)) => arrival.addresses = addresses,
        Ok(Header::Local) => {}
        Err(fault) => {
            tracing::debug!(peer = %arrival.addresses.source, reason = fault.reason(), "a connection has no valid PROXY header");
            worker.stats().proxy_header_faults[fault.index()].add(1);
            return false;
        }
    }
    true
}

/// Removes the header from the connection, and no bytes behind it.
async fn header(tcp: &TcpStream) -> Result<Header, ProxyHeaderFault> {
    let mut bytes = Vec::with_capacity(LOOK);
    loop {
        let taken = bytes.len();
        bytes.resize((taken + LOOK).min(MAX_V2), 0);
        let came = tcp.peek(&mut bytes[taken..]).await.map_err(|_| ProxyHeaderFault::Closed)?;
        if came == 0 {
            return Err(ProxyHeaderFault::Closed);
        }
        bytes.truncate(taken + came);
        let header = match parse(&bytes)? {
            // All bytes belong to the header.
            Parsed::Partial => None,
            Parsed::Whole(header, length) => {
                bytes.truncate(length);
                Some(header)
            }
        };
        // The bytes are there: the peek has seen them.
        let read = tcp.try_read(&mut bytes[taken..]).map_err(|_| ProxyHeaderFault::Closed)?;
        debug_assert_eq!(read, bytes.len() - taken, "what was seen can be read");
        if let Some(header) = header {
            return Ok(header);
        }
    }
}
