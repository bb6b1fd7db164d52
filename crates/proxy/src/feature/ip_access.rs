//! Client IPs that may call, and sets of networks with fast lookup of addresses.

use std::net::{IpAddr, Ipv6Addr};

use sluicegate_model::feature::IpAccess;
use sluicegate_model::value::Network;

/// Networks as ranges of addresses: a lookup among ten thousand networks is as fast as among ten. An IPv4 address is the
/// IPv6 address to which it is mapped (RFC 4291, 2.5.5.2).
#[derive(Debug, Default)]
pub(crate) struct Networks {
    /// The first and the last address of each range; sorted, and no two ranges are adjacent.
    stretches: Box<[(u128, u128)]>,
}

impl Networks {
    pub(crate) fn new(networks: &[Network]) -> Self {
        let mut stretches: Vec<_> = networks
            .iter()
            .map(|net| net.get())
            .map(|net| (number(net.network()), number(net.broadcast())))
            .collect();
        stretches.sort_unstable();
        stretches.dedup_by(|next, before| {
            let joins = next.0 <= before.1;
            if joins {
                before.1 = before.1.max(next.1);
            }
            joins
        });
        Self { stretches: stretches.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = number(address);
        let behind = self.stretches.partition_point(|(first, _)| *first <= address);
        behind > 0 && address <= self.stretches[behind - 1].1
    }
}

fn number(address: IpAddr) -> u128 {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    Ipv6Addr::to_bits(address)
}

/// The client IPs that a policy allows.
#[derive(Debug)]
pub(crate) struct Access {
    allow: Networks,
    deny: Networks,
}

impl Access {
    pub(super) fn new(access: &IpAccess) -> Self {
        Self { allow: Networks::new(&access.allow), deny: Networks::new(&access.deny) }
    }

    /// Whether a client with this address may call. A client with an unknown address may not.
    pub(crate) fn allows(&self, address: Option<IpAddr>) -> bool {
        address.is_some_and(|address| {
            (self.allow.is_empty() || self.allow.contains(address)) && !self.deny.contains(address)
        })
    }

    /// Whether the list of allowed client IPs contains this address, and the list of denied client IPs does not.
    pub(crate) fn names(&self, address: Option<IpAddr>) -> bool {
        !self.allow.is_empty() && self.allows(address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ipnet::IpNet;

    fn networks(texts: &[&str]) -> Networks {
        Networks::new(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn network_set_finds_addresses_in_nested_and_adjacent_networks() {
        let networks =
            networks(&["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/32", "192.0.2.7/32", "2001:db8::/32"]);
        for (address, expected) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!Networks::default().contains("10.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn network_lookup_gives_the_same_result_as_a_linear_scan(nets in prop::collection::vec((any::<u32>(), 0_u8..=32), 0..20), address in any::<u32>()) {
            let nets: Vec<IpNet> = nets.iter().map(|(net, bits)| IpNet::new(IpAddr::from(net.to_be_bytes()), *bits).unwrap().trunc()).collect();
            let address = IpAddr::from(address.to_be_bytes());
            let networks: Vec<Network> = nets.iter().map(|net| net.to_string().parse().unwrap()).collect();
            prop_assert_eq!(Networks::new(&networks).contains(address), nets.iter().any(|net| net.contains(&address)));
        }
    }
}
