//! JSON Web Tokens (RFC 7519): the accepted issuers, and the keys that verify tokens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::encoding::adapt::Pair;
use crate::encoding::bound::{HeaderName, TokenKey};
use crate::encoding::{Adapt as _, List, Pointer, Raw, Same, Time, Within, WithinAs};

use super::security::{Credential, seconds};
use crate::feature::ClaimRequirement;
use crate::value::Entries;

/// The accepted tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Jwt {
    /// The issuers. `iss` of a token selects the issuers to try. A token whose `iss` names none of the issuers is tried with
    /// the issuers without `iss`.
    #[cbor(n(0), with = "List::<Pointer>")]
    pub providers: Vec<Arc<JwtProvider>>,
    /// The places of the token. The first place with a value applies.
    #[n(1)]
    pub from: Vec<Credential>,
    /// Whether endpoints also receive the token.
    #[n(2)]
    pub forward: bool,
}

/// An issuer of tokens, and the requirements for its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct JwtProvider {
    /// The issuer's name in logs.
    #[n(0)]
    pub name: Box<str>,
    /// The required value of `iss`. `None`: any value.
    #[n(1)]
    pub issuer: Option<Box<str>>,
    /// The audiences, of which `aud` must contain at least one. Empty: any audience.
    #[n(2)]
    pub audiences: Vec<Box<str>>,
    /// The names of the accepted algorithms (RFC 7518, 3.1). Empty: all algorithms that fit the keys.
    #[n(3)]
    pub algorithms: Vec<Box<str>>,
    /// The keys that verify tokens.
    #[n(4)]
    pub keys: JwtKeys,
    /// The tolerated clock difference for `exp` and `nbf`.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(5), with = "Time")]
    pub clock_skew: Duration,
    /// Whether a token without `exp` is accepted.
    #[n(6)]
    pub allows_eternal: bool,
    /// Further claims that a token must have.
    #[n(7)]
    pub required: Entries<ClaimRequirement, 16>,
    /// The claims that endpoints receive as headers: the claim and the header's name. The gateway removes these headers from
    /// client requests.
    #[cbor(n(8), with = "List::<Pair<Same, Within<HeaderName>>>")]
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// The keys that verify tokens.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum JwtKeys {
    /// Fixed keys: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    #[n(0)]
    Given(#[cbor(n(0), with = "WithinAs::<TokenKey<u8>, Raw>")] Arc<[u8]>),
    /// A shared secret for HS256, HS384 and HS512.
    #[n(1)]
    Shared(#[cbor(n(0), with = "WithinAs::<TokenKey<u8>, Raw>")] Arc<[u8]>),
    /// The published keys of the issuer. Each data plane fetches the keys for itself.
    #[n(2)]
    Remote(#[cbor(n(0), with = "Pointer")] Arc<RemoteKeys>),
    /// No usable key: every token is rejected.
    #[n(3)]
    Unusable(#[n(0)] Box<str>),
}

/// The source of an issuer's published keys (RFC 7517, 5; RFC 8414, `jwks_uri`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RemoteKeys {
    /// The URL: `https://` or `http://`, with a host. The gateway does not follow redirects.
    #[n(0)]
    pub url: Box<str>,
    /// The CA certificates to trust for the server. Empty: the public CA certificates.
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// The time between two fetches, from 10 s to 24 h. While fetches fail, the last keys stay in use.
    #[cbor(n(2), with = "Time")]
    pub refresh: Duration,
    /// The timeout of a whole fetch, from 100 ms to 60 s.
    #[cbor(n(3), with = "Time")]
    pub timeout: Duration,
}

/// Keys are secret.
impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given"),
            Self::Shared(_) => f.write_str("Shared"),
            Self::Remote(keys) => f.debug_tuple("Remote").field(&keys.url).finish(),
            Self::Unusable(reason) => f.debug_tuple("Unusable").field(reason).finish(),
        }
    }
}

impl Serialize for JwtKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}
