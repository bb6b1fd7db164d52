//! Client certificates, and the header lines about them for endpoints.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use rustls::server::{ClientCertVerifierBuilder, WebPkiClientVerifier};
use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, UnixTime};
use sluicegate_model::{ClientAuth, ClientAuthMode, ClientCheck};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{provider, root_store};
use crate::failure::ClientFault;

/// The identity of a client by its certificate.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The header lines for an endpoint, with the names of ingress-nginx.
    pub(crate) lines: Vec<u8>,
    /// Whether the client has a certificate that is valid under the CA certificates, and that the policy accepts.
    pub(crate) is_verified: bool,
    /// The reason why the client's requests are denied.
    pub(crate) denied: Option<ClientFault>,
}

/// The identity of a client. `certificates` are the certificates that the client presented with a proof of its key.
pub(crate) fn identity(auth: &ClientAuth, certificates: Option<&[CertificateDer<'static>]>) -> Identity {
    let mut lines = String::new();
    let Some(certificates @ [certificate, ..]) = certificates else {
        let lines = b"ssl-client-verify: NONE\r\n".to_vec();
        return Identity {
            lines,
            is_verified: false,
            denied: auth.at_requests.as_ref().and_then(|check| denied(auth, check, None, "")),
        };
    };
    let verified = match (auth.mode, &auth.at_requests) {
        // The TLS handshake has verified the certificate.
        (ClientAuthMode::Required | ClientAuthMode::Optional, None) => Ok(()),
        (ClientAuthMode::OptionalNoCa, None) => verify(auth, certificates, usize::MAX),
        (_, Some(check)) => verify(auth, certificates, check.depth.into()),
    };
    // Writing to a String does not fail.
    let _ = match &verified {
        Ok(()) => write!(lines, "ssl-client-verify: SUCCESS\r\n"),
        Err(error) => write!(lines, "ssl-client-verify: FAILED:{}\r\n", printable(&reason(error))),
    };
    let mut subject = String::new();
    if let Ok((_, parsed)) = X509Certificate::from_der(certificate) {
        subject = rfc2253(parsed.subject());
        for (name, dn) in
            [("ssl-client-subject-dn", parsed.subject()), ("ssl-client-issuer-dn", parsed.issuer())]
        {
            let _ = write!(lines, "{name}: {}\r\n", printable(&rfc2253(dn)));
        }
    }
    if auth.forward {
        lines.push_str("ssl-client-cert: ");
        percent_encode(&pem(certificate), &mut lines);
        lines.push_str("\r\n");
    }
    let check = auth.at_requests.as_ref();
    let denied = check.and_then(|check| denied(auth, check, Some(&verified), &subject));
    let is_verified = verified.is_ok() && denied.is_none();
    Identity { lines: lines.into_bytes(), is_verified, denied }
}

/// Whether the TLS handshake accepts a client. `certificate` is its certificate, which no intermediate certificates follow.
pub(crate) fn is_accepted(auth: &ClientAuth, certificate: Option<&CertificateDer<'static>>) -> bool {
    match (auth.mode, certificate) {
        _ if auth.at_requests.is_some() => true,
        (ClientAuthMode::OptionalNoCa, _) | (ClientAuthMode::Optional, None) => true,
        (ClientAuthMode::Required, None) => false,
        (ClientAuthMode::Required | ClientAuthMode::Optional, Some(certificate)) => {
            verify(auth, std::slice::from_ref(certificate), usize::MAX).is_ok()
        }
    }
}

/// Whether the requests of a client are denied. `verified` is the verification of its certificate, if it has one.
fn denied(
    auth: &ClientAuth,
    check: &ClientCheck,
    verified: Option<&Result<(), Error>>,
    subject: &str,
) -> Option<ClientFault> {
    let is_allowed = match (auth.mode, verified) {
        (_, Some(Ok(()))) => true,
        (ClientAuthMode::Required, _) | (ClientAuthMode::Optional, Some(Err(_))) => false,
        (ClientAuthMode::Optional | ClientAuthMode::OptionalNoCa, None) => true,
        // As nginx, which overlooks only that the issuer is unknown.
        (ClientAuthMode::OptionalNoCa, Some(Err(error))) => {
            matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer))
        }
    };
    let is_named = || check.subject.as_ref().is_none_or(|pattern| pattern.is_match(subject.as_bytes()));
    match is_allowed {
        false => Some(ClientFault::Certificate),
        true if !is_named() => Some(ClientFault::CertificateSubject),
        true => None,
    }
}

/// Accepts certificates that a CA certificate of the policy signed, directly or through intermediates, and that are not
/// revoked.
pub(super) fn verifier(auth: &ClientAuth) -> Result<ClientCertVerifierBuilder, Error> {
    let roots = root_store(&auth.roots)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
    Ok(verifier.with_crls(auth.crls.iter().cloned()))
}

/// Whether the certificates lead to a CA certificate of the policy, through at most `depth` intermediate certificates.
fn verify(auth: &ClientAuth, certificates: &[CertificateDer<'static>], depth: usize) -> Result<(), Error> {
    let (certificate, chain) = certificates.split_first().ok_or(Error::NoCertificatesPresented)?;
    let verifier = verifier(auth)?.build().map_err(|error| Error::General(error.to_string()))?;
    // Clients send the intermediate certificates in the order of the chain (RFC 8446, 4.4.2).
    let chain = &chain[..chain.len().min(depth)];
    verifier.verify_client_cert(certificate, chain, UnixTime::now()).map(drop)
}

/// The reason why a certificate is not valid.
fn reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(reason)) => reason.0.to_string(),
        Error::InvalidCertificate(reason) => reason.to_string(),
        error => error.to_string(),
    }
}

/// A distinguished name in the format of OpenSSL and nginx: the most specific part first (RFC 2253).
fn rfc2253(name: &x509_parser::x509::X509Name<'_>) -> String {
    use x509_parser::objects::oid2abbrev;
    let mut parts = Vec::new();
    for rdn in name.iter_rdn() {
        let attributes: Vec<String> = rdn
            .iter()
            .map(|attribute| {
                let id = attribute.attr_type();
                let kind = oid2abbrev(id, x509_parser::objects::oid_registry())
                    .map_or_else(|_| id.to_id_string(), str::to_owned);
                format!("{kind}={}", escape(attribute.as_str().unwrap_or("?")))
            })
            .collect();
        parts.push(attributes.join("+"));
    }
    parts.reverse();
    parts.join(",")
}

/// RFC 2253, 2.4.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, char) in value.chars().enumerate() {
        let is_edge = (at == 0 && (char == ' ' || char == '#')) || (at == last && char == ' ');
        if is_edge || matches!(char, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

/// The text with only characters that are allowed in a header: the client chose the text.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => printable.push(char::from(byte)),
            _ => {
                let _ = write!(printable, "\\{byte:02X}");
            }
        }
    }
    printable
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// RFC 3986, 2.1: all characters that are not unreserved.
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}
