//! Metrics of the listeners of Gateways, and of each route below HTTP that has had a connection.

use std::fmt;

use sluicegate_proxy::counters::{DroppedDatagram, Layer4Labels, Layer4Shard, Layer4Stats, Tally};
use sluicegate_proxy::failure::{Failure, ProxyHeaderFault};
use sluicegate_proxy::registry::Registry;

use super::families::Families;

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let listeners = registry.listeners();
    families.gauges(
        "sluicegate_listener_up",
        "1 while a listener of a Gateway listens, 0 if it cannot (the log has the reason)",
        listeners.iter().map(|state| {
            let address = state.bound.as_ref().unwrap_or(&state.address).to_string();
            let labels = [("listener", state.listener.clone()), ("address", address)];
            ((labels, [("protocol", state.protocol)]), u64::from(state.bound.is_ok()))
        }),
    )?;
    let mut routes = registry.layer4();
    routes.retain(|(_, stats)| sum(stats, |shard| &shard.opened) > 0);
    let each = |tally: fn(&Layer4Shard) -> &Tally| {
        routes.iter().map(move |(labels, stats)| (names(labels), sum(stats, tally)))
    };
    families.counters(
        "sluicegate_layer4_connections",
        "TCP connections, TLS connections without HTTP, and UDP flows, of a route",
        each(|shard| &shard.opened),
    )?;
    families.gauges(
        "sluicegate_layer4_connections_open",
        "Open TCP connections, TLS connections without HTTP, and UDP flows, of a route",
        each(|shard| &shard.open),
    )?;
    families.counters(
        "sluicegate_layer4_received_bytes",
        "Bytes passed on from clients to endpoints, below HTTP",
        each(|shard| &shard.bytes_in),
    )?;
    families.counters(
        "sluicegate_layer4_sent_bytes",
        "Bytes passed on from endpoints to clients, below HTTP",
        each(|shard| &shard.bytes_out),
    )?;
    families.counters(
        "sluicegate_layer4_failures",
        "Connections below HTTP that failed at an upstream, by reason",
        routes.iter().flat_map(|(labels, stats)| {
            let all = Failure::REASONS.iter().enumerate();
            let counted =
                all.map(|(index, reason)| (*reason, stats.shards().sum(|shard| &shard.failures[index])));
            let occurred = counted.filter(|(_, count)| *count > 0);
            occurred.map(|(reason, count)| ((names(labels), [("reason", reason)]), count))
        }),
    )?;
    let workers = registry.counters().workers();
    families.gauge(
        "sluicegate_udp_flows",
        "UDP clients that exchange datagrams with an endpoint",
        workers.sum(|worker| &worker.udp_flows),
    )?;
    families.counters(
        "sluicegate_datagrams_dropped",
        "Datagrams that the gateway dropped, by reason",
        DroppedDatagram::ALL.iter().map(|why| {
            ([("reason", why.reason())], workers.sum(|worker| &worker.datagrams_dropped[*why as usize]))
        }),
    )?;
    families.counters(
        "sluicegate_proxy_header_failures",
        "Connections of PROXY protocol peers that ended without a valid PROXY header, by reason",
        ProxyHeaderFault::ALL.iter().map(|fault| {
            let count = workers.sum(|worker| &worker.proxy_header_faults[fault.index()]);
            ([("reason", fault.reason())], count)
        }),
    )
}

fn sum(stats: &Layer4Stats, tally: fn(&Layer4Shard) -> &Tally) -> u64 {
    stats.shards().sum(tally)
}

fn names(labels: &Layer4Labels) -> [(&'static str, &str); 6] {
    [
        ("listener", &labels.listener),
        ("protocol", labels.protocol),
        ("host", &labels.host),
        ("kind", labels.id.kind),
        ("namespace", &labels.id.namespace),
        ("name", &labels.id.name),
    ]
}
