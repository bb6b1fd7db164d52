//! Which hosts the admin interface answers for.
//!
//! A page in a browser on the gateway's machine may come from a name that its owner lets resolve to 127.0.0.1 (DNS
//! rebinding). To the browser the admin interface is then that page's own site, whose answers it may read. The
//! `Host` of such a request is the name; an address cannot be rebound.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// The hosts that the admin interface answers for.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// All: it is reached by names that it does not know.
    Any,
    /// IP addresses, `localhost`, and these names.
    Local(Vec<String>),
}

impl Hosts {
    /// The hosts for an interface at this address: all where others than this machine can reach it and no name was
    /// given.
    #[must_use]
    pub fn of(address: SocketAddr, names: Vec<String>) -> Self {
        if names.is_empty() && !address.ip().to_canonical().is_loopback() {
            Self::Any
        } else {
            Self::Local(names)
        }
    }

    /// The host of this request, if it is not one of them. Browsers always name one.
    pub(crate) fn refused<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let (Self::Local(names), Some(host)) = (self, headers.get(HOST)) else { return None };
        let known = |host: &str| {
            host.eq_ignore_ascii_case("localhost")
                || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
                || names.iter().any(|name| name.eq_ignore_ascii_case(host))
        };
        match Authority::try_from(host.as_bytes()) {
            Ok(authority) if known(authority.host()) => None,
            _ => Some(host.to_str().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn answers(hosts: &Hosts, host: &'static str) -> bool {
        hosts.refused(&HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))])).is_none()
    }

    #[test]
    fn on_loopback_only_addresses_localhost_and_given_names_are_answered() {
        let hosts = Hosts::of(([127, 0, 0, 1], 9901).into(), vec!["gateway.local".to_owned()]);
        for own in
            ["localhost", "LocalHost:9901", "127.0.0.1:9901", "[::1]:9901", "192.0.2.1", "Gateway.local:1"]
        {
            assert!(answers(&hosts, own), "{own}");
        }
        for foreign in ["evil.example", "localhost.evil.example:9901", "127.0.0.1.nip.io", "", "a b", "1:2:3"]
        {
            assert!(!answers(&hosts, foreign), "{foreign}");
        }
        assert!(hosts.refused(&HeaderMap::new()).is_none(), "no browser leaves it out");
    }

    #[test]
    fn elsewhere_every_host_is_answered_until_names_are_given() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 9901));
        assert!(answers(&Hosts::of(everywhere, vec![]), "metrics.example"));
        let named = Hosts::of(everywhere, vec!["metrics.example".to_owned()]);
        assert!(answers(&named, "metrics.example:9901") && !answers(&named, "evil.example"));
    }
}
