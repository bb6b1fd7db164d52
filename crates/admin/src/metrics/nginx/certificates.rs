//! The certificates of hosts, with the labels of ingress-nginx.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::SystemTime;

use sluicegate_model::{Certificate, KeyKind};
use sluicegate_proxy::registry::Registry;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_SERIALNUMBER;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::AttributeTypeAndValue;

use super::super::families::Families;

/// The maximum number of certificates in the metrics: the certificates with the earliest expiry.
const MOST: usize = 1000;

/// `class` is the controller, and `namespace` the namespace of the gateway.
pub(super) fn encode(
    families: &mut Families<'_>,
    registry: &Registry,
    (class, namespace): (&str, &str),
) -> fmt::Result {
    let tls = registry.tls().unwrap_or_default();
    let of_hosts = tls.hosts.iter().filter_map(|host| {
        let first = host.certificates.first().or(tls.default.first())?;
        Some((host.host.to_string(), first))
    });
    let default = tls.default.first().map(|first| ("_".to_owned(), first));
    let mut certificates: Vec<_> = of_hosts.chain(default).collect();
    certificates
        .sort_by(|(host, one), (of_other, other)| (one.not_after, host).cmp(&(other.not_after, of_other)));
    // A host may be at several listeners.
    let mut seen = HashSet::new();
    certificates.retain(|(host, _)| seen.insert(host.clone()));
    certificates.truncate(MOST);
    families.gauges(
        "nginx_ingress_controller_ssl_expire_time_seconds",
        "Expiry of the certificate of a host, in seconds since 1970; at most 1000 hosts, those that expire first",
        certificates.iter().map(|(host, certificate)| {
            let end = certificate.not_after.duration_since(SystemTime::UNIX_EPOCH);
            let (_, name) = secret(certificate);
            let labels = [("namespace", namespace), ("class", class), ("host", host), ("secret_name", name)];
            (labels, end.map_or(0, |end| end.as_secs()))
        }),
    )?;
    let infos: BTreeMap<_, _> =
        certificates.iter().filter_map(|(host, of)| Some((host, (of, Info::of(of)?)))).collect();
    families.infos(
        "nginx_ingress_controller_ssl_certificate",
        "The certificate of a host; at most 1000 hosts, those that expire first",
        infos.iter().map(|(host, (certificate, info))| {
            let (namespace, name) = secret(certificate);
            let of_secret = [("namespace", namespace), ("secret_name", name), ("class", class)];
            let of_certificate = [
                ("host", host.as_str()),
                ("identifier", &info.identifier),
                ("issuer_organization", &info.organization),
                ("issuer_common_name", &info.common_name),
                ("serial_number", &info.serial),
                ("public_key_algorithm", info.algorithm),
            ];
            (of_secret, of_certificate)
        }),
    )
}

/// The namespace and the name of the Secret with the certificate; empty for another source.
fn secret(certificate: &Certificate) -> (&str, &str) {
    certificate.source.strip_prefix("Secret ").and_then(|of| of.split_once('/')).unwrap_or_default()
}

struct Info {
    /// The serial number in the name of the issuer, which most issuers lack, and the serial number of the certificate.
    identifier: String,
    organization: String,
    common_name: String,
    serial: String,
    algorithm: &'static str,
}

impl Info {
    fn of(certificate: &Certificate) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate.chain.first()?).ok()?;
        let issuer = parsed.issuer();
        let serial = parsed.serial.to_string();
        let of_issuer = text(issuer.iter_by_oid(&OID_X509_SERIALNUMBER).next());
        Some(Self {
            identifier: format!("{of_issuer}-{serial}"),
            organization: text(issuer.iter_organization().next()),
            common_name: text(issuer.iter_common_name().next()),
            serial,
            algorithm: match certificate.key_kind {
                KeyKind::Ecdsa => "ECDSA",
                KeyKind::Ed25519 => "Ed25519",
                KeyKind::Rsa => "RSA",
            },
        })
    }
}

/// The text of a part of a name; empty if the part is absent.
fn text(part: Option<&AttributeTypeAndValue<'_>>) -> String {
    part.and_then(|part| part.as_str().ok()).unwrap_or_default().to_owned()
}
