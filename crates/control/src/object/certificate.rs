//! Certificates with their keys, as in `kubernetes.io/tls` Secrets.

use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use sluicegate_model::tls::PrivateKey;
use sluicegate_model::{Certificate, HostPattern, KeyKind};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::problem::Findings;

/// Checks a certificate chain and its key, both in PEM. Without a certificate, the findings say why. A certificate that
/// is not valid now is an error, but is returned: the gateway serves it if there is no better certificate.
pub(crate) fn check(source: &str, chain: &[u8], key: &[u8], findings: &mut Findings) -> Option<Certificate> {
    let chain = certificates(chain).map_err(|fault| findings.error("data[tls.crt]", fault)).ok();
    let key = private_key(key).map_err(|fault| findings.error("data[tls.key]", fault)).ok();
    let (chain, key) = (chain?, key?);
    let signing = any_supported_type(&key)
        .map_err(|_| {
            findings.error("data[tls.key]", "has an unsupported type: use RSA, ECDSA or Ed25519");
        })
        .ok()?;
    let key_kind = match signing.algorithm() {
        rustls::SignatureAlgorithm::ECDSA => KeyKind::Ecdsa,
        rustls::SignatureAlgorithm::ED25519 => KeyKind::Ed25519,
        _ => KeyKind::Rsa,
    };
    match CertifiedKey::new(chain.clone(), signing).keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            findings.error("data[tls.key]", "does not belong to the certificate in data[tls.crt]");
            return None;
        }
        Err(error) => {
            findings.error("data[tls.crt]", format!("cannot be used: {error}"));
            return None;
        }
    }
    let certificate = describe(source, chain, key, key_kind)
        .map_err(|fault| findings.error("data[tls.crt]", fault))
        .ok()?;
    let now = SystemTime::now();
    if certificate.not_after < now {
        findings.error(
            "data[tls.crt]",
            format!("expired on {}: renew the certificate", day(certificate.not_after)),
        );
    } else if certificate.not_before > now {
        findings.error("data[tls.crt]", format!("is not valid before {}", day(certificate.not_before)));
    }
    if certificate.names.is_empty() {
        findings.warning(
            "data[tls.crt]",
            "has no DNS name in its subjectAltName: clients reject it for every host",
        );
    }
    Some(certificate)
}

/// The certificate for a challenge of an ACME server, which the gateway made itself. Its critical extension (RFC 8737, 3) makes it
/// invalid for every other purpose.
pub(crate) fn challenge(source: &str, chain: &[u8], key: &[u8]) -> Option<Certificate> {
    describe(source, certificates(chain).ok()?, private_key(key).ok()?, KeyKind::Ecdsa).ok()
}

/// The certificates in a text of PEM.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    if text.is_empty() {
        return Err("is missing".to_owned());
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => {
            Err("has no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned())
        }
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("is not valid PEM: {}", pem_fault(&error))),
    }
}

/// The lists of revoked certificates in a text of PEM.
pub(crate) fn revocation_lists(text: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
    match lists {
        Ok(lists) if lists.is_empty() => {
            Err("has no revocation list in PEM (-----BEGIN X509 CRL-----)".to_owned())
        }
        Ok(lists) => Ok(lists),
        Err(error) => Err(format!("is not valid PEM: {}", pem_fault(&error))),
    }
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    if text.is_empty() {
        return Err("is missing".to_owned());
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound if contains(text, b"ENCRYPTED PRIVATE KEY") => {
            "is encrypted: remove its passphrase, as with openssl pkey".to_owned()
        }
        pem::Error::NoItemsFound => "has no private key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned(),
        error => format!("is not valid PEM: {}", pem_fault(&error)),
    })
}

/// Contains no part of the text, which may be a key.
fn pem_fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end",
        pem::Error::IllegalSectionStart { .. } => "a section has an invalid first line",
        pem::Error::Base64Decode(_) => "it is not base64",
        _ => "it cannot be read",
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Reads the properties of a certificate.
fn describe(
    source: &str,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    key_kind: KeyKind,
) -> Result<Certificate, String> {
    let first = chain.first().ok_or("is missing")?;
    let (_, parsed) =
        X509Certificate::from_der(first).map_err(|_| "is not an X.509 certificate".to_owned())?;
    let time = |time: &x509_parser::time::ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    };
    let (not_before, not_after) = (time(&parsed.validity.not_before), time(&parsed.validity.not_after));
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let names = alternative.map_or_else(Vec::new, |alternative| {
        let name = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(pattern(&name.to_ascii_lowercase())),
            _ => None,
        };
        alternative.value.general_names.iter().filter_map(name).collect()
    });
    Ok(Certificate {
        source: source.into(),
        chain,
        key: PrivateKey(key),
        key_kind,
        names,
        not_before,
        not_after,
    })
}

fn pattern(name: &str) -> HostPattern {
    match name.strip_prefix("*.") {
        Some(suffix) => HostPattern::Wildcard(suffix.into()),
        None => HostPattern::Exact(name.into()),
    }
}

/// `2027-01-31`
fn day(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    x509_parser::time::ASN1Time::from_timestamp(seconds)
        .map_or_else(|_| "an unknown day".to_owned(), |time| time.to_datetime().date().to_string())
}
