//! The hosts that the admin interface accepts.
//!
//! A browser on the gateway's machine may show a page from a name that its owner resolves to 127.0.0.1 (DNS rebinding).
//! For the browser the admin interface and the page then have the same origin, so the page may read responses. The
//! `Host` of these requests is the rebound name. An attacker cannot rebind an IP address.

use std::net::{IpAddr, SocketAddr};

use hyper::header::HOST;
use hyper::http::uri::Authority;
use hyper::{Request, Version};

/// The hosts that the admin interface accepts.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// All hosts: clients may reach the interface by any name.
    Any,
    /// IP addresses, `localhost`, and these names.
    Local(Vec<String>),
}

impl Hosts {
    /// The hosts for an interface at this address. The interface accepts all hosts if other machines can reach the
    /// address and the operator has set no name.
    #[must_use]
    pub fn of(address: SocketAddr, names: Vec<String>) -> Self {
        if names.is_empty() && !address.ip().to_canonical().is_loopback() {
            Self::Any
        } else {
            Self::Local(names)
        }
    }

    /// Checks the host of a request. HTTP/1.0 requires no `Host` (RFC 9112, 3.2).
    ///
    /// # Errors
    ///
    /// If the request has no valid host, or a host that the interface does not accept.
    pub fn check<'r, B>(&self, request: &'r Request<B>) -> Result<(), HostFault<'r>> {
        let mut lines = request.headers().get_all(HOST).iter();
        let host = match (lines.next(), lines.next()) {
            (None, _) if request.version() < Version::HTTP_11 => return Ok(()),
            (Some(host), None) => host,
            _ => return Err(HostFault::Invalid),
        };
        let authority = Authority::try_from(host.as_bytes()).map_err(|_| HostFault::Invalid)?;
        if authority.as_str().contains('@') {
            return Err(HostFault::Invalid);
        }
        let Self::Local(names) = self else { return Ok(()) };
        let host_name = authority.host();
        let is_known = host_name.eq_ignore_ascii_case("localhost")
            || host_name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || names.iter().any(|name| name.eq_ignore_ascii_case(host_name));
        if is_known { Ok(()) } else { Err(HostFault::Foreign(host.to_str().unwrap_or_default())) }
    }
}

/// The reason why a request is rejected for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault<'r> {
    /// The request has no `Host`, several `Host` headers, or an invalid value.
    Invalid,
    /// The interface does not accept this host.
    Foreign(&'r str),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &[&str]) -> Request<()> {
        let mut request = Request::builder();
        for line in lines {
            request = request.header(HOST, *line);
        }
        request.body(()).expect("a request")
    }

    fn accepts(hosts: &Hosts, host: &str) -> bool {
        hosts.check(&request(&[host])).is_ok()
    }

    #[test]
    fn loopback_interface_accepts_only_localhost_addresses_and_configured_names() {
        let hosts = Hosts::of(([127, 0, 0, 1], 9901).into(), vec!["gateway.local".to_owned()]);
        for own in
            ["localhost", "LocalHost:9901", "127.0.0.1:9901", "[::1]:9901", "192.0.2.1", "Gateway.local:1"]
        {
            assert!(accepts(&hosts, own), "{own}");
        }
        for foreign in ["evil.example", "localhost.evil.example:9901", "127.0.0.1.nip.io", "1:2:3"] {
            assert!(!accepts(&hosts, foreign), "{foreign}");
        }
    }

    #[test]
    fn request_without_exactly_one_valid_host_is_rejected() {
        for hosts in [Hosts::Any, Hosts::Local(vec!["a".to_owned()])] {
            for lines in [&[][..], &["a", "a"], &["a", "b"], &[""], &["a b"], &["a/b"], &["b@a"]] {
                assert_eq!(hosts.check(&request(lines)), Err(HostFault::Invalid), "{lines:?}");
            }
            let mut old = request(&[]);
            *old.version_mut() = Version::HTTP_10;
            assert_eq!(hosts.check(&old), Ok(()), "HTTP/1.0 requires no Host");
        }
    }

    #[test]
    fn public_interface_accepts_every_host_unless_names_are_configured() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 9901));
        assert!(accepts(&Hosts::of(everywhere, vec![]), "metrics.example"));
        let named = Hosts::of(everywhere, vec!["metrics.example".to_owned()]);
        assert!(accepts(&named, "metrics.example:9901") && !accepts(&named, "evil.example"));
    }
}
