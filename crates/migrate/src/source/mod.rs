//! Requests from access logs, HAR files, and the hosts and paths of Ingresses.
//!
//! | module | content |
//! |---|---|
//! | [`log`] | access logs of nginx and ingress-nginx, as text or JSON |
//! | [`har`] | HTTP archives, which browsers write |

use std::collections::BTreeSet;

use http::Method;

pub mod har;
pub mod log;

/// The most requests of one source. Further requests are left out.
pub const REQUESTS_MAX: usize = 100_000;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The host, without a port.
    pub host: String,
    /// The method.
    pub method: String,
    /// The path and the query.
    pub target: String,
}

/// The reason why a source has no requests.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file is not a HAR file.
    #[error("is not a HAR file: {0}; write log.entries[].request with method and url")]
    Har(#[from] serde_json::Error),
}

impl Request {
    /// A request, unless a part of it cannot be sent.
    #[must_use]
    pub fn new(host: &str, method: &str, target: &str) -> Option<Self> {
        let host = host.rsplit_once(':').map_or(host, |(name, port)| match port.parse::<u16>() {
            Ok(_) => name,
            Err(_) => host,
        });
        let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        let is_target = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
        let is_method = Method::from_bytes(method.as_bytes()).is_ok();
        (is_host && is_target && is_method).then(|| Self {
            host: host.to_ascii_lowercase(),
            method: method.to_ascii_uppercase(),
            target: target.split('#').next().unwrap_or_default().to_owned(),
        })
    }
}

/// The requests without repetitions, in their order.
#[must_use]
pub fn unique(requests: impl IntoIterator<Item = Request>) -> Vec<Request> {
    let mut known = BTreeSet::new();
    requests.into_iter().filter(|request| known.insert(request.clone())).take(REQUESTS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_with_a_part_that_cannot_be_sent_is_left_out() {
        let parts = |host, method, target| Request::new(host, method, target).map(|request| request.host);
        assert_eq!(parts("A.test:443", "get", "/x?y").as_deref(), Some("a.test"));
        for (host, method, target) in [
            ("", "GET", "/"),
            ("a.test/b", "GET", "/"),
            ("a.test", "G T", "/"),
            ("a.test", "GET", "x"),
            ("a.test", "GET", "/a b"),
            ("a.test", "GET", "/a\r\nX: y"),
        ] {
            assert_eq!(parts(host, method, target), None, "{host} {method} {target}");
        }
    }
}
