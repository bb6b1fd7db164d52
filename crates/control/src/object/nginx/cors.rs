//! Cross-origin requests.

use sluicegate_model::value::{Entries, HeaderValue, OriginPattern};

use super::Meaning::Sets;
use super::Row;
use super::value::Value;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `enable-cors`.
    pub(crate) is_on: bool,
    /// `cors-allow-origin`; `None` without the annotation.
    pub(crate) origins: Option<Entries<OriginPattern, 64>>,
    /// Why origins of `cors-allow-origin` are not allowed.
    pub(crate) origin_faults: Vec<String>,
    /// `cors-allow-methods`.
    pub(crate) methods: Option<HeaderValue>,
    /// `cors-allow-headers`.
    pub(crate) headers: Option<HeaderValue>,
    /// `cors-expose-headers`.
    pub(crate) exposed: Option<HeaderValue>,
    /// `cors-allow-credentials`.
    pub(crate) credentials: Option<bool>,
    /// `cors-max-age`.
    pub(crate) max_age: Option<i64>,
}

/// A list of names, which may have commas and spaces between them.
fn names(value: &Value<'_>, allows_star: bool) -> Result<Option<HeaderValue>, String> {
    if value.text.is_empty() {
        return Ok(None);
    }
    let is_name = |name: &str| {
        let is_star = allows_star && name == "*";
        is_star || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    match value.text.split([',', ' ']).find(|name| !is_name(name)) {
        Some(name) => Err(format!("{name:?} is not a name of letters, digits and hyphens")),
        None => HeaderValue::new(value.text).map(Some),
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "enable-cors",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.is_on = value.switch()?;
            Ok(())
        }),
        sets: "Adds the headers of CORS to responses, and responds to OPTIONS with 204.",
        default: "`false`",
    },
    Row {
        name: "cors-allow-origin",
        restricts: false,
        meaning: Sets(|settings, value| {
            // Without a valid origin, no origin is allowed: the default would allow all.
            let origins = value.list().map(str::parse::<OriginPattern>);
            let (valid, faults): (Vec<_>, Vec<_>) = origins.partition(Result::is_ok);
            let valid: Vec<_> = valid.into_iter().flatten().collect();
            let count = valid.len();
            let origins = Entries::new(valid);
            settings.cors.origin_faults = faults.into_iter().filter_map(Result::err).collect();
            if origins.is_none() {
                settings.cors.origin_faults.push(format!("has {count} origins, but may have at most 64"));
            }
            settings.cors.origins = Some(origins.unwrap_or_default());
            Ok(())
        }),
        sets: "The allowed origins, such as `https://*.shop.example`. `*` allows every origin.",
        default: "`*`",
    },
    Row {
        name: "cors-allow-methods",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.methods = names(value, false)?;
            Ok(())
        }),
        sets: "The value of `Access-Control-Allow-Methods`.",
        default: "`GET, PUT, POST, DELETE, PATCH, OPTIONS`",
    },
    Row {
        name: "cors-allow-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.headers = names(value, true)?;
            Ok(())
        }),
        sets: "The value of `Access-Control-Allow-Headers`.",
        default: "`DNT`, `Range`, `Authorization` and others",
    },
    Row {
        name: "cors-expose-headers",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.exposed = names(value, true)?;
            Ok(())
        }),
        sets: "The value of `Access-Control-Expose-Headers`.",
        default: "",
    },
    Row {
        name: "cors-allow-credentials",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.credentials = Some(value.switch()?);
            Ok(())
        }),
        sets: "Whether pages may send credentials.",
        default: "`true`",
    },
    Row {
        name: "cors-max-age",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.cors.max_age = Some(value.number()?);
            Ok(())
        }),
        sets: "How long browsers cache the response to OPTIONS, in seconds.",
        default: "`1728000`",
    },
];
