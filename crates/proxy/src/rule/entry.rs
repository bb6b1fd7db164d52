//! The hosts of one entry point: of listeners that share their hosts.

use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::EntryPoint;

use super::RouteIndex;
use super::host::Host;
use crate::feature::Guard;
use crate::name::{HostMap, host_name};
use crate::request::HeadView;
use crate::tls::TlsTable;

/// The listener of a connection, by which the table finds the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// An HTTP listener that a flag set.
    FlagHttp,
    /// An HTTPS listener that a flag set.
    FlagHttps,
    /// The listener of a Gateway, by its address in the configuration.
    Gateway(SocketAddr),
}

/// The hosts of an entry point.
#[derive(Debug)]
pub(crate) struct EntryTable {
    pub(super) entry_point: EntryPoint,
    pub(super) hosts: HostMap<Placed>,
    pub(crate) tls: Arc<TlsTable>,
    /// The route of requests that meet no match.
    pub(super) default: Option<RouteIndex>,
    /// Whether a host has filters.
    pub(super) is_filtered: bool,
}

/// A host and its number.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) host: Arc<Host>,
    pub(super) number: u32,
}

impl EntryTable {
    /// The route for a request. `authority` is the value of the Host header, with or without a port, in any case. `path`
    /// is in normal form.
    pub(super) fn find(&self, authority: &[u8], path: &[u8], request: HeadView<'_>) -> Option<RouteIndex> {
        self.search(authority, |placed| placed.find(path, request)).or(self.default)
    }

    /// The filters of the listener for a host: the most specific host that matches the name belongs to the listener.
    pub(super) fn filters(&self, authority: &[u8]) -> Option<&Guard> {
        self.hosts.first(host_name(authority), |placed| Some(placed.host.filters()))?
    }

    /// The first result for a host that matches a name, from the most specific host on. The search ends with a host that
    /// decides alone about its requests.
    pub(super) fn search<'t, R>(
        &'t self,
        authority: &[u8],
        mut visit: impl FnMut(&'t Placed) -> Option<R>,
    ) -> Option<R> {
        let ended = self.hosts.first(host_name(authority), |placed| match visit(placed) {
            Some(found) => Some(Some(found)),
            None if placed.host.continues() => None,
            None => Some(None),
        });
        ended.flatten()
    }
}

impl Placed {
    /// The route of this host at a path.
    pub(super) fn find(&self, path: &[u8], request: HeadView<'_>) -> Option<RouteIndex> {
        self.host.find(path, request).map(|route| RouteIndex { host: self.number, route })
    }
}
