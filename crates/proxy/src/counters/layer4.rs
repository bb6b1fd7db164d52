//! The counters of routes below HTTP.

use sluicegate_model::ObjectId;

use super::{Sharded, Tallies, Tally};
use crate::failure::Failure;

/// The labels of the counters of a route below HTTP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layer4Labels {
    /// The listener, such as `Gateway default/edge, listener db`; `https` for listeners of the command line.
    pub listener: Box<str>,
    /// `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// The host names of the route.
    pub host: Box<str>,
    /// The object that defines the route.
    pub id: ObjectId,
}

/// The counters of a route below HTTP.
#[derive(Debug)]
pub struct Layer4Stats {
    shards: Sharded<Layer4Shard>,
}

/// A worker's part of [`Layer4Stats`].
#[derive(Debug, Default)]
pub struct Layer4Shard {
    /// Connections, or clients that exchange datagrams.
    pub opened: Tally,
    /// Open connections, or clients that exchange datagrams now.
    pub open: Tally,
    /// Connections that an upstream failed, by [`Failure::index`].
    pub failures: Tallies<{ Failure::COUNT }>,
    /// Bytes from clients.
    pub bytes_in: Tally,
    /// Bytes to clients.
    pub bytes_out: Tally,
}

impl Layer4Stats {
    pub(crate) fn new(workers: usize) -> Self {
        Self { shards: Sharded::new(workers) }
    }

    /// The workers' parts.
    #[must_use]
    pub fn shards(&self) -> &Sharded<Layer4Shard> {
        &self.shards
    }
}
