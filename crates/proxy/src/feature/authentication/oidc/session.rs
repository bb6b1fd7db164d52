//! The session of a browser, as its cookies hold it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sluicegate_jwt::Claims;

/// The longest time before the end of an access token at which the gateway refreshes a session, in seconds.
const MARGIN_MAX: i64 = 60;

/// The session of a browser. Times are in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The verified ID token.
    #[serde(rename = "i")]
    pub(super) id_token: Box<str>,
    /// The access token, if endpoints receive it.
    #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
    pub(super) access_token: Option<Box<str>>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<Box<str>>,
    /// The time of the login.
    #[serde(rename = "l")]
    pub(super) login: i64,
    /// The time at which the provider issued the tokens.
    #[serde(rename = "t")]
    pub(super) issued: i64,
    /// The end of the access token.
    #[serde(rename = "e")]
    pub(super) end: i64,
    /// The host or the domain of the session.
    #[serde(skip)]
    pub(super) realm: Box<str>,
}

/// What a session needs before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Valid,
    /// The session is valid, but its access token ends soon.
    Due,
    /// The session is valid again after a refresh.
    Stale,
    Over,
}

impl Session {
    pub(super) fn parse(text: &[u8], realm: &str) -> Option<Self> {
        let session: Self = serde_json::from_slice(text).ok()?;
        Some(Self { realm: realm.into(), ..session })
    }

    pub(super) fn to_text(&self) -> Vec<u8> {
        // The fields are text and numbers.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The claims of the ID token. The gateway verified the token before it encrypted the session.
    pub(super) fn claims(&self) -> Option<Claims> {
        let payload = self.id_token.split('.').nth(1)?;
        Claims::parse(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// The standing of the session, which lives for at most `lifetime` seconds after the login.
    pub(super) fn standing(&self, now: i64, lifetime: i64) -> Standing {
        if now >= self.last_second(lifetime) {
            return Standing::Over;
        }
        let margin = (self.end.saturating_sub(self.issued) / 10).clamp(0, MARGIN_MAX);
        match (&self.refresh_token, now >= self.end) {
            (None, true) => Standing::Over,
            (Some(_), true) => Standing::Stale,
            (Some(_), false) if now >= self.end.saturating_sub(margin) => Standing::Due,
            _ => Standing::Valid,
        }
    }

    /// The time after which no refresh helps.
    pub(super) fn last_second(&self, lifetime: i64) -> i64 {
        self.login.saturating_add(lifetime)
    }
}

/// Tokens are secret.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("realm", &self.realm).field("end", &self.end).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(refresh_token: Option<&str>) -> Session {
        Session {
            id_token: "a.e30.c".into(),
            access_token: None,
            refresh_token: refresh_token.map(Into::into),
            login: 1000,
            issued: 1000,
            end: 1300,
            realm: "shop.example".into(),
        }
    }

    #[test]
    fn session_is_refreshed_before_its_access_token_ends_and_never_outlives_its_lifetime() {
        let with = session(Some("secret"));
        for (now, expected) in [
            (1000, Standing::Valid),
            (1269, Standing::Valid),
            (1270, Standing::Due),
            (1299, Standing::Due),
            (1300, Standing::Stale),
            (4599, Standing::Stale),
            (4600, Standing::Over),
        ] {
            assert_eq!(with.standing(now, 3600), expected, "at {now}");
        }
        let without = session(None);
        assert_eq!(without.standing(1299, 3600), Standing::Valid);
        assert_eq!(without.standing(1300, 3600), Standing::Over);
        assert_eq!(without.standing(1100, 100), Standing::Over);
    }

    #[test]
    fn session_returns_from_its_text_and_shows_no_token() {
        let session = session(Some("secret"));
        assert_eq!(Session::parse(&session.to_text(), "shop.example").as_ref(), Some(&session));
        assert_eq!(Session::parse(b"{}", "x"), None);
        assert!(session.claims().is_some());
        let shown = format!("{session:?}");
        assert!(!shown.contains("secret") && !shown.contains("e30"), "{shown}");
    }
}
