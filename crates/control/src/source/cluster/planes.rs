//! The certificates by which the two planes authenticate each other. The control plane creates and renews them in
//! Secrets of its own namespace: a Secret for itself, with the CA's key, and a Secret that data planes mount.
//!
//! Any number of control planes do this beside each other: the first write wins, and the other control planes read the
//! result. The CA lasts for ten years; to replace it, delete both Secrets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::sleep;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The Secret of control planes.
pub const CONTROL_PLANE_SECRET: &str = "sluicegate-control-plane-tls";

/// The Secret of data planes.
pub const DATA_PLANE_SECRET: &str = "sluicegate-data-plane-tls";

/// The name in the certificate of control planes, which data planes verify.
pub const CONTROL_PLANE_NAME: &str = "sluicegate-control-plane";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The validity of the CA certificate.
const AUTHORITY_LASTS: Duration = Duration::from_secs(3650 * 24 * 3600);

/// The validity of a plane's certificate; the control plane renews it when a third is left.
const LASTS: Duration = Duration::from_secs(90 * 24 * 3600);

/// The time between two checks for expiring and missing certificates.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time before a retry after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// The certificates of one plane, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct PlaneFiles {
    /// `tls.crt`: the certificate that the other side receives.
    pub certificate: Vec<u8>,
    /// `tls.key`: the key of the certificate.
    pub key: Vec<u8>,
    /// `ca.crt`: the CA certificate for the other side.
    pub authorities: Vec<u8>,
}

/// The reason why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum PlanesError {
    /// The API server is unreachable, or rejects the request.
    #[error("cannot read or write the Secrets {CONTROL_PLANE_SECRET} and {DATA_PLANE_SECRET}: {0}")]
    Api(#[from] kube::Error),
    /// There are no random numbers, or the Secret holds invalid data.
    #[error(
        "Secret {CONTROL_PLANE_SECRET}: cannot issue a certificate with its CA: {0}. Delete the Secret to create a new CA"
    )]
    Make(#[from] rcgen::Error),
}

/// The two Secrets.
pub struct PlaneCertificates {
    secrets: Api<Secret>,
}

impl PlaneCertificates {
    /// The Secrets in this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { secrets: Api::namespaced(client, namespace) }
    }

    /// Creates or renews the certificates where necessary; returns the certificates of the control plane.
    /// # Errors
    /// If the API server is unreachable, or the CA cannot be used.
    pub async fn ensure(&self) -> Result<PlaneFiles, PlanesError> {
        loop {
            match self.ensure_once().await {
                // Another process was faster: its Secret exists now.
                Err(PlanesError::Api(kube::Error::Api(status))) if status.code == 409 => {}
                done => return done,
            }
        }
    }

    /// Repeats [`ensure`](Self::ensure) for ever, and calls `changed` with new certificates of the control plane.
    pub async fn follow(self, mut known: PlaneFiles, mut changed: impl FnMut(PlaneFiles)) -> Infallible {
        let mut has_failed = false;
        loop {
            sleep(if has_failed { RETRY } else { INTERVAL }).await;
            match self.ensure().await {
                Ok(files) => {
                    has_failed = false;
                    if files != known {
                        known.clone_from(&files);
                        changed(files);
                    }
                }
                Err(error) => {
                    if !has_failed {
                        tracing::warn!("{error}; the current certificates stay in use; trying again");
                    }
                    has_failed = true;
                }
            }
        }
    }

    async fn ensure_once(&self) -> Result<PlaneFiles, PlanesError> {
        let stored = self.secrets.get_opt(CONTROL_PLANE_SECRET).await?;
        let control = stored.as_ref().map(Stored::of).filter(|control| control.is_whole());
        let control = match control {
            Some(control) if lasts(&control.certificate) => control,
            Some(old) => self.write(CONTROL_PLANE_SECRET, stored, control_of(old.authority()?)?).await?,
            None => self.write(CONTROL_PLANE_SECRET, stored, control_of(Authority::make()?)?).await?,
        };
        let stored = self.secrets.get_opt(DATA_PLANE_SECRET).await?;
        let is_good = stored.as_ref().map(Stored::of).is_some_and(|proxy| {
            !proxy.key.is_empty() && proxy.authorities == control.authorities && lasts(&proxy.certificate)
        });
        if !is_good {
            let authority = control.authority()?;
            let (certificate, key) =
                authority.issue("sluicegate-data-plane", ExtendedKeyUsagePurpose::ClientAuth)?;
            let proxy =
                Stored { certificate, key, authorities: authority.certificate, authority_key: Vec::new() };
            self.write(DATA_PLANE_SECRET, stored, proxy).await?;
        }
        Ok(PlaneFiles {
            certificate: control.certificate,
            key: control.key,
            authorities: control.authorities,
        })
    }

    async fn write(&self, name: &str, old: Option<Secret>, new: Stored) -> Result<Stored, PlanesError> {
        let mut data: BTreeMap<String, ByteString> = [
            ("tls.crt", new.certificate.clone()),
            ("tls.key", new.key.clone()),
            ("ca.crt", new.authorities.clone()),
        ]
        .map(|(key, value)| (key.to_owned(), ByteString(value)))
        .into();
        if !new.authority_key.is_empty() {
            data.insert("ca.key".to_owned(), ByteString(new.authority_key.clone()));
        }
        let params = PostParams::default();
        match old {
            Some(old) => {
                self.secrets.replace(name, &params, &Secret { data: Some(data), ..old }).await?;
            }
            None => {
                let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
                let secret = Secret { metadata, data: Some(data), ..Secret::default() };
                self.secrets.create(&params, &secret).await?;
            }
        }
        tracing::info!(secret = name, "created a certificate of a plane");
        Ok(new)
    }
}

/// The content of a Secret.
struct Stored {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
    /// The CA's key, in the Secret of the control plane.
    authority_key: Vec<u8>,
}

impl Stored {
    fn of(secret: &Secret) -> Self {
        let part = |key: &str| {
            let data = secret.data.as_ref().and_then(|data| data.get(key));
            data.map(|value| value.0.clone()).unwrap_or_default()
        };
        Self {
            certificate: part("tls.crt"),
            key: part("tls.key"),
            authorities: part("ca.crt"),
            authority_key: part("ca.key"),
        }
    }

    fn is_whole(&self) -> bool {
        [&self.certificate, &self.key, &self.authorities, &self.authority_key]
            .iter()
            .all(|part| !part.is_empty())
            && not_after(&self.authorities).is_some_and(|end| end > SystemTime::now() + LASTS)
    }

    fn authority(&self) -> Result<Authority, rcgen::Error> {
        let key = PrivateKeyDer::from_pem_slice(&self.authority_key);
        let key = KeyPair::try_from(&key.map_err(|_| rcgen::Error::CouldNotParseKeyPair)?)?;
        Ok(Authority { certificate: self.authorities.clone(), key })
    }
}

fn control_of(authority: Authority) -> Result<Stored, rcgen::Error> {
    let (certificate, key) = authority.issue(CONTROL_PLANE_NAME, ExtendedKeyUsagePurpose::ServerAuth)?;
    let authority_key = pem("PRIVATE KEY", &authority.key.serialize_der());
    Ok(Stored { certificate, key, authorities: authority.certificate, authority_key })
}

/// The CA of both planes.
struct Authority {
    certificate: Vec<u8>,
    key: KeyPair,
}

impl Authority {
    fn make() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = pem("CERTIFICATE", Self::params()?.self_signed(&key)?.der());
        Ok(Self { certificate, key })
    }

    fn params() -> Result<CertificateParams, rcgen::Error> {
        let mut params = params("Sluicegate planes", AUTHORITY_LASTS, Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(params)
    }

    /// A certificate for this name, and its key.
    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
        let mut params = params(name, LASTS, vec![name.to_owned()])?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &Issuer::new(Self::params()?, &self.key))?;
        Ok((pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der())))
    }
}

fn params(name: &str, lasts: Duration, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Clocks of machines differ.
    params.not_before = (SystemTime::now() - DAY).into();
    params.not_after = (SystemTime::now() + lasts).into();
    Ok(params)
}

/// RFC 7468.
fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let text = BASE64_STANDARD.encode(der);
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    lines.extend(text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()));
    lines.push(format!("-----END {label}-----\n"));
    lines.join("\n").into_bytes()
}

/// Whether a certificate does not need a renewal yet.
fn lasts(pem: &[u8]) -> bool {
    not_after(pem).is_some_and(|end| end > SystemTime::now() + LASTS / 3)
}

fn not_after(pem: &[u8]) -> Option<SystemTime> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_issued_by_the_stored_ca_is_verified_by_the_ca() {
        let made = control_of(Authority::make().expect("an authority")).expect("a certificate");
        assert!(made.is_whole() && lasts(&made.certificate));
        let (proxy, _) = made
            .authority()
            .and_then(|authority| {
                authority.issue("sluicegate-data-plane", ExtendedKeyUsagePurpose::ClientAuth)
            })
            .expect("a certificate of the stored authority");
        let authority = CertificateDer::from_pem_slice(&made.authorities).expect("PEM");
        let anchor = CertificateDer::from(authority.to_vec());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(anchor).expect("an authority");
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
        let verifier = verifier.build().expect("a verifier");
        let proxy = CertificateDer::from_pem_slice(&proxy).expect("PEM");
        let now = rustls::pki_types::UnixTime::now();
        verifier.verify_client_cert(&proxy, &[], now).expect("it vouches for it");
    }

    #[test]
    fn stored_certificates_that_are_invalid_or_expire_soon_are_not_reused() {
        let mut made = control_of(Authority::make().expect("an authority")).expect("a certificate");
        assert!(!lasts(b"") && !lasts(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
        let old =
            params("old", LASTS / 4, Vec::new()).and_then(|params| params.self_signed(&KeyPair::generate()?));
        assert!(!lasts(&pem("CERTIFICATE", old.expect("a certificate").der())));
        made.authority_key.clear();
        assert!(!made.is_whole());
    }
}
