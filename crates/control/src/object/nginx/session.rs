//! Session affinity.

use sluicegate_model::feature::load_balancing::{NginxSession, SameSite, SessionMode};
use sluicegate_model::value::{CookieDomain, CookieName, CookiePath};

use super::Meaning::Sets;
use super::Row;
use super::value::Value;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `affinity`.
    pub(crate) is_on: bool,
    /// `session-cookie-name`.
    pub(crate) name: Option<CookieName>,
    /// `session-cookie-path`.
    pub(crate) path: Option<CookiePath>,
    /// The other annotations of the session.
    pub(crate) session: NginxSession,
    /// `affinity-canary-behavior` of a canary: whether a session does not decide between the canary and the main Service.
    pub(crate) is_legacy: bool,
}

/// A number of seconds; `None` for an empty value.
fn seconds(value: &Value<'_>) -> Result<Option<i64>, String> {
    if value.text.is_empty() { Ok(None) } else { value.number().map(Some) }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "affinity",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.is_on = value.word(&[("cookie", true)])?;
            Ok(())
        }),
        sets: "`cookie`: a client stays at an endpoint.",
        default: "no affinity",
    },
    Row {
        name: "affinity-mode",
        restricts: false,
        meaning: Sets(|settings, value| {
            let words = [("balanced", SessionMode::Balanced), ("persistent", SessionMode::Persistent)];
            settings.session.session.mode = value.word(&words)?;
            Ok(())
        }),
        sets: "`balanced`: new endpoints receive their share of sessions. `persistent`: sessions stay.",
        default: "`balanced`",
    },
    Row {
        name: "affinity-canary-behavior",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.is_legacy = value.word(&[("sticky", false), ("legacy", true)])?;
            Ok(())
        }),
        sets: "On a canary. `sticky`: a session stays at the canary, or at the main Service. `legacy`: neither.",
        default: "`sticky`",
    },
    Row {
        name: "session-cookie-name",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.name = Some(CookieName::new(value.text)?);
            Ok(())
        }),
        sets: "The name of the cookie.",
        default: "`INGRESSCOOKIE`",
    },
    Row {
        name: "session-cookie-path",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.path = Some(CookiePath::new(value.text)?);
            Ok(())
        }),
        sets: "The `Path` of the cookie.",
        default: "the path of the rule",
    },
    Row {
        name: "session-cookie-domain",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.domain = Some(CookieDomain::new(value.text)?);
            Ok(())
        }),
        sets: "The `Domain` of the cookie.",
        default: "",
    },
    Row {
        name: "session-cookie-expires",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.expires = seconds(value)?;
            Ok(())
        }),
        sets: "The time until `Expires` of the cookie, in seconds.",
        default: "",
    },
    Row {
        name: "session-cookie-max-age",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.max_age = seconds(value)?;
            Ok(())
        }),
        sets: "The `Max-Age` of the cookie, in seconds.",
        default: "",
    },
    Row {
        name: "session-cookie-samesite",
        restricts: false,
        meaning: Sets(|settings, value| {
            let words = [("none", SameSite::None), ("lax", SameSite::Lax), ("strict", SameSite::Strict)];
            let lower_case = value.text.to_ascii_lowercase();
            let value = Value::within(&lower_case, value.namespace);
            settings.session.session.same_site = Some(value.word(&words)?);
            Ok(())
        }),
        sets: "The `SameSite` of the cookie: `None`, `Lax` or `Strict`.",
        default: "",
    },
    Row {
        name: "session-cookie-conditional-samesite-none",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.is_none_conditional = value.switch()?;
            Ok(())
        }),
        sets: "Omits `SameSite=None` for browsers that mistake the value.",
        default: "`false`",
    },
    Row {
        name: "session-cookie-secure",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.secure = Some(value.switch()?);
            Ok(())
        }),
        sets: "Whether the cookie has `Secure`.",
        default: "only over HTTPS",
    },
    Row {
        name: "session-cookie-change-on-failure",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.session.session.changes_on_failure = value.switch()?;
            Ok(())
        }),
        sets: "Begins another session if the endpoint of the session fails.",
        default: "`false`",
    },
];
