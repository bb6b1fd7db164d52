//! The PROXY header that a connection of a load balancer begins with.

use std::rc::Rc;

use sluicegate_proxy_protocol::{Header, MAX_V2, Parsed, parse};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::ProxyHeaderFault;
use crate::layer4::Arrival;
use crate::worker::Worker;

/// What is looked at once. Nearly all headers are shorter.
const LOOK: usize = 256;

/// Reads the header and takes the addresses that it names for those of the connection. False if there is none, so that
/// the connection has to be closed.
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

/// Takes the header off the connection, and nothing of what is behind it.
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
            // All of it is of the header.
            Parsed::Partial => None,
            Parsed::Whole(header, length) => {
                bytes.truncate(length);
                Some(header)
            }
        };
        // It is there: it was seen.
        let read = tcp.try_read(&mut bytes[taken..]).map_err(|_| ProxyHeaderFault::Closed)?;
        debug_assert_eq!(read, bytes.len() - taken, "what was seen can be read");
        if let Some(header) = header {
            return Ok(header);
        }
    }
}
