//! The record of a connection, or of an exchange of datagrams, while it lasts, and its end, however it ends.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::counters::Layer4Shard;
use crate::failure::Failure;
use crate::record::ConnectionRecord;
use crate::relay::Moved;
use crate::rule::Layer4Target;
use crate::upstream::LocalUpstream;
use crate::worker::Worker;

/// The record of a connection so far.
pub(super) struct OpenRecord {
    worker: Rc<Worker>,
    target: Arc<Layer4Target>,
    protocol: &'static str,
    remote: SocketAddr,
    listener: SocketAddr,
    /// The name that the client requested.
    name: Option<Box<str>>,
    started: Instant,
    moved: Moved,
    pub(super) upstream: Option<Rc<LocalUpstream>>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) attempts: u32,
    /// Why the connection was cut off, if it was, and the corresponding nginx status.
    ended: Option<(&'static str, u16)>,
}

impl OpenRecord {
    pub(super) fn new(
        worker: &Rc<Worker>,
        target: Arc<Layer4Target>,
        protocol: &'static str,
        (remote, listener): (SocketAddr, SocketAddr),
        name: Option<Box<str>>,
    ) -> Self {
        let shard = target.stats.shards().of(worker.id);
        shard.opened.add(1);
        shard.open.add(1);
        worker.stats().in_flight.add(1);
        Self {
            worker: worker.clone(),
            target,
            protocol,
            remote,
            listener,
            name,
            started: Instant::now(),
            moved: Moved::default(),
            upstream: None,
            endpoint: None,
            attempts: 0,
            // The value until the connection ends.
            ended: Some(("aborted", 500)),
        }
    }

    /// Adds the bytes that moved since the last call.
    pub(super) fn add(&mut self, more: Moved) {
        self.moved.up += more.up;
        self.moved.down += more.down;
        let shard = self.shard();
        shard.bytes_in.add(more.up);
        shard.bytes_out.add(more.down);
    }

    /// The connection ended properly.
    pub(super) fn done(&mut self) {
        self.ended = None;
    }

    /// The client's connection broke.
    pub(super) fn client_broke(&mut self) {
        self.ended = Some(("client_closed", 200));
    }

    /// Another endpoint takes over, because this endpoint did not accept the connection.
    pub(super) fn replaced(&mut self, failure: Failure) {
        self.ended = Some((failure.reason(), failure.status()));
    }

    /// The upstream failed.
    pub(super) fn failed(&mut self, failure: Failure) {
        self.shard().failures[failure.index()].add(1);
        // The limit itself has counted overload.
        if let Some(upstream) = self.upstream.as_ref().filter(|_| failure != Failure::Overloaded) {
            upstream.stats().failures[failure.index()].add(1);
        }
        self.ended = Some((failure.reason(), failure.status()));
    }

    fn shard(&self) -> &Layer4Shard {
        self.target.stats.shards().of(self.worker.id)
    }
}

/// Records in `Drop`, so that an aborted connection is counted and logged too.
impl Drop for OpenRecord {
    fn drop(&mut self) {
        self.shard().open.sub(1);
        self.worker.stats().in_flight.sub(1);
        let duration = self.started.elapsed();
        let record = ConnectionRecord {
            is_logged: !self.worker.settings().access_log.omits_connections,
            at: SystemTime::now() - duration,
            remote: self.remote,
            listener: self.listener,
            protocol: self.protocol,
            name: self.name.as_deref(),
            status: self.ended.map_or(200, |(_, status)| status),
            received: self.moved.up,
            sent: self.moved.down,
            duration,
            route: &self.target.id,
            upstream: self.upstream.as_ref().map(|upstream| upstream.shared.key()),
            endpoint: self.endpoint,
            attempts: self.attempts,
            reason: self.ended.map(|(reason, _)| reason),
        };
        self.worker.sinks.connection(&record, self.worker.stats());
    }
}
