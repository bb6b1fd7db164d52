//! The verification of the certificates of endpoints.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use sluicegate_any_certificate::AnyCertificate;
use sluicegate_model::{AlternativeName, UpstreamTls, Verification};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{provider, root_store, well_known};

/// The verifier for the endpoints of an upstream.
///
/// # Errors
/// If there are no CA certificates, a CA certificate or a name is invalid, or revocation lists are combined with
/// alternative names.
pub(super) fn of(
    model: &UpstreamTls,
) -> Result<Arc<dyn ServerCertVerifier>, Box<dyn std::error::Error + Send + Sync>> {
    let (roots, crls) = match &model.verification {
        Verification::None => return Ok(Arc::new(AnyCertificate(provider()))),
        Verification::Authorities { roots, crls } => (root_store(roots)?, &**crls),
        Verification::WellKnown => (well_known(), &[][..]),
    };
    let builder = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider());
    let webpki = builder.with_crls(crls.iter().cloned()).build()?;
    if model.alternative_names.is_none() && model.depth.is_none() {
        return Ok(webpki);
    }
    if model.alternative_names.is_some() && !crls.is_empty() {
        return Err("revocation lists cannot be combined with alternative names".into());
    }
    let names = model.alternative_names.as_ref();
    let names = names.map(|names| names.iter().map(Name::new).collect::<Result<_, _>>()).transpose()?;
    let depth = model.depth.map_or(usize::MAX, usize::from);
    Ok(Arc::new(Restricted { roots, webpki, names, depth }))
}

/// A verifier with further conditions for certificates.
#[derive(Debug)]
struct Restricted {
    roots: Arc<RootCertStore>,
    webpki: Arc<WebPkiServerVerifier>,
    /// The names that a certificate may have, in place of the server name.
    names: Option<Vec<Name>>,
    /// The largest number of intermediate certificates.
    depth: usize,
}

#[derive(Debug)]
enum Name {
    Dns(ServerName<'static>),
    /// A wildcard name, which matches the same name of a certificate.
    Wildcard(Box<str>),
    Uri(Box<str>),
}

impl Name {
    fn new(name: &AlternativeName) -> Result<Self, rustls_pki_types::InvalidDnsNameError> {
        Ok(match name {
            AlternativeName::Dns(name) => match name.strip_prefix("*.") {
                Some(_) => Self::Wildcard(name.clone()),
                None => Self::Dns(ServerName::DnsName(DnsName::try_from(&**name)?.to_owned())),
            },
            AlternativeName::Uri(uri) => Self::Uri(uri.clone()),
        })
    }

    fn is_name_of(&self, parsed: &ParsedCertificate<'_>, names: &[GeneralName<'_>]) -> bool {
        match self {
            Self::Dns(name) => verify_server_name(parsed, name).is_ok(),
            Self::Wildcard(name) => names.iter().any(
                |known| matches!(known, GeneralName::DNSName(known) if known.eq_ignore_ascii_case(name)),
            ),
            Self::Uri(uri) => {
                names.iter().any(|known| matches!(known, GeneralName::URI(known) if *known == &**uri))
            }
        }
    }
}

impl ServerCertVerifier for Restricted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Servers send the intermediate certificates in the order of the chain (RFC 8446, 4.4.2).
        let intermediates = &intermediates[..intermediates.len().min(self.depth)];
        let Some(accepted) = &self.names else {
            return self.webpki.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        };
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        let (_, certificate) =
            X509Certificate::from_der(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let names = certificate.subject_alternative_name().map_err(|_| CertificateError::BadEncoding)?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        match accepted.iter().any(|name| name.is_name_of(&parsed, names)) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
