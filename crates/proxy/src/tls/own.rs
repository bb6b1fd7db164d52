//! The self-signed certificate for hosts without a certificate in the configuration.
//!
//! Each process creates its own certificate, so that the key never leaves the process. The control plane takes no part,
//! so that two control planes compute the same configuration.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use sluicegate_model::tls::PrivateKey;
use sluicegate_model::{Certificate, HostPattern, KeyKind};

/// The only name of the certificate.
const NAME: &str = "localhost";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A certificate that is unique to this process. It is valid for a year, from yesterday, since clocks differ.
pub(super) fn own_certificate() -> Result<Certificate, rcgen::Error> {
    let key = KeyPair::generate()?;
    let (not_before, not_after) = (SystemTime::now() - DAY, SystemTime::now() + 365 * DAY);
    let mut params = CertificateParams::new([NAME.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Sluicegate");
    params.distinguished_name.push(DnType::CommonName, "Sluicegate default certificate");
    params.not_before = not_before.into();
    params.not_after = not_after.into();
    Ok(Certificate {
        source: "made at start".into(),
        chain: vec![params.self_signed(&key)?.der().clone()],
        key: PrivateKey(PrivateKeyDer::Pkcs8(key.serialize_der().into())),
        key_kind: KeyKind::Ecdsa,
        names: vec![HostPattern::Exact(NAME.into())],
        not_before,
        not_after,
    })
}
