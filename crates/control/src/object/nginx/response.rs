//! Rewrites and headers of responses.

use std::sync::Arc;

use sluicegate_model::feature::response_rewrite::{RewriteFrom, TextRewrite};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::syntax;

use super::Meaning::Sets;
use super::Row;
use super::value::Value;
use crate::object::{Kind, ObjectRef};

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `proxy-cookie-domain`.
    pub(crate) cookie_domain: Option<TextRewrite>,
    /// `proxy-cookie-path`.
    pub(crate) cookie_path: Option<TextRewrite>,
    /// `proxy-redirect-from`, unless it is `off` or `default`: a prefix of locations.
    redirect_from: Option<RewriteFrom>,
    /// `proxy-redirect-to`, unless it is `off`.
    redirect_to: Option<Box<str>>,
    /// `custom-headers`.
    pub(crate) custom_headers: Option<ObjectRef>,
    /// `global-allowed-response-headers` of the ConfigMap.
    pub(crate) allowed_headers: Arc<[Box<str>]>,
}

impl Settings {
    /// The rewrite of locations. Both annotations are necessary, as in ingress-nginx.
    pub(crate) fn redirect(&self) -> Option<TextRewrite> {
        Some(TextRewrite { from: self.redirect_from.clone()?, to: self.redirect_to.clone()? })
    }
}

/// The text to replace: a text, or a regular expression after `~` or `~*`.
fn from(text: &str) -> Result<RewriteFrom, String> {
    let Some(regex) = text.strip_prefix('~') else { return Ok(RewriteFrom::Literal(text.into())) };
    let (regex, ignores_case) = regex.strip_prefix('*').map_or((regex, false), |regex| (regex, true));
    let pattern = Pattern::new(regex, ignores_case)
        .map_err(|fault| format!("{regex:?} is not supported as a regular expression: {fault}"))?;
    Ok(RewriteFrom::Regex(pattern))
}

/// The new text, which may have the captures `$1` to `$9`.
fn to(text: &str) -> Result<Box<str>, String> {
    let variable =
        text.split('$').skip(1).find(|rest| !rest.starts_with(|digit: char| matches!(digit, '1'..='9')));
    match (variable, syntax::line_fault(text)) {
        (Some(rest), _) => Err(format!("{text:?} has the variable \"${rest}\": only $1 to $9 are supported")),
        (None, Some(fault)) => Err(format!("{text:?} {fault}")),
        (None, None) => Ok(text.into()),
    }
}

/// `off`, or two words: the text to replace, and the new text.
fn pair(value: &Value<'_>) -> Result<Option<TextRewrite>, String> {
    if value.text == "off" {
        return Ok(None);
    }
    let mut words = value.text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(old), Some(new), None) => Ok(Some(TextRewrite { from: from(old)?, to: to(new)? })),
        _ => {
            Err(format!("{:?} is neither \"off\" nor two words: write the old and the new text", value.text))
        }
    }
}

/// `custom-headers`.
pub(crate) const CUSTOM_HEADERS: &str = "custom-headers";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "proxy-cookie-domain",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.response.cookie_domain = pair(value)?;
            Ok(())
        }),
        sets: "Replaces the `Domain` of cookies: the old and the new domain, such as `inner.example shop.example`.",
        default: "`off`",
    },
    Row {
        name: "proxy-cookie-path",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.response.cookie_path = pair(value)?;
            Ok(())
        }),
        sets: "Replaces the begin of the `Path` of cookies: the old and the new path, such as `/app/ /`.",
        default: "`off`",
    },
    Row {
        name: "proxy-redirect-from",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.response.redirect_from = match value.text {
                // `default` replaces the address of the upstream, which no endpoint knows.
                "off" | "default" => None,
                text => Some(from(text)?),
            };
            Ok(())
        }),
        sets: "The begin of `Location` and `Refresh` that `proxy-redirect-to` replaces.",
        default: "`off`",
    },
    Row {
        name: "proxy-redirect-to",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.response.redirect_to = match value.text {
                "off" => None,
                text => Some(to(text)?),
            };
            Ok(())
        }),
        sets: "The text in place of `proxy-redirect-from`.",
        default: "`off`",
    },
    Row {
        name: CUSTOM_HEADERS,
        restricts: false,
        meaning: Sets(|settings, value| {
            let map = value.object(Kind::ConfigMap)?;
            settings.references.push(map.clone());
            settings.response.custom_headers = Some(map);
            Ok(())
        }),
        sets: "A ConfigMap with headers of responses, as `namespace/name`. Global settings allow their names.",
        default: "",
    },
];
