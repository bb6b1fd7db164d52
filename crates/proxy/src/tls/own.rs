//! What is shown where the configuration has no certificate: one that signs for itself.
//!
//! Each process makes its own, so that its key never travels, and who tells the configuration has no part in it: two
//! control planes say the same.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use sluicegate_model::tls::PrivateKey;
use sluicegate_model::{Certificate, HostPattern, KeyKind};

/// The only name that it can be for.
const NAME: &str = "localhost";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A certificate that no other process has. It is good from yesterday, since clocks differ, for a year.
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
