//! What is served over TLS: certificates by name, and who may connect.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use serde::{Serialize, Serializer};

use crate::encoding::bound::{Bound, Chain};
use crate::encoding::{Adapt as _, Context, Fault, List, Maybe, Part, Raw, Shared, Time, WithinAs};
use crate::{HostPattern, TlsRoute};

/// The certificates of all names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// The names with their certificates, at most one entry for each pattern.
    pub hosts: Vec<Arc<TlsHost>>,
    /// The names whose connections are passed on unopened instead, each pattern at most once, and in `hosts` not at
    /// all.
    pub passthrough: Vec<TlsRoute>,
    /// For clients that name no host (RFC 6066, 3), for names that are not in `hosts` if
    /// [`unknown_names`](TlsSettings::unknown_names) says so, and for hosts that have none of their own. Without any, a
    /// certificate of the process' own is used, which signs for itself.
    pub default: Vec<Arc<Certificate>>,
    /// What session tickets are sealed with (RFC 8446, 4.6.1), so that every process that has it resumes the
    /// sessions of the others. The first seals, all open. Without any, a secret of the process' own is used.
    pub ticket_secrets: Vec<TicketSecret>,
}

/// A name that is served over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct TlsHost {
    /// What clients ask for by Server Name Indication.
    #[n(0)]
    pub host: HostPattern,
    /// Its certificates, at most one for each kind of key, the best first: a client gets the first that it can
    /// verify. If there are none, the default ones are used.
    #[cbor(n(1), with = "List::<Shared>")]
    pub certificates: Vec<Arc<Certificate>>,
    /// Whether clients have to show certificates of their own.
    #[cbor(n(2), with = "Maybe::<Shared>")]
    pub client_auth: Option<Arc<ClientAuth>>,
}

/// Which certificates clients show.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ClientAuth {
    /// Where the roots are from, for people: `Secret default/clients-ca`.
    #[n(0)]
    pub source: Box<str>,
    /// Who vouches for clients.
    #[cbor(n(1), with = "List::<Raw>")]
    pub roots: Vec<CertificateDer<'static>>,
    /// What was revoked (RFC 5280, 5). With any, a certificate whose issuer has no list here is refused.
    #[cbor(n(2), with = "List::<Raw>")]
    pub crls: Vec<CertificateRevocationListDer<'static>>,
    /// Who may connect.
    #[n(3)]
    pub mode: ClientAuthMode,
    /// Whether endpoints get the certificate itself (`ssl-client-cert`, PEM in percent encoding), beside what was
    /// found (`ssl-client-verify`, `ssl-client-subject-dn`, `ssl-client-issuer-dn`), as ingress-nginx names them.
    #[n(4)]
    pub forward: bool,
}

impl Part for ClientAuth {
    const KIND: u32 = 12;
    const WHAT: &'static str = "policy for client certificates";
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuth")
            .field("source", &self.source)
            .field("roots", &self.roots.len())
            .field("crls", &self.crls.len())
            .field("mode", &self.mode)
            .field("forward", &self.forward)
            .finish()
    }
}

impl Serialize for ClientAuth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut shown = serializer.serialize_struct("ClientAuth", 5)?;
        shown.serialize_field("source", &self.source)?;
        shown.serialize_field("roots", &self.roots.len())?;
        shown.serialize_field("crls", &self.crls.len())?;
        shown.serialize_field("mode", &self.mode)?;
        shown.serialize_field("forward", &self.forward)?;
        shown.end()
    }
}

/// Who may connect (ingress-nginx `auth-tls-verify-client`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum ClientAuthMode {
    /// Only who shows a certificate that one of the roots vouches for (`on`).
    #[default]
    #[n(0)]
    Required,
    /// Also who shows none (`optional`).
    #[n(1)]
    Optional,
    /// Also who shows one that nobody vouches for; the endpoint is told (`optional_no_ca`).
    #[n(2)]
    OptionalNoCa,
}

/// A certificate chain with its private key, which match.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Certificate {
    /// Where it is from, for people: `Secret default/example`.
    #[n(0)]
    pub source: Box<str>,
    /// The certificate, and behind it those that lead to a root.
    #[cbor(n(1), with = "WithinAs::<Chain<CertificateDer<'static>>, List<Raw>>")]
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    #[n(2)]
    pub key: PrivateKey,
    /// What kind of key it is.
    #[n(3)]
    pub key_kind: KeyKind,
    /// The names that it is good for (the DNS names of its `subjectAltName`), in lower case.
    #[n(4)]
    pub names: Vec<HostPattern>,
    /// From when it is good.
    #[cbor(n(5), with = "Time")]
    pub not_before: SystemTime,
    /// Until when it is good.
    #[cbor(n(6), with = "Time")]
    pub not_after: SystemTime,
}

impl Certificate {
    /// Whether it is good for a name in lower case (RFC 9525, 6.3: a wildcard stands for one label).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| pattern.matches(name))
    }
}

impl Part for Certificate {
    const KIND: u32 = 11;
    const WHAT: &'static str = "certificate";
}

/// Never the key, and of the chain only its length.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("source", &self.source)
            .field("chain", &self.chain.len())
            .field("key_kind", &self.key_kind)
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Serialize for Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let seconds =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let mut shown = serializer.serialize_struct("Certificate", 6)?;
        shown.serialize_field("source", &self.source)?;
        shown.serialize_field("key", &self.key_kind)?;
        shown.serialize_field("names", &self.names)?;
        shown.serialize_field("chain_length", &self.chain.len())?;
        shown.serialize_field("not_before", &seconds(self.not_before))?;
        shown.serialize_field("not_after", &seconds(self.not_after))?;
        shown.end()
    }
}

/// A private key, which neither `Debug` nor a dump shows.
pub struct PrivateKey(pub PrivateKeyDer<'static>);

impl Clone for PrivateKey {
    fn clone(&self) -> Self {
        Self(self.0.clone_key())
    }
}

impl PartialEq for PrivateKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.secret_der() == other.0.secret_der()
    }
}

impl Eq for PrivateKey {}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(confidential)")
    }
}

/// The number of the format, and the key.
impl<Ctx> Encode<Ctx> for PrivateKey {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut Ctx) -> Result<(), encode::Error<W::Error>> {
        let format = match self.0 {
            PrivateKeyDer::Pkcs8(_) => 0,
            PrivateKeyDer::Pkcs1(_) => 1,
            PrivateKeyDer::Sec1(_) => 2,
            // The type may grow. Data planes refuse the certificate then, and their last valid version stays.
            _ => u8::MAX,
        };
        encoder.array(2)?.u8(format)?.bytes(self.0.secret_der())?.ok()
    }
}

impl<'b, Ctx> Decode<'b, Ctx> for PrivateKey {
    fn decode(decoder: &mut Decoder<'b>, _: &mut Ctx) -> Result<Self, decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(decode::Error::message("no key"));
        }
        let (format, key) = (decoder.u8()?, decoder.bytes()?.to_vec());
        Ok(Self(match format {
            0 => PrivateKeyDer::Pkcs8(key.into()),
            1 => PrivateKeyDer::Pkcs1(key.into()),
            2 => PrivateKeyDer::Sec1(key.into()),
            _ => return Err(Fault::Invalid("the format of a key").into()),
        }))
    }
}

/// The kinds of keys, the one that is cheapest to sign with first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[serde(rename_all = "lowercase")]
#[cbor(index_only)]
pub enum KeyKind {
    /// ECDSA over a NIST curve.
    #[n(0)]
    Ecdsa,
    /// Ed25519.
    #[n(1)]
    Ed25519,
    /// RSA.
    #[n(2)]
    Rsa,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ecdsa => "ECDSA",
            Self::Ed25519 => "Ed25519",
            Self::Rsa => "RSA",
        })
    }
}

/// Random bytes from which the keys of session tickets are derived.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct TicketSecret(#[cbor(n(0), with = "WithinAs::<TicketSecret, Raw>")] pub Arc<[u8]>);

impl TicketSecret {
    /// How many bytes there must be at least.
    pub const MIN: usize = 32;
}

impl Bound for TicketSecret {
    type Value = [u8];
    const FIELD: &'static str = "the length of a ticket secret";

    fn allows(secret: &[u8]) -> bool {
        secret.len() >= Self::MIN
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(confidential)")
    }
}

impl Serialize for TicketSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(confidential)")
    }
}

/// How TLS is spoken with clients, whatever the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TlsSettings {
    /// The oldest version that is spoken. Default TLS 1.2.
    #[n(0)]
    pub min_version: TlsVersion,
    /// What clients get who ask for a name that has no certificate. Default: the default certificate.
    #[n(1)]
    pub unknown_names: UnknownNames,
    /// The `Strict-Transport-Security` header of responses over TLS that have none (RFC 6797). Default: not sent.
    #[n(2)]
    pub hsts: Option<Hsts>,
    /// The port that redirects to HTTPS name; 443 goes without saying. Default 443.
    #[n(3)]
    pub redirect_port: u16,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            min_version: TlsVersion::default(),
            unknown_names: UnknownNames::default(),
            hsts: None,
            redirect_port: 443,
        }
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with forward secrecy and authenticated encryption only.
    #[default]
    #[serde(rename = "1.2")]
    #[n(0)]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    #[n(1)]
    Tls13,
}

/// What clients get who ask for a name that has no certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum UnknownNames {
    /// The default certificate.
    #[default]
    #[n(0)]
    Default,
    /// The alert `unrecognized_name` (nginx `ssl_reject_handshake`).
    #[n(1)]
    Refuse,
}

/// What `Strict-Transport-Security` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Hsts {
    /// For how long browsers use HTTPS only, in seconds.
    #[serde(serialize_with = "whole_seconds")]
    #[cbor(n(0), with = "Time")]
    pub max_age: Duration,
    /// For all names below as well.
    #[n(1)]
    pub include_subdomains: bool,
    /// The owner agrees to being listed in browsers.
    #[n(2)]
    pub preload: bool,
}

/// As the header's value.
impl fmt::Display for Hsts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max-age={}", self.max_age.as_secs())?;
        f.write_str(if self.include_subdomains { "; includeSubDomains" } else { "" })?;
        f.write_str(if self.preload { "; preload" } else { "" })
    }
}

fn whole_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}
