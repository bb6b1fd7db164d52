//! JSON Web Tokens (RFC 7519).

use std::borrow::Cow;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Credential;
use crate::encoding::{Adapt as _, Pointer};
use crate::feature::{Check, ClaimRequirement, Faults};
use crate::value::secret::{CaCertificates, FromSecret, KeyBytes};
use crate::value::span::HOUR;
use crate::value::{
    Audience, ClaimName, CredentialPrefix, Entries, HeaderName, IdentityHeader, InlineKeys, ProviderName,
    Span, Url,
};

/// JSON Web Tokens that the gateway accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct Jwt {
    /// The issuers of the tokens, each with a unique name. 1 to 8 entries. The provider with the token's issuer checks
    /// the token. If no provider has this issuer, the providers without an issuer check the token.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[n(0)]
    pub providers: Entries<Provider, 8>,
    /// The places where the gateway looks for a token. The first place with a value counts. 1 to 8 entries. Default:
    /// the header Authorization with the prefix "Bearer ".
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(1)]
    pub from: Entries<Credential, 8>,
    /// Whether endpoints receive the token. Default: true.
    #[serde(default = "crate::feature::yes")]
    #[n(2)]
    pub forward: bool,
}

/// An issuer of tokens, and the requirements on its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Provider {
    /// The name of the provider in logs.
    #[n(0)]
    pub name: ProviderName,
    /// The exact value of the claim iss. Default: any value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub issuer: Option<Audience>,
    /// The accepted audiences. The claim aud must contain one of them. 1 to 16 entries. Default: any audience.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(2)]
    pub audiences: Entries<Audience, 16>,
    /// The accepted signature algorithms (RFC 7518, RFC 8037). 1 to 13 entries. Default: the algorithms that fit the
    /// keys. The gateway never accepts the algorithm none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(3)]
    pub algorithms: Entries<Algorithm, { Algorithm::COUNT }>,
    /// The keys that verify the signatures.
    #[n(4)]
    pub keys: ProviderKeys,
    /// The clock difference that exp and nbf tolerate. 0s to 10m. Default: 60s.
    #[serde(default = "minute")]
    #[n(5)]
    pub clock_skew: Span<0, 600_000>,
    /// Whether tokens without exp are accepted. Such a token never expires. Default: false.
    #[serde(default)]
    #[n(6)]
    pub allow_missing_expiry: bool,
    /// Claims that tokens must have, in addition to iss, aud and exp. 1 to 16 entries. Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(7)]
    pub required_claims: Entries<ClaimRequirement, 16>,
    /// Claims that endpoints receive as headers. 1 to 16 entries. The gateway drops these headers from client requests.
    /// Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(8)]
    pub claim_to_headers: Entries<ClaimToHeader, 16>,
}

pub(super) fn minute() -> Span<0, 600_000> {
    Span::of_millis(60_000)
}

/// The keys that verify tokens.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum ProviderKeys {
    /// Public keys: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    #[n(0)]
    Inline(#[n(0)] InlineKeys),
    /// Keys in a Secret.
    #[n(1)]
    Secret(#[n(0)] FromSecret<KeyBytes>),
    /// A secret that the issuer shares, for HS256, HS384 and HS512.
    #[n(2)]
    Shared(#[n(0)] FromSecret<KeyBytes>),
    /// Keys that the issuer publishes.
    #[n(3)]
    Remote(#[cbor(n(0), with = "Pointer")] Arc<RemoteKeys>),
}

/// The source of the keys: exactly one of inline, secretRef, sharedSecretRef and remote.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "ProviderKeys", rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.inline), has(self.secretRef), has(self.sharedSecretRef), has(self.remote)].filter(is, is).size() == 1",
    "message": "write exactly one of inline, secretRef, sharedSecretRef and remote"
}]))]
struct WrittenKeys {
    /// Public keys: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    inline: Option<InlineKeys>,
    /// The Secret with the keys, in the policy's namespace: a JWK set, a JWK, or public keys or certificates in PEM.
    /// JWKs may also have kty oct, which is a secret shared with the issuer. To rotate such a secret, write the old and
    /// the new JWK, each with a kid. Default of secretRef.key: jwks.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_ref: Option<FromSecret<KeyBytes>>,
    /// The Secret with a secret that the issuer shares, for HS256, HS384 and HS512. The gateway removes a line end
    /// after the secret. Default of sharedSecretRef.key: secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_secret_ref: Option<FromSecret<KeyBytes>>,
    /// Public keys that the issuer publishes at a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<Arc<RemoteKeys>>,
}

impl<'de> Deserialize<'de> for ProviderKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WrittenKeys { inline, secret_ref, shared_secret_ref, remote } =
            WrittenKeys::deserialize(deserializer)?;
        match (inline, secret_ref, shared_secret_ref, remote) {
            (Some(keys), None, None, None) => Ok(Self::Inline(keys)),
            (None, Some(keys), None, None) => Ok(Self::Secret(keys)),
            (None, None, Some(secret), None) => Ok(Self::Shared(secret)),
            (None, None, None, Some(keys)) => Ok(Self::Remote(keys)),
            _ => Err(de::Error::custom(
                "must have exactly one source: write one of inline, secretRef, sharedSecretRef and remote",
            )),
        }
    }
}

impl Serialize for ProviderKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = match self.clone() {
            Self::Inline(keys) => WrittenKeys { inline: Some(keys), ..WrittenKeys::default() },
            Self::Secret(keys) => WrittenKeys { secret_ref: Some(keys), ..WrittenKeys::default() },
            Self::Shared(secret) => WrittenKeys { shared_secret_ref: Some(secret), ..WrittenKeys::default() },
            Self::Remote(keys) => WrittenKeys { remote: Some(keys), ..WrittenKeys::default() },
        };
        keys.serialize(serializer)
    }
}

impl JsonSchema for ProviderKeys {
    fn schema_name() -> Cow<'static, str> {
        WrittenKeys::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WrittenKeys::json_schema(generator)
    }
}

/// A JWK set that the issuer publishes. Each data plane fetches the set itself. While fetches fail, the last set stays
/// in use. A token with an unknown key makes the gateway fetch the set at once, but at most every 5 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct RemoteKeys {
    /// The URL of the set, https:// or http://. The gateway does not follow redirects, and rejects sets larger than 256
    /// KiB.
    #[n(0)]
    pub url: Url,
    /// The Secret with the CA certificates of the server, in PEM and in the policy's namespace. Default of
    /// caCertificateRef.key: ca.crt. Default: the public CA certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub ca_certificate_ref: Option<FromSecret<CaCertificates>>,
    /// The time between two fetches. 1s to 24h. Default: 5m.
    #[serde(default = "five_minutes")]
    #[n(2)]
    pub refresh_interval: Span<1000, { 24 * HOUR }>,
    /// The timeout of one fetch, including the connect. 100ms to 60s. Default: 5s.
    #[serde(default = "five_seconds")]
    #[n(3)]
    pub timeout: Span<100, 60_000>,
}

fn five_minutes() -> Span<1000, { 24 * HOUR }> {
    Span::of_millis(300_000)
}

pub(super) fn five_seconds() -> Span<100, 60_000> {
    Span::of_millis(5000)
}

/// A signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "UPPERCASE")]
#[cbor(index_only)]
#[expect(missing_docs, reason = "the names are those of RFC 7518, 3.1")]
pub enum Algorithm {
    #[n(0)]
    Hs256,
    #[n(1)]
    Hs384,
    #[n(2)]
    Hs512,
    #[n(3)]
    Rs256,
    #[n(4)]
    Rs384,
    #[n(5)]
    Rs512,
    #[n(6)]
    Ps256,
    #[n(7)]
    Ps384,
    #[n(8)]
    Ps512,
    #[n(9)]
    Es256,
    #[n(10)]
    Es384,
    #[n(11)]
    Es512,
    #[serde(rename = "EdDSA")]
    #[n(12)]
    EdDsa,
}

impl Algorithm {
    /// The number of algorithms.
    pub const COUNT: usize = Self::EdDsa as usize + 1;

    /// Its name (RFC 7518, 3.1).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Whether both sides know its key.
    #[must_use]
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

/// A claim that endpoints receive as a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct ClaimToHeader {
    /// The name of the claim. A dot leads into an object.
    #[n(0)]
    pub claim: ClaimName,
    /// The name of the header. Headers that the gateway or the connection needs, such as Host or X-Forwarded-For, are
    /// not allowed.
    #[n(1)]
    pub header: IdentityHeader,
}

impl Jwt {
    /// The places of the token.
    pub fn places(&self) -> impl Iterator<Item = Credential> {
        token_places(&self.from)
    }
}

/// The places of a token: by default, the header for bearer tokens (RFC 6750, 2.1).
pub(super) fn token_places(from: &[Credential]) -> impl Iterator<Item = Credential> {
    let bearer = || Credential::Header {
        name: HeaderName::of("authorization"),
        prefix: CredentialPrefix::of("Bearer "),
    };
    from.is_empty().then(bearer).into_iter().chain(from.iter().cloned())
}

/// Rejects two claims for one header.
pub(super) fn check_headers(claim_to_headers: &[ClaimToHeader], at: &mut Faults<'_>) {
    for (index, to) in claim_to_headers.iter().enumerate() {
        if claim_to_headers[..index].iter().any(|other| other.header == to.header) {
            let message = format!("{:?} is written twice", &*to.header);
            at.error(&format!("claimToHeaders[{index}].header"), message);
        }
    }
}

impl Check for Jwt {
    fn check(&self, at: &mut Faults<'_>) {
        for (index, provider) in self.providers.iter().enumerate() {
            if self.providers[..index].iter().any(|other| other.name == provider.name) {
                let message = format!("{:?} is the name of two providers: rename one", &*provider.name);
                at.error(&format!("providers[{index}].name"), message);
            }
            // The issuer of a token alone selects the provider: the second provider would never be used.
            let of_same_issuer =
                |other: &&Provider| other.issuer.is_some() && other.issuer == provider.issuer;
            if let Some(other) = self.providers[..index].iter().find(of_same_issuer) {
                let message =
                    format!("is also the issuer of the provider {:?}: merge the two providers", &*other.name);
                at.error(&format!("providers[{index}].issuer"), message);
            }
            at.within(&format!("providers[{index}]"), &Some(provider));
        }
        crate::feature::warn_of_repeated("from", &self.from, at);
    }
}

impl Check for Provider {
    fn check(&self, at: &mut Faults<'_>) {
        check_headers(&self.claim_to_headers, at);
        // Inline and remote keys are public. JWKs in a Secret say for themselves whether they are public or shared. A public
        // key must never be used as a shared secret.
        let (may_be_shared, is_shared) = match &self.keys {
            ProviderKeys::Inline(_) | ProviderKeys::Remote(_) => (false, false),
            ProviderKeys::Secret(_) => (true, false),
            ProviderKeys::Shared(_) => (true, true),
        };
        for (index, algorithm) in self.algorithms.iter().enumerate() {
            let needed = match algorithm.is_shared() {
                true if !may_be_shared => "keys.sharedSecretRef, or JWKs of kty oct in keys.secretRef",
                false if is_shared => "keys.inline, keys.secretRef or keys.remote",
                _ => continue,
            };
            at.error(&format!("algorithms[{index}]"), format!("{} needs {needed}", algorithm.as_str()));
        }
        if let ProviderKeys::Remote(keys) = &self.keys
            && keys.url.starts_with("http:")
        {
            let message = "uses http, so that an attacker in the network can replace the keys: write https";
            at.warning("keys.remote.url", message);
        }
    }
}
