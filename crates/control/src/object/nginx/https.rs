//! Redirects to HTTPS, and TLS passthrough.

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sluicegate_model::tls::Hsts;
use sluicegate_model::value::{CipherSuites, Number};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `ssl-redirect`.
    pub(crate) ssl_redirect: Option<bool>,
    /// `force-ssl-redirect`.
    pub(crate) force_ssl_redirect: Option<bool>,
    /// `ssl-passthrough`.
    pub(crate) ssl_passthrough: bool,
    /// `preserve-trailing-slash`.
    pub(crate) preserve_trailing_slash: bool,
    /// `hsts`, `hsts-max-age`, `hsts-include-subdomains` and `hsts-preload` of the ConfigMap.
    pub(crate) hsts: HstsSettings,
    /// `use-forwarded-headers`, `enable-real-ip` and `proxy-real-ip-cidr` of the ConfigMap.
    pub(crate) forwarded: Forwarded,
    /// `ssl-ciphers`.
    pub(crate) ciphers: CipherSuites,
    /// `http-redirect-code` of the ConfigMap.
    pub(crate) redirect_code: Option<Number<u16, 301, 308>>,
    /// `no-tls-redirect-locations` of the ConfigMap.
    pub(crate) not_redirected: Option<Vec<Box<str>>>,
}

/// The trust in forwarding headers of the ConfigMap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwarded {
    pub(crate) uses_headers: Option<bool>,
    pub(crate) uses_real_ip: Option<bool>,
    pub(crate) networks: Option<Vec<IpNet>>,
    pub(crate) uses_proxy_protocol: bool,
}

impl Forwarded {
    /// The trusted proxies; `None` if the ConfigMap has no such key. Without `proxy-real-ip-cidr`, ingress-nginx trusts every
    /// IPv4 address.
    pub(crate) fn trusted_proxies(&self) -> Option<Vec<IpNet>> {
        let uses = self.uses_headers.or(self.uses_real_ip).is_some() || self.networks.is_some();
        let trusts = self.uses_headers == Some(true) || self.uses_real_ip == Some(true);
        let every = || vec![Ipv4Net::default().into()];
        uses.then(|| if trusts { self.networks.clone().unwrap_or_else(every) } else { Vec::new() })
    }

    /// The peers that send the PROXY protocol; `None` without `use-proxy-protocol`.
    pub(crate) fn proxy_protocol_peers(&self) -> Option<Vec<IpNet>> {
        let every = || vec![Ipv4Net::default().into(), Ipv6Net::default().into()];
        self.uses_proxy_protocol.then(|| self.networks.clone().unwrap_or_else(every))
    }
}

/// The header `Strict-Transport-Security` of the ConfigMap. `None`: the default of ingress-nginx.
#[derive(Clone, Debug, Default)]
pub(crate) struct HstsSettings {
    pub(crate) is_on: Option<bool>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) includes_subdomains: Option<bool>,
    pub(crate) is_preloaded: Option<bool>,
}

impl HstsSettings {
    /// The header of responses over TLS; `None`: no header.
    pub(crate) fn header(&self) -> Option<Hsts> {
        self.is_on.unwrap_or(true).then(|| Hsts {
            max_age: self.max_age.unwrap_or(Duration::from_secs(31_536_000)),
            include_subdomains: self.includes_subdomains.unwrap_or(true),
            preload: self.is_preloaded.unwrap_or(false),
        })
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "ssl-redirect",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.ssl_redirect = Some(value.switch()?);
            Ok(())
        }),
        sets: "Redirects plain HTTP to HTTPS with 308, if the host has TLS.",
        default: "`true`",
    },
    Row {
        name: "force-ssl-redirect",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.force_ssl_redirect = Some(value.switch()?);
            Ok(())
        }),
        sets: "Redirects plain HTTP also if the host has no TLS here.",
        default: "`false`",
    },
    Row {
        name: "ssl-ciphers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.ciphers = CipherSuites::new(value.text)?;
            Ok(())
        }),
        sets: "The cipher suites of TLS 1.2 for the hosts of `spec.tls`, as a list of OpenSSL. The gateway has six suites, all with forward secrecy.",
        default: "`DEFAULT`",
    },
    Row {
        name: "ssl-passthrough",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.ssl_passthrough = value.switch()?;
            Ok(())
        }),
        sets: "Forwards TLS for the hosts to the Service, without decryption.",
        default: "`false`",
    },
    Row {
        name: "preserve-trailing-slash",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.preserve_trailing_slash = value.switch()?;
            Ok(())
        }),
        sets: "Keeps the final slash of the path in redirects to HTTPS.",
        default: "`false`",
    },
];
