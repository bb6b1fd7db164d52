//! JSON Web Tokens.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::feature::ClaimRequirement;
use sluicegate_model::value::Entries;

use super::credential::{CredentialSource, SecretKeyRef};

/// JSON Web Tokens that the gateway accepts.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Jwt {
    /// The issuers of the tokens, each with a unique name. 1 to 8 entries. The provider with the token's issuer checks
    /// the token. If no provider has this issuer, the providers without an issuer check the token.
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) providers: Vec<Provider>,
    /// The places where the gateway looks for a token. The first place with a value counts. 1 to 8 entries. Default:
    /// the header Authorization with the prefix "Bearer ".
    #[schemars(length(min = 1, max = 8))]
    pub(crate) from: Option<Vec<CredentialSource>>,
    /// Whether endpoints receive the token. Default: true.
    pub(crate) forward: Option<bool>,
}

/// An issuer of tokens, and the requirements on its tokens.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Provider {
    /// The name of the provider in logs.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) name: String,
    /// The exact value of the claim iss. Default: any value.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) issuer: Option<String>,
    /// The accepted audiences. The claim aud must contain one of them. 1 to 16 entries. Default: any audience.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 2048)))]
    pub(crate) audiences: Option<Vec<String>>,
    /// The accepted signature algorithms (RFC 7518, RFC 8037). 1 to 13 entries. Default: the algorithms that fit the
    /// keys. The gateway never accepts the algorithm none.
    #[schemars(length(min = 1, max = Algorithm::COUNT))]
    pub(crate) algorithms: Option<Vec<Algorithm>>,
    /// The keys that verify the signatures.
    pub(crate) keys: ProviderKeys,
    /// The clock difference that exp and nbf tolerate. 0s to 10m. Default: 60s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) clock_skew: Option<String>,
    /// Whether tokens without exp are accepted. Such a token never expires. Default: false.
    pub(crate) allow_missing_expiry: Option<bool>,
    /// Claims that tokens must have, in addition to iss, aud and exp. 1 to 16 entries. Default: none.
    #[serde(default)]
    pub(crate) required_claims: Entries<ClaimRequirement, 16>,
    /// Claims that endpoints receive as headers. 1 to 16 entries. The gateway drops these headers from client requests.
    /// Default: none.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) claim_to_headers: Option<Vec<ClaimToHeader>>,
}

/// The source of the keys: exactly one of inline, secretRef, sharedSecretRef and remote.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.inline), has(self.secretRef), has(self.sharedSecretRef), has(self.remote)].filter(is, is).size() == 1",
    "message": "write exactly one of inline, secretRef, sharedSecretRef and remote"
}]))]
pub(crate) struct ProviderKeys {
    /// Public keys: a JWK set or a JWK (RFC 7517), or public keys or certificates in PEM.
    #[schemars(length(min = 1, max = 65536))]
    pub(crate) inline: Option<String>,
    /// The Secret with the keys, in the policy's namespace: a JWK set, a JWK, or public keys or certificates in PEM.
    /// JWKs may also have kty oct, which is a secret shared with the issuer. To rotate such a secret, write the old and
    /// the new JWK, each with a kid. Default of key: jwks.json.
    pub(crate) secret_ref: Option<SecretKeyRef>,
    /// The Secret with a secret that the issuer shares, for HS256, HS384 and HS512. The secret is the bytes of the
    /// value without the line end. Default of key: secret.
    pub(crate) shared_secret_ref: Option<SecretKeyRef>,
    /// Public keys that the issuer publishes at a URL.
    pub(crate) remote: Option<RemoteKeys>,
}

/// A JWK set that the issuer publishes. Each data plane fetches the set itself. While fetches fail, the last set stays
/// in use. A token with an unknown key makes the gateway fetch the set early, at most every 5 s.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteKeys {
    /// The URL of the set, https:// or http://. The gateway does not follow redirects, and rejects sets larger than 256
    /// KiB.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^/?#@]+"))]
    pub(crate) url: String,
    /// The Secret with the CA certificates of the server, in PEM and in the policy's namespace. Default of key: ca.crt.
    /// Default: the public CA certificates.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
    /// The time between two fetches. 10s to 24h. Default: 5m.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) refresh_interval: Option<String>,
    /// The timeout of one fetch, including the connect. 100ms to 60s. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
}

/// A signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// The number of algorithms: a list may name each algorithm once.
    pub(crate) const COUNT: usize = Self::EdDsa as usize + 1;

    /// Its name (RFC 7518, 3.1).
    pub(crate) fn as_str(self) -> &'static str {
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
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

/// A claim that endpoints receive as a header.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClaimToHeader {
    /// The name of the claim. A dot leads into an object.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) claim: String,
    /// The name of the header. Headers that the gateway or the connection needs, such as Host or X-Forwarded-For, are
    /// not allowed.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) header: String,
}
