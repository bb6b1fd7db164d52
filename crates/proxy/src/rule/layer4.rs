//! The routes of listeners below HTTP, compiled from the model.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::{
    Config, EntryPoint, HostPattern, Layer4Route, ObjectId, ProxyHeader, Serves, TlsRoute,
};

use crate::counters::Layer4Stats;
use crate::name::HostMap;
use crate::weight;

/// The listeners below HTTP, by address.
#[derive(Debug, Default)]
pub(crate) struct Layer4Table {
    pub(crate) connections: HashMap<SocketAddr, ConnectionTarget>,
    pub(crate) datagrams: HashMap<SocketAddr, Option<Arc<Layer4Target>>>,
    /// Whether connections of a listener begin with the PROXY protocol, for listeners where the peer does not decide.
    proxy_headers: HashMap<SocketAddr, bool>,
    /// The host names for TLS passthrough at HTTPS listeners.
    pub(super) passthrough: Names,
    /// The host names at HTTPS listeners whose connections are relayed after the TLS handshake.
    pub(super) relays: Names,
}

/// Host names with their targets, by the entry point. All HTTPS listeners that flags set share their names.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<EntryPoint, HostMap<Arc<Layer4Target>>>);

/// The target of a listener's connections.
#[derive(Debug)]
pub(crate) enum ConnectionTarget {
    /// One target for all connections.
    Any(Option<Arc<Layer4Target>>),
    /// Targets for TLS connections, by the name that clients request.
    ByName(HostMap<Arc<Layer4Target>>),
}

/// The target of a route.
#[derive(Debug)]
pub(crate) struct Layer4Target {
    pub(crate) id: ObjectId,
    /// The slots of its upstreams in every worker, with their weights.
    pub(crate) backends: Vec<(usize, u32)>,
    pub(crate) stats: Arc<Layer4Stats>,
}

impl Layer4Table {
    /// `target` creates the target of a route at a listener (its name and protocol) for a host.
    pub(crate) fn new(
        config: &Config,
        mut target: impl FnMut(&str, &'static str, &HostPattern, &Layer4Route) -> Layer4Target,
    ) -> Self {
        let mut table = Self::default();
        for listener in &config.listeners {
            let (name, protocol) = (listener.id.to_string(), listener.serves.protocol());
            if !listener.proxy_header.is_by_peer() {
                let is_always = listener.proxy_header == ProxyHeader::Always;
                table.proxy_headers.insert(listener.address, is_always);
            }
            let mut targets = HostMap::default();
            for (host, route) in listener.serves.routes() {
                targets.insert(host, Arc::new(target(&name, protocol, host, route)));
            }
            match &listener.serves {
                Serves::Tcp(_) => {
                    let any = targets.find(b"").cloned();
                    table.connections.insert(listener.address, ConnectionTarget::Any(any));
                }
                Serves::Tls(_) => {
                    table.connections.insert(listener.address, ConnectionTarget::ByName(targets));
                }
                Serves::Udp(_) => {
                    let any = targets.find(b"").cloned();
                    table.datagrams.insert(listener.address, any);
                }
                // They have hosts instead.
                Serves::Http(_) | Serves::Https(_) => {}
            }
        }
        let mut names = HashMap::new();
        for listener in &config.listeners {
            if let Serves::Https(name) = &listener.serves {
                names.entry(EntryPoint::Gateway(name.clone())).or_insert_with(|| listener.id.to_string());
            }
        }
        let mut named = |entry_point: &EntryPoint, host: &HostPattern, route: &Layer4Route| {
            let name = names.get(entry_point).map_or(HTTPS, String::as_str);
            Arc::new(target(name, "TLS", host, route))
        };
        for TlsRoute { host, route, entry_point } in &config.tls.passthrough {
            table.passthrough.insert(entry_point, host, named(entry_point, host, route));
        }
        for name in &config.tls.hosts {
            if let Some(route) = &name.relay {
                table.relays.insert(
                    &name.entry_point,
                    &name.host,
                    named(&name.entry_point, &name.host, route),
                );
            }
        }
        table
    }

    /// Whether connections of a listener begin with the PROXY protocol; `None` if the peer decides.
    pub(crate) fn proxy_header(&self, listener: &SocketAddr) -> Option<bool> {
        if self.proxy_headers.is_empty() { None } else { self.proxy_headers.get(listener).copied() }
    }
}

impl Names {
    fn insert(&mut self, entry_point: &EntryPoint, host: &HostPattern, target: Arc<Layer4Target>) {
        self.0.entry(shared(entry_point).clone()).or_default().insert(host, target);
    }

    pub(super) fn of(&self, entry_point: &EntryPoint) -> Option<&HostMap<Arc<Layer4Target>>> {
        self.0.get(shared(entry_point))
    }
}

/// The entry point that holds the names of an entry point.
fn shared(entry_point: &EntryPoint) -> &EntryPoint {
    match entry_point {
        EntryPoint::Gateway(_) => entry_point,
        _ => &EntryPoint::Flags,
    }
}

/// The name of the HTTPS listeners, which are not in the configuration.
pub(crate) const HTTPS: &str = "https";

impl Layer4Target {
    /// Chooses the slot of an upstream by weight.
    pub(crate) fn pick(&self) -> Option<usize> {
        if let [(slot, 1..)] = self.backends[..] {
            return Some(slot);
        }
        let weights = self.backends.iter().map(|(_, weight)| *weight);
        let chosen = weight::choose(weights, |below| fastrand::u64(..below))?;
        self.backends.get(chosen).map(|(slot, _)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Layer4Stats;

    fn target(backends: &[(usize, u32)]) -> Layer4Target {
        let id = ObjectId { kind: "TCPRoute", namespace: "default".into(), name: "r".into() };
        Layer4Target { id, backends: backends.to_vec(), stats: Arc::new(Layer4Stats::new(1)) }
    }

    #[test]
    fn upstreams_are_chosen_by_their_weights() {
        assert_eq!(target(&[]).pick(), None);
        assert_eq!(target(&[(1, 0), (2, 0)]).pick(), None);
        assert_eq!(target(&[(1, 0)]).pick(), None);
        assert_eq!(target(&[(1, 0), (7, u32::MAX), (2, 0)]).pick(), Some(7));
        let mut chosen = [0; 3];
        let weighted = target(&[(0, 1), (1, 0), (2, 3)]);
        for _ in 0..4000 {
            chosen[weighted.pick().expect("one of them")] += 1;
        }
        assert_eq!(chosen[1], 0);
        assert!((800..1200).contains(&chosen[0]), "{chosen:?}");
    }
}
