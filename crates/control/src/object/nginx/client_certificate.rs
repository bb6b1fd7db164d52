//! Client certificates.

use sluicegate_model::ClientAuthMode;
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::Url;

use super::Meaning::Sets;
use super::Row;
use crate::object::{Kind, ObjectRef};

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `auth-tls-secret`.
    pub(crate) secret: Option<ObjectRef>,
    /// `auth-tls-verify-client`; `Some(None)` for `off`.
    pub(crate) mode: Option<Option<ClientAuthMode>>,
    /// `auth-tls-verify-depth`.
    pub(crate) depth: Option<u8>,
    /// `auth-tls-error-page`.
    pub(crate) error_page: Option<Url>,
    /// `auth-tls-pass-certificate-to-upstream`.
    pub(crate) forward: bool,
    /// `auth-tls-match-cn`.
    pub(crate) subject: Option<Pattern>,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "auth-tls-secret",
        restricts: true,
        meaning: Sets(|settings, value| {
            let secret = value.object(Kind::Secret)?;
            settings.references.push(secret.clone());
            settings.client_certificate.secret = Some(secret);
            Ok(())
        }),
        sets: "The Secret with the CA certificates of clients in `ca.crt`, and revoked certificates in `ca.crl`.",
        default: "",
    },
    Row {
        name: "auth-tls-verify-client",
        restricts: true,
        meaning: Sets(|settings, value| {
            let mode = value.word(&[
                ("on", Some(ClientAuthMode::Required)),
                ("off", None),
                ("optional", Some(ClientAuthMode::Optional)),
                ("optional_no_ca", Some(ClientAuthMode::OptionalNoCa)),
            ])?;
            settings.client_certificate.mode = Some(mode);
            Ok(())
        }),
        sets: "`on`, `off`, `optional` or `optional_no_ca`. Clients without a valid certificate receive 400.",
        default: "`on`",
    },
    Row {
        name: "auth-tls-verify-depth",
        restricts: true,
        meaning: Sets(|settings, value| {
            let depth = match value.number()? {
                // As in ingress-nginx.
                0 => 1,
                depth => u8::try_from(depth).map_err(|_| format!("{depth} is not from 0 to 255"))?,
            };
            settings.client_certificate.depth = Some(depth);
            Ok(())
        }),
        sets: "The maximum number of intermediate certificates.",
        default: "`1`",
    },
    Row {
        name: "auth-tls-error-page",
        restricts: true,
        meaning: Sets(|settings, value| {
            let page = Url::new(value.text)
                .map_err(|fault| format!("{fault}. Pages of the same host are not supported"))?;
            settings.client_certificate.error_page = Some(page);
            Ok(())
        }),
        sets: "The URL that clients without a valid certificate are redirected to.",
        default: "",
    },
    Row {
        name: "auth-tls-pass-certificate-to-upstream",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.client_certificate.forward = value.switch()?;
            Ok(())
        }),
        sets: "Endpoints receive the certificate in `ssl-client-cert`.",
        default: "`false`",
    },
    Row {
        name: "auth-tls-match-cn",
        restricts: true,
        meaning: Sets(|settings, value| {
            let text = value.text;
            if !text.starts_with("CN=") {
                return Err(format!("{text:?} does not begin with CN="));
            }
            let subject = Pattern::new(text, false)
                .map_err(|fault| format!("{text:?} is not supported as a regular expression: {fault}"))?;
            settings.client_certificate.subject = Some(subject);
            Ok(())
        }),
        sets: "`CN=` and a regular expression that the name in the certificate must contain. Other clients receive 403.",
        default: "",
    },
];
