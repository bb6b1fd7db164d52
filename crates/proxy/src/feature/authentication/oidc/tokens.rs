//! The sessions that follow from the tokens of a provider.

use sluicegate_jwt::Claims;

use super::{Login, Session, now};
use crate::failure::Denial;
use crate::openid::{Answer, Grant, LoginFault, NoGrant};

impl From<LoginFault> for Denial {
    fn from(fault: LoginFault) -> Self {
        match fault {
            LoginFault::State => Self::LoginState,
            LoginFault::Denied(_) => Self::LoginDenied,
            LoginFault::Code => Self::LoginCode,
            LoginFault::Unavailable => Self::ProviderUnavailable,
            LoginFault::Token => Self::LoginToken,
        }
    }
}

impl Login {
    /// Exchanges the code of a login for a session of a host or a domain.
    pub(crate) async fn exchange(&self, answer: &Answer, realm: Box<str>) -> Result<Session, Denial> {
        let Grant { access_token, refresh_token, id_token, end } = self.party.redeem(answer).await?;
        let (id_token, claims) = id_token.ok_or(Denial::LoginToken)?;
        Ok(Session {
            access_token: self.sets_authorization().then_some(access_token),
            refresh_token,
            end: end_of(end, &claims),
            id_token,
            login: now(),
            issued: now(),
            realm,
        })
    }

    /// Exchanges the refresh token of a session for a new session.
    pub(super) async fn renew(&self, session: &Session) -> Result<Session, NoGrant> {
        let (token, claims) =
            session.refresh_token.as_ref().zip(session.claims()).ok_or(NoGrant::Rejected)?;
        let subject = claims.text("sub").unwrap_or_default();
        let Grant { access_token, refresh_token, id_token, end } = self.party.refresh(token, subject).await?;
        let (id_token, claims) = id_token.unwrap_or_else(|| (session.id_token.clone(), claims.clone()));
        Ok(Session {
            access_token: self.sets_authorization().then_some(access_token),
            refresh_token: refresh_token.or_else(|| session.refresh_token.clone()),
            end: end_of(end, &claims),
            id_token,
            login: session.login,
            issued: now(),
            realm: session.realm.clone(),
        })
    }
}

/// The end of the access token, or of the ID token if the provider does not state the end.
fn end_of(stated: Option<i64>, claims: &Claims) -> i64 {
    stated.or(claims.expiry()).unwrap_or_else(now)
}
