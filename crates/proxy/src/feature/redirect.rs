//! Redirects.

use sluicegate_model::feature::{Redirect, Scheme};

use super::url_rewrite::MatchedPrefix;
use crate::name::host_name;
use crate::request::RequestView;

/// The result of a redirect for one request.
pub(super) enum Redirected {
    /// The client is redirected to this location.
    To(Vec<u8>),
    /// A redirect to this location, which is the requested URL itself.
    Loop(Vec<u8>),
    /// The redirect to HTTPS needs a host, but the client sent none. Only a redirect to a path would be possible.
    MissingHost,
}

/// Redirects a request.
pub(super) fn redirect(redirect: &Redirect, matched: MatchedPrefix, request: &RequestView<'_>) -> Redirected {
    let (authority, is_secure) = (request.head.authority(), request.is_https());
    let has_name = redirect.hostname.is_some() || !authority.is_empty();
    if redirect.scheme == Some(Scheme::Https) && !has_name && !is_secure {
        return Redirected::MissingHost;
    }
    let path = match &redirect.path {
        Some(rewrite) => matched.rewrite(rewrite, request.path),
        None => request.path.to_vec(),
    };
    let name = host_name(authority);
    let mut out = Vec::new();
    let host = redirect.hostname.as_ref().map_or(name, |host| host.as_bytes());
    let https = redirect.scheme.map_or(is_secure, |scheme| scheme == Scheme::Https);
    let mut is_elsewhere = path != request.path;
    // A client that named no host can only be redirected to a path.
    if !host.is_empty() {
        out.extend_from_slice(if https { b"https://" } else { b"http://" });
        out.extend_from_slice(host);
        let named =
            authority.get(name.len()..).and_then(|rest| std::str::from_utf8(rest.strip_prefix(b":")?).ok());
        let of_scheme = |https: bool| if https { 443 } else { 80 };
        let named: Option<u16> = named.and_then(|port| port.parse().ok());
        let own = of_scheme(https);
        let port = match (redirect.port, redirect.scheme) {
            (Some(port), _) => Some(port.get()),
            (None, Some(_)) => None,
            (None, None) => named,
        };
        is_elsewhere |= https != is_secure || !host.eq_ignore_ascii_case(name);
        is_elsewhere |= port.unwrap_or(own) != named.unwrap_or(of_scheme(is_secure));
        if let Some(port) = port.filter(|port| *port != own) {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
    }
    out.extend_from_slice(&path);
    if let Some(query) = request.head.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    if is_elsewhere { Redirected::To(out) } else { Redirected::Loop(out) }
}
