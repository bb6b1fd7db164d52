//! The ConfigMap of ingress-nginx: the settings of Ingresses without annotations.
//!
//! A key with the name of an annotation has the meaning of the annotation. [`ROWS`] are the other keys. Keys for the whole gateway
//! are options of the command line.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ipnet::IpNet;
use sluicegate_model::value::Number;

use super::Meaning::{Harmless, Refused, Sets};
use super::snippet::Settings as Snippets;
use super::value::Value;
use super::{CLOSED, Fault, Row, Settings, auth, global, limits, observability, row, snippet};

/// The annotations that are also keys of the ConfigMap.
const ANNOTATIONS: &[&str] = &[
    "allowlist-source-range",
    "client-body-buffer-size",
    "custom-http-errors",
    "denylist-source-range",
    "disable-proxy-intercept-errors",
    "enable-opentelemetry",
    "force-ssl-redirect",
    "limit-rate",
    "limit-rate-after",
    "load-balance",
    "opentelemetry-operation-name",
    "opentelemetry-trust-incoming-span",
    "preserve-trailing-slash",
    "proxy-body-size",
    "proxy-buffer-size",
    "proxy-buffering",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "proxy-connect-timeout",
    "proxy-cookie-domain",
    "proxy-cookie-path",
    "proxy-http-version",
    "proxy-max-temp-file-size",
    "proxy-next-upstream",
    "proxy-next-upstream-timeout",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-redirect-from",
    "proxy-redirect-to",
    "proxy-request-buffering",
    "proxy-send-timeout",
    "relative-redirects",
    "service-upstream",
    "ssl-ciphers",
    "ssl-redirect",
    "upstream-hash-by",
    "whitelist-source-range",
];

/// The keys that no annotation has.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "hsts",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.hsts.is_on = Some(value.switch()?);
            Ok(())
        }),
        sets: "Sends `Strict-Transport-Security` with responses over TLS.",
        default: "`true`",
    },
    Row {
        name: "hsts-include-subdomains",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.hsts.includes_subdomains = Some(value.switch()?);
            Ok(())
        }),
        sets: "Whether the header applies to all subdomains.",
        default: "`true`",
    },
    Row {
        name: "hsts-max-age",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.hsts.max_age = Some(Duration::from_secs(value.seconds()?.unwrap_or(0)));
            Ok(())
        }),
        sets: "The lifetime of the header in seconds.",
        default: "`31536000`",
    },
    Row {
        name: "hsts-preload",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.hsts.is_preloaded = Some(value.switch()?);
            Ok(())
        }),
        sets: "Whether the header asks browsers for preloading.",
        default: "`false`",
    },
    Row {
        name: "use-forwarded-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.forwarded.uses_headers = Some(value.switch()?);
            Ok(())
        }),
        sets: "Whether the gateway believes the forwarding headers of `proxy-real-ip-cidr`.",
        default: "`false`",
    },
    Row {
        name: "compute-full-forwarded-for",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.full_forwarded_for = value.switch()?;
            Ok(())
        }),
        sets: "Whether `X-Forwarded-For` to endpoints also has the addresses that a trusted proxy sends.",
        default: "`false`",
    },
    Row {
        name: "enable-real-ip",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.forwarded.uses_real_ip = Some(value.switch()?);
            Ok(())
        }),
        sets: "As `use-forwarded-headers`.",
        default: "`false`",
    },
    Row {
        name: "proxy-real-ip-cidr",
        restricts: false,
        meaning: Sets(|settings, value| {
            let network = |text: &str| {
                let address = || text.parse::<IpAddr>().map(IpNet::from);
                let network = text.parse::<IpNet>().or_else(|_| address());
                network.map_err(|_| format!("{text:?} is not a network such as 10.0.0.0/8"))
            };
            settings.https.forwarded.networks = Some(value.list().map(network).collect::<Result<_, _>>()?);
            Ok(())
        }),
        sets: "The trusted proxies: networks or addresses, with commas.",
        default: "`0.0.0.0/0`",
    },
    Row {
        name: "use-proxy-protocol",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.https.forwarded.uses_proxy_protocol = value.switch()?;
            Ok(())
        }),
        sets: "Connections from `proxy-real-ip-cidr` must begin with the PROXY protocol.",
        default: "`false`",
    },
    Row {
        name: "http-redirect-code",
        restricts: false,
        meaning: Sets(|settings, value| {
            let code = value.word(&[("301", 301), ("302", 302), ("307", 307), ("308", 308)])?;
            settings.https.redirect_code = Some(Number::of(code));
            Ok(())
        }),
        sets: "The status of redirects to HTTPS: `301`, `302`, `307` or `308`.",
        default: "`308`",
    },
    Row {
        name: "no-tls-redirect-locations",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.https.not_redirected = Some(value.list().map(Into::into).collect());
            Ok(())
        }),
        sets: "The paths, with commas, that are not redirected to HTTPS.",
        default: "`/.well-known/acme-challenge`",
    },
    Row {
        name: "retry-non-idempotent",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.retries_non_idempotent = value.switch()?;
            Ok(())
        }),
        sets: "Retries requests whose method is not idempotent.",
        default: "`false`",
    },
    Row {
        name: "global-allowed-response-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.response.allowed_headers = value.list().map(Into::into).collect();
            Ok(())
        }),
        sets: "The names of headers that `custom-headers` may set, with commas.",
        default: "",
    },
];

/// The consequence of a fault in a key that restricts access.
const CLOSED_ALL: &str = "the routes of all Ingresses respond with 503";

/// The content of a ConfigMap.
#[derive(Debug)]
pub(crate) struct Globals {
    pub(crate) settings: Arc<Settings>,
    /// The keys that have an effect on Ingresses.
    known: Vec<Box<str>>,
    pub(crate) faults: Vec<KeyFault>,
}

/// A key with a fault.
#[derive(Debug)]
pub(crate) struct KeyFault {
    pub(crate) key: Box<str>,
    /// The rest of a sentence about the key.
    pub(crate) message: String,
    /// Whether the routes of all Ingresses respond with 503.
    pub(crate) closes: bool,
}

/// Whether an unknown key may restrict access, by its name.
fn may_restrict(key: &str) -> bool {
    const NAMES: [&str; 7] =
        ["allowlist", "auth-", "block-", "denylist", "global-auth", "limit-", "whitelist"];
    NAMES.iter().any(|name| key.starts_with(name))
}

/// The row of a key.
fn row_of(key: &str) -> Option<&'static Row> {
    let of_annotation = || row(key).filter(|_| ANNOTATIONS.contains(&key));
    ROWS.iter()
        .chain(limits::KEYS)
        .chain(auth::KEYS)
        .chain(observability::KEYS)
        .chain(global::ROWS)
        .chain(snippet::KEYS)
        .find(|row| row.name == key)
        .or_else(of_annotation)
}

/// A key of the ConfigMap of ingress-nginx that applies to Ingresses, for the reference page.
#[derive(Clone, Copy, Debug)]
pub struct IngressNginxKey {
    /// The name.
    pub name: &'static str,
    /// Whether an annotation has the same name and meaning.
    pub is_annotation: bool,
    /// Whether a fault in the key closes the routes of all Ingresses.
    pub restricts: bool,
    /// The effect, as a sentence.
    pub effect: &'static str,
    /// The value without the key; empty if there is none.
    pub default: &'static str,
    /// For an unsupported key: what to write instead.
    pub instead: Option<&'static str>,
}

/// Whether a key of the ConfigMap of ingress-nginx applies to Ingresses.
#[must_use]
pub fn is_ingress_nginx_key(key: &str) -> bool {
    row_of(key).is_some()
}

/// The keys of the ConfigMap of ingress-nginx that apply to Ingresses, by name.
#[must_use]
pub fn ingress_nginx_keys() -> Vec<IngressNginxKey> {
    let own = ROWS
        .iter()
        .chain(limits::KEYS)
        .chain(auth::KEYS)
        .chain(observability::KEYS)
        .chain(global::ROWS)
        .chain(snippet::KEYS);
    let own = own.map(|row| row.name);
    let mut names: Vec<&str> = own.chain(ANNOTATIONS.iter().copied()).collect();
    names.sort_unstable();
    let key = |name| {
        let Row { restricts, meaning, sets, default, .. } = row_of(name)?;
        let instead = if let Refused(instead) = meaning { Some(*instead) } else { None };
        let is_annotation = ANNOTATIONS.contains(&name);
        Some(IngressNginxKey { name, is_annotation, restricts: *restricts, effect: sets, default, instead })
    };
    names.into_iter().filter_map(key).collect()
}

impl Globals {
    /// Whether the key is for Ingresses, so that the key is not an option of the gateway.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.known.iter().any(|known| **known == *key)
    }

    fn read<'v>(values: impl Iterator<Item = (&'v str, &'v str)>, namespace: &Arc<str>) -> Self {
        let (mut settings, mut known, mut faults) = (Settings::default(), Vec::new(), Vec::new());
        for (key, value) in values {
            let Some(row) = row_of(key) else {
                if may_restrict(key) {
                    let message = "is unknown, and may restrict access";
                    let field = format!("ConfigMap data[{key}]").into();
                    settings.faults.push(Fault {
                        field,
                        message: format!("{message}; {CLOSED}"),
                        closes: true,
                    });
                    let message = format!("{message}; {CLOSED_ALL}. Fix the name, or remove the key");
                    faults.push(KeyFault { key: key.into(), message, closes: true });
                    known.push(key.into());
                }
                continue;
            };
            known.push(key.into());
            if value.trim().is_empty() {
                continue;
            }
            let (fault, instead) = match row.meaning {
                Harmless => continue,
                Refused(instead) => ("is not supported".to_owned(), format!(". {instead}")),
                Sets(set) => match set(&mut settings, &Value::within(value.trim(), namespace)) {
                    Ok(()) => {
                        let Snippets { configuration, server, .. } = &mut *settings.snippet;
                        let of_snippet = configuration.faults.drain(..).chain(server.faults.drain(..));
                        faults.extend(of_snippet.map(|message| KeyFault {
                            key: key.into(),
                            message,
                            closes: false,
                        }));
                        continue;
                    }
                    Err(fault) => (fault, String::new()),
                },
            };
            let closes = row.restricts;
            if closes {
                let field = format!("ConfigMap data[{key}]").into();
                let message = format!("{fault}; {CLOSED}{instead}");
                settings.faults.push(Fault { field, message, closes });
            }
            let consequence = if closes { CLOSED_ALL } else { "the default applies" };
            faults.push(KeyFault {
                key: key.into(),
                message: format!("{fault}; {consequence}{instead}"),
                closes,
            });
        }
        Self { settings: Arc::new(settings), known, faults }
    }
}

/// The [`Globals`] of a ConfigMap, which are read once.
#[derive(Default)]
pub(crate) struct Cached(OnceLock<Globals>);

/// The globals follow from the values of the ConfigMap.
impl PartialEq for Cached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Cached {
    pub(crate) fn get<'v>(
        &self,
        values: impl Iterator<Item = (&'v str, &'v str)>,
        namespace: &Arc<str>,
    ) -> &Globals {
        self.0.get_or_init(|| Globals::read(values, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_annotation_that_is_a_key_of_the_configmap_has_a_row() {
        let is_lacking = |name: &&&str| row(name).is_none();
        let lacking: Vec<_> = ANNOTATIONS.iter().filter(is_lacking).collect();
        assert!(lacking.is_empty(), "{lacking:?}");
        assert!(ROWS.iter().all(|own| row(own.name).is_none()), "a key has two rows");
    }
}
