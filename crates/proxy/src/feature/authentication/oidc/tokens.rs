//! The exchange of codes and refresh tokens (OpenID Connect Core 1.0, 3.1.3 and 12), and the checks of ID tokens.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sluicegate_jwt::{Claims, Fault, KeySet, Token};

use super::provider::Metadata;
use super::{Answer, Login, Session, now};
use crate::failure::Denial;
use crate::feature::authentication::client::{Form, OAuthError};

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

/// Why there is no new session.
#[derive(Debug)]
pub(super) enum NoSession {
    /// The provider rejects the code or the refresh token.
    Grant,
    Unavailable,
    Invalid,
}

impl NoSession {
    fn denial(&self) -> Denial {
        match self {
            Self::Grant => Denial::LoginCode,
            Self::Unavailable => Denial::ProviderUnavailable,
            Self::Invalid => Denial::LoginToken,
        }
    }
}

/// The requirements on an ID token beyond those of each token.
enum Expected<'e> {
    Nonce(&'e str),
    Subject(&'e str),
}

impl Login {
    /// Exchanges the code of a login for a session.
    pub(crate) async fn exchange(&self, answer: &Answer) -> Result<Session, Denial> {
        let metadata = self.provider().await?;
        // RFC 9207, 2.4: the answer is of another provider.
        let is_ours = |issuer: &String| **issuer == *self.source.issuer;
        if !answer.issuer.as_ref().map_or(!metadata.names_issuer, is_ours) {
            return Err(Denial::LoginState);
        }
        let mut form = Form::default();
        form.add("grant_type", b"authorization_code");
        form.add("code", answer.code.as_bytes());
        form.add("redirect_uri", &answer.redirect_uri);
        form.add("code_verifier", answer.attempt.verifier.as_bytes());
        let gained = async {
            let tokens = self.ask(&metadata, form).await?;
            let id_token = tokens.id_token.clone().ok_or(TokensFault::Missing);
            let id_token = id_token.map_err(|fault| self.reject(fault))?;
            let claims = self.check(&metadata, &id_token, &Expected::Nonce(&answer.attempt.nonce)).await?;
            let end = self.end_of(&tokens, &claims);
            Ok(Session {
                access_token: self.sets_authorization().then_some(tokens.access_token),
                refresh_token: tokens.refresh_token,
                id_token,
                login: now(),
                issued: now(),
                end,
                realm: answer.realm.clone(),
            })
        };
        gained.await.map_err(|fault: NoSession| fault.denial())
    }

    /// Exchanges the refresh token of a session for a new session.
    pub(super) async fn renew(&self, session: &Session) -> Result<Session, NoSession> {
        let metadata = self.provider().await.map_err(|_| NoSession::Unavailable)?;
        let (token, claims) = session.refresh_token.as_ref().zip(session.claims()).ok_or(NoSession::Grant)?;
        let mut form = Form::default();
        form.add("grant_type", b"refresh_token");
        form.add("refresh_token", token.as_bytes());
        let tokens = self.ask(&metadata, form).await?;
        let (id_token, claims) = match &tokens.id_token {
            Some(id_token) => {
                let subject = Expected::Subject(claims.text("sub").unwrap_or_default());
                (id_token.clone(), self.check(&metadata, id_token, &subject).await?)
            }
            None => (session.id_token.clone(), claims),
        };
        let end = self.end_of(&tokens, &claims);
        Ok(Session {
            access_token: self.sets_authorization().then_some(tokens.access_token),
            refresh_token: tokens.refresh_token.or_else(|| session.refresh_token.clone()),
            id_token,
            login: session.login,
            issued: now(),
            end,
            realm: session.realm.clone(),
        })
    }

    /// Asks the token endpoint.
    async fn ask(&self, metadata: &Metadata, form: Form) -> Result<Tokens, NoSession> {
        let mut client = self.client.connect(&metadata.token);
        let answered = self.client.post(&mut client, form).await;
        let read = |body: Bytes| serde_json::from_slice(&body).map_err(|_| OAuthError::Json);
        let tokens: Tokens = match answered.and_then(read) {
            Ok(tokens) => tokens,
            Err(OAuthError::Rejected { code, .. }) if code == "invalid_grant" => {
                return Err(NoSession::Grant);
            }
            Err(error) => {
                self.warn(
                    &error,
                    "the token endpoint of an OpenID provider failed; logins and refreshes fail",
                );
                return Err(NoSession::Unavailable);
            }
        };
        // RFC 6750, 2.1: the characters of a bearer token.
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_valid = !tokens.access_token.is_empty() && tokens.access_token.bytes().all(is_token);
        match is_valid && tokens.token_type.eq_ignore_ascii_case("bearer") {
            true => Ok(tokens),
            false => Err(self.reject(TokensFault::AccessToken)),
        }
    }

    /// Checks an ID token (OpenID Connect Core 1.0, 3.1.3.7 and 12.2). New keys are fetched at once.
    async fn check(
        &self,
        metadata: &Metadata,
        text: &str,
        expected: &Expected<'_>,
    ) -> Result<Claims, NoSession> {
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
        let is_ours = |party: &str| *party == *self.source.client_id;
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

    fn reject(&self, fault: TokensFault) -> NoSession {
        self.warn(&fault, "the gateway rejects the tokens of an OpenID provider; the login fails");
        match fault {
            TokensFault::KeysUnknown => NoSession::Unavailable,
            _ => NoSession::Invalid,
        }
    }

    /// The end of the access token, or of the ID token if the provider does not state the end.
    fn end_of(&self, tokens: &Tokens, claims: &Claims) -> i64 {
        let seconds = match &tokens.expires_in {
            Some(Value::String(text)) => text.parse().ok(),
            Some(number) => number.as_i64(),
            None => None,
        };
        let end = seconds.map(|seconds: i64| now().saturating_add(seconds.max(0)));
        end.or(claims.expiry()).unwrap_or_else(now)
    }
}
