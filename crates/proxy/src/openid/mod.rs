//! The gateway as a client of OpenID providers and of other authorization servers: it fetches what they publish, logs users in
//! by the authorization code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636), and checks their ID tokens.
//!
//! Policies log in the browsers of clients (`feature/authentication/oidc`), and the dashboard logs in its own users. Both store
//! their sessions themselves.
//!
//! | module | purpose |
//! |---|---|
//! | `published`, `keys` | documents that issuers publish, and their keys |
//! | `provider` | the configuration of a provider |
//! | `attempt` | a login in progress, and the answer of the provider |
//! | `tokens` | the exchange of codes and refresh tokens, and the checks of ID tokens |
//! | `client` | forms for an authorization server |
//! | `seal` | the encryption of cookies |

mod attempt;
mod client;
mod keys;
mod provider;
mod published;
mod seal;
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluicegate_jwt::Rules;
use sluicegate_model::feature::authentication::oidc::{ClientAuthentication, LoginParameter, OidcEndpoints};
use sluicegate_model::value::secret::{CaCertificates, FromSecret, KeyBytes};
use sluicegate_model::value::{ClientId, Entries, Scope, Span, Url};

pub use attempt::{Answer, Attempt, LOGIN_SECONDS, Parameters};
pub use provider::Metadata;
pub use published::PublishedPlaces;
pub use seal::Seal;
pub use tokens::Grant;

pub(crate) use client::{Form, OAuthClient, OAuthError};
pub(crate) use keys::keys_at;
pub(crate) use published::{Places, Published, State};
pub(crate) use tokens::NoGrant;

use provider::Provider;

/// The time between two log lines about the same provider.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// The registration of the gateway at an OpenID provider.
#[derive(Clone)]
pub struct Registration {
    /// The URL of the issuer, exactly as in the claim `iss` of ID tokens.
    pub issuer: Url,
    /// The endpoints of the provider. `None`: the endpoints that the provider publishes.
    pub endpoints: Option<OidcEndpoints>,
    /// The CA certificates of the provider. `None`: the public CA certificates.
    pub authorities: Option<FromSecret<CaCertificates>>,
    /// The ID of the client, for which ID tokens must be.
    pub client_id: ClientId,
    /// The secret of the client. `None`: a public client.
    pub client_secret: Option<KeyBytes>,
    /// How the gateway sends the secret.
    pub client_authentication: ClientAuthentication,
    /// The requested scopes. The gateway adds `openid`.
    pub scopes: Entries<Scope, 32>,
    /// Further parameters of the authorization request.
    pub parameters: Entries<LoginParameter, 16>,
    /// The clock difference that `exp` and `iat` tolerate.
    pub clock_skew: Duration,
    /// The timeout of one request to the provider.
    pub timeout: Span<100, 60_000>,
}

/// The gateway as a relying party of an OpenID provider.
pub struct RelyingParty {
    registration: Registration,
    client: OAuthClient,
    provider: Provider,
    rules: Rules,
    warned: Mutex<Option<Instant>>,
}

/// The reason why a login fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFault {
    /// The answer belongs to no login of the browser, or comes too late.
    #[error("the answer belongs to no login of this browser")]
    State,
    /// The provider denies the login, with this error code (RFC 6749, 4.1.2.1).
    #[error("the provider denies the login: {0}")]
    Denied(String),
    /// The provider rejects the code.
    #[error("the provider rejects the code")]
    Code,
    /// The provider does not respond as it should.
    #[error("the provider is unavailable")]
    Unavailable,
    /// The tokens of the provider are invalid.
    #[error("the tokens of the provider are invalid")]
    Token,
}

/// The current time, in seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

impl RelyingParty {
    /// The relying party of a registration. The configuration and the keys of the provider are fetched once for all parties with
    /// the same `places`.
    ///
    /// # Errors
    /// A value or a URL that cannot be used, as a sentence.
    pub fn new(registration: Registration, places: &PublishedPlaces) -> Result<Self, String> {
        let Registration { issuer, client_id, client_secret, client_authentication, timeout, .. } =
            &registration;
        let (secret, how) = (client_secret.clone(), *client_authentication);
        Ok(Self {
            client: OAuthClient::new(client_id, secret, how, timeout.get()),
            provider: Provider::new(&registration, &places.keys, &places.providers)?,
            rules: Rules {
                issuer: Some(issuer.as_str().into()),
                audiences: vec![client_id.as_str().into()],
                clock_skew: registration.clock_skew,
                allows_eternal: false,
                required: Vec::new(),
            },
            warned: Mutex::default(),
            registration,
        })
    }

    /// The registration.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The configuration of the provider. If the first fetch is in flight, its result is awaited. `None`: unknown.
    pub async fn metadata(&self) -> Option<Arc<Metadata>> {
        self.provider.metadata().await
    }

    /// The URL that begins a login at the provider, which redirects the browser to `redirect_uri` afterwards.
    #[must_use]
    pub fn login_url(&self, metadata: &Metadata, attempt: &Attempt, redirect_uri: &[u8]) -> Vec<u8> {
        let mut form = Form::default();
        form.add("response_type", b"code");
        form.add("client_id", self.registration.client_id.as_bytes());
        form.add("redirect_uri", redirect_uri);
        form.add("scope", self.scope().as_bytes());
        form.add("state", attempt.state.as_bytes());
        form.add("nonce", attempt.nonce.as_bytes());
        form.add("code_challenge", attempt.challenge().as_bytes());
        form.add("code_challenge_method", b"S256");
        for parameter in &self.registration.parameters {
            form.add(&parameter.name, parameter.value.as_bytes());
        }
        form.behind(&metadata.authorization)
    }

    /// The URL that ends the session at the provider, which redirects the browser to `back` afterwards (OpenID Connect
    /// RP-Initiated Logout 1.0, 2). `None` if the provider has no such endpoint.
    #[must_use]
    pub fn logout_url(&self, metadata: &Metadata, id_token: Option<&str>, back: &[u8]) -> Option<Vec<u8>> {
        let url = metadata.end_session.as_ref()?;
        let mut form = Form::default();
        if let Some(id_token) = id_token {
            form.add("id_token_hint", id_token.as_bytes());
        }
        form.add("client_id", self.registration.client_id.as_bytes());
        form.add("post_logout_redirect_uri", back);
        Some(form.behind(url))
    }

    /// The requested scopes.
    fn scope(&self) -> String {
        let scopes = self.registration.scopes.iter().map(|scope| scope.as_str());
        let is_there = self.registration.scopes.iter().any(|scope| scope.as_str() == "openid");
        let openid = (!is_there).then_some("openid");
        openid.into_iter().chain(scopes).collect::<Vec<_>>().join(" ")
    }

    /// Logs a fault of the provider, but not for each request.
    fn warn(&self, error: &dyn fmt::Display, what: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|before| before.elapsed() >= BETWEEN_WARNINGS) {
            *warned = Some(Instant::now());
            tracing::warn!(issuer = &*self.registration.issuer, %error, "{what}");
        }
    }
}

/// Secrets are not shown.
impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl fmt::Debug for RelyingParty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelyingParty").field("issuer", &self.registration.issuer).finish_non_exhaustive()
    }
}
