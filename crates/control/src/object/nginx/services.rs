//! The ConfigMaps of `--tcp-services-configmap` and `--udp-services-configmap`: ports that lead to Services.

use std::sync::{Arc, OnceLock};

use sluicegate_model::value::syntax;

/// A port that leads to a Service.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The key, which is the port as text.
    pub(crate) key: Arc<str>,
    pub(crate) port: u16,
    pub(crate) namespace: Arc<str>,
    pub(crate) service: Arc<str>,
    /// The name or the number of the port of the Service.
    pub(crate) service_port: Arc<str>,
    /// Whether clients must send the PROXY protocol.
    pub(crate) reads_proxy: bool,
    /// Whether endpoints receive the PROXY protocol.
    pub(crate) sends_proxy: bool,
}

/// The content of such a ConfigMap.
#[derive(Debug, Default)]
pub(crate) struct Services {
    pub(crate) entries: Vec<Entry>,
    /// Keys with a fault, and the rest of a sentence about each.
    pub(crate) faults: Vec<(Box<str>, String)>,
}

/// The [`Services`] of a ConfigMap, which are read once.
#[derive(Default)]
pub(crate) struct Cached(OnceLock<Services>);

/// The services follow from the values of the ConfigMap.
impl PartialEq for Cached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Cached {
    pub(crate) fn get<'v>(&self, values: impl Iterator<Item = (&'v str, &'v str)>) -> &Services {
        self.0.get_or_init(|| {
            let mut services = Services::default();
            for (key, value) in values {
                match Entry::new(key, value.trim()) {
                    Ok(entry) => services.entries.push(entry),
                    Err(fault) => services.faults.push((key.into(), fault)),
                }
            }
            services
        })
    }
}

impl Entry {
    /// `"9000": namespace/service:port`, and optionally `:PROXY` for clients and another `:PROXY` for endpoints.
    fn new(key: &str, value: &str) -> Result<Self, String> {
        let port: u16 = key
            .parse()
            .ok()
            .filter(|port: &u16| *port > 0 && port.to_string() == key)
            .ok_or_else(|| "is not a port: write a number from 1 to 65535 as the key".to_owned())?;
        let fault = |fault: &str| format!("{value:?} {fault}: write namespace/service:port");
        let mut parts = value.split(':');
        let name = parts.next().unwrap_or_default();
        let (namespace, service) = name.split_once('/').ok_or_else(|| fault("has no namespace"))?;
        let service_port =
            parts.next().filter(|port| !port.is_empty()).ok_or_else(|| fault("has no port"))?;
        if let Some(reason) = syntax::dns_name_fault(namespace).or_else(|| syntax::dns_name_fault(service)) {
            return Err(fault(reason));
        }
        let mut proxy = || match parts.next() {
            None | Some("") => Ok(false),
            Some(word) if word.eq_ignore_ascii_case("PROXY") => Ok(true),
            Some(word) => Err(format!("{value:?} has the word {word:?}: only PROXY may follow the port")),
        };
        let (reads_proxy, sends_proxy) = (proxy()?, proxy()?);
        if parts.next().is_some() {
            return Err(fault("has too many parts"));
        }
        Ok(Self {
            key: key.into(),
            port,
            namespace: namespace.into(),
            service: service.into(),
            service_port: service_port.into(),
            reads_proxy,
            sends_proxy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_names_a_service_a_port_and_the_proxy_protocol_in_both_directions() {
        for (value, port, proxy) in [
            ("shop/db:5432", "5432", (false, false)),
            ("shop/db:psql:PROXY", "psql", (true, false)),
            ("shop/db:5432:proxy:PROXY", "5432", (true, true)),
            ("shop/db:5432::PROXY", "5432", (false, true)),
        ] {
            let entry = Entry::new("9000", value).expect(value);
            assert_eq!((entry.port, &*entry.namespace, &*entry.service), (9000, "shop", "db"), "{value}");
            assert_eq!(
                (&*entry.service_port, (entry.reads_proxy, entry.sends_proxy)),
                (port, proxy),
                "{value}"
            );
        }
        for (key, value) in [
            ("0", "shop/db:1"),
            ("65536", "shop/db:1"),
            ("+9000", "shop/db:1"),
            ("09000", "shop/db:1"),
            ("http", "shop/db:1"),
            ("9000", "db:1"),
            ("9000", "shop/db"),
            ("9000", "shop/db:"),
            ("9000", "shop/../db:1"),
            ("9000", "shop/db:1:TLS"),
            ("9000", "shop/db:1:PROXY:PROXY:PROXY"),
            ("9000", ""),
        ] {
            assert!(Entry::new(key, value).is_err(), "{key}: {value}");
        }
    }
}
