//! The Gateway of a file, and its certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Conversion, GROUP};
use crate::convert::VERSION;
use crate::object::host;

/// The longest list of listeners of a Gateway.
const LISTENERS_MAX: usize = 64;

impl Conversion<'_> {
    /// Adds the Gateway, unless it exists, and its certificates: a listener for HTTP, and a listener for HTTPS for each name of a certificate.
    pub(super) fn gateway(&mut self) {
        let mut listeners = vec![json!({"name": "http", "protocol": "HTTP", "port": self.options.http_port})];
        for certificate in &self.file.certificates {
            let names: Vec<&String> =
                certificate.snis.iter().filter(|sni| !self.listeners.contains(sni)).collect();
            let (usable, unusable): (Vec<&String>, Vec<&String>) =
                names.into_iter().partition(|sni| *sni == "*" || host::parse_suffix(sni).is_ok());
            for sni in unusable {
                let message = format!("sni {sni:?} is not converted: write a name, or *. before a name");
                self.notes.unconverted(certificate.line, &certificate.label(), message);
            }
            if usable.is_empty() {
                continue;
            }
            let label = certificate.snis.first().map_or("certificate", String::as_str);
            let data = [("tls.crt", &*certificate.cert), ("tls.key", &*certificate.key)];
            let secret = self.secret(certificate.line, label, Some("kubernetes.io/tls"), &data);
            if self.options.has_gateway {
                let names: Vec<&str> = usable.iter().map(|sni| &***sni).collect();
                let message = format!(
                    "the Gateway {}/{} must have HTTPS listeners for {} with the Secret {secret:?}: add the listeners",
                    self.options.gateway.namespace,
                    self.options.gateway.name,
                    names.join(", ")
                );
                self.notes.unconverted(certificate.line, &certificate.label(), message);
            }
            for sni in usable {
                if listeners.len() == LISTENERS_MAX {
                    let message = format!(
                        "sni {sni:?} is not converted: a Gateway has at most {LISTENERS_MAX} listeners"
                    );
                    self.notes.unconverted(certificate.line, &certificate.label(), message);
                    continue;
                }
                let mut listener = json!({
                    "name": self.names.unique("listener", &format!("https-{sni}")),
                    "protocol": "HTTPS",
                    "port": self.options.https_port,
                    "tls": {"certificateRefs": [{"name": secret}]},
                });
                match &**sni {
                    "*" => self.listeners.push(String::new()),
                    name => {
                        listener["hostname"] = name.into();
                        self.listeners.push(name.to_owned());
                    }
                }
                listeners.push(listener);
            }
        }
        if self.options.has_gateway {
            return;
        }
        let metadata = self.metadata(&self.options.gateway.name);
        self.objects.push((
            1,
            json!({
                "apiVersion": VERSION, "kind": "Gateway", "metadata": metadata,
                "spec": {"gatewayClassName": self.options.gateway_class, "listeners": listeners},
            }),
        ));
    }

    /// Adds a Secret, and returns its name.
    pub(super) fn secret(
        &mut self,
        line: u32,
        label: &str,
        kind: Option<&str>,
        data: &[(&str, &str)],
    ) -> String {
        let data: Vec<(&str, &[u8])> = data.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        self.secret_of_bytes(line, label, kind, &data)
    }

    /// Adds a Secret, and returns its name.
    pub(super) fn secret_of_bytes(
        &mut self,
        line: u32,
        label: &str,
        kind: Option<&str>,
        data: &[(&str, &[u8])],
    ) -> String {
        let name = self.names.unique("Secret", label);
        let data: Map<String, Value> =
            data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
        let metadata = self.metadata(&name);
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
        if let Some(kind) = kind {
            object["type"] = kind.into();
        }
        self.objects.push((line, object));
        name
    }

    /// Adds a Secret, unless this plugin or credential has one, and returns its name.
    pub(super) fn secret_once(&mut self, line: u32, label: &'static str, key: &str, value: &[u8]) -> String {
        if let Some(known) = self.secrets.get(&(line, label)) {
            return known.clone();
        }
        let name = self.secret_of_bytes(line, label, None, &[(key, value)]);
        self.secrets.insert((line, label), name.clone());
        name
    }

    /// The reference of a route to the Gateway, or to the listeners at one of its ports.
    pub(super) fn parent(&self, port: Option<u16>) -> Value {
        let mut parent = json!({"group": GROUP, "kind": "Gateway", "name": &*self.options.gateway.name});
        if let Some(port) = port {
            parent["port"] = port.into();
        }
        parent
    }
}
