//! Login of browsers by OpenID Connect (OpenID Connect Core 1.0).

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jwt::{ClaimToHeader, five_seconds, minute};
use crate::feature::{Check, Faults};
use crate::value::secret::{CaCertificates, CookieKeys, FromSecret, KeyBytes};
use crate::value::span::HOUR;
use crate::value::{
    ClientId, ConditionPath, CookieDomain, Entries, IdentityHeader, LoginParameterName, MatchValue, Scope,
    Span, Url,
};

/// Login of browsers at an OpenID provider, by the authorization code flow with PKCE (RFC 7636). The session is in
/// encrypted cookies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Oidc {
    /// The URL of the issuer, https:// or http://, exactly as in the claim iss of ID tokens. Without endpoints, each data
    /// plane fetches ISSUER/.well-known/openid-configuration (OpenID Connect Discovery 1.0) every 10m. While fetches
    /// fail, the last valid version stays in use. The gateway rejects documents larger than 256 KiB.
    #[n(0)]
    pub issuer: Url,
    /// The endpoints of the provider. Default: the endpoints that the provider publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub endpoints: Option<OidcEndpoints>,
    /// The Secret with the CA certificates of the provider, in PEM and in the policy's namespace. Default of
    /// caCertificateRef.key: ca.crt. Default: the public CA certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub ca_certificate_ref: Option<FromSecret<CaCertificates>>,
    /// The ID with which the gateway is registered at the provider. ID tokens must be for this audience.
    #[n(3)]
    pub client_id: ClientId,
    /// The Secret with the client secret, in the policy's namespace. The gateway removes a line end after the secret.
    /// Default of clientSecretRef.key: client-secret. Default: a public client without a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub client_secret_ref: Option<FromSecret<KeyBytes>>,
    /// How the gateway sends the client secret (RFC 6749, 2.3.1). Basic: in the header Authorization. Post: in the body.
    /// Default: Basic.
    #[serde(default)]
    #[n(5)]
    pub client_authentication: ClientAuthentication,
    /// The Secret with the keys that encrypt the cookies, in the policy's namespace: a line of 32 to 256 characters for
    /// each key, 1 to 8 lines. The first key encrypts, and all keys decrypt. Write a random key, such as the output of
    /// "openssl rand -base64 32". Default of cookieSecretRef.key: cookie-secret.
    #[n(6)]
    pub cookie_secret_ref: FromSecret<CookieKeys>,
    /// The requested scopes. The gateway adds openid if it is missing. 1 to 32 entries. Default: openid.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(7)]
    pub scopes: Entries<Scope, 32>,
    /// The path to which the provider redirects browsers after the login. The provider must know
    /// SCHEME://HOST/PATH of each host as a redirect URI. The gateway serves the path itself, on each host of the
    /// policy's routes. On a host with routes of several namespaces, other routes have precedence: choose a path that
    /// only routes with this policy match. Default: /oauth2/callback.
    #[serde(default = "callback")]
    #[n(8)]
    pub redirect_path: ConditionPath,
    /// The path that ends the session, with GET or POST. If the provider has an end session endpoint, the gateway
    /// redirects the browser there (OpenID Connect RP-Initiated Logout 1.0). The gateway serves the path itself, as
    /// redirectPath. Default: /oauth2/logout.
    #[serde(default = "logout")]
    #[n(9)]
    pub logout_path: ConditionPath,
    /// The path to which browsers return after the logout. The provider must know SCHEME://HOST/PATH as a post logout
    /// redirect URI. Default: /.
    #[serde(default = "root")]
    #[n(10)]
    pub post_logout_path: ConditionPath,
    /// The domain of the session cookies, so that the hosts below the domain share the session. Hosts outside the domain
    /// have sessions of their own. Default: each host has its own session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(11)]
    pub cookie_domain: Option<CookieDomain>,
    /// The time after which users must log in again, however active they are. 1m to 720h. Default: 12h.
    #[serde(default = "half_day")]
    #[n(12)]
    pub session_lifetime: Span<60_000, { 720 * HOUR }>,
    /// Claims of the ID token that endpoints receive as headers. 1 to 16 entries. The gateway drops these headers from
    /// client requests. Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(13)]
    pub claim_to_headers: Entries<ClaimToHeader, 16>,
    /// Whether endpoints receive the access token as "Authorization: Bearer TOKEN". Default: false.
    #[serde(default)]
    #[n(14)]
    pub forward_access_token: bool,
    /// The header in which endpoints receive the ID token. The gateway drops this header from client requests. Default:
    /// endpoints do not receive the ID token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(15)]
    pub id_token_header: Option<IdentityHeader>,
    /// The clock difference that exp and iat of ID tokens tolerate. 0s to 10m. Default: 60s.
    #[serde(default = "minute")]
    #[n(16)]
    pub clock_skew: Span<0, 600_000>,
    /// The timeout of one request to the provider, including the connect. 100ms to 60s. Default: 5s.
    #[serde(default = "five_seconds")]
    #[n(17)]
    pub timeout: Span<100, 60_000>,
    /// Further parameters of the authorization request, such as prompt or access_type. 1 to 16 entries. Default: none.
    #[serde(default, skip_serializing_if = "crate::feature::is_default")]
    #[n(18)]
    pub login_parameters: Entries<LoginParameter, 16>,
}

/// The endpoints of a provider that publishes no configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct OidcEndpoints {
    /// The URL to which the gateway redirects browsers for the login.
    #[n(0)]
    pub authorization: Url,
    /// The URL at which the gateway exchanges codes and refresh tokens.
    #[n(1)]
    pub token: Url,
    /// The URL of the JWK set with the keys of ID tokens. Each data plane fetches the set every 5m.
    #[n(2)]
    pub jwks: Url,
    /// The URL to which the gateway redirects browsers for the logout. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub end_session: Option<Url>,
}

/// How the gateway sends its client secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum ClientAuthentication {
    /// In the header Authorization.
    #[default]
    #[n(0)]
    Basic,
    /// In the body.
    #[n(1)]
    Post,
}

/// A parameter of the authorization request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(map)]
pub struct LoginParameter {
    /// The name of the parameter. The gateway sets client_id, redirect_uri, response_type, response_mode, scope, state,
    /// nonce, code_challenge and code_challenge_method itself.
    #[n(0)]
    pub name: LoginParameterName,
    /// The value of the parameter. 1 to 4096 characters.
    #[n(1)]
    pub value: MatchValue,
}

fn callback() -> ConditionPath {
    ConditionPath::of("/oauth2/callback")
}

fn logout() -> ConditionPath {
    ConditionPath::of("/oauth2/logout")
}

fn root() -> ConditionPath {
    ConditionPath::of("/")
}

fn half_day() -> Span<60_000, { 720 * HOUR }> {
    Span::of_millis(12 * HOUR)
}

impl Oidc {
    /// The headers that only the gateway sets.
    pub fn headers(&self) -> impl Iterator<Item = &IdentityHeader> {
        self.claim_to_headers.iter().map(|to| &to.header).chain(&self.id_token_header)
    }
}

impl Check for Oidc {
    fn check(&self, at: &mut Faults<'_>) {
        if self.issuer.contains('?') {
            at.error("issuer", "has a query, which no issuer has: remove it");
        }
        if self.issuer.starts_with("http:") {
            let message = "uses http, so that an attacker in the network can log in as any user: write https";
            at.warning("issuer", message);
        }
        for (field, path) in [("logoutPath", &self.logout_path), ("postLogoutPath", &self.post_logout_path)] {
            if *path == self.redirect_path {
                at.error(field, "is also the redirectPath: write another path");
            }
        }
        if self.logout_path == self.post_logout_path {
            at.error("postLogoutPath", "is also the logoutPath: write another path");
        }
        super::jwt::check_headers(&self.claim_to_headers, at);
        if let Some(header) = &self.id_token_header
            && self.claim_to_headers.iter().any(|to| to.header == *header)
        {
            at.error("idTokenHeader", format!("{:?} is also the header of a claim", &**header));
        }
        for (index, parameter) in self.login_parameters.iter().enumerate() {
            if self.login_parameters[..index].iter().any(|other| other.name == parameter.name) {
                let message = format!("{:?} is written twice", &*parameter.name);
                at.error(&format!("loginParameters[{index}].name"), message);
            }
        }
    }
}
