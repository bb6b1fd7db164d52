//! JSON Web Tokens (RFC 7519): whose are taken, and by which keys they are verified.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::encoding::adapt::Pair;
use crate::encoding::bound::{HeaderName, TokenKey};
use crate::encoding::{Adapt as _, List, Pointer, Raw, Same, Time, Within, WithinAs};

use super::security::{ClaimValues, Credential, seconds};

/// Tokens that are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Jwt {
    /// Whose. A token is its issuer's; one that names none of them is tried with those that name no issuer.
    #[cbor(n(0), with = "List::<Pointer>")]
    pub providers: Vec<Arc<JwtProvider>>,
    /// Where it is looked for; the first place that has something counts.
    #[n(1)]
    pub from: Vec<Credential>,
    /// Whether endpoints get it too.
    #[n(2)]
    pub forward: bool,
}

/// Who signs tokens, and what they must say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct JwtProvider {
    /// What it is called in logs.
    #[n(0)]
    pub name: Box<str>,
    /// What `iss` must be; anything, if there is none.
    #[n(1)]
    pub issuer: Option<Box<str>>,
    /// Of which `aud` must name one; anything, if it is empty.
    #[n(2)]
    pub audiences: Vec<Box<str>>,
    /// The names of the algorithms that are taken (RFC 7518, 3.1); those that fit the keys, if it is empty.
    #[n(3)]
    pub algorithms: Vec<Box<str>>,
    /// How tokens are verified.
    #[n(4)]
    pub keys: JwtKeys,
    /// How far clocks may be apart, for `exp` and `nbf`.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(5), with = "Time")]
    pub clock_skew: Duration,
    /// Whether a token without `exp` is taken.
    #[n(6)]
    pub allows_eternal: bool,
    /// What tokens have to say beside that.
    #[n(7)]
    pub required: Vec<ClaimValues>,
    /// Claims that endpoints get as headers: the claim and the header's name. Clients cannot set these headers.
    #[cbor(n(8), with = "List::<Pair<Same, Within<HeaderName>>>")]
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// How tokens are verified.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum JwtKeys {
    /// By these: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    #[n(0)]
    Given(#[cbor(n(0), with = "WithinAs::<TokenKey<u8>, Raw>")] Arc<[u8]>),
    /// By a secret that both know, for HS256, HS384 and HS512.
    #[n(1)]
    Shared(#[cbor(n(0), with = "WithinAs::<TokenKey<u8>, Raw>")] Arc<[u8]>),
    /// By those that the issuer publishes, which each data plane fetches for itself.
    #[n(2)]
    Remote(#[cbor(n(0), with = "Pointer")] Arc<RemoteKeys>),
    /// By no key: there is none that can be used.
    #[n(3)]
    Unusable(#[n(0)] Box<str>),
}

/// Where an issuer publishes its keys (RFC 7517, 5; RFC 8414, `jwks_uri`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RemoteKeys {
    /// `https://` or `http://`, with a host. Redirects are not followed.
    #[n(0)]
    pub url: Box<str>,
    /// Who vouches for the server; those whom browsers trust, if it is empty.
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// How long keys are good until they are fetched again, from 10 s to 24 h. They stay in use while that fails.
    #[cbor(n(2), with = "Time")]
    pub refresh: Duration,
    /// For all of one fetch, from 100 ms to 60 s.
    #[cbor(n(3), with = "Time")]
    pub timeout: Duration,
}

/// Keys are nobody's business.
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
