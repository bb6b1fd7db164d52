//! Networks and single addresses.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::problem::Findings;

/// The networks of a list, without invalid entries.
pub(crate) fn check(written: Vec<String>, field: &str, findings: &mut Findings) -> Vec<IpNet> {
    let mut networks = Vec::with_capacity(written.len());
    for (index, text) in written.into_iter().enumerate() {
        match parse(&text) {
            Ok(network) => networks.push(network),
            Err(fault) => findings.error(format!("{field}[{index}]"), fault),
        }
    }
    networks
}

/// Parses `10.0.0.0/8` or `10.0.0.1`. IPv4 clients have plain IPv4 addresses, so IPv4 addresses inside IPv6 (RFC 4291,
/// 2.5.5.2) become plain too.
fn parse(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(format!(
            "{text:?} is not a network or an address: write 10.0.0.0/8, 10.0.0.1 or 2001:db8::/32"
        ));
    };
    if network != network.trunc() {
        let (whole, address) = (network.trunc(), network.addr());
        return Err(format!(
            "{text:?} has bits set beyond its prefix length: write {whole} for the network, or {address} for the address"
        ));
    }
    match network {
        IpNet::V6(mapped) => match (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(96)) {
            (Some(address), Some(length)) => Ok(Ipv4Net::new(address, length).map_or(network, Into::into)),
            _ => Ok(network),
        },
        IpNet::V4(_) => Ok(network),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn networks_and_addresses_are_parsed() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
        for (text, reason) in [
            ("", "not a network"),
            ("10.0.0.0/33", "not a network"),
            ("example.com", "not a network"),
            ("10.0.0", "not a network"),
            ("10.1.2.3/8", "write 10.0.0.0/8 for the network, or 10.1.2.3 for the address"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }
}
