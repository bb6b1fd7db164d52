//! JSON Web Tokens (RFC 7519): whose are taken, and by which keys they are verified.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use super::security::{ClaimValues, Credential, seconds};

/// Tokens that are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwt {
    /// Whose. A token is its issuer's; one that names none of them is tried with those that name no issuer.
    pub providers: Vec<Arc<JwtProvider>>,
    /// Where it is looked for; the first place that has something counts.
    pub from: Vec<Credential>,
    /// Whether endpoints get it too.
    pub forward: bool,
}

/// Who signs tokens, and what they must say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JwtProvider {
    /// What it is called in logs.
    pub name: Box<str>,
    /// What `iss` must be; anything, if there is none.
    pub issuer: Option<Box<str>>,
    /// Of which `aud` must name one; anything, if it is empty.
    pub audiences: Vec<Box<str>>,
    /// The names of the algorithms that are taken (RFC 7518, 3.1); those that fit the keys, if it is empty.
    pub algorithms: Vec<Box<str>>,
    /// How tokens are verified.
    pub keys: JwtKeys,
    /// How far clocks may be apart, for `exp` and `nbf`.
    #[serde(serialize_with = "seconds")]
    pub clock_skew: Duration,
    /// Whether a token without `exp` is taken.
    pub allows_eternal: bool,
    /// What tokens have to say beside that.
    pub required: Vec<ClaimValues>,
    /// Claims that endpoints get as headers: the claim and the header's name. Clients cannot set these headers.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// How tokens are verified.
#[derive(Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// By these: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    Given(Arc<[u8]>),
    /// By a secret that both know, for HS256, HS384 and HS512.
    Shared(Arc<[u8]>),
    /// By those that the issuer publishes, which each data plane fetches for itself.
    Remote(Arc<RemoteKeys>),
    /// By no key: there is none that can be used.
    Unusable(Box<str>),
}

/// Where an issuer publishes its keys (RFC 7517, 5; RFC 8414, `jwks_uri`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteKeys {
    /// `https://` or `http://`, with a host. Redirects are not followed.
    pub url: Box<str>,
    /// Who vouches for the server; those whom browsers trust, if it is empty.
    pub authorities: Vec<CertificateDer<'static>>,
    /// How long keys are good until they are fetched again, from 10 s to 24 h. They stay in use while that fails.
    pub refresh: Duration,
    /// For all of one fetch, from 100 ms to 60 s.
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
