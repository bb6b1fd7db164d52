//! Introspection of tokens (RFC 7662).

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Credential;
use super::jwt::{ClaimToHeader, five_seconds};
use super::oidc::ClientAuthentication;
use crate::feature::{Check, ClaimRequirement, Faults};
use crate::value::secret::{CaCertificates, FromSecret, KeyBytes};
use crate::value::span::HOUR;
use crate::value::{Audience, ClientId, Entries, Span, Url};

/// Tokens that an authorization server checks, such as opaque access tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Introspection {
    /// The URL of the introspection endpoint, https:// or http://. The gateway does not follow redirects, and rejects
    /// responses larger than 256 KiB.
    #[n(0)]
    pub url: Url,
    /// The Secret with the CA certificates of the server, in PEM and in the policy's namespace. Default of
    /// caCertificateRef.key: ca.crt. Default: the public CA certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub ca_certificate_ref: Option<FromSecret<CaCertificates>>,
    /// The ID with which the gateway is registered at the server.
    #[n(2)]
    pub client_id: ClientId,
    /// The Secret with the client secret, in the policy's namespace. The gateway removes a line end after the secret.
    /// Default of clientSecretRef.key: client-secret.
    #[n(3)]
    pub client_secret_ref: FromSecret<KeyBytes>,
    /// How the gateway sends the client secret (RFC 6749, 2.3.1). Basic: in the header Authorization. Post: in the body.
    /// Default: Basic.
    #[serde(default)]
    #[n(4)]
    pub client_authentication: ClientAuthentication,
    /// The places where the gateway looks for a token. The first place with a value counts. 1 to 8 entries. Default:
    /// the header Authorization with the prefix "Bearer ".
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(5)]
    pub from: Entries<Credential, 8>,
    /// Whether endpoints receive the token. Default: true.
    #[serde(default = "crate::feature::yes")]
    #[n(6)]
    pub forward: bool,
    /// The exact value of iss in the response. Default: any value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub issuer: Option<Audience>,
    /// The accepted audiences. The claim aud must contain one of them. 1 to 16 entries. Default: any audience.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(8)]
    pub audiences: Entries<Audience, 16>,
    /// Claims that the response must have. 1 to 16 entries. Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(9)]
    pub required_claims: Entries<ClaimRequirement, 16>,
    /// Claims that endpoints receive as headers. 1 to 16 entries. The gateway drops these headers from client requests.
    /// Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(10)]
    pub claim_to_headers: Entries<ClaimToHeader, 16>,
    /// The timeout of one request to the server, including the connect. 100ms to 60s. Default: 5s.
    #[serde(default = "five_seconds")]
    #[n(11)]
    pub timeout: Span<100, 60_000>,
    /// How long responses stay cached. Each worker has its own cache, limited to 16 MiB.
    #[serde(default)]
    #[n(12)]
    pub cache: IntrospectionCache,
}

/// How long responses stay cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(default)]
#[cbor(map)]
pub struct IntrospectionCache {
    /// How long an active token stays cached, but never beyond its exp. A revoked token is accepted for this time. 0s to
    /// 1h; 0s: not at all. Default: 1m.
    #[n(0)]
    pub active: Span<0, HOUR>,
    /// How long an inactive token stays cached. 0s to 1h; 0s: not at all. Default: 10s.
    #[n(1)]
    pub inactive: Span<0, HOUR>,
}

impl Default for IntrospectionCache {
    fn default() -> Self {
        Self { active: Span::of_millis(60_000), inactive: Span::of_millis(10_000) }
    }
}

impl Introspection {
    /// The places of the token.
    pub fn places(&self) -> impl Iterator<Item = Credential> {
        super::jwt::token_places(&self.from)
    }
}

impl Check for Introspection {
    fn check(&self, at: &mut Faults<'_>) {
        if self.url.starts_with("http:") {
            let message = "uses http, so that an attacker in the network can read the tokens: write https";
            at.warning("url", message);
        }
        super::jwt::check_headers(&self.claim_to_headers, at);
        crate::feature::warn_of_repeated("from", &self.from, at);
    }
}
