//! Who gets what comes at which listener, compiled from the model.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::{Config, HostPattern, Layer4, Layer4Route, RouteId};

use crate::rule::HostMap;
use crate::telemetry::Layer4Stats;

/// The listeners below HTTP, by where they listen.
#[derive(Debug, Default)]
pub(crate) struct Layer4Table {
    pub(crate) connections: HashMap<SocketAddr, Taker>,
    pub(crate) datagrams: HashMap<SocketAddr, Option<Arc<Target>>>,
    /// The names that listeners for HTTPS pass on.
    pub(crate) passthrough: HostMap<Arc<Target>>,
}

/// Who gets the connections of a listener.
#[derive(Debug)]
pub(crate) enum Taker {
    /// All of them.
    Any(Option<Arc<Target>>),
    /// Those of TLS, by the name that clients ask for.
    ByName(HostMap<Arc<Target>>),
}

/// Where a route leads.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: RouteId,
    /// The slots of its upstreams in every worker, with their weights.
    pub(crate) backends: Vec<(usize, u32)>,
    pub(crate) stats: Arc<Layer4Stats>,
}

impl Layer4Table {
    /// `target` makes what is looked up of a route at a listener (its name, and what it takes) for a host.
    pub(crate) fn new(
        config: &Config,
        mut target: impl FnMut(&str, &'static str, &HostPattern, &Layer4Route) -> Target,
    ) -> Self {
        let mut table = Self::default();
        for listener in &config.listeners {
            let (name, protocol) = (listener.id.to_string(), listener.serves.protocol());
            let mut targets = HostMap::default();
            for (host, route) in listener.serves.routes() {
                targets.insert(host, Arc::new(target(&name, protocol, host, route)));
            }
            match &listener.serves {
                Layer4::Tcp(_) => {
                    let any = targets.find(b"").cloned();
                    table.connections.insert(listener.address, Taker::Any(any));
                }
                Layer4::Tls(_) => {
                    table.connections.insert(listener.address, Taker::ByName(targets));
                }
                Layer4::Udp(_) => {
                    let any = targets.find(b"").cloned();
                    table.datagrams.insert(listener.address, any);
                }
            }
        }
        for entry in &config.tls.passthrough {
            let target = Arc::new(target(HTTPS, "TLS", &entry.host, &entry.route));
            table.passthrough.insert(&entry.host, target);
        }
        table
    }
}

/// What the listeners for HTTPS are called, which are not in the configuration.
pub(crate) const HTTPS: &str = "https";

impl Target {
    /// The slot of the upstream whose turn it is.
    pub(crate) fn pick(&self) -> Option<usize> {
        let weights: u64 = self.backends.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if let ([(slot, _)], 1..) = (&self.backends[..], weights) {
            return Some(*slot);
        }
        let mut at = (weights > 0).then(|| fastrand::u64(..weights))?;
        let chosen = self.backends.iter().find(|(_, weight)| match at.checked_sub(u64::from(*weight)) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        chosen.map(|(slot, _)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Layer4Stats;

    fn target(backends: &[(usize, u32)]) -> Target {
        let id = RouteId { kind: "TCPRoute", namespace: "default".into(), name: "r".into() };
        Target { id, backends: backends.to_vec(), stats: Arc::new(Layer4Stats::new(1)) }
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
