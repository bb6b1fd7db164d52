//! Addresses, networks, ports and names in the notation of the command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use sluicegate_control::ObjectName;

/// A listen address: `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`; `:8080` and `8080` are all IPv4 addresses, as in
/// nginx' `listen 8080`.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':').unwrap_or(text).parse() {
        Ok(port) => Ok((Ipv4Addr::UNSPECIFIED, port).into()),
        Err(_) => local_address(text).map_err(|error| format!("{error} or :8080")),
    }
}

/// An address with its host: `127.0.0.1:9901`, `[::1]:9901` or `localhost:9901`. The host is required, so that a private
/// interface does not listen on all addresses by mistake.
pub(crate) fn local_address(text: &str) -> Result<SocketAddr, String> {
    let of_localhost = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    match of_localhost {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().map_err(|_| {
            "not an IP address with a port up to 65535; write 127.0.0.1:8080, [::1]:8080, localhost:8080"
                .to_owned()
        }),
    }
}

/// A network such as `10.0.0.0/8`. A single address is a network of one address.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(left, right)| (left, Some(right)));
    let address: IpAddr = address.trim().parse().map_err(|_| {
        format!("{address:?} is not an IP address; write a network as 10.0.0.0/8 or 2001:db8::/32")
    })?;
    let Some(prefix) = prefix else { return Ok(address.into()) };
    let (longest, family) = if address.is_ipv4() { (32, "IPv4") } else { (128, "IPv6") };
    let length: u32 = prefix.parse().map_err(|_| {
        format!("{prefix:?} is not a prefix length; write a network as 10.0.0.0/8 or 2001:db8::/32")
    })?;
    let too_long =
        || format!("the prefix length /{length} is too long; an {family} network has at most /{longest}");
    u8::try_from(length).ok().and_then(|length| IpNet::new(address, length).ok()).ok_or_else(too_long)
}

/// `namespace/name`
pub(crate) fn object_name(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(ObjectName { namespace: namespace.into(), name: name.into() })
        }
        _ => Err("not the name of an object; write NAMESPACE/NAME".to_owned()),
    }
}

/// `key=value`
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not a key with a value; write KEY=VALUE".to_owned()),
    }
}

/// `first-last`
pub(crate) fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range =
        text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match range {
        Some((first, last)) if 0 < first && first <= last => Ok(first..=last),
        _ => Err("not a range of ports from 1 to 65535; write 20000-29999".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_may_be_only_a_port() {
        for (text, address) in [
            ("8080", "0.0.0.0:8080"),
            (":8080", "0.0.0.0:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(
                listen_address(text).map(|address| address.to_string()),
                Ok(address.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_address_is_rejected_with_an_example() {
        for wrong in ["", ":", "localhost", "127.0.0.1", "::1:8080", "example.com:80", "70000", ":70000"] {
            let error = listen_address(wrong).expect_err(wrong);
            assert!(error.contains("write 127.0.0.1:8080, [::1]:8080, localhost:8080 or :8080"), "{error}");
        }
        assert!(
            local_address(":9901").is_err(),
            "the admin interface listens on all addresses only if the address says so"
        );
    }

    #[test]
    fn invalid_network_is_rejected_with_the_reason() {
        let net = |text: &str| network(text).map(|network| network.to_string());
        assert_eq!(net("10.0.0.0/8"), Ok("10.0.0.0/8".into()));
        assert_eq!(net("2001:db8::/32"), Ok("2001:db8::/32".into()));
        assert_eq!(net("10.1.2.3"), Ok("10.1.2.3/32".into()));
        for (wrong, message) in [
            ("10.0.0.0/33", "the prefix length /33 is too long; an IPv4 network has at most /32"),
            ("::/129", "the prefix length /129 is too long; an IPv6 network has at most /128"),
            ("10.0.0.0/999", "the prefix length /999 is too long; an IPv4 network has at most /32"),
            ("10.0.0/8", "\"10.0.0\" is not an IP address; write a network as 10.0.0.0/8 or 2001:db8::/32"),
            ("10.0.0.0/", "\"\" is not a prefix length; write a network as 10.0.0.0/8 or 2001:db8::/32"),
        ] {
            assert_eq!(net(wrong), Err(message.to_owned()));
        }
    }

    #[test]
    fn port_range_that_is_empty_or_beyond_65535_is_rejected() {
        assert_eq!(port_range("20000-20000"), Ok(20000..=20000));
        for wrong in ["", "20000", "20001-20000", "0-10", "20000-70000"] {
            assert!(port_range(wrong).is_err(), "{wrong}");
        }
    }
}
