//! JSON Web Tokens.

use schemars::JsonSchema;
use serde::Deserialize;

use super::credential::{CredentialSource, SecretKeyRef};

/// Tokens that are taken.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Jwt {
    /// Who signs tokens, from 1 to 8, each with a name of its own. A token is its issuer's; one that names none of
    /// them is tried with those providers that name no issuer.
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub(crate) providers: Vec<Provider>,
    /// Where a token is looked for, from 1 to 8 places; the first that has something counts. Default: the header
    /// Authorization with the prefix "Bearer ".
    #[schemars(length(min = 1, max = 8))]
    pub(crate) from: Option<Vec<CredentialSource>>,
    /// Whether endpoints get the token too. Default: true.
    pub(crate) forward: Option<bool>,
}

/// Who signs tokens, and what they must say.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Provider {
    /// What it is called in logs.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) name: String,
    /// What the claim iss must be, to the letter. Default: anything.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) issuer: Option<String>,
    /// Of which the claim aud must name one: from 1 to 16. Default: anything.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 2048)))]
    pub(crate) audiences: Option<Vec<String>>,
    /// The algorithms that are taken (RFC 7518, RFC 8037). Default: those that fit the keys. A token of algorithm none is never
    /// taken.
    #[schemars(length(min = 1, max = 13))]
    pub(crate) algorithms: Option<Vec<Algorithm>>,
    /// The keys that signatures are verified with.
    pub(crate) keys: ProviderKeys,
    /// How far clocks may be apart, for exp and nbf, from 0s to 10m. Default: 60s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) clock_skew: Option<String>,
    /// Whether a token without exp is taken, which is good for ever. Default: false.
    pub(crate) allow_missing_expiry: Option<bool>,
    /// Claims that tokens must have beside those: from 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) required_claims: Option<Vec<ClaimRequirement>>,
    /// Claims that endpoints get as headers: from 1 to 16. Clients cannot set these headers themselves.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) claim_to_headers: Option<Vec<ClaimToHeader>>,
}

/// Keys: exactly one of inline, secretRef, sharedSecretRef and remote.
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
    /// The same in a Secret of the policy's namespace, where JWKs may be of kty oct too: secrets that the issuer knows, each with a
    /// kid, so that the old and the new one hold while it is changed. The default of key is jwks.json.
    pub(crate) secret_ref: Option<SecretKeyRef>,
    /// A secret that the issuer knows too, for HS256, HS384 and HS512: the bytes of the value, without the end of the
    /// line. The default of key is secret.
    pub(crate) shared_secret_ref: Option<SecretKeyRef>,
    /// Public keys that the issuer publishes.
    pub(crate) remote: Option<RemoteKeys>,
}

/// A JWK set that the issuer publishes. Each data plane fetches it for itself, keeps it while it cannot be fetched again, and
/// fetches it before it is due when a token names a key that is not in it, every 5 s at most.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteKeys {
    /// The URL, https:// or http://. Redirects are not followed, and what is longer than 256 KiB is not taken.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^/?#@]+"))]
    pub(crate) url: String,
    /// Who vouches for its server: certificates in PEM in a Secret of the policy's namespace. The default of key is ca.crt. Default:
    /// those whom browsers trust.
    pub(crate) ca_certificate_ref: Option<SecretKeyRef>,
    /// How long until it is fetched again, from 10s to 24h. Default: 5m.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) refresh_interval: Option<String>,
    /// For all of one fetch, from 100ms to 60s. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) timeout: Option<String>,
}

/// An algorithm of signatures.
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

/// A claim that tokens must have.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClaimRequirement {
    /// Its name; a dot leads into an object, as in realm_access.roles.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: String,
    /// The values of which it must be one, or have one if it is a list, or words as scope has: from 1 to 64. Default: it has to be
    /// there.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) values: Option<Vec<String>>,
}

/// A claim that endpoints get as a header.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ClaimToHeader {
    /// The claim; a dot leads into an object.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) claim: String,
    /// The header. None that the gateway or the connection needs for itself, such as Host or X-Forwarded-For.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) header: String,
}
