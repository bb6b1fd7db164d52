//! The hosts of one entry point: of listeners that share their hosts.

use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::{EntryPoint, HostPattern};

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
    /// The numbers of the hosts in the table. Successive tables share the map if they have the same hosts.
    pub(super) hosts: Arc<HostMap<u32>>,
    pub(crate) tls: Arc<TlsTable>,
    /// The route of requests that meet no match.
    pub(super) default: Option<RouteIndex>,
    /// Whether a host has filters.
    pub(super) is_filtered: bool,
}

/// The hosts of an entry point, in their table.
#[derive(Clone, Copy)]
pub(super) struct Hosts<'t> {
    pub(super) entry: &'t EntryTable,
    /// The hosts of the table, by number.
    pub(super) all: &'t [Arc<Host>],
}

/// A host and its number.
#[derive(Clone, Copy)]
pub(super) struct Placed<'t> {
    pub(super) host: &'t Arc<Host>,
    pub(super) number: u32,
}

impl<'t> Hosts<'t> {
    fn placed(self, number: u32) -> Placed<'t> {
        Placed { host: &self.all[number as usize], number }
    }

    /// The host of a pattern.
    pub(super) fn get(self, pattern: &HostPattern) -> Option<Placed<'t>> {
        self.entry.hosts.get(pattern).map(|number| self.placed(*number))
    }

    /// The most specific host that matches a name.
    pub(super) fn first(self, authority: &[u8]) -> Option<Placed<'t>> {
        self.entry.hosts.first(host_name(authority), |number| Some(self.placed(*number)))
    }

    /// The route for a request. `authority` is the value of the Host header, with or without a port, in any case. `path`
    /// is in normal form.
    pub(super) fn find(self, authority: &[u8], path: &[u8], request: HeadView<'_>) -> Option<RouteIndex> {
        self.search(authority, |placed| placed.find(path, request)).or(self.entry.default)
    }

    /// The filters of the listener for a host: the most specific host that matches the name belongs to the listener.
    pub(super) fn filters(self, authority: &[u8]) -> Option<&'t Guard> {
        self.first(authority)?.host.filters()
    }

    /// The first result for a host that matches a name, from the most specific host on. The search ends with a host that
    /// decides alone about its requests.
    pub(super) fn search<R>(
        self,
        authority: &[u8],
        mut visit: impl FnMut(Placed<'t>) -> Option<R>,
    ) -> Option<R> {
        let ended = self.entry.hosts.first(host_name(authority), |number| {
            let placed = self.placed(*number);
            match visit(placed) {
                Some(found) => Some(Some(found)),
                None if placed.host.continues() => None,
                None => Some(None),
            }
        });
        ended.flatten()
    }
}

impl Placed<'_> {
    /// The route of this host at a path.
    pub(super) fn find(self, path: &[u8], request: HeadView<'_>) -> Option<RouteIndex> {
        self.host.find(path, request).map(|route| RouteIndex { host: self.number, route })
    }
}
