//! Certificates, and the names that have them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use sluicegate_model::tls::{PrivateKey, TicketSecret};
use sluicegate_model::{Certificate, ClientAuth, ClientAuthMode, KeyKind, TlsHost};

use super::{Refusal, Share, Shared, all, known, reference, required, resolve};
use crate::digest::Digest;
use crate::proto;

/// DER of any kind as it is sent.
pub(in crate::convert) fn of_ders(ders: &[impl AsRef<[u8]>]) -> Vec<Bytes> {
    ders.iter().map(|der| Bytes::copy_from_slice(der.as_ref())).collect()
}

/// DER of a kind.
pub(in crate::convert) fn ders<T>(ders: Vec<Bytes>, of: impl Fn(Vec<u8>) -> T) -> Vec<T> {
    ders.into_iter().map(|der| of(der.into())).collect()
}

impl From<&Certificate> for proto::Certificate {
    fn from(certificate: &Certificate) -> Self {
        let Certificate { source, chain, key, key_kind, names, not_before, not_after } = certificate;
        let key_format = match key.0 {
            PrivateKeyDer::Pkcs8(_) => proto::CertificateKeyFormat::Pkcs8,
            PrivateKeyDer::Pkcs1(_) => proto::CertificateKeyFormat::Pkcs1,
            PrivateKeyDer::Sec1(_) => proto::CertificateKeyFormat::Sec1,
            // The type may grow. No data plane takes it then, and the last good certificate stays.
            _ => proto::CertificateKeyFormat::None,
        };
        let key_kind = match key_kind {
            KeyKind::Ecdsa => proto::CertificateKeyKind::Ecdsa,
            KeyKind::Ed25519 => proto::CertificateKeyKind::Ed25519,
            KeyKind::Rsa => proto::CertificateKeyKind::Rsa,
        };
        Self {
            source: source.to_string(),
            chain: of_ders(chain),
            key: Bytes::copy_from_slice(key.0.secret_der()),
            key_format: key_format.into(),
            key_kind: key_kind.into(),
            names: names.iter().map(Into::into).collect(),
            not_before: Some((*not_before).into()),
            not_after: Some((*not_after).into()),
        }
    }
}

impl TryFrom<proto::Certificate> for Certificate {
    type Error = Refusal;

    fn try_from(certificate: proto::Certificate) -> Result<Self, Refusal> {
        let key = certificate.key.to_vec();
        let key = match known(certificate.key_format, "the format of a key")? {
            proto::CertificateKeyFormat::None => return Err(Refusal::Missing("the format of a key")),
            proto::CertificateKeyFormat::Pkcs8 => PrivateKeyDer::Pkcs8(key.into()),
            proto::CertificateKeyFormat::Pkcs1 => PrivateKeyDer::Pkcs1(key.into()),
            proto::CertificateKeyFormat::Sec1 => PrivateKeyDer::Sec1(key.into()),
        };
        if certificate.chain.is_empty() {
            return Err(Refusal::Missing("the chain of a certificate"));
        }
        Ok(Self {
            source: certificate.source.into(),
            chain: ders(certificate.chain, CertificateDer::from),
            key: PrivateKey(key),
            key_kind: match known(certificate.key_kind, "the kind of a key")? {
                proto::CertificateKeyKind::None => return Err(Refusal::Missing("the kind of a key")),
                proto::CertificateKeyKind::Ecdsa => KeyKind::Ecdsa,
                proto::CertificateKeyKind::Ed25519 => KeyKind::Ed25519,
                proto::CertificateKeyKind::Rsa => KeyKind::Rsa,
            },
            names: all(certificate.names)?,
            not_before: required(certificate.not_before, "the begin of a certificate")?.try_into()?,
            not_after: required(certificate.not_after, "the end of a certificate")?.try_into()?,
        })
    }
}

impl From<SystemTime> for proto::Time {
    fn from(time: SystemTime) -> Self {
        let (seconds, nanos) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
            // Whole seconds are enough before 1970.
            Err(before) => (-i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX), 0),
        };
        Self { seconds, nanos }
    }
}

impl TryFrom<proto::Time> for SystemTime {
    type Error = Refusal;

    fn try_from(time: proto::Time) -> Result<Self, Refusal> {
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = match time.seconds >= 0 {
            true => Self::UNIX_EPOCH.checked_add(seconds),
            false => Self::UNIX_EPOCH.checked_sub(seconds),
        };
        let exact = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into())));
        exact.ok_or(Refusal::Invalid("a time"))
    }
}

impl proto::Certificates {
    pub(crate) fn new(certificates: &[Arc<Certificate>], share: &mut impl Share) -> Self {
        Self { names: names_of(certificates, share) }
    }

    pub(crate) fn read(self, shared: &impl Shared) -> Result<Vec<Arc<Certificate>>, Refusal> {
        certificates(&self.names, shared)
    }
}

fn names_of(certificates: &[Arc<Certificate>], share: &mut impl Share) -> Vec<Bytes> {
    certificates.iter().map(|certificate| Digest::into_bytes(share.certificate(certificate))).collect()
}

fn certificates(names: &[Bytes], shared: &impl Shared) -> Result<Vec<Arc<Certificate>>, Refusal> {
    let find = |name| shared.certificate(name).ok_or(Refusal::Unresolved("certificate"));
    names.iter().map(find).collect()
}

impl proto::TlsHost {
    pub(crate) fn new(host: &TlsHost, share: &mut impl Share) -> Self {
        let TlsHost { host, certificates, client_auth } = host;
        Self {
            host: Some(host.into()),
            certificates: names_of(certificates, share),
            client_auth: reference(client_auth.as_ref().map(|policy| share.client_auth(policy))),
        }
    }

    pub(crate) fn read(self, shared: &impl Shared) -> Result<TlsHost, Refusal> {
        Ok(TlsHost {
            host: required(self.host, "the host")?.try_into()?,
            certificates: certificates(&self.certificates, shared)?,
            client_auth: resolve(&self.client_auth, "policy for client certificates", |name| {
                shared.client_auth(name)
            })?,
        })
    }
}

impl From<&ClientAuth> for proto::ClientAuth {
    fn from(policy: &ClientAuth) -> Self {
        let ClientAuth { source, roots, crls, mode, forward } = policy;
        let mode = match mode {
            ClientAuthMode::Required => proto::ClientAuthMode::Required,
            ClientAuthMode::Optional => proto::ClientAuthMode::Optional,
            ClientAuthMode::OptionalNoCa => proto::ClientAuthMode::OptionalNoCa,
        };
        Self {
            source: source.to_string(),
            roots: of_ders(roots),
            crls: of_ders(crls),
            mode: mode.into(),
            forward: *forward,
        }
    }
}

impl TryFrom<proto::ClientAuth> for ClientAuth {
    type Error = Refusal;

    fn try_from(policy: proto::ClientAuth) -> Result<Self, Refusal> {
        let field = "the mode of a policy for client certificates";
        Ok(Self {
            source: policy.source.into(),
            roots: ders(policy.roots, CertificateDer::from),
            crls: ders(policy.crls, CertificateRevocationListDer::from),
            mode: match known(policy.mode, field)? {
                proto::ClientAuthMode::None => return Err(Refusal::Missing(field)),
                proto::ClientAuthMode::Required => ClientAuthMode::Required,
                proto::ClientAuthMode::Optional => ClientAuthMode::Optional,
                proto::ClientAuthMode::OptionalNoCa => ClientAuthMode::OptionalNoCa,
            },
            forward: policy.forward,
        })
    }
}

impl From<&[TicketSecret]> for proto::TicketSecrets {
    fn from(secrets: &[TicketSecret]) -> Self {
        Self { secrets: secrets.iter().map(|secret| Bytes::copy_from_slice(&secret.0)).collect() }
    }
}

impl TryFrom<proto::TicketSecrets> for Vec<TicketSecret> {
    type Error = Refusal;

    fn try_from(secrets: proto::TicketSecrets) -> Result<Self, Refusal> {
        let secret = |secret: Bytes| match secret.len() >= TicketSecret::MIN {
            true => Ok(TicketSecret((&*secret).into())),
            false => Err(Refusal::Invalid("the length of a ticket secret")),
        };
        secrets.secrets.into_iter().map(secret).collect()
    }
}
