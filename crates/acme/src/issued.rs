//! Certificates as the schedule sees them, and the check of an issued certificate.

use std::fmt;
use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// A certificate in a Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, in DER.
    pub der: CertificateDer<'static>,
    /// The start of validity.
    pub not_before: SystemTime,
    /// The end of validity.
    pub not_after: SystemTime,
    /// The names, in lower case.
    pub names: Vec<Box<str>>,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Issued {
    /// Reads a certificate in DER; `None` if the bytes are no certificate.
    #[must_use]
    pub fn of_der(der: CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let time = |time: &x509_parser::time::ASN1Time| {
            let seconds = u64::try_from(time.timestamp()).unwrap_or(0);
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        };
        let (not_before, not_after) = (time(&parsed.validity.not_before), time(&parsed.validity.not_after));
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|alternative| &alternative.value.general_names);
        let names = names.filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
            _ => None,
        });
        let names = names.collect();
        Some(Self { not_before, not_after, names, der })
    }

    /// Reads the first certificate of a chain in PEM.
    pub(crate) fn of_pem(chain: &[u8]) -> Option<Self> {
        Self::of_der(CertificateDer::from_pem_slice(chain).ok()?)
    }

    /// Whether the certificate is for all these hosts.
    #[must_use]
    pub fn covers(&self, hosts: &[Box<str>]) -> bool {
        hosts.iter().all(|host| self.names.contains(host))
    }

    /// The name of the certificate for renewal information (RFC 9773, 4.1).
    pub(crate) fn identifier(&self) -> Option<CertificateIdentifier<'static>> {
        CertificateIdentifier::try_from(&self.der).ok().map(CertificateIdentifier::into_owned)
    }

    /// A number from 0 to 1 that belongs to the certificate: certificates that were issued together are renewed at different times.
    pub(crate) fn jitter(&self) -> f64 {
        // The last bytes belong to the signature.
        let last = self.der.last_chunk::<4>().copied().unwrap_or_default();
        f64::from(u32::from_be_bytes(last)) / f64::from(u32::MAX)
    }
}

/// Checks a chain that an ACME server issued for a key and hosts: a server may send anything.
pub(crate) fn check(
    chain: &str,
    public_key: &[u8],
    hosts: &[Box<str>],
    now: SystemTime,
) -> Result<Issued, String> {
    let issued = Issued::of_pem(chain.as_bytes()).ok_or("the ACME server sent no certificate in PEM")?;
    let (_, parsed) = X509Certificate::from_der(&issued.der)
        .map_err(|_| "the ACME server sent no X.509 certificate".to_owned())?;
    if &*parsed.public_key().subject_public_key.data != public_key {
        return Err("the ACME server sent a certificate for another key".to_owned());
    }
    if !issued.covers(hosts) {
        return Err(format!(
            "the ACME server sent a certificate for other names: {}",
            issued.names.join(", ")
        ));
    }
    if issued.not_after <= now {
        return Err("the ACME server sent an expired certificate: check the clock of this machine".to_owned());
    }
    Ok(issued)
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    pub(crate) fn certificate(
        names: &[&str],
        key: &KeyPair,
        not_before: SystemTime,
        lasts: Duration,
    ) -> rcgen::Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = not_before.into();
        params.not_after = (not_before + lasts).into();
        params.self_signed(key).expect("a certificate")
    }

    #[test]
    fn certificate_that_does_not_fit_the_order_is_rejected() {
        let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let now = SystemTime::now();
        let pem = |names: &[&str], key, not_before| {
            certificate(names, key, not_before, Duration::from_secs(60)).pem()
        };
        let hosts = ["a.test".into()];
        let check = |chain: &str| check(chain, rcgen::PublicKeyData::der_bytes(&key), &hosts, now);
        assert_eq!(check(&pem(&["a.test"], &key, now)).map(|issued| issued.names), Ok(vec!["a.test".into()]));
        for (wrong, expected) in [
            (pem(&["a.test"], &other, now), "another key"),
            (pem(&["b.test"], &key, now), "other names: b.test"),
            (pem(&["a.test"], &key, now - Duration::from_secs(120)), "expired"),
            ("garbage".to_owned(), "no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), "no certificate"),
        ] {
            let fault = check(&wrong).expect_err(expected);
            assert!(fault.contains(expected), "{fault}");
        }
    }
}
