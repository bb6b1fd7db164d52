//! TLS: certificates by name, and client authentication.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use serde::{Serialize, Serializer};

use crate::encoding::bound::{Bound, Chain};
use crate::encoding::{Adapt as _, Context, Fault, List, Maybe, Part, Raw, Shared, Time, WithinAs};
use crate::rule::Pattern;
use crate::value::{CipherSuites, Url};
use crate::{EntryPoint, HostPattern, Layer4Route, TlsRoute};

/// The certificates of all names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// The names with their certificates, at most one entry for each entry point and pattern.
    pub hosts: Vec<Arc<TlsHost>>,
    /// The names whose connections pass through without termination, at most one entry for each entry point and pattern.
    /// None of these names is in `hosts` for the same entry point.
    pub passthrough: Vec<TlsRoute>,
    /// The hosts whose certificates the control plane orders from an ACME server, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acme: Vec<Arc<AcmeHost>>,
    /// The default certificates: for clients without a server name (RFC 6066, 3), for hosts without certificates, and for
    /// names that are not in `hosts` if [`unknown_names`](TlsSettings::unknown_names) says so. Empty: a self-signed
    /// certificate of the process.
    pub default: Vec<Arc<Certificate>>,
    /// The secrets that seal session tickets (RFC 8446, 4.6.1). Processes with the same secret resume each other's sessions.
    /// The first secret seals, all secrets open. Empty: a secret of the process.
    pub ticket_secrets: Vec<TicketSecret>,
}

/// A name that is served over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct TlsHost {
    /// The pattern for the server name (SNI).
    #[n(0)]
    pub host: HostPattern,
    /// The host's certificates, at most one for each kind of key, the best first: a client receives the first certificate
    /// that the client can verify. Empty: the default certificates.
    #[cbor(n(1), with = "List::<Shared>")]
    pub certificates: Vec<Arc<Certificate>>,
    /// Client authentication: whether clients must present certificates.
    #[cbor(n(2), with = "Maybe::<Shared>")]
    pub client_auth: Option<Arc<ClientAuth>>,
    /// The listeners that serve the name.
    #[serde(skip_serializing_if = "EntryPoint::is_flags")]
    #[cbor(n(3), default, skip_if = "EntryPoint::is_flags")]
    pub entry_point: EntryPoint,
    /// The route of the connections, whose bytes the gateway relays after the handshake. `None`: the connections carry HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub relay: Option<Layer4Route>,
    /// The cipher suites of TLS 1.2 (ingress-nginx `ssl-ciphers`).
    #[serde(skip_serializing_if = "CipherSuites::are_all")]
    #[cbor(n(5), default, skip_if = "CipherSuites::are_all")]
    pub ciphers: CipherSuites,
}

impl TlsHost {
    /// The key of the host, by which a configuration orders its TLS hosts.
    #[must_use]
    pub fn key(&self) -> (&EntryPoint, &HostPattern) {
        (&self.entry_point, &self.host)
    }

    /// A name with these certificates, at all HTTPS listeners that flags set.
    #[must_use]
    pub fn new(host: HostPattern, certificates: Vec<Arc<Certificate>>) -> Self {
        Self {
            host,
            certificates,
            client_auth: None,
            entry_point: EntryPoint::Flags,
            relay: None,
            ciphers: CipherSuites::default(),
        }
    }
}

/// A host whose certificates the control plane orders from an ACME server (RFC 8555). Data planes prove that the gateway serves
/// the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map, context_bound = "Context")]
pub struct AcmeHost {
    /// The host, in lower case.
    #[n(0)]
    pub host: Box<str>,
    /// The thumbprint of the account's key, which completes the answer to a challenge (RFC 8555, 8.1: 43 characters of
    /// base64url).
    #[n(1)]
    pub thumbprint: Box<str>,
    /// The certificate for a challenge of the type `tls-alpn-01` in progress (RFC 8737, 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(2), with = "Maybe::<Shared>")]
    pub challenge: Option<Arc<Certificate>>,
}

/// Client authentication by certificates.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ClientAuth {
    /// The source of the CA certificates, for logs: `Secret default/clients-ca`.
    #[n(0)]
    pub source: Box<str>,
    /// The CA certificates to trust for clients.
    #[cbor(n(1), with = "List::<Raw>")]
    pub roots: Vec<CertificateDer<'static>>,
    /// The revocation lists (RFC 5280, 5). With any list, a certificate without a list of its issuer is rejected.
    #[cbor(n(2), with = "List::<Raw>")]
    pub crls: Vec<CertificateRevocationListDer<'static>>,
    /// The clients that may connect.
    #[n(3)]
    pub mode: ClientAuthMode,
    /// Whether endpoints receive the certificate itself (`ssl-client-cert`, PEM in percent encoding), beside the result of
    /// the verification (`ssl-client-verify`, `ssl-client-subject-dn`, `ssl-client-issuer-dn`), with the header names of
    /// ingress-nginx.
    #[n(4)]
    pub forward: bool,
    /// The check of certificates at each request, as nginx does: the TLS handshake then accepts every client. `None`: the
    /// handshake rejects the clients that [`mode`](Self::mode) does not allow.
    #[n(5)]
    pub at_requests: Option<ClientCheck>,
}

/// The check of a client's certificate at each request. Clients that [`ClientAuth::mode`] does not allow receive 400.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct ClientCheck {
    /// The maximum number of intermediate certificates between the client's certificate and a CA certificate.
    #[n(0)]
    pub depth: u8,
    /// The expression that the name in the certificate must contain, in the format of RFC 2253. Other clients receive 403.
    #[n(1)]
    pub subject: Option<Pattern>,
    /// The URL that clients are redirected to (302) instead of the 400.
    #[n(2)]
    pub error_page: Option<Url>,
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
            .field("at_requests", &self.at_requests)
            .finish()
    }
}

impl Serialize for ClientAuth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut shown = serializer.serialize_struct("ClientAuth", 6)?;
        shown.serialize_field("source", &self.source)?;
        shown.serialize_field("roots", &self.roots.len())?;
        shown.serialize_field("crls", &self.crls.len())?;
        shown.serialize_field("mode", &self.mode)?;
        shown.serialize_field("forward", &self.forward)?;
        shown.serialize_field("at_requests", &self.at_requests)?;
        shown.end()
    }
}

/// The clients that may connect (`sluicegate.dev/auth-tls-verify-client`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum ClientAuthMode {
    /// Only clients with a certificate that is valid under the CA certificates (`AllowValidOnly`).
    #[default]
    #[n(0)]
    Required,
    /// Also clients without a certificate (`optional`).
    #[n(1)]
    Optional,
    /// Also clients with an invalid certificate. Endpoints receive the result (`AllowInsecureFallback`).
    #[n(2)]
    OptionalNoCa,
}

/// A certificate chain with its matching private key.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Certificate {
    /// The source of the certificate, for logs: `Secret default/example`.
    #[n(0)]
    pub source: Box<str>,
    /// The certificate, then the intermediate certificates up to a root.
    #[cbor(n(1), with = "WithinAs::<Chain<CertificateDer<'static>>, List<Raw>>")]
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    #[n(2)]
    pub key: PrivateKey,
    /// The kind of the key.
    #[n(3)]
    pub key_kind: KeyKind,
    /// The names of the certificate (the DNS names of its `subjectAltName`), in lower case.
    #[n(4)]
    pub names: Vec<HostPattern>,
    /// The start of validity.
    #[cbor(n(5), with = "Time")]
    pub not_before: SystemTime,
    /// The end of validity.
    #[cbor(n(6), with = "Time")]
    pub not_after: SystemTime,
}

impl Certificate {
    /// Whether the certificate is for a name in lower case (RFC 9525, 6.3: a wildcard stands for one label).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| pattern.matches(name))
    }
}

impl Part for Certificate {
    const KIND: u32 = 11;
    const WHAT: &'static str = "certificate";
}

/// Omits the key, and shows only the length of the chain.
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

/// A private key. `Debug` and dumps omit the key.
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
            // The type may grow. Data planes then reject the certificate, and their last valid version stays.
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

/// The kinds of keys, in the order of the cost of signing, cheapest first.
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
    /// The least length of a secret, in bytes.
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

/// The TLS settings of client connections, for all names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct TlsSettings {
    /// The oldest accepted version. Default TLS 1.2.
    #[n(0)]
    pub min_version: TlsVersion,
    /// The response to a name without a certificate. Default: the default certificate.
    #[n(1)]
    pub unknown_names: UnknownNames,
    /// The `Strict-Transport-Security` header for responses over TLS without this header (RFC 6797). Default: not sent.
    #[n(2)]
    pub hsts: Option<Hsts>,
    /// The port in redirects to HTTPS. The redirect omits port 443. Default 443.
    #[n(3)]
    pub redirect_port: u16,
    /// HTTP/3 at the HTTPS listeners. Default: none.
    #[n(4)]
    pub http3: Option<Http3>,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            min_version: TlsVersion::default(),
            unknown_names: UnknownNames::default(),
            hsts: None,
            redirect_port: 443,
            http3: None,
        }
    }
}

/// HTTP/3 (RFC 9114): each HTTPS listener also receives QUIC at the UDP port with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Http3 {
    /// The UDP port that responses over TLS announce (`Alt-Svc`, RFC 7838). Default: the port of the listener.
    #[n(0)]
    pub port: Option<u16>,
    /// How long clients remember the announcement. Zero: clients forget earlier announcements. Default 24 h.
    #[serde(serialize_with = "whole_seconds")]
    #[cbor(n(1), with = "Time")]
    pub max_age: Duration,
    /// Whether clients that return may send requests with safe methods before the end of the handshake (0-RTT). An attacker
    /// can replay these requests (RFC 8470). Default: false.
    #[n(2)]
    pub early_data: bool,
    /// Handshakes in progress of one worker. Above the limit, clients must prove their address first, which costs them a
    /// round trip (Retry, RFC 9000, 8.1.2). 0: always. Above ten times the limit and 1,000, the gateway refuses connections.
    /// Default 256.
    #[n(3)]
    pub handshakes: u32,
}

impl Default for Http3 {
    fn default() -> Self {
        Self { port: None, max_age: Duration::from_secs(24 * 3600), early_data: false, handshakes: 256 }
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

/// The response to a name without a certificate.
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

/// The values of `Strict-Transport-Security`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Hsts {
    /// How long browsers use only HTTPS, in seconds.
    #[serde(serialize_with = "whole_seconds")]
    #[cbor(n(0), with = "Time")]
    pub max_age: Duration,
    /// Whether the header applies to all subdomains.
    #[n(1)]
    pub include_subdomains: bool,
    /// Whether the owner agrees to the preload lists of browsers.
    #[n(2)]
    pub preload: bool,
}

/// The header's value.
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
