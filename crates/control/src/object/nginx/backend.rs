//! The protocol to endpoints, and its TLS settings.

use super::Meaning::Sets;
use super::Row;
use super::value::Value;
use crate::object::backend::{Backend, BackendTls, Protocol};
use crate::object::{Kind, ObjectRef};
use sluicegate_model::value::CipherSuites;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `backend-protocol`.
    protocol: Option<Protocol>,
    /// Whether requests over TLS go to endpoints over TLS, and others in clear text (`backend-protocol: AUTO_HTTP`).
    pub(crate) follows_client: bool,
    /// `proxy-ssl-secret`.
    secret: Option<ObjectRef>,
    /// `proxy-ssl-verify`.
    verifies: bool,
    /// `proxy-ssl-name`.
    name: Option<Box<str>>,
    /// `proxy-ssl-server-name`.
    sends_name: bool,
    /// `proxy-ssl-ciphers`.
    ciphers: CipherSuites,
    /// `proxy-ssl-verify-depth`.
    depth: Option<u8>,
}

impl Settings {
    /// The protocol to the endpoints of all Services of the Ingress. Without the annotation, HTTP/1.1 in clear text, whatever the
    /// Service says (ingress-nginx `backend-protocol`).
    pub(crate) fn backend(&self) -> Backend {
        self.backend_with(self.protocol.unwrap_or(Protocol { http2: false, tls: false }))
    }

    /// The protocol for requests over TLS, if it differs.
    pub(crate) fn secure_backend(&self) -> Option<Backend> {
        self.follows_client.then(|| self.backend_with(Protocol { http2: false, tls: true }))
    }

    fn backend_with(&self, Protocol { http2, tls }: Protocol) -> Backend {
        let tls = tls.then(|| BackendTls {
            name: self.name.clone(),
            sends_name: Some(self.sends_name),
            // nginx verifies nothing without CA certificates.
            verifies: Some(self.verifies && self.secret.is_some()),
            secret: self.secret.clone(),
            ciphers: self.ciphers,
            depth: self.depth,
        });
        Backend { http2, tls }
    }
}

/// `on` or `off`.
fn on_or_off(value: &Value<'_>) -> Result<bool, String> {
    value.word(&[("on", true), ("off", false)])
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "backend-protocol",
        restricts: false,
        meaning: Sets(|settings, value| {
            let word = value.text.to_ascii_uppercase();
            settings.backend.follows_client = word == "AUTO_HTTP";
            settings.backend.protocol = Some(match &*word {
                "HTTP" | "AUTO_HTTP" => Protocol { http2: false, tls: false },
                "HTTPS" => Protocol { http2: false, tls: true },
                "GRPC" => Protocol { http2: true, tls: false },
                "GRPCS" => Protocol { http2: true, tls: true },
                "FCGI" => {
                    return Err("FCGI is not supported: put an HTTP server in front of FastCGI".to_owned());
                }
                _ => {
                    return Err(format!(
                        "{:?} is not one of HTTP, HTTPS, GRPC, GRPCS and AUTO_HTTP",
                        value.text
                    ));
                }
            });
            Ok(())
        }),
        sets: "The protocol to endpoints: `HTTP`, `HTTPS`, `GRPC`, `GRPCS` or `AUTO_HTTP`.",
        default: "`HTTP`",
    },
    Row {
        name: "proxy-ssl-secret",
        restricts: false,
        meaning: Sets(|settings, value| {
            let secret = value.object(Kind::Secret)?;
            settings.references.push(secret.clone());
            settings.backend.secret = Some(secret);
            Ok(())
        }),
        sets: "`ca.crt` verifies endpoints; `tls.crt` and `tls.key` are the client certificate.",
        default: "",
    },
    Row {
        name: "proxy-ssl-verify",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.backend.verifies = on_or_off(value)?;
            Ok(())
        }),
        sets: "Verifies the certificates of endpoints, if `proxy-ssl-secret` has a `ca.crt`.",
        default: "`off`",
    },
    Row {
        name: "proxy-ssl-name",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.backend.name = Some(value.text.into());
            Ok(())
        }),
        sets: "The name that certificates of endpoints must have.",
        default: "",
    },
    Row {
        name: "proxy-ssl-server-name",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.backend.sends_name = on_or_off(value)?;
            Ok(())
        }),
        sets: "Sends the name of `proxy-ssl-name` to endpoints (SNI).",
        default: "`off`",
    },
    Row {
        name: "proxy-ssl-ciphers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.backend.ciphers = CipherSuites::new(value.text)?;
            Ok(())
        }),
        sets: "The cipher suites of TLS 1.2 to offer to endpoints, as a list of OpenSSL. The gateway has six suites, all with forward secrecy.",
        default: "`DEFAULT`",
    },
    Row {
        name: "proxy-ssl-verify-depth",
        restricts: false,
        meaning: Sets(|settings, value| {
            let depth = value.number()?;
            settings.backend.depth =
                Some(u8::try_from(depth).map_err(|_| format!("{depth} is not from 0 to 255"))?);
            Ok(())
        }),
        sets: "The largest number of intermediate certificates between the certificate of an endpoint and `ca.crt`.",
        default: "no limit",
    },
];
