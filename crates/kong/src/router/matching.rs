//! Whether a request matches a route, without its paths.

use std::net::IpAddr;

use super::{network, program};
use crate::file::{Address, Route};

/// A request, as far as routes compare it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The method.
    pub method: &'r str,
    /// The path in normal form, without the query.
    pub path: &'r str,
    /// The host, with an optional port.
    pub host: &'r str,
    /// Whether the request came over TLS.
    pub is_tls: bool,
    /// The name in the ClientHello.
    pub sni: Option<&'r str>,
    /// The headers.
    pub headers: &'r [(&'r str, &'r str)],
    /// The address and port of the client.
    pub source: Option<(IpAddr, u16)>,
    /// The address and port of the gateway.
    pub destination: Option<(IpAddr, u16)>,
}

impl<'r> Request<'r> {
    /// A GET over plain HTTP without headers.
    #[must_use]
    pub fn new(host: &'r str, path: &'r str) -> Self {
        Self {
            method: "GET",
            path,
            host,
            is_tls: false,
            sni: None,
            headers: &[],
            source: None,
            destination: None,
        }
    }

    /// The port that conditions on hosts and destinations compare: the port of the host, or of the gateway.
    fn port(&self) -> Option<u16> {
        host_and_port(self.host).1.or(self.destination.map(|(_, port)| port))
    }
}

/// A host of a route or of a request, and its port.
#[must_use]
pub fn host_and_port(host: &str) -> (&str, Option<u16>) {
    let colon = if host.starts_with('[') { host.find("]:").map(|at| at + 1) } else { host.find(':') };
    match colon.and_then(|at| Some((&host[..at], host[at + 1..].parse().ok()?))) {
        Some((host, port)) => (host, Some(port)),
        None => (host, None),
    }
}

/// Whether a request meets all conditions beside the path.
pub(super) fn meets(route: &Route, request: &Request<'_>) -> bool {
    let is_any = |is_empty: bool| is_empty;
    (is_any(route.methods.is_empty()) || route.methods.iter().any(|method| method == request.method))
        && route.hosts.as_deref().is_none_or(|hosts| {
            hosts.is_empty() || hosts.iter().any(|host| has_host(host, request))
        })
        // Over plain HTTP, names of the ClientHello are no condition.
        && (route.snis.is_empty()
            || !request.is_tls
            || route.snis.iter().any(|sni| Some(without_dot(sni)) == request.sni))
        && route.headers.iter().all(|(name, values)| has_header(name, values, request))
        && is_among(&route.sources, request.source)
        && is_among(&route.destinations, request.destination)
}

fn has_host(pattern: &str, request: &Request<'_>) -> bool {
    let (pattern, port) = host_and_port(pattern);
    if port.is_some() && port != request.port() {
        return false;
    }
    let name = host_and_port(request.host).0.to_ascii_lowercase();
    if let Some(suffix) = pattern.strip_prefix('*') {
        name.ends_with(suffix)
    } else if let Some(prefix) = pattern.strip_suffix('*') {
        name.starts_with(prefix)
    } else {
        name == pattern
    }
}

/// The last dot of a name is no part of the comparison.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// Whether a header has one of these values, without regard to case.
fn has_header(name: &str, values: &[String], request: &Request<'_>) -> bool {
    let form = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let of_name = request.headers.iter().filter(|(known, _)| form(known) == form(name));
    let mut found = of_name.map(|(_, value)| value.to_lowercase());
    found.any(|found| {
        values.iter().any(|value| match value.strip_prefix("~*") {
            Some(expression) => program(&expression.to_lowercase())
                .is_ok_and(|expression| expression.is_match(found.as_bytes())),
            None => value.to_lowercase() == found,
        })
    })
}

fn is_among(addresses: &[Address], of: Option<(IpAddr, u16)>) -> bool {
    let matches = |address: &Address, (ip, port): (IpAddr, u16)| {
        address.port.is_none_or(|wanted| wanted == port)
            && address.ip.as_deref().is_none_or(|wanted| {
                network(wanted).is_some_and(|(network, bits)| contains(network, bits, ip))
            })
    };
    addresses.is_empty() || of.is_some_and(|of| addresses.iter().any(|address| matches(address, of)))
}

fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    let (network, ip, all) = match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            (u128::from(network.to_bits()), u128::from(ip.to_bits()), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => (network.to_bits(), ip.to_bits(), 128),
        _ => return false,
    };
    let ignored = u32::from(all - bits.min(all));
    (network ^ ip).checked_shr(ignored).unwrap_or(0) == 0
}
