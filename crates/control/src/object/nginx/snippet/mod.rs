//! Snippets: directives of nginx, read as data.
//!
//! The gateway knows the directives that change requests and responses. A snippet with another directive may restrict access, so
//! that the routes of its Ingress respond with 503.
//!
//! | module | content |
//! |---|---|
//! | [`syntax`] | directives, words and blocks |
//! | `directive` | the meaning of directives |

mod directive;
mod syntax;

use sluicegate_model::feature::returns::Condition;
use sluicegate_model::feature::{TargetRewrite, TemplateHeaders};
use sluicegate_model::value::{Network, Size, Template, Timeout};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `configuration-snippet`.
    pub(crate) configuration: Snippet,
    /// `server-snippet`.
    pub(crate) server: Snippet,
}

/// The effect of a snippet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snippet {
    pub(crate) responses: Vec<Response>,
    pub(crate) rewrites: Vec<TargetRewrite>,
    pub(crate) headers: TemplateHeaders,
    /// The host for endpoints.
    pub(crate) host: Option<Template>,
    pub(crate) body_size: Option<Size>,
    pub(crate) connect_timeout: Option<Timeout>,
    pub(crate) read_timeout: Option<Timeout>,
    pub(crate) send_timeout: Option<Timeout>,
    pub(crate) allow: Vec<Network>,
    pub(crate) deny: Vec<Network>,
    /// The faults of directives that restrict no access, each as a sentence with its line.
    pub(crate) faults: Vec<String>,
}

/// A response to requests that satisfy conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) status: u16,
    /// The URL of a redirect, or the body.
    pub(crate) text: Option<Template>,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "configuration-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.snippet.configuration = directive::read(value.text, false)?;
            Ok(())
        }),
        sets: "Directives of nginx for all paths. [Some directives](ingress-nginx-snippets.md) are known.",
        default: "",
    },
    Row {
        name: "server-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.snippet.server = directive::read(value.text, true)?;
            Ok(())
        }),
        sets: "Directives of nginx for the hosts of the Ingress, as `configuration-snippet`.",
        default: "",
    },
];
