//! Canaries: Ingresses that receive a part of the requests of another Ingress.

use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{CookieName, HeaderName, MatchValue};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `canary`.
    pub(crate) is_canary: bool,
    /// `canary-by-header`.
    pub(crate) header: Option<HeaderName>,
    /// `canary-by-header-value`.
    pub(crate) header_value: Option<MatchValue>,
    /// `canary-by-header-pattern`.
    pub(crate) header_pattern: Option<Pattern>,
    /// `canary-by-cookie`.
    pub(crate) cookie: Option<CookieName>,
    /// `canary-weight`.
    pub(crate) weight: i64,
    /// `canary-weight-total`.
    pub(crate) total: Option<i64>,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "canary",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.is_canary = value.switch()?;
            Ok(())
        }),
        sets: "The Ingress receives requests of the Ingress with the same hosts and paths, under its annotations.",
        default: "`false`",
    },
    Row {
        name: "canary-by-header",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.header = Some(HeaderName::new(value.text)?);
            Ok(())
        }),
        sets: "The header that decides with `always` or `never`, or with a value or pattern.",
        default: "",
    },
    Row {
        name: "canary-by-header-value",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.header_value = Some(MatchValue::new(value.text)?);
            Ok(())
        }),
        sets: "The value of the header for the canary, in place of `always` and `never`.",
        default: "",
    },
    Row {
        name: "canary-by-header-pattern",
        restricts: false,
        meaning: Sets(|settings, value| {
            let pattern = Pattern::new(value.text, false).map_err(|fault| {
                format!("{:?} is not supported as a regular expression: {fault}", value.text)
            })?;
            settings.canary.header_pattern = Some(pattern);
            Ok(())
        }),
        sets: "The regular expression of the header for the canary. The value has precedence.",
        default: "",
    },
    Row {
        name: "canary-by-cookie",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.cookie = Some(CookieName::new(value.text)?);
            Ok(())
        }),
        sets: "The cookie that decides with `always` or `never`, if the header does not decide.",
        default: "",
    },
    Row {
        name: "canary-weight",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.weight = value.number()?.clamp(0, 1_000_000);
            Ok(())
        }),
        sets: "The part of `canary-weight-total` that the canary receives of other requests.",
        default: "`0`",
    },
    Row {
        name: "canary-weight-total",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.canary.total = Some(value.number()?.clamp(0, 1_000_000));
            Ok(())
        }),
        sets: "The sum of weights, at least 100.",
        default: "`100`",
    },
];
