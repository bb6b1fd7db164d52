//! The target of a load: a URL.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;

/// The target of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) is_tls: bool,
    /// A name or an IP address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The value of Host: without the port if it is the default port of the scheme.
    pub(crate) authority: String,
    /// The path with its query; not empty.
    pub(crate) path: String,
}

impl Target {
    /// The destination of the connections. If the name has several addresses, as `localhost` has, the load uses the
    /// first address with a listener.
    pub(crate) fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let name = (self.host.as_str(), self.port);
        let unknown = || format!("{}: the host {:?} has no address", self.url, self.host);
        let addresses: Vec<SocketAddr> = name.to_socket_addrs().with_context(unknown)?.collect();
        let first = *addresses.first().with_context(unknown)?;
        if addresses.len() == 1 {
            return Ok(first);
        }
        let answers = |addr: &&SocketAddr| TcpStream::connect_timeout(addr, Duration::from_secs(1)).is_ok();
        Ok(addresses.iter().find(answers).copied().unwrap_or(first))
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("begin it with http:// or https://")?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("{scheme}:// is not spoken: only http:// and https:// are")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("its path has a character that has to be written as %XX".to_owned());
        }
        if place.contains('@') {
            return Err("it has a user name; send Authorization by -H instead".to_owned());
        }
        let default = if is_tls { 443 } else { 80 };
        // An IPv6 address contains colons, and stands in brackets.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                let number = port.parse().ok().filter(|port| *port > 0 && !host.is_empty());
                (host, number.ok_or_else(|| format!("{port:?} is not a port: 1 to 65535"))?)
            }
            _ => (place, default),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let is_ipv6 = bare.len() < host.len() && bare.parse::<std::net::Ipv6Addr>().is_ok();
        if host.is_empty() || !(is_ipv6 || is_name && bare.len() == host.len()) {
            return Err(format!("{host:?} is neither a host name nor an IP address"));
        }
        let authority = if port == default { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Self { url: url.to_owned(), is_tls, host: bare.to_owned(), port, authority, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_parsed_into_its_parts() {
        let cases = [
            ("http://a", false, "a", 80, "a", "/"),
            ("http://a?x=1", false, "a", 80, "a", "/?x=1"),
            ("HTTPS://app.example.com:443/x#y", true, "app.example.com", 443, "app.example.com", "/x"),
            ("https://127.0.0.1:8443/a?b=c/d", true, "127.0.0.1", 8443, "127.0.0.1:8443", "/a?b=c/d"),
            ("http://[::1]:81", false, "::1", 81, "[::1]:81", "/"),
            ("http://[::1]/", false, "::1", 80, "[::1]", "/"),
        ];
        for (url, is_tls, host, port, authority, path) in cases {
            let target: Target = url.parse().unwrap();
            assert_eq!(
                (
                    target.is_tls,
                    target.host.as_str(),
                    target.port,
                    target.authority.as_str(),
                    target.path.as_str()
                ),
                (is_tls, host, port, authority, path),
                "{url}"
            );
        }
    }

    #[test]
    fn invalid_url_is_rejected() {
        for url in [
            "",
            "localhost",
            "ftp://a/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://a:0/",
            "http://a:99999/",
            "http://a:x/",
            "http://a b/",
            "http://a/b c",
            "http://a/\u{e4}",
            "http://u@a/",
            "http://::1/",
            "http://[x]/",
        ] {
            assert!(url.parse::<Target>().is_err(), "{url}");
        }
    }
}
