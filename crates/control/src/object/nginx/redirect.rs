//! Redirects to other URLs.

use sluicegate_model::value::Template;

use super::Meaning::Sets;
use super::Row;
use super::value::Value;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `temporal-redirect`.
    pub(crate) temporal: Option<Template>,
    /// `temporal-redirect-code`.
    pub(crate) temporal_code: Option<u16>,
    /// `permanent-redirect`.
    pub(crate) permanent: Option<Template>,
    /// `permanent-redirect-code`.
    pub(crate) permanent_code: Option<u16>,
    /// `app-root`.
    pub(crate) app_root: Option<Template>,
    /// `from-to-www-redirect`.
    pub(crate) www: bool,
    /// `relative-redirects`.
    pub(crate) is_relative: bool,
    /// `use-port-in-redirects`.
    pub(crate) has_port: bool,
}

/// A URL of http or https with variables.
fn url(value: &Value<'_>) -> Result<Template, String> {
    let template = value.template()?;
    let has_scheme = ["http://", "https://", "$"].iter().any(|start| value.text.starts_with(start));
    match has_scheme {
        true => Ok(template),
        false => Err(format!("{:?} is not a URL: begin with https:// or http://", value.text)),
    }
}

/// A status in a range; ingress-nginx ignores another number.
fn code(value: &Value<'_>, last: i64) -> Result<Option<u16>, String> {
    let code = value.number()?;
    Ok((300..=last).contains(&code).then_some(code).and_then(|code| u16::try_from(code).ok()))
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "permanent-redirect",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.permanent = Some(url(value)?);
            Ok(())
        }),
        sets: "Redirects all requests to this URL, which may have variables of nginx.",
        default: "",
    },
    Row {
        name: "permanent-redirect-code",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.permanent_code = code(value, 308)?;
            Ok(())
        }),
        sets: "The status of `permanent-redirect`, from 300 to 308. 300 and 304 to 306 redirect no client.",
        default: "`301`",
    },
    Row {
        name: "temporal-redirect",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.temporal = Some(url(value)?);
            Ok(())
        }),
        sets: "Redirects all requests to this URL. Has precedence over `permanent-redirect`.",
        default: "",
    },
    Row {
        name: "temporal-redirect-code",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.temporal_code = code(value, 307)?;
            Ok(())
        }),
        sets: "The status of `temporal-redirect`, from 300 to 307.",
        default: "`302`",
    },
    Row {
        name: "app-root",
        restricts: false,
        meaning: Sets(|settings, value| {
            if !value.text.starts_with('/') {
                return Err(format!("{:?} is not a path: begin with /", value.text));
            }
            settings.redirect.app_root = Some(value.template()?);
            Ok(())
        }),
        sets: "Redirects requests for `/` of the hosts to this path, with 302.",
        default: "",
    },
    Row {
        name: "from-to-www-redirect",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.www = value.switch()?;
            Ok(())
        }),
        sets: "Redirects `www.HOST` to each host, or a host without `www.` to a host with it, with 308.",
        default: "`false`",
    },
    Row {
        name: "relative-redirects",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.is_relative = value.switch()?;
            Ok(())
        }),
        sets: "Redirects to a path stay without scheme and host.",
        default: "`false`",
    },
    Row {
        name: "use-port-in-redirects",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.redirect.has_port = value.switch()?;
            Ok(())
        }),
        sets: "Redirects to a path have the port of the client's connection.",
        default: "`false`",
    },
];
