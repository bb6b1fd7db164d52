//! Mirrored requests.

use sluicegate_model::value::{HeaderValue, Template, syntax};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `mirror-target`.
    pub(crate) target: Option<Target>,
    /// `mirror-request-body`: whether it is off.
    pub(crate) drops_body: bool,
    /// `mirror-host`.
    pub(crate) host: Option<HeaderValue>,
}

/// The URL of a mirror.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) has_tls: bool,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// The host, with the port if the URL names a port.
    pub(crate) authority: HeaderValue,
    /// The path and the query.
    pub(crate) path: Template,
}

/// `mirror-target`.
pub(crate) const TARGET: &str = "nginx.ingress.kubernetes.io/mirror-target";

impl Target {
    fn of(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not a URL: write it as https://mirror.example$request_uri");
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{text:?} has characters that a URL cannot have"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let has_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(form()),
        };
        let end = rest.find(['/', '$', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let default = if has_tls { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0).ok_or_else(form)?),
            None => (authority, default),
        };
        if let Some(fault) = syntax::dns_name_fault(host) {
            return Err(format!("{text:?}: the host {host:?} {fault}"));
        }
        let path = Template::new(path).map_err(|fault| fault.to_string())?;
        Ok(Self { has_tls, host: host.into(), port, authority: HeaderValue::new(authority)?, path })
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "mirror-target",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.mirror.target = Some(Target::of(value.text)?);
            Ok(())
        }),
        sets: "The URL that receives copies of requests, such as `https://mirror.example$request_uri`.",
        default: "no mirror",
    },
    Row {
        name: "mirror-request-body",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.mirror.drops_body = value.word(&[("off", true), ("on", false)])?;
            Ok(())
        }),
        sets: "Whether copies have the body of the request: `on` or `off`.",
        default: "`on`",
    },
    Row {
        name: "mirror-host",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.mirror.host = Some(HeaderValue::new(value.text)?);
            Ok(())
        }),
        sets: "The `Host` of copies.",
        default: "the host of `mirror-target`",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2025-1098: in ingress-nginx, a target could add directives to the configuration of nginx.
    #[test]
    fn target_is_a_url_with_a_fixed_host() {
        let target = Target::of("https://mirror.test:8443$request_uri").unwrap();
        assert_eq!(
            (&*target.host, target.port, &*target.authority),
            ("mirror.test", 8443, "mirror.test:8443")
        );
        assert!(!Target::of("http://mirror.test/a?b=$arg_c").unwrap().has_tls);
        for text in [
            "mirror.test",
            "ftp://mirror.test/",
            "http://$host/",
            "http://mirror.test:0/",
            "http://a@mirror.test/",
            "http:///x",
            "http://mirror.test/;}\nlua_block {",
            "http://mirror.test/$unknown_variable",
        ] {
            assert!(Target::of(text).is_err(), "{text}");
        }
    }
}
