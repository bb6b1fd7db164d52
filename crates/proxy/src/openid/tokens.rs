//! The exchange of codes and refresh tokens (OpenID Connect Core 1.0, 3.1.3 and 12), and the checks of ID tokens.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sluicegate_jwt::{Claims, Fault, KeySet, Token};

use super::client::{Form, OAuthError};
use super::provider::Metadata;
use super::{Answer, LoginFault, RelyingParty, now};

/// The answer of the token endpoint (RFC 6749, 5.1; OpenID Connect Core 1.0, 3.1.3.3).
#[derive(Deserialize)]
struct Tokens {
    access_token: Box<str>,
    token_type: Box<str>,
    id_token: Option<Box<str>>,
    refresh_token: Option<Box<str>>,
    /// The lifetime of the access token in seconds: a number, or a number as text.
    expires_in: Option<Value>,
}

/// The tokens of a user.
pub struct Grant {
    pub(crate) access_token: Box<str>,
    pub(crate) refresh_token: Option<Box<str>>,
    /// The ID token with its claims. After a refresh, the provider may send none.
    pub(crate) id_token: Option<(Box<str>, Claims)>,
    /// The end of the access token, in seconds since 1970, if the provider states the end.
    pub(crate) end: Option<i64>,
}

/// Why the gateway rejects the tokens of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TokensFault {
    #[error("{0}")]
    IdToken(#[from] Fault),
    #[error("there is no ID token")]
    Missing,
    #[error("the nonce of the ID token is of another login")]
    Nonce,
    #[error("the ID token is for another client (azp)")]
    AuthorizedParty,
    #[error("the ID token is issued in the future (iat), or at an unknown time")]
    IssuedAt,
    #[error("the ID token is for another user (sub) than the session")]
    Subject,
    #[error("the keys of the issuer are not known")]
    KeysUnknown,
    #[error("the access token or its type is not valid")]
    AccessToken,
}

/// Why there are no tokens.
#[derive(Debug)]
pub(crate) enum NoGrant {
    /// The provider rejects the code or the refresh token.
    Rejected,
    Unavailable,
    Invalid,
}

impl From<NoGrant> for LoginFault {
    fn from(reason: NoGrant) -> Self {
        match reason {
            NoGrant::Rejected => Self::Code,
            NoGrant::Unavailable => Self::Unavailable,
            NoGrant::Invalid => Self::Token,
        }
    }
}

/// The requirements on an ID token beyond those of each token.
enum Expected<'e> {
    Nonce(&'e str),
    Subject(&'e str),
}

impl Grant {
    /// A claim of the ID token, by a path such as `realm_access.roles`.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&Value> {
        self.id_token.as_ref()?.1.get(name)
    }
}

/// Tokens are secret.
impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("end", &self.end).finish_non_exhaustive()
    }
}

impl RelyingParty {
    /// Exchanges the code of a login for tokens, and checks the ID token.
    ///
    /// # Errors
    /// The answer is of another provider, the provider is unavailable or rejects the code, or its tokens are invalid.
    pub async fn redeem(&self, answer: &Answer) -> Result<Grant, LoginFault> {
        let metadata = self.metadata().await.ok_or(LoginFault::Unavailable)?;
        // RFC 9207, 2.4: the answer is of another provider.
        let is_ours = |issuer: &String| **issuer == *self.registration.issuer;
        if !answer.issuer.as_ref().map_or(!metadata.names_issuer, is_ours) {
            return Err(LoginFault::State);
        }
        let mut form = Form::default();
        form.add("grant_type", b"authorization_code");
        form.add("code", answer.code.as_bytes());
        form.add("redirect_uri", &answer.redirect_uri);
        form.add("code_verifier", answer.attempt.verifier.as_bytes());
        let grant = self.ask(&metadata, form, &Expected::Nonce(&answer.attempt.nonce)).await?;
        match grant.id_token {
            Some(_) => Ok(grant),
            None => Err(self.reject(TokensFault::Missing).into()),
        }
    }

    /// Exchanges the refresh token of a user (`sub`) for new tokens.
    pub(crate) async fn refresh(&self, refresh_token: &str, subject: &str) -> Result<Grant, NoGrant> {
        let metadata = self.metadata().await.ok_or(NoGrant::Unavailable)?;
        let mut form = Form::default();
        form.add("grant_type", b"refresh_token");
        form.add("refresh_token", refresh_token.as_bytes());
        self.ask(&metadata, form, &Expected::Subject(subject)).await
    }

    /// Asks the token endpoint.
    async fn ask(&self, metadata: &Metadata, form: Form, expected: &Expected<'_>) -> Result<Grant, NoGrant> {
        let mut client = self.client.connect(&metadata.token);
        let answered = self.client.post(&mut client, form).await;
        let read = |body: Bytes| serde_json::from_slice(&body).map_err(|_| OAuthError::Json);
        let tokens: Tokens = match answered.and_then(read) {
            Ok(tokens) => tokens,
            Err(OAuthError::Rejected { code, .. }) if code == "invalid_grant" => {
                return Err(NoGrant::Rejected);
            }
            Err(error) => {
                self.warn(
                    &error,
                    "the token endpoint of an OpenID provider failed; logins and refreshes fail",
                );
                return Err(NoGrant::Unavailable);
            }
        };
        // RFC 6750, 2.1: the characters of a bearer token.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_valid = !tokens.access_token.is_empty() && tokens.access_token.bytes().all(is_token);
        if !is_valid || !tokens.token_type.eq_ignore_ascii_case("bearer") {
            return Err(self.reject(TokensFault::AccessToken));
        }
        let end = tokens.end();
        let id_token = match tokens.id_token {
            Some(id_token) => {
                let claims = self.check(metadata, &id_token, expected).await?;
                Some((id_token, claims))
            }
            None => None,
        };
        Ok(Grant { access_token: tokens.access_token, refresh_token: tokens.refresh_token, id_token, end })
    }

    /// Checks an ID token (OpenID Connect Core 1.0, 3.1.3.7 and 12.2). New keys are fetched at once.
    async fn check(
        &self,
        metadata: &Metadata,
        text: &str,
        expected: &Expected<'_>,
    ) -> Result<Claims, NoGrant> {
        let keys = metadata.keys.first().await;
        let checked = self.check_with(keys.as_deref(), text, expected);
        let checked = match checked {
            Err(TokensFault::IdToken(Fault::UnknownKey | Fault::Signature)) => {
                match metadata.keys.next().await {
                    Some(keys) => self.check_with(Some(&*keys), text, expected),
                    None => checked,
                }
            }
            checked => checked,
        };
        checked.map_err(|fault| self.reject(fault))
    }

    fn check_with(
        &self,
        keys: Option<&KeySet>,
        text: &str,
        expected: &Expected<'_>,
    ) -> Result<Claims, TokensFault> {
        let keys = keys.ok_or(TokensFault::KeysUnknown)?;
        let token = Token::parse(text.as_bytes())?;
        let claims = token.verify(keys)?;
        let now = now();
        claims.check(&self.rules, now)?;
        let audiences = claims.get("aud").and_then(Value::as_array).map_or(1, Vec::len);
        let is_ours = |party: &str| *party == *self.registration.client_id;
        if !claims.text("azp").map_or(audiences == 1, is_ours) {
            return Err(TokensFault::AuthorizedParty);
        }
        let issued = claims.time("iat")?.ok_or(TokensFault::IssuedAt)?;
        if issued > now.saturating_add(self.rules.skew()) {
            return Err(TokensFault::IssuedAt);
        }
        match expected {
            Expected::Nonce(nonce) if claims.text("nonce") != Some(nonce) => Err(TokensFault::Nonce),
            Expected::Subject(subject) if claims.text("sub") != Some(subject) => Err(TokensFault::Subject),
            Expected::Nonce(_) | Expected::Subject(_) => Ok(claims.clone()),
        }
    }

    fn reject(&self, fault: TokensFault) -> NoGrant {
        self.warn(&fault, "the gateway rejects the tokens of an OpenID provider; the login fails");
        match fault {
            TokensFault::KeysUnknown => NoGrant::Unavailable,
            _ => NoGrant::Invalid,
        }
    }
}

impl Tokens {
    /// The end of the access token, if the provider states the end.
    fn end(&self) -> Option<i64> {
        let seconds = match &self.expires_in {
            Some(Value::String(text)) => text.parse().ok(),
            Some(number) => number.as_i64(),
            None => None,
        };
        seconds.map(|seconds: i64| now().saturating_add(seconds.max(0)))
    }
}
