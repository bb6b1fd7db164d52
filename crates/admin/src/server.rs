//! Serves the connections of the admin interface.
//!
//! The interface responds to probes under any load from other clients: the kubelet restarts a pod that does not respond
//! to its probe. If every connection has a response in flight because its client does not read, some additional places serve
//! only probes.

#[cfg(test)]
mod tests;

use std::io;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use sluicegate_http_server::{Bounds, Handler, Kind, Plain, Server};
use tokio::net::TcpListener;

use crate::Admin;
use crate::content::Content;
use crate::pages::Pages;

/// The limits of the connections of clients. README and `--help` name the same numbers.
const BOUNDS: Bounds =
    Bounds { connections: 64, reserve: 16, head: Duration::from_secs(2), age: Duration::from_secs(60) };

impl Admin {
    /// Serves until the future is dropped, which closes every connection. Errors of accept are logged, and accept is
    /// retried.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        serve(Pages::new(self), listener, BOUNDS).await
    }
}

async fn serve(pages: Pages, listener: TcpListener, bounds: Bounds) -> io::Result<()> {
    let name = "the admin interface";
    let counters = pages.counters().clone();
    Server { name, bounds, counters, transport: Plain, handler: pages }.serve(listener).await
}

impl Handler for Pages {
    type Body = Content;

    async fn respond(&self, request: Request<Incoming>, kind: Kind) -> Response<Content> {
        match kind {
            Kind::Ordinary => self.respond_in_time(request).await,
            Kind::Reserve => self.respond_to_probe(&request),
        }
    }
}
