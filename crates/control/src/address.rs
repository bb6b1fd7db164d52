//! The addresses that Gateways request, and the addresses that satisfy the requests (GEP-5093).

use std::net::IpAddr;

use crate::status::{Condition, Fault};

/// The condition that tells whether the requests of a Gateway are satisfied.
pub(crate) const ADDRESSES_ASSIGNED: &str = "AddressesAssigned";

/// The routability of the conformance suite, which guarantees nothing.
pub(crate) const SENTINEL: &str = "testing.x-k8s.io/sentinel";

/// The clients that can reach an address (`GatewayAddressRoutabilityType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Routability {
    /// No guarantee.
    #[default]
    Any,
    /// A cluster IP of Kubernetes.
    Cluster,
    /// [`SENTINEL`].
    Sentinel,
}

impl Routability {
    /// The routability with this name; `None` if the gateway does not support it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Any, Self::Cluster, Self::Sentinel].into_iter().find(|known| known.as_str() == name)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Cluster => "Cluster",
            Self::Sentinel => SENTINEL,
        }
    }
}

/// An entry of `spec.addresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressRequest {
    /// Its place in `spec.addresses`.
    pub(crate) index: usize,
    /// The requested address.
    pub(crate) value: Option<IpAddr>,
    /// The requested routability, or the reason why no address can satisfy the entry.
    pub(crate) routability: Result<Routability, String>,
}

/// The addresses of a Gateway, and its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusAddresses {
    /// Its own addresses; `None` for the addresses of the data planes.
    pub(crate) own: Option<Vec<Box<str>>>,
    /// The cluster IP of its Service.
    pub(crate) cluster_ip: Option<Box<str>>,
    /// The requests; empty if the gateway chooses.
    pub(crate) requests: Vec<AddressRequest>,
}

/// The addresses in the status of a Gateway.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) addresses: Vec<(Box<str>, Routability)>,
    /// The condition [`ADDRESSES_ASSIGNED`]; `None` as long as the gateway has chosen no address.
    pub(crate) condition: Option<Condition>,
}

impl StatusAddresses {
    /// The addresses that satisfy the requests, each request by an address of its own. Requests for a certain address choose first,
    /// then requests for cluster IPs, because other requests accept any address.
    pub(crate) fn assign(&self, of_data_planes: Option<&[Box<str>]>) -> Assigned {
        let known = self.own.as_deref().or(of_data_planes).unwrap_or_default();
        let is_cluster_ip = |address: &str| self.cluster_ip.as_deref() == Some(address);
        let routability = |address: &str| match is_cluster_ip(address) {
            true => Routability::Cluster,
            false => Routability::Any,
        };
        if self.requests.is_empty() {
            let addresses: Vec<_> =
                known.iter().map(|address| (address.clone(), routability(address))).collect();
            let condition = Condition::met(ADDRESSES_ASSIGNED, ADDRESSES_ASSIGNED);
            return Assigned { condition: (!addresses.is_empty()).then_some(condition), addresses };
        }
        let mut free: Vec<&str> = known.iter().map(|address| &**address).collect();
        // A Service with a load balancer has a cluster IP too, but only requests for a cluster IP mean it.
        let hidden = self.cluster_ip.as_deref().filter(|address| !free.contains(address));
        free.extend(hidden);
        let mut requests: Vec<&AddressRequest> = self.requests.iter().collect();
        requests.sort_by_key(|request| {
            let is_any = request.routability != Ok(Routability::Cluster);
            (request.value.is_none(), is_any, request.index)
        });
        let (mut addresses, mut unsatisfied) = (Vec::new(), Vec::new());
        for request in requests {
            let wanted = match &request.routability {
                Ok(wanted) => *wanted,
                Err(fault) => {
                    unsatisfied.push((request.index, fault.clone()));
                    continue;
                }
            };
            let is_reachable = |address: &str| match wanted {
                Routability::Cluster => is_cluster_ip(address),
                Routability::Any | Routability::Sentinel => hidden != Some(address),
            };
            let is_value = |address: &str| request.value.is_none_or(|value| address.parse() == Ok(value));
            // The IP address behind a host name is unknown.
            let is_name = |address: &str| address.parse::<IpAddr>().is_err();
            let place = |meets: &dyn Fn(&str) -> bool| {
                free.iter().position(|address| is_reachable(address) && meets(address))
            };
            match place(&is_value).or_else(|| place(&is_name)) {
                Some(place) => {
                    let address = free.remove(place);
                    let reported = match wanted {
                        Routability::Sentinel => Routability::Sentinel,
                        _ => routability(address),
                    };
                    addresses.push((request.index, (Box::from(address), reported)));
                }
                None => {
                    let what = if wanted == Routability::Cluster { "cluster IP" } else { "address" };
                    let fault = match request.value {
                        Some(value) => format!("the Gateway does not have the {what} {value}"),
                        None => format!("the Gateway has no {what} for this entry"),
                    };
                    unsatisfied.push((request.index, fault));
                }
            }
        }
        addresses.sort_by_key(|(index, _)| *index);
        unsatisfied.sort_by_key(|(index, _)| *index);
        let lines = unsatisfied.iter().map(|(index, fault)| format!("spec.addresses[{index}]: {fault}"));
        let message = lines.collect::<Vec<_>>().join("; ");
        let reason = if addresses.is_empty() { "NotAssigned" } else { "PartiallyAssigned" };
        let fault = (!unsatisfied.is_empty()).then(|| Fault::new(reason, message));
        Assigned {
            addresses: addresses.into_iter().map(|(_, address)| address).collect(),
            condition: Some(Condition::unless(ADDRESSES_ASSIGNED, ADDRESSES_ASSIGNED, fault.as_ref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER_IP: &str = "10.96.0.42";

    /// Requests: each a value or nothing, and a routability.
    fn requests(written: &[(&str, &str)]) -> Vec<AddressRequest> {
        let request = |(index, (value, routability)): (usize, &(&str, &str))| AddressRequest {
            index,
            value: value.parse().ok(),
            routability: Routability::parse(routability).ok_or_else(|| format!("{routability:?} is unknown")),
        };
        written.iter().enumerate().map(request).collect()
    }

    /// The addresses with their routability, and the reason and the message of the condition.
    fn assigned(own: &[&str], written: &[(&str, &str)]) -> (Vec<String>, String) {
        let own = own.iter().map(|address| Box::from(*address)).collect();
        let addresses = StatusAddresses {
            own: Some(own),
            cluster_ip: Some(CLUSTER_IP.into()),
            requests: requests(written),
        };
        let Assigned { addresses, condition } = addresses.assign(None);
        let line =
            |(address, routability): (Box<str>, Routability)| format!("{address} {:?}", routability.as_str());
        let condition = condition.map_or_else(String::new, |condition| {
            assert_eq!(condition.is_true, condition.reason == ADDRESSES_ASSIGNED);
            format!("{} {}", condition.reason, condition.message)
        });
        (addresses.into_iter().map(line).collect(), condition.trim_end().to_owned())
    }

    #[test]
    fn each_satisfied_request_has_one_address_with_its_routability() {
        let (balancer, both) = ("203.0.113.1", ["203.0.113.1", "203.0.113.2"]);
        let lb = r#"203.0.113.1 """#;
        let cluster = r#"10.96.0.42 "Cluster""#;
        for (own, written, addresses, condition) in [
            // The gateway chooses.
            (&[balancer][..], &[][..], &[lb][..], "AddressesAssigned"),
            (&[CLUSTER_IP], &[], &[cluster], "AddressesAssigned"),
            (&[], &[], &[], ""),
            // One address for each request.
            (&both, &[("", "")], &[lb], "AddressesAssigned"),
            (&[balancer], &[("", "Cluster")], &[cluster], "AddressesAssigned"),
            (&[CLUSTER_IP], &[("", "Cluster")], &[cluster], "AddressesAssigned"),
            (&[CLUSTER_IP], &[("", "")], &[cluster], "AddressesAssigned"),
            (&[balancer], &[("", ""), ("", "Cluster")], &[lb, cluster], "AddressesAssigned"),
            (&[balancer], &[("", "Cluster"), ("", "")], &[cluster, lb], "AddressesAssigned"),
            (
                &[CLUSTER_IP],
                &[("", SENTINEL)],
                &[r#"10.96.0.42 "testing.x-k8s.io/sentinel""#],
                "AddressesAssigned",
            ),
            (&[CLUSTER_IP], &[(CLUSTER_IP, "Cluster")], &[cluster], "AddressesAssigned"),
            (&both, &[("", ""), ("203.0.113.1", "")], &[r#"203.0.113.2 """#, lb], "AddressesAssigned"),
            // The host name of a load balancer may lead to the address.
            (&["lb.test"], &[("192.0.2.9", "")], &[r#"lb.test """#], "AddressesAssigned"),
            // Some requests, or none.
            (
                &[CLUSTER_IP],
                &[("", ""), ("", "Cluster")],
                &[cluster],
                "PartiallyAssigned spec.addresses[0]: the Gateway has no address for this entry",
            ),
            (
                &[balancer],
                &[("192.0.2.9", "Cluster"), ("", "")],
                &[lb],
                "PartiallyAssigned spec.addresses[0]: the Gateway does not have the cluster IP 192.0.2.9",
            ),
            (
                &[balancer],
                &[("", ""), ("", "example.com/Wan"), ("", "testing.x-k8s.io/other")],
                &[lb],
                "PartiallyAssigned spec.addresses[1]: \"example.com/Wan\" is unknown; spec.addresses[2]: \
                 \"testing.x-k8s.io/other\" is unknown",
            ),
            (
                &[balancer],
                &[(balancer, "Cluster")],
                &[],
                "NotAssigned spec.addresses[0]: the Gateway does not have the cluster IP 203.0.113.1",
            ),
            // The address of the load balancer is not known yet.
            (
                &[],
                &[("", "")],
                &[],
                "NotAssigned spec.addresses[0]: the Gateway has no address for this entry",
            ),
        ] {
            let found = assigned(own, written);
            assert_eq!(found.0, addresses, "{written:?}");
            assert_eq!(found.1, condition, "{written:?}");
        }
    }
}
